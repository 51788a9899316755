"""Remembered inlined rows are those that the catalog has, whoever changes them."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import quacklake
from quacklake import telemetry
from quacklake.core.scan import inlined_rows
from quacklake.core.scan.inlined_rows import KnownRows
from tests.catalog.stock import Stock
from tests.seeds import chance

WHERE = ("sqlite", "duckdb", "postgres", "mysql", "tenant", "tenant on postgres")


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inlined_rows, "MANY", 1)
    monkeypatch.setattr(inlined_rows, "_CHUNK", 7)


def _helped() -> int:
    return telemetry.snapshot().counters.get("scan.inlined_remembered", 0)


def _opened(where: str, new_url: Callable[[str], str], path: Path) -> Callable[..., quacklake.Lake]:
    """Return what opens a new lake, each time it is called."""
    url = new_url("postgres" if where == "tenant on postgres" else where.replace("tenant", "sqlite"))
    if not where.startswith("tenant"):
        return lambda **settings: quacklake.connect(url, data_path=path, data_inlining_row_limit=50, **settings)
    with quacklake.tenants(url, path) as tenants:
        tenants.create("one")
    return lambda **settings: quacklake.connect(url, catalog="one", data_inlining_row_limit=50, **settings)


def _rows(lake: quacklake.Lake) -> list[tuple[object, ...]]:
    return sorted(lake.sql("SELECT * FROM t").fetchall(), key=repr)


@pytest.mark.daily(0.5)
@pytest.mark.parametrize("where", WHERE)
def test_rows_are_those_of_a_reader_that_remembers_nothing_whatever_happens(
    where: str, new_url: Callable[[str], str], tmp_path: Path
) -> None:
    draw, opened, before = chance("inlined rows", where), _opened(where, new_url, tmp_path / "data"), _helped()
    with opened() as lake, opened() as other, opened(plan_cache_bytes=0) as fresh:
        lake.sql("CREATE TABLE t (id INTEGER, s VARCHAR, x DOUBLE)")
        lake.table("t").append(_new(draw, 0, 40))
        for number in range(1, 18):
            writer = draw.choice([lake, other])
            match draw.randrange(8):
                case 0 | 1 | 2:
                    writer.table("t").append(_new(draw, number * 100, draw.randrange(1, 20)), evolve=True)
                case 3:
                    writer.sql(f"UPDATE t SET s = 'new {number}' WHERE id % 7 = {draw.randrange(7)}")
                case 4:
                    writer.sql(f"DELETE FROM t WHERE id % 11 = {draw.randrange(11)}")
                case 5 if draw.random() < 0.5:
                    writer.table("t").flush_inlined_data()
                case 6 if draw.random() < 0.3:
                    writer.table("t").add_column(f"c{number}", "int64")
                case _:
                    writer.sql("CREATE OR REPLACE TABLE elsewhere (i INTEGER)")
            assert _rows(lake) == _rows(fresh)
            if draw.random() < 0.3:
                assert _rows(other) == _rows(fresh)
    assert _helped() > before


def _new(draw: random.Random, first: int, count: int) -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table({"id": ids, "s": [f"a{i}\0é\n" for i in ids], "x": [draw.choice([None, i / 3]) for i in ids]})


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'lake.db'}"


@pytest.fixture
def lake(url: str, tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(url, data_path=tmp_path / "data", data_inlining_row_limit=50) as opened:
        opened.create_table("t", pa.table({"id": range(40)}))
        yield opened


def test_what_another_client_does_to_them_is_seen_at_once(lake: quacklake.Lake, url: str, stock: Stock) -> None:
    for statement in (
        "INSERT INTO t VALUES (100), (101)",
        "DELETE FROM t WHERE id < 5",
        "UPDATE t SET id = 1000 WHERE id = 7",
        "CALL ducklake_flush_inlined_data('l')",
        "INSERT INTO t VALUES (200)",
        "DELETE FROM t WHERE id >= 100",
    ):
        stock.run(url, statement)
        assert _rows(lake) == sorted(stock.run(url, "FROM t"), key=repr), statement


def test_rows_that_vanish_without_a_snapshot_are_gone_with_the_next(lake: quacklake.Lake, url: str) -> None:
    assert len(_rows(lake)) == 40
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        name = database.execute("SELECT table_name FROM ducklake_inlined_data_tables").fetchone()[0]
        database.execute(f"DELETE FROM {name} WHERE row_id < 10")
    lake.table("t").append(pa.table({"id": [100]}))
    assert len(_rows(lake)) == 31


def test_a_restored_catalog_has_its_own_rows(lake: quacklake.Lake, url: str) -> None:
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(":memory:")) as copy:
        with closing(sqlite3.connect(path)) as database:
            database.backup(copy)
        lake.table("t").append(pa.table({"id": [100]}))
        assert (100,) in _rows(lake)
        with closing(sqlite3.connect(path)) as database:
            copy.backup(database)
        with quacklake.connect(url, data_inlining_row_limit=50) as other:
            for number in (200, 300):  # the first has the number of the snapshot that is remembered
                other.table("t").append(pa.table({"id": [number]}))
        assert {row[0] for row in _rows(lake)} == {*range(40), 200, 300}


def test_an_old_snapshot_has_its_own_rows(lake: quacklake.Lake) -> None:
    version = lake.handle.context.latest().id
    for number in (100, 200):
        lake.table("t").append(pa.table({"id": [number]}))
        assert (number,) in _rows(lake)
    assert lake.at(version=version).table("t").to_arrow().num_rows == 40


def test_rows_are_read_anew_after_a_while(lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    now, start = [1_000.0], _helped()
    monkeypatch.setattr(inlined_rows.time, "monotonic", lambda: now[0])
    for seconds, helped in ((0.0, 0), (20.0, 1), (9.0, 2), (1.5, 2), (5.0, 3)):
        now[0] += seconds
        lake.table("t").append(pa.table({"id": [int(now[0])]}))
        assert (int(now[0]),) in _rows(lake)
        assert _helped() - start == helped


def test_no_more_rows_are_kept_than_there_is_room_for(lake: quacklake.Lake) -> None:
    tables = []
    for number in range(4):
        lake.create_table(f"t{number}", pa.table({"id": range(40)}))
        tables.append(lake.handle.view().find_table("main", f"t{number}"))
    known = KnownRows(3_000)
    catalog = lake.handle.context.catalog
    with catalog.read() as reader:
        snapshot = reader.snapshots.latest()
        for table in tables:
            rows = known.read(reader, snapshot, table, catalog.encoding)
            assert rows is not None
            assert rows.num_rows == 40
            assert sum(each.rows.nbytes for each in known._known.values()) <= 3_000
    assert 0 < len(known._known) < 4
    known.clear()
    assert not known._known


def test_few_rows_are_not_kept(lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inlined_rows, "MANY", 1_000)
    start = _helped()
    for number in range(3):
        lake.table("t").append(pa.table({"id": [number]}))
        assert len(_rows(lake)) == 41 + number
    assert _helped() == start


def test_a_connection_that_registers_again_and_again_keeps_few_copies(lake: quacklake.Lake) -> None:
    with closing(duckdb.connect()) as connection:
        for number in range(12):
            lake.table("t").append(pa.table({"id": [number]}))
            lake.register(connection)
            assert connection.execute("SELECT count(*) FROM t").fetchall() == [(41 + number,)]
        kept = connection.execute("SELECT count(*) FROM duckdb_tables() WHERE temporary").fetchall()
        assert kept == [(1,)]
