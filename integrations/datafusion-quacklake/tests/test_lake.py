"""Reads and writes of DataFusion against the lake's own, and against plain DuckDB as the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datafusion_quacklake
import duckdb
import pyarrow as pa
import pytest
from datafusion import SessionContext
from datafusion_quacklake import DataFusionLake

from quacklake.errors import ConstraintError, InputError, SchemaMismatchError, UnsupportedFeatureError
from tests import seeds

Row = tuple[Any, ...]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[DataFusionLake]:
    options = {"data_inlining_row_limit": 3, "duckdb_threads": 1, "ducklake_retry_wait_ms": 1}
    url = f"sqlite:///{tmp_path}/lake.db"
    with datafusion_quacklake.open(SessionContext(), url, data_path=tmp_path / "data", **options) as opened:
        opened.lake.sql("CREATE TABLE t (id INTEGER NOT NULL, name VARCHAR, x DOUBLE)")
        opened.lake.sql("INSERT INTO t SELECT i, 'n' || i, i / 4 FROM range(20) r(i)")
        opened.lake.sql("INSERT INTO t VALUES (100, 'few', 'nan'), (101, NULL, 1)")
        opened.lake.sql("DELETE FROM t WHERE id = 3")
        opened.refresh()
        yield opened


def rows(lake: DataFusionLake, sql: str) -> list[Row]:
    found = lake.ctx.sql(sql).to_arrow_table()
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def stored(tmp_path: Path) -> set[Path]:
    return set((tmp_path / "data").rglob("*.parquet"))


def test_rows_of_files_and_of_the_catalog_are_read_without_deleted_ones(lake: DataFusionLake) -> None:
    assert rows(lake, "SELECT count(*), max(id) FROM t") == [(21, 101)]
    assert rows(lake, "SELECT id FROM t WHERE id IN (2, 3, 4, 101)") == [(101,), (2,), (4,)]
    assert rows(lake, "SELECT id FROM t WHERE x > 4.5") == [(100,), (19,)], "NaN is above all numbers"
    assert rows(lake, "SELECT id FROM t WHERE name IS NULL") == [(101,)]
    lake.lake.sql("INSERT INTO t VALUES (102, 'inf', 'inf')")
    lake.refresh()
    for where in ("x > 4.5 AND id = 100 OR x > 4.6", "x >= CAST('NaN' AS DOUBLE)"):
        with pytest.raises(Exception, match=f"{UnsupportedFeatureError.__name__}: a filter on"):
            rows(lake, f"SELECT id FROM t WHERE {where}")
    assert rows(lake, "SELECT id FROM t WHERE nanvl(x, 0) > 4.5") == [(102,), (19,)]


def test_filters_and_columns_reach_the_plan(lake: DataFusionLake) -> None:
    lake.lake.sql("INSERT INTO t SELECT i, 'n' || i, i FROM range(1000, 1020) r(i)")
    lake.refresh()
    for where, parts in (("true", 3), ("id >= 1000", 2), ("id >= 1000 AND upper(name) <> 'N'", 2)):
        plan = str(lake.ctx.sql(f"EXPLAIN SELECT id FROM t WHERE {where}").to_pydict()["plan"])
        assert f"number_of_fragments={parts}" in plan
    assert "projection=[id]" in plan or "projection=[id, name]" in plan


def test_a_past_state_is_a_frame(lake: DataFusionLake) -> None:
    assert lake.table("t", version=2).count() == 20
    assert lake.table("t").count() == 21
    lake.ctx.register_table("before", lake.table("t", version=2))
    assert rows(lake, "SELECT id FROM before EXCEPT SELECT id FROM t") == [(3,)]


def test_evolved_columns_are_found_by_their_ids(lake: DataFusionLake) -> None:
    table = lake.lake.table("t")
    table.add_column("added", "INTEGER", default=7)
    table.rename_column("name", "title")
    table.alter_column("id", "BIGINT")
    table.append({"id": [2**40 + i for i in range(9)], "title": ["new"] * 9, "x": [0.0] * 9, "added": [None] * 9})
    table.drop_column("x")
    table.add_column("x", "VARCHAR", default="again")
    lake.refresh()
    wanted = sorted((tuple(row.values()) for row in table.to_arrow().to_pylist()), key=repr)
    assert rows(lake, "SELECT * FROM t") == wanted
    assert rows(lake, "SELECT count(*) FROM t WHERE x = 'again' AND added = 7") == [(21,)]


def test_columns_that_arrow_does_not_conform_are_read_by_the_core(lake: DataFusionLake) -> None:
    lake.lake.sql("CREATE TABLE odd (id INTEGER, s STRUCT(a INTEGER, b VARCHAR), u UUID)")
    lake.lake.sql("INSERT INTO odd SELECT i, {'a': i, 'b': 'b'}, uuid() FROM range(9) r(i)")
    lake.lake.sql("DELETE FROM odd WHERE id = 2")
    lake.lake.table("odd").rename_column("s.a", "renamed")
    lake.refresh()
    assert rows(lake, "SELECT count(DISTINCT u), sum(s['renamed']) FROM odd") == [(8, 34)]
    with pytest.raises(UnsupportedFeatureError, match="uuid"):
        lake.append("odd", lake.table("odd"))
    assert lake.delete("odd", "u IS NOT NULL AND id < 4").value == 3


def test_partitioned_tables_are_written_and_read(lake: DataFusionLake, tmp_path: Path) -> None:
    lake.lake.sql("CREATE TABLE p (id INTEGER, day TIMESTAMP)")
    lake.lake.sql("ALTER TABLE p SET PARTITIONED BY (month(day))")
    lake.refresh()
    days = "SELECT id, to_timestamp('2026-0' || (id % 3 + 1) || '-15T00:00:00') AS day FROM t"
    assert lake.append("p", lake.ctx.sql(days)).value == 21
    folders = {path.parent.name for path in stored(tmp_path) if "month" in path.parent.name}
    assert len(folders) == 3
    assert rows(lake, "SELECT count(*) FROM p WHERE day < TIMESTAMP '2026-02-01'") == rows(
        lake, "SELECT count(*) FROM t WHERE id % 3 = 0"
    )
    assert not lake.lake.verify(deep=True).findings


def test_columns_may_have_any_name(lake: DataFusionLake) -> None:
    lake.lake.sql('CREATE SCHEMA "Odd. One"')
    lake.lake.sql("""CREATE TABLE "Odd. One"."T" ("Id" INTEGER, version VARCHAR, position INTEGER, "a.b" INTEGER)""")
    lake.lake.sql("""INSERT INTO "Odd. One"."T" SELECT i, 'v', i, -i FROM range(9) r(i)""")
    lake.refresh()
    name = '"Odd. One"."T"'
    assert rows(lake, f'SELECT "a.b" FROM {name} WHERE position > 7 AND "Id" = 8') == [(-8,)]
    assert lake.delete(name, "\"Id\" = 3 AND version = 'v'").value == 1
    new = lake.ctx.sql('SELECT 5 AS "Id", \'new\' AS version, 1 AS position, 2 AS "a.b"')
    assert lake.merge(name, new, on=["Id"]).value == 1
    assert rows(lake, f"SELECT count(*), count(DISTINCT version) FROM {name}") == [(8, 2)]


def test_a_failed_write_leaves_nothing(lake: DataFusionLake, tmp_path: Path) -> None:
    before = stored(tmp_path)
    with pytest.raises(SchemaMismatchError):
        lake.append("t", lake.ctx.sql("SELECT id, name AS other FROM t"))
    with pytest.raises(Exception, match=r"(?i)divide by zero"):
        lake.append("t", lake.ctx.sql("SELECT id / (id - 19) AS id, name, x FROM t"))
    with pytest.raises(ConstraintError, match="NOT NULL"):
        lake.append("t", lake.ctx.sql("SELECT CAST(NULL AS INT) AS id, name, x FROM t"))
    with pytest.raises(ConstraintError, match="twice"):
        lake.merge("t", lake.ctx.sql("SELECT 1 AS id, name, x FROM t"), on=["id"])
    assert stored(tmp_path) == before
    assert lake.table("t").count() == 21


def test_a_change_runs_again_when_another_client_was_first(
    lake: DataFusionLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quacklake.extend import writes

    delete, times = writes.Change.delete, []

    def overtaken(change: writes.Change, plan: Any, places: pa.Table) -> int:
        times.append(places.num_rows)
        if len(times) == 1:
            lake.lake.table("t").append({"id": [200], "name": ["other"], "x": [None]})
        return delete(change, plan, places)

    monkeypatch.setattr(writes.Change, "delete", overtaken)
    assert lake.delete("t", "id >= 100").value == 3
    assert times == [2, 3]
    assert rows(lake, "SELECT count(*) FROM t") == [(19,)]
    times.clear()
    assert lake.delete("t", "id < 2").value == 2
    assert times == [2], "what the other client appends is of no concern to this delete"


def test_a_merge_computes_its_rows_once_and_meets_those_of_others(
    lake: DataFusionLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quacklake.extend import writes

    append, times = writes.Change.append, []

    def overtaken(change: writes.Change, staging: Any) -> int:
        times.append(staging.files)
        if len(times) == 1:
            lake.lake.table("t").append({"id": [200], "name": ["other"], "x": [None]})
        return append(change, staging)

    monkeypatch.setattr(writes.Change, "append", overtaken)
    new = lake.ctx.sql("SELECT 200 AS id, CAST(random() AS VARCHAR) AS name, 2.0 AS x UNION ALL SELECT 5, 'y', 1.0")
    assert lake.merge("t", new, on=["id"]).value == 2
    assert times[0] is times[1]
    assert rows(lake, "SELECT id, x FROM t WHERE id IN (5, 200)") == [(200, 2.0), (5, 1.0)]
    with pytest.raises(InputError, match="no key columns"):
        lake.merge("t", new, on=["key"])


@pytest.mark.parametrize("number", range(3))
def test_random_changes_are_those_of_plain_duckdb(lake: DataFusionLake, number: int) -> None:
    chance = seeds.chance("datafusion", number)
    oracle = duckdb.connect()
    oracle.register("begin", lake.lake.table("t").to_arrow())
    oracle.execute("CREATE TABLE t AS SELECT id::INTEGER AS id, name, x FROM begin WHERE NOT isnan(x)")
    assert lake.delete("t", "isnan(x)").value == 1
    for _ in range(12):
        low, span = chance.randrange(0, 150), chance.choice([1, 3, 10, 60])
        where = chance.choice(
            [f"id BETWEEN {low} AND {low + span}", f"id % 7 = {low % 7} AND x > {low}", "name IS NULL"]
        )
        source = "SELECT CAST(value AS INT) AS id, NULLIF('r' || (value % 5), 'r0') AS name, value / 8.0 AS x"
        match chance.randrange(3):
            case 0:
                new = lake.ctx.sql(f"{source} FROM generate_series({low}, {low + span}) AS g(value)")
                known = {id_ for (id_,) in rows(lake, "SELECT id FROM t")}
                if not known.intersection(range(low, low + span + 1)):
                    lake.append("t", new)
                    oracle.register("new", new.to_arrow_table())
                    oracle.execute("INSERT INTO t SELECT id, name, x FROM new")
            case 1:
                count = lake.delete("t", where).value
                assert (count,) == oracle.execute(f"DELETE FROM t WHERE {where}").fetchone()
            case _:
                new = lake.ctx.sql(f"{source} FROM generate_series({low}, {low + span}) AS g(value)")
                lake.merge("t", new, on=["id"])
                oracle.register("new", new.to_arrow_table())
                oracle.execute("DELETE FROM t WHERE id IN (SELECT id FROM new)")
                oracle.execute("INSERT INTO t SELECT id, name, x FROM new")
        wanted = sorted(oracle.execute("SELECT id, name, x FROM t").fetchall(), key=repr)
        assert rows(lake, "SELECT id, name, x FROM t") == wanted
        filtered = sorted(oracle.execute(f"SELECT id FROM t WHERE {where}").fetchall(), key=repr)
        assert rows(lake, f"SELECT id FROM t WHERE {where}") == filtered
    assert not lake.lake.verify(deep=True).findings
