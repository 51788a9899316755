"""Large CSV files go straight into data files, and give the same rows and errors as small ones."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quacklake.errors import ConstraintError, InputError, QuacklakeError, SchemaMismatchError
from quacklake.inputs import files as input_files
from quacklake.pond import ImportOptions, bulk
from quacklake.pond.copying import copy_in, targets
from quacklake.pond.inputs import parse_host
from quacklake.pond.queries import rows
from quacklake.pond.series import Imported
from tests.pond.conftest import START, Home, csv

pytestmark = pytest.mark.daily(0.25)


@pytest.fixture(autouse=True)
def short_ways(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Take every file for a large one, and note which went the short way."""
    monkeypatch.setattr(bulk, "LARGE", 0)
    taken: list[bool] = []
    write = bulk.write
    monkeypatch.setattr(bulk, "write", lambda *given: taken.append((done := write(*given)) is not None) or done)
    return taken


def put(home: Home, text: str, **options: Any) -> Imported:
    Path("in.csv").write_text(text)
    return home.change_fs(
        lambda fs: copy_in(fs, *targets(fs, [parse_host("in.csv")], f"{home.path}/s.series"), ImportOptions(**options))
    )


def stored(home: Home) -> list[dict[str, Any]]:
    with rows(home.pond, f"{home.path}/s.series") as found:
        return list(found.read_all().to_pylist())


def test_rows_in_order_go_straight_into_a_file_with_their_versions(home: Home, short_ways: list[bool]) -> None:
    assert (put(home, csv(50)).version, put(home, csv(50, 50)).version) == (1, 2)
    assert short_ways == [True, True]
    assert [row["temp"] for row in stored(home)] == [float(n) for n in range(100)]
    found = home.wd.get("s.series")
    assert [row.attribute("rows") for row in found.versions] == [50, 50]
    assert found.versions[1].min_event_time == START + dt.timedelta(minutes=50)
    assert len(home.pond.lake.table(f'pond_data."{home.path}/s.series"').files()) == 2


_LATE = "\n".join(f"2024-01-01T00:{n // 60:02}:{n % 60:02}Z,{n},x" for n in range(200))


@pytest.mark.parametrize(
    ("head", "more", "column", "value"),
    [
        ("timestamp,v,w", "2024-01-02T00:00:00Z,1.5,x", "v", 1.5),
        ("timestamp,v,w", f"2024-01-02T00:00:00Z,{1 << 60},x", "v", 1 << 60),
        ("timestamp,v,w", "2024-01-02T00:00:00Z,7,00", "w", "00"),
        ("timestamp,v,w", "2024-01-02T00:00:00Z,none,x", "v", "none"),
    ],
    ids=["half", "large", "text", "word"],
)
def test_a_later_row_of_another_type_is_kept(
    home: Home, monkeypatch: pytest.MonkeyPatch, head: str, more: str, column: str, value: object
) -> None:
    monkeypatch.setattr(input_files, "_SNIFFED_ROWS", 100)
    done = put(home, f"{head}\n{_LATE}\n{more}\n")
    assert done.rows == 201
    assert stored(home)[-1][column] == value


@pytest.mark.parametrize("unit", [1, 10**3, 10**6])
def test_numbers_count_the_same_unit(home: Home, short_ways: list[bool], unit: int) -> None:
    put(home, "ts,v\n" + "".join(f"{(1704067200 + n) * unit},{n}\n" for n in range(5)))
    assert short_ways == [True]
    assert home.wd.get("s.series").node.min_event_time == START


def test_local_times_are_of_the_zone_and_a_later_zone_is_not_ignored(home: Home, short_ways: list[bool]) -> None:
    put(home, csv(3, end=""), timezone="Europe/Berlin")
    assert home.wd.get("s.series").node.min_event_time == START - dt.timedelta(hours=1)
    for end in ("+05:00", "Z", " UTC"):
        late = csv(3, 60, end="") + csv(1, 63, end=end).splitlines()[1] + "\n"
        with pytest.raises(SchemaMismatchError, match=r"line 5 of in.csv: only some of the times"):
            put(home, late, timezone="UTC")
    assert short_ways == [True, False, False, False]
    with pytest.raises(InputError, match="no time zone"):
        put(home, csv(2, 900, end=""))


@pytest.mark.parametrize("end", ["Z", "+00:00", ".000Z", ".25+00:00"])
def test_zoned_times_are_short_and_one_without_is_refused(home: Home, short_ways: list[bool], end: str) -> None:
    put(home, csv(3, end=end))
    assert home.wd.get("s.series").node.min_event_time == START + dt.timedelta(seconds=0.25 * end.startswith(".25"))
    with pytest.raises(SchemaMismatchError, match=r"line 5 of in.csv: only some of the times"):
        put(home, csv(3, 60, end=end) + csv(1, 63, end="").splitlines()[1] + "\n", timezone="Europe/Berlin")
    assert short_ways == [True, False]


@pytest.mark.parametrize("end", ["", ".5", ".123456"])
def test_local_fractions_go_the_short_way(home: Home, short_ways: list[bool], end: str) -> None:
    assert put(home, csv(3, end=end), timezone="UTC").rows == 3
    assert short_ways == [True]


def test_what_is_out_of_the_ordinary_goes_the_long_way(home: Home, short_ways: list[bool]) -> None:
    lines = csv(6).splitlines()
    done = put(home, "\n".join([lines[0], *reversed(lines[1:]), lines[1]]) + "\n")
    assert (done.rows, done.repeated, done.sorted) == (6, 1, True)
    again = put(home, csv(8))
    assert (again.rows, again.repeated) == (2, 6)
    assert short_ways == [False, False]
    assert [row["temp"] for row in stored(home)] == [float(n) for n in range(8)]


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ("2024-02-01T00:01:00Z,1,9\n", InputError, "line 4 has 3 fields, and line 1 has 2"),
        (",9\n", ConstraintError, "line 4 of in.csv has no time"),
        ("2024-01-01T00:01:00Z,99\n", ConstraintError, "two different readings"),
        ("2999-01-01T00:01:00Z,99\n", ConstraintError, "line 4 of in.csv is in the future"),
    ],
    ids=["fields", "no_time", "conflict", "future"],
)
def test_what_is_refused_is_told_in_the_same_words(
    home: Home, more: str, error: type[QuacklakeError], words: str
) -> None:
    before = home.pond.commits()
    with pytest.raises(error, match=words):
        put(home, csv(2) + more)
    assert home.names() == []
    assert home.pond.commits() == before
