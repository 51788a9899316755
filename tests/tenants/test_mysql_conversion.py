"""A plain lake on MySQL, which cannot undo the making of tables, becomes a shared one: all of it, or nothing."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import quacklake
from quacklake.core import faults
from quacklake.core.catalog import parse_url
from quacklake.core.tenancy.conversion import MySQLConversion
from quacklake.errors import (
    CatalogUnavailableError,
    CommitConflict,
    ConfigError,
    InputError,
    InvalidNameError,
    UnsupportedFeatureError,
    UnsupportedVersionError,
)
from tests.crash.forks import Forks
from tests.seeds import some
from tests.tenants import histories
from tests.tenants.conversions import convert

pytestmark = pytest.mark.timeout(1200)

CALL = "tests.tenants.conversions"


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks([CALL]) as server:
        yield server


class Plain:
    """A plain lake, and what is seen of it."""

    def __init__(self, url: str, home: Path) -> None:
        self.url, self.data = url, str(home / "data")
        with quacklake.connect(url, home / "plain", data_inlining_row_limit=0, duckdb_threads=1) as lake:
            histories.write_little(lake, "word")
            self.seen = histories.look(lake)

    def tables(self) -> dict[str, list[str]]:
        """All rows of all tables of the database."""
        engine = sa.create_engine(parse_url(self.url).url)
        with engine.connect() as connection:
            found = {
                name: sorted(map(repr, connection.execute(sa.text(f"SELECT * FROM {name}")).all()))
                for name in sa.inspect(connection).get_table_names()
            }
        engine.dispose()
        return found

    def is_plain(self) -> bool:
        """Look at the lake if it is a plain one, which then is as it was."""
        try:
            lake = quacklake.connect(self.url, duckdb_threads=1)
        except ConfigError:
            return False
        with lake:
            assert histories.look(lake) == self.seen
            assert not lake.verify().errors
        return True

    def check_shared(self, *, tidy: bool = True) -> None:
        """The lake is a shared one, in which the catalog is as the plain lake was, and works."""
        with quacklake.connect(self.url, catalog="acme", duckdb_threads=1) as lake:
            assert histories.look(lake) == self.seen
            assert not lake.verify(deep=True).errors
        if tidy:
            with quacklake.tenants(self.url) as tenants:
                assert [(tenant.id, tenant.name) for tenant in tenants] == [(0, "acme")]
            assert not [name for name in self.tables() if name.startswith(("quacklake_old_", "quacklake_new_"))]


@pytest.fixture
def new_plain(new_url: Callable[[str], str], tmp_path: Path) -> Callable[[], Plain]:
    """Gives a new plain lake on MySQL."""
    made: list[Plain] = []

    def make() -> Plain:
        made.append(Plain(new_url("mysql"), tmp_path / str(len(made))))
        return made[-1]

    return make


def open_catalog(plain: Plain) -> None:
    quacklake.connect(plain.url, catalog="acme", duckdb_threads=1).close()


def open_tenants(plain: Plain) -> None:
    quacklake.tenants(plain.url).close()


def convert_again(plain: Plain) -> None:
    quacklake.tenants(plain.url, plain.data, convert="acme").close()


ENDINGS = [open_catalog, open_tenants, convert_again]


@pytest.mark.daily(0.22)
def test_a_conversion_that_is_killed_at_any_point_leaves_the_plain_lake_or_is_ended_by_the_next(
    forks: Forks, new_plain: Callable[[], Plain]
) -> None:
    plain = new_plain()
    points: list[str] = forks.run(f"{CALL}:convert", url=plain.url, data=plain.data).value
    plain.check_shared()
    renamed = points.index("catalog.rename_tables.after") + 1
    unmarked = points.index("catalog.unmark_lake.after") + 1
    first = points.index("catalog.create_table.before")
    always = (renamed - 1, renamed, unmarked, unmarked + 9)
    chosen = some(range(first, len(points) + 1), len(always) + 1, "deaths", "mysql", always=always)
    plain, states = new_plain(), set()
    for turn, number in enumerate(reversed(chosen)):
        name = points[number - 1]
        at = points[:number].count(name)  # tables that a death has left are dropped first, which are more points
        point = f"{number} of {len(points)}, {name}"
        ended = forks.run(f"{CALL}:convert", url=plain.url, data=plain.data, at=at, pattern=name)
        assert ended.code == -signal.SIGKILL, f"{point}: {ended.errors}"
        states.add(number < renamed)
        assert plain.is_plain() is (number < renamed), point
        if number >= renamed:
            if number < unmarked:
                ENDINGS[turn % len(ENDINGS)](plain)
            plain.check_shared()
            plain = new_plain()
    assert states == {True, False}


def test_a_marked_lake_is_closed_to_those_who_may_not_end_the_conversion(new_plain: Callable[[], Plain]) -> None:
    plain = new_plain()
    with faults.arm(faults.Fault(pattern="catalog.unmark_lake.before")), pytest.raises(faults.FaultInjected):
        convert(plain.url, plain.data)
    closed: list[dict[str, Any]] = [{"migrate": False}, {"read_only": True}]
    for how in closed:
        with pytest.raises(UnsupportedVersionError, match="was interrupted"):
            quacklake.connect(plain.url, catalog="acme", **how)
    with pytest.raises(UnsupportedVersionError, match="was interrupted"):
        quacklake.tenants(plain.url, migrate=False)
    with pytest.raises(ConfigError, match="CATALOG is required"):
        quacklake.connect(plain.url)
    open_catalog(plain)
    plain.check_shared()


def test_an_error_before_the_renaming_leaves_no_trace(new_plain: Callable[[], Plain]) -> None:
    plain = new_plain()
    before = plain.tables()
    for pattern, at in (("catalog.create_table.*", 9), ("catalog.convert_*", 30), ("catalog.rename_tables.before", 1)):
        with faults.arm(faults.Fault(at=at, pattern=pattern)), pytest.raises(faults.FaultInjected):
            convert(plain.url, plain.data)
        assert plain.tables() == before
    convert_again(plain)
    plain.check_shared()


def test_what_a_client_that_does_not_queue_writes_meanwhile_is_not_lost(
    new_plain: Callable[[], Plain], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, rename = new_plain(), MySQLConversion._rename

    def write_first(self: MySQLConversion, names: Any) -> None:
        monkeypatch.undo()
        engine = sa.create_engine(parse_url(plain.url).url)
        with engine.begin() as connection:
            last = connection.execute(sa.text("SELECT max(snapshot_id) FROM ducklake_snapshot")).scalar_one()
            for table in ("snapshot", "snapshot_changes"):
                rows = sa.text(f"SELECT * FROM ducklake_{table} WHERE snapshot_id = {last}")
                row = dict(connection.execute(rows).mappings().one(), snapshot_id=last + 1)
                columns = ", ".join(f":{name}" for name in row)
                connection.execute(sa.text(f"INSERT INTO ducklake_{table} VALUES ({columns})"), row)
        engine.dispose()
        rename(self, names)

    monkeypatch.setattr(MySQLConversion, "_rename", write_first)
    before = set(plain.tables())
    with pytest.raises(CommitConflict, match="the lake was not converted"):
        convert_again(plain)
    assert set(plain.tables()) == before
    with quacklake.connect(plain.url) as lake:
        assert lake.current_snapshot() == len(plain.seen["authors"])
        assert not lake.verify().errors


def test_a_death_before_such_a_write_is_seen_is_undone_by_the_next(new_plain: Callable[[], Plain]) -> None:
    plain = new_plain()
    with faults.arm(faults.Fault(pattern="catalog.unmark_lake.before")), pytest.raises(faults.FaultInjected):
        convert(plain.url, plain.data)
    engine = sa.create_engine(parse_url(plain.url).url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE quacklake_old_snapshot SET next_file_id = next_file_id + 1"))
    engine.dispose()
    with pytest.raises(ConfigError, match="not a shared one"):
        open_catalog(plain)
    assert plain.is_plain()


@pytest.mark.parametrize("database", ["mysql", pytest.param("postgres", marks=pytest.mark.daily(0.22))])
def test_no_row_of_a_writer_at_the_same_time_is_lost(
    database: str, forks: Forks, new_url: Callable[[str], str], tmp_path: Path
) -> None:
    url, data = new_url(database), str(tmp_path / "data")
    with quacklake.connect(url, tmp_path / "plain", duckdb_threads=1) as lake:
        lake.create_table("t", {"id": [0], "name": ["first"]})
    writers = [forks.start(f"{CALL}:write_on", url=url, first=first, count=5_000) for first in (1, 10_001)]
    with quacklake.connect(url) as lake:
        while lake.table("t").count() < 6:
            pass
    convert(url, data)
    ended = [writer.wait() for writer in writers]
    assert [each.errors for each in ended if each.code] == []
    done = sorted(number for each in ended for number in each.value)
    assert 5 <= len(done) < 10_000, "they were at work when the lake became another one"
    with quacklake.connect(url, catalog="acme") as lake:
        assert sorted(lake.table("t").to_arrow(["id"]).column("id").to_pylist()) == [0, *done]
        assert not lake.verify(deep=True).errors


def test_what_cannot_be_converted_is_refused_and_as_it_was(new_plain: Callable[[], Plain], tmp_path: Path) -> None:
    plain = new_plain()
    before = plain.tables()
    refused: list[tuple[type[Exception], str, str]] = [
        (InputError, f"{tmp_path}/0/plain/x", "acme"),
        (InvalidNameError, plain.data, "no such/name"),
    ]
    for error, data, name in refused:
        with pytest.raises(error):
            quacklake.tenants(plain.url, data, convert=name)
        assert plain.tables() == before
    with quacklake.connect(plain.url) as lake:
        lake.create_table("gone", [{"a": 1}])
        lake.drop_table("gone")
    before = plain.tables()
    with pytest.raises(UnsupportedFeatureError, match="inlined rows") as refusal:
        convert_again(plain)
    assert "expire" in str(refusal.value.hint)
    assert plain.tables() == before


def test_a_reader_that_does_not_end_keeps_the_lake_plain(new_plain: Callable[[], Plain]) -> None:
    plain = new_plain()
    before = plain.tables()
    engine = sa.create_engine(parse_url(plain.url).url)
    with engine.connect() as connection:
        connection.execute(sa.text("SELECT count(*) FROM ducklake_table")).all()
        with pytest.raises(CatalogUnavailableError):
            quacklake.tenants(plain.url, plain.data, convert="acme", busy_timeout_ms=1000)
    engine.dispose()
    assert plain.tables() == before
    assert plain.is_plain()


def test_the_catalog_goes_on_as_a_lake_does(new_plain: Callable[[], Plain]) -> None:
    plain = new_plain()
    convert_again(plain)
    with quacklake.connect(plain.url, catalog="acme") as lake:
        table = lake.table("t")
        table.append([{"id": 900, "name": "late", "note": "x"}])
        table.rename_column("note", "remark")
        table.add_column("more", "INTEGER")
        lake.create_table("u", {"a": list(range(30))}, partition_by=["a"])
        table.delete("id = 900")
        assert lake.at(version=1).table("t").count() == 50
        assert lake.at(tag="first").table("t").count() == 50
        lake.drop_table("u")
        assert not lake.verify(deep=True).errors
    with quacklake.tenants(plain.url) as tenants:
        tenants.create("beta")
        tenants.rename("acme", "omega")
        assert [tenant.name for tenant in tenants] == ["beta", "omega"]
