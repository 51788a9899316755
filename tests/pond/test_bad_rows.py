"""Rows that are not what they should be: each is named, and nothing of its file is kept."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quacklake.errors import ConstraintError, InputError, QuacklakeError, SchemaMismatchError
from quacklake.pond import ImportOptions
from quacklake.pond.copying import copy_in, targets
from quacklake.pond.inputs import parse_host
from quacklake.pond.queries import rows
from quacklake.pond.series import append_series
from tests.pond.conftest import START, Home, csv, readings

pytestmark = pytest.mark.daily(0.25)


def put(home: Home, text: str, **options: Any) -> Any:
    Path("in.csv").write_text(text)
    return home.change_fs(
        lambda fs: copy_in(fs, *targets(fs, [parse_host("in.csv")], f"{home.path}/s.series"), ImportOptions(**options))
    )


def count(home: Home) -> int:
    with rows(home.pond, f"{home.path}/s.series", "SELECT count(*) AS n FROM series") as found:
        return int(found.read_all().column("n")[0].as_py())


def test_a_malformed_row_is_named_by_its_line_and_nothing_is_imported(home: Home) -> None:
    put(home, csv(3))
    before = home.pond.commits()
    with pytest.raises(InputError, match="line 3 has 3 fields, and line 1 has 2"):
        put(home, "timestamp,temp\n2024-02-01T00:00:00Z,1\n2024-02-01T00:01:00Z,1,9\n")
    assert (count(home), home.pond.commits()) == (3, before)


def test_a_number_that_is_none_is_named_by_its_line(home: Home) -> None:
    """A series whose column changes its type."""
    put(home, csv(3))
    with pytest.raises(InputError, match=r"(?i)line: ?3|line 3|row 2|Line: 3"):
        put(home, "timestamp,temp\n2024-02-01T00:00:00Z,1\n2024-02-01T00:01:00Z,warm\n")
    assert count(home) == 3


def test_a_fraction_in_a_column_of_whole_numbers_is_not_rounded(home: Home) -> None:
    """The column takes fractions from then on, unless that would round a number that it has."""
    put(home, "timestamp,n\n2024-01-01T00:00:00Z,1\n")
    assert put(home, "timestamp,n\n2024-01-02T00:00:00Z,2.0\n").rows == 1
    assert put(home, "timestamp,n\n2024-01-03T00:00:00Z,1.5\n").rows == 1
    with rows(home.pond, f"{home.path}/s.series", "SELECT n FROM series") as found:
        assert found.read_all().column("n").to_pylist() == [1.0, 2.0, 1.5]


def test_a_fraction_beside_a_number_that_would_be_rounded_is_refused(home: Home) -> None:
    for number in (2**53 + 2, -(2**53) - 2, 2**63 - 1, -(2**63)):
        name = f"s{number}"
        home.change(
            lambda wd, name=name, number=number: append_series(wd.fs, f"{wd.path}/{name}", [reading(0, number)])
        )
        with pytest.raises(SchemaMismatchError, match=f'"n" of .* has {number}, which DOUBLE cannot hold') as caught:
            home.change(lambda wd, name=name: append_series(wd.fs, f"{wd.path}/{name}", [reading(1, 1.5)]))
        assert f"`pond widen {home.path}/{name} n TYPE`" in str(caught.value.hint)


def reading(hour: int, number: float) -> dict[str, Any]:
    return {"timestamp": START + dt.timedelta(hours=hour), "n": number}


def test_a_column_that_changes_its_type_is_refused(home: Home) -> None:
    home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s.series", readings(2)))
    with pytest.raises(SchemaMismatchError, match="temp"):
        home.change(
            lambda wd: append_series(
                wd.fs, f"{wd.path}/s.series", [{"timestamp": START + dt.timedelta(days=1), "temp": "warm"}]
            )
        )
    assert count(home) == 2


def test_times_out_of_order_are_put_in_order(home: Home) -> None:
    lines = csv(5).splitlines()
    done = put(home, "\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    assert (done.rows, done.sorted) == (5, True)
    with rows(home.pond, done.path, "SELECT temp FROM series") as found:
        assert found.read_all().column(0).to_pylist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_times_in_the_future_are_refused_unless_allowed(home: Home) -> None:
    far = (dt.datetime.now(dt.UTC) + dt.timedelta(days=40)).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = f"{csv(1)}{far},9\n"
    with pytest.raises(ConstraintError, match=r"line 3 of in.csv is in the future"):
        put(home, text)
    assert put(home, text, allow_future=True).rows == 2


def test_local_times_need_a_zone(home: Home) -> None:
    with pytest.raises(InputError, match="no time zone"):
        put(home, csv(2, end=""))
    with pytest.raises(InputError, match="no time zone 'Mars/Base'"):
        put(home, csv(2, end=""), timezone="Mars/Base")
    put(home, csv(2, end=""), timezone="Europe/Berlin")
    assert home.wd.get("s.series").node.min_event_time == START - dt.timedelta(hours=1)


def test_a_zone_in_the_file_wins(home: Home) -> None:
    put(home, csv(2, end="+02:00"), timezone="America/New_York")
    assert home.wd.get("s.series").node.min_event_time == START - dt.timedelta(hours=2)


@pytest.mark.parametrize(
    ("first", "second", "zone"),
    [
        ("2024-01-01T00:00:00Z", "2024-01-01T00:01:00", None),
        ("2024-01-01T00:00:00", "2024-01-01T00:01:00+02:00", "Europe/Berlin"),
        ("2024-01-01 00:00:00", "2024-01-01 00:01:00-05", None),
        ("2024-01-01 00:00:00", "2024-01-01 00:01:00 UTC", "Europe/Berlin"),
        ("2024-01-01 00:00:00.5 America/New_York", "2024-01-01 00:01:00.5", None),
    ],
)
def test_times_partly_without_a_zone_are_refused(home: Home, first: str, second: str, zone: str | None) -> None:
    """Neither UTC nor the zone of the option is guessed for the others."""
    with pytest.raises(SchemaMismatchError, match=r"line 4 of in.csv: only some of the times in 'timestamp'"):
        put(home, f"timestamp,note\n{first},a\n\n{second},b\n", timezone=zone)
    assert home.names() == []


def test_the_name_of_a_zone_is_not_ignored(home: Home) -> None:
    put(home, "timestamp,n\n2024-01-01 02:00:00 UTC,1\n2024-01-01 03:00:00 UTC,2\n", timezone="America/New_York")
    assert home.wd.get("s.series").node.min_event_time == START + dt.timedelta(hours=2)


def test_a_line_is_counted_where_a_row_has_several(home: Home) -> None:
    text = 'timestamp,note\n2024-01-01T00:00:00Z,"one\ntwo\nthree"\nsoon,x\n'
    with pytest.raises(SchemaMismatchError, match=r"line 5 of in.csv: 'soon' is not a time"):
        put(home, text)
    Path("in.jsonl").write_text('{"time": "2024-01-01T00:00:00Z"}\n{"time": "2024-01-01T00:00:00"}\n')
    with pytest.raises(SchemaMismatchError, match=r"row 2 of in.jsonl: only some"):
        home.change_fs(
            lambda fs: copy_in(fs, *targets(fs, [parse_host("in.jsonl")], f"{home.path}/j.series"), ImportOptions())
        )


def test_a_day_without_a_time_needs_a_zone_in_json_too(home: Home) -> None:
    with pytest.raises(InputError, match="no time zone"):
        home.change(lambda wd: append_series(wd.fs, f"{wd.path}/s.series", [{"time": "2024-01-01", "n": 1}]))


def test_a_reading_that_is_repeated_counts_once(home: Home) -> None:
    text = csv(4)
    done = put(home, text + text.splitlines()[2] + "\n")
    assert (done.rows, done.repeated) == (4, 1)
    again = put(home, text)
    assert (again.rows, again.repeated, again.version) == (0, 4, 1)
    more = put(home, csv(6))
    assert (more.rows, more.repeated, more.version) == (2, 4, 2)
    assert count(home) == 6


def test_two_different_readings_of_one_time_are_refused_unless_kept(home: Home) -> None:
    put(home, csv(3))
    text = "timestamp,temp\n2024-01-01T00:01:00Z,99\n"
    with pytest.raises(ConstraintError, match="two different readings at 2024-01-01 00:01:00"):
        put(home, text)
    assert count(home) == 3
    assert put(home, text, keep_conflicts=True).rows == 1


def test_texts_tell_readings_of_one_time_apart(home: Home) -> None:
    done = put(home, "timestamp,sensor,temp\n2024-01-01T00:00:00Z,a,1\n2024-01-01T00:00:00Z,b,2\n")
    assert (done.rows, done.repeated) == (2, 0)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("a,b\n1,2\n", SchemaMismatchError, "no time column among a, b"),
        ("timestamp,temp\nyesterday,1\nnoon,2\n", SchemaMismatchError, "line 2 of in.csv: 'yesterday' is not a time"),
        ("timestamp,temp\n2024-01-01T00:00:00Z,1\n,2\n", ConstraintError, "line 3 of in.csv has no time"),
        ("", InputError, "empty"),
        ("timestamp,temp,temp\n2024-01-01T00:00:00Z,1,2\n", InputError, "twice"),
        ('timestamp,temp\n2024-01-01T00:00:00Z,"1\n', InputError, "in.csv"),
    ],
)
def test_a_file_without_proper_times_or_columns_is_refused(
    home: Home, text: str, error: type[QuacklakeError], words: str
) -> None:
    with pytest.raises(error, match=words):
        put(home, text)
    assert home.names() == []


def test_a_file_that_is_not_text_is_refused(home: Home) -> None:
    Path("in.csv").write_bytes(b"timestamp,temp\n2024-01-01T00:00:00Z,\xff\xfe\n")
    with pytest.raises(InputError, match="UTF-8"):
        home.change_fs(
            lambda fs: copy_in(fs, *targets(fs, [parse_host("in.csv")], f"{home.path}/s.series"), ImportOptions())
        )


def test_a_report_with_a_short_row_is_named_by_its_line(home: Home) -> None:
    Path("r.xls").write_text(
        '<table id="isi-report">\n<tr class="dataHeader"><td>Date Time</td><td>T (C)</td></tr>\n<tr class="data"><td>x</td></tr></table>'
    )
    with pytest.raises(InputError, match=r"line 3 of r.xls has 1 cells, and the header has 2"):
        home.change_fs(
            lambda fs: copy_in(fs, *targets(fs, [parse_host("r.xls")], f"{home.path}/s.series"), ImportOptions())
        )


def test_the_named_time_column_must_exist(home: Home) -> None:
    with pytest.raises(SchemaMismatchError, match="no column 'when'"):
        put(home, csv(1), timestamp_column="when")


def test_copy_command_atomic(home: Home) -> None:
    """A failed file takes the others of its command with it."""
    Path("good.csv").write_text(csv(2))
    Path("bad.csv").write_text("timestamp,temp\n1,2,3\n")

    def work(fs: Any) -> Any:
        found = targets(fs, [parse_host("good.csv"), parse_host("bad.csv")], home.path, "series")
        return [copy_in(fs, each, ImportOptions()) for each in found]

    check: Callable[[], Any] = lambda: home.change_fs(work)  # noqa: E731
    with pytest.raises(InputError):
        check()
    assert home.names() == []
