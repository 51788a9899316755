"""Lakes of older format versions become lakes of the present one, as the reference implementation would make them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlalchemy as sa

import quacklake
from quacklake.core import faults
from quacklake.core.catalog import parse_url
from quacklake.core.catalog.indexes import INDEXES
from quacklake.core.catalog.migrations import table_versions
from quacklake.core.catalog.tables import VERSION, Tables
from quacklake.errors import ReadOnlyError, UnsupportedVersionError
from tests.catalog.stock import Stock
from tests.golden.lakes import LAKES, CopiedLake, GoldenLake
from tests.golden.oldest import SOURCES, make

pytestmark = pytest.mark.daily(0.33)

NewUrl = Callable[[str], str]
Dump = dict[str, tuple[tuple[str, ...], list[tuple[str | None, ...]]]]

OLD = [lake for lake in LAKES if lake.version != VERSION]
SERVERS = ["postgres", "mysql"]


def connect(copy: CopiedLake, **options: Any) -> quacklake.Lake:
    return quacklake.connect(copy.url, data_path=copy.data_path, override_data_path=True, duckdb_threads=1, **options)


def stock_options(copy: CopiedLake) -> list[str]:
    return [f"DATA_PATH '{copy.data_path}'", "OVERRIDE_DATA_PATH true"]


def dump(url: str) -> Dump:
    """Every table of the format: its columns, and its rows as text, sorted."""
    path = parse_url(url).path
    connection: Any = sqlite3.connect(path) if url.startswith("sqlite") else duckdb.connect(str(path), read_only=True)
    try:
        if url.startswith("sqlite"):
            listing = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'ducklake_%'"
        else:
            listing = "SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'ducklake_%'"
        found: Dump = {}
        for (name,) in connection.execute(listing).fetchall():
            columns = tuple(entry[0] for entry in connection.execute(f"SELECT * FROM {name} LIMIT 0").description)
            texts = ", ".join(f'CAST("{column}" AS VARCHAR)' for column in columns)
            rows = connection.execute(f"SELECT {texts} FROM {name}").fetchall()
            found[name] = columns, sorted(rows, key=repr)
        return found
    finally:
        connection.close()


@cache
def _scratch() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET timezone = 'UTC'")
    return connection


def as_text(table: pa.Table) -> list[tuple[str | None, ...]]:
    """Every row cast to text by DuckDB, sorted as the golden lakes are."""
    connection = _scratch()
    connection.register("rows", table)
    texts = ", ".join(f'CAST("{name}" AS VARCHAR)' for name in table.column_names)
    rows = connection.execute(f"SELECT {texts} FROM rows").fetchall()
    return sorted(rows, key=lambda row: [(value is not None, value or "") for value in row])


def check_history(lake: quacklake.Lake, golden: GoldenLake) -> None:
    """Snapshots of all kinds read as when they were new; stock reads every one."""
    for version in {*range(1, max(golden.expected), 4), 19, max(golden.expected)}:
        view, tables = lake.at(version=version), golden.expected[version]
        assert set(view.tables()) == set(tables)
        for name, table in tables.items():
            assert as_text(view.table(name).to_arrow()) == list(table.rows), f"{name} at {version}"


def check_stock_history(stock: Stock, url: str, golden: GoldenLake, options: list[str]) -> None:
    """The reference implementation reads every snapshot as it was when it was new."""
    parts = []
    for version, tables in golden.expected.items():
        for name, table in tables.items():
            texts = ", ".join(f'CAST("{column}" AS VARCHAR)' for column, _ in table.columns)
            parts.append(f"SELECT {version}, '{name}', [{texts}] FROM {name} AT (VERSION => {version})")
    found: dict[tuple[int, str], list[tuple[str | None, ...]]] = {}
    for version, name, row in stock.run(url, " UNION ALL ".join(parts), options=options):
        found.setdefault((version, name), []).append(tuple(row))
    for version, tables in golden.expected.items():
        for name, table in tables.items():
            rows = sorted(found.get((version, name), []), key=lambda row: [(v is not None, v or "") for v in row])
            assert rows == list(table.rows), f"{name} at {version}"


def check_written_by_both(stock: Stock, url: str, golden: GoldenLake, options: list[str], **settings: Any) -> None:
    """Both clients write, and see what the other has written."""
    newest = max(golden.expected)
    with quacklake.connect(url, duckdb_threads=1, **settings) as lake:
        numbers = lake.table("main.numbers")
        count = numbers.count()
        assert numbers.append([{"id": 5000, "name": "ours", "value": 1}]) == 1
        assert numbers.update({"name": "changed by us"}, "id IN (505, 1001)") == 2
        assert lake.current_snapshot() == newest + 2
    stock.run(
        url,
        "INSERT INTO main.numbers VALUES (6000, 'theirs', 2)",
        "DELETE FROM main.numbers WHERE id IN (506, 5000)",
        "ALTER TABLE main.numbers ADD COLUMN extra INTEGER",
        "UPDATE main.things SET grade = 1 WHERE id = 200",
        "INSERT INTO sales.days VALUES ('west', DATE '2025-07-01', 777)",
        "CALL ducklake_flush_inlined_data('l')",
        options=options,
    )
    with quacklake.connect(url, duckdb_threads=1, **settings) as lake:
        numbers = lake.table("main.numbers")
        assert numbers.count() == count
        assert numbers.columns == ["id", "name", "value", "extra"]
        assert numbers.count("name = 'changed by us'") == 2
        assert numbers.to_pylist(where="id >= 5000") == [{"id": 6000, "name": "theirs", "value": 2, "extra": None}]
        assert lake.table("main.things").count("grade = 1") >= 1
        assert lake.table("sales.days").count("amount = 777") == 1


# -- golden lakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", OLD, ids=lambda lake: lake.name)
def test_f13_2_a_migrated_lake_has_the_rows_that_the_reference_implementation_makes(
    golden: GoldenLake, tmp_path: Path, stock: Stock
) -> None:
    ours, theirs = golden.copy(tmp_path / "ours"), golden.copy(tmp_path / "theirs")
    with connect(ours) as lake:
        assert lake.version == golden.version
        assert lake.migrate() == lake.version == VERSION
        assert lake.migrate() == VERSION  # nothing left to do
        check_history(lake, golden)
    if golden.name != "v0.2-sqlite":  # which it cannot migrate
        stock.run(theirs.url, "SELECT 1", options=[*stock_options(theirs), "AUTOMATIC_MIGRATION true"])
        expected, found = dump(theirs.url), dump(ours.url)
        if golden.version < "0.4":  # where it gives every table every version
            expected.pop("ducklake_schema_versions")
            found.pop("ducklake_schema_versions")
        assert found == expected
    check_stock_history(stock, ours.url, golden, stock_options(ours))
    settings = {"data_path": ours.data_path, "override_data_path": True}
    check_written_by_both(stock, ours.url, golden, stock_options(ours), **settings)


@pytest.mark.parametrize("golden", [lake for lake in OLD if lake.version < "0.4"], ids=lambda lake: lake.name)
def test_each_table_gets_the_schema_versions_at_which_it_changed(golden: GoldenLake, tmp_path: Path) -> None:
    copy = golden.copy(tmp_path)
    with connect(copy, migrate=True) as lake:
        ids = {lake.table(name).info.id: name for name in lake.tables()}
    columns, rows = dump(copy.url)["ducklake_schema_versions"]
    assert columns == ("begin_snapshot", "schema_version", "table_id")
    found = sorted((ids.get(int(table or -1), "dropped"), int(begin or 0)) for begin, _, table in rows)
    # made; made, given a column, a column renamed; made; made and dropped
    assert found == [
        ("dropped", 12),
        ("main.numbers", 6),
        ("main.things", 2),
        ("main.things", 14),
        ("main.things", 16),
        ("sales.days", 20),
    ]


@pytest.mark.parametrize("golden", SOURCES, ids=lambda lake: lake.catalog)
def test_a_lake_of_the_oldest_version_is_read_and_migrated(golden: GoldenLake, tmp_path: Path, stock: Stock) -> None:
    ours, theirs = make(golden, tmp_path / "ours"), make(golden, tmp_path / "theirs")
    with connect(ours) as lake:
        assert lake.version == "0.1"
        check_history(lake, golden)
        assert lake.options.list().num_rows == 4
        with pytest.raises(ReadOnlyError, match=r"0\.1"):
            lake.create_schema("no")
        lake.migrate()
        check_history(lake, golden)
    if golden.catalog == "duckdb":
        stock.run(theirs.url, "SELECT 1", options=[*stock_options(theirs), "AUTOMATIC_MIGRATION true"])
        expected, found = dump(theirs.url), dump(ours.url)
        expected.pop("ducklake_schema_versions")
        found.pop("ducklake_schema_versions")
        assert found == expected
    partition_columns = [row[3:] for row in dump(ours.url)["ducklake_partition_column"][1]]
    assert sorted(partition_columns) == [("1", "identity"), ("2", "year")]
    check_stock_history(stock, ours.url, golden, stock_options(ours))
    settings = {"data_path": ours.data_path, "override_data_path": True}
    check_written_by_both(stock, ours.url, golden, stock_options(ours), **settings)
    with connect(ours) as lake:  # whose tables have no folder of their own
        days = lake.table("sales.days")
        count, columns = days.count(), days.columns
        rows = days.to_arrow().slice(0, 3)
        assert days.append(rows) == 3
        assert days.optimize().files_after > 1
        assert lake.table("main.numbers").optimize().files_after == 1
        assert (days.count(), days.columns) == (count + 3, columns)
    assert stock.run(ours.url, "SELECT count(*) FROM sales.days", options=stock_options(ours)) == [(count + 3,)]


# -- servers -----------------------------------------------------------------------------------------------------------


def _engine(url: str) -> sa.Engine:
    return sa.create_engine(parse_url(url).url, poolclass=sa.NullPool)


def transplant(golden: GoldenLake, url: str, folder: Path) -> CopiedLake:
    """The golden lake with its catalog on a server, which has the tables of the golden lake's version."""
    copy = golden.copy(folder)
    source = Tables(golden.version)
    with _engine(copy.url).connect() as old, _engine(url).begin() as new:
        source.metadata.create_all(new, source.stock())
        for table in source.stock():
            rows = [dict(row) for row in old.execute(sa.select(table)).mappings()]
            if rows:
                new.execute(sa.insert(table), rows)
        metadata = source["metadata"]
        new.execute(sa.update(metadata).where(metadata.c.key == "data_path").values(value=copy.data_path))
    return copy


@pytest.mark.parametrize("database", SERVERS)
@pytest.mark.parametrize("version", ["0.2", "0.3"])
def test_f13_2_a_lake_on_a_server_is_migrated(
    version: str, database: str, new_url: NewUrl, tmp_path: Path, stock: Stock
) -> None:
    golden = next(lake for lake in LAKES if (lake.version, lake.catalog) == (version, "sqlite"))
    url = new_url(database)
    transplant(golden, url, tmp_path)
    with quacklake.connect(url, duckdb_threads=1) as lake:
        assert lake.version == version
        check_history(lake, golden)
    with quacklake.connect(url, migrate=True, duckdb_threads=1) as lake:
        assert lake.version == VERSION
        check_history(lake, golden)
        lake.table("main.numbers").append([{"id": 9999, "name": "new", "value": None}])
    with _engine(url).connect() as connection:
        inspector = sa.inspect(connection)
        indexes = {index["name"] for found in inspector.get_multi_indexes().values() for index in found}
        assert set(INDEXES) <= indexes
        assert inspector.has_table("quacklake_commits")
    if database == "postgres":
        check_stock_history(stock, url, golden, [])


# -- inlined rows ------------------------------------------------------------------------------------------------------


AGE = """
DROP TABLE ducklake_macro; DROP TABLE ducklake_macro_impl; DROP TABLE ducklake_macro_parameters;
DROP TABLE ducklake_sort_info; DROP TABLE ducklake_sort_expression; DROP TABLE ducklake_file_variant_stats;
ALTER TABLE ducklake_column DROP COLUMN default_value_type;
ALTER TABLE ducklake_column DROP COLUMN default_value_dialect;
ALTER TABLE ducklake_data_file ADD COLUMN partial_file_info VARCHAR;
UPDATE ducklake_data_file SET partial_file_info = 'partial_max:' || partial_max
  WHERE partial_max IS NOT NULL;
ALTER TABLE ducklake_data_file DROP COLUMN partial_max;
ALTER TABLE ducklake_delete_file DROP COLUMN partial_max;
DROP TABLE ducklake_schema_versions;
CREATE TABLE ducklake_schema_versions(begin_snapshot BIGINT, schema_version BIGINT);
INSERT INTO ducklake_schema_versions
  SELECT min(snapshot_id), schema_version FROM ducklake_snapshot GROUP BY schema_version;
UPDATE ducklake_metadata SET value = '0.3' WHERE key = 'version';
"""
"""Turns a lake of format 1.0 into one of format 0.3, as stock DuckDB 1.4 would have written it."""


def age(path: Path) -> None:
    """Make a lake of format 0.3 out of a SQLite one of 1.0."""
    with sqlite3.connect(path) as connection:
        connection.executescript(AGE)
    connection.close()


def test_inlined_rows_of_every_schema_version_are_found_after_a_migration(tmp_path: Path, stock: Stock) -> None:
    url, options = f"sqlite:///{tmp_path / 'lake.db'}", [f"DATA_PATH '{tmp_path / 'data'}/'"]
    stock.run(
        url,
        "CREATE TABLE t (a INTEGER)",
        "INSERT INTO t VALUES (1), (2)",
        "CREATE TABLE other (x VARCHAR)",
        "INSERT INTO t VALUES (3)",
        "ALTER TABLE t ADD COLUMN b VARCHAR DEFAULT 'none'",
        "INSERT INTO t VALUES (4, 'four')",
        "ALTER TABLE other RENAME TO another",
        "INSERT INTO another VALUES ('x')",
        "ALTER TABLE t DROP COLUMN a",
        "INSERT INTO t VALUES ('five')",
        options=options,
    )
    with quacklake.connect(url) as lake:
        newest = lake.current_snapshot()
        expected = [
            {name: as_text(lake.at(version=v).table(name).to_arrow()) for name in lake.at(version=v).tables()}
            for v in range(newest + 1)
        ]
    age(tmp_path / "lake.db")
    with quacklake.connect(url, migrate=True) as lake:
        for version, tables in enumerate(expected):
            view = lake.at(version=version)
            assert {name: as_text(view.table(name).to_arrow()) for name in view.tables()} == tables
        assert lake.table("t").append([{"b": "six"}]) == 1
    for version, tables in list(enumerate(expected))[2::2]:
        for name, rows in tables.items():
            found = stock.run(url, f"SELECT COLUMNS(*)::VARCHAR FROM {name} AT (VERSION => {version}) ORDER BY ALL")
            assert sorted(found, key=repr) == sorted(rows, key=repr), f"{name} at {version}"
    stock.run(url, "CALL ducklake_flush_inlined_data('l')")
    found = stock.run(url, "SELECT b FROM t ORDER BY ALL")
    assert found == [("five",), ("four",), ("none",), ("none",), ("none",), ("six",)]
    with quacklake.connect(url) as lake:
        assert sorted(row["b"] for row in lake.table("t").to_pylist()) == [row[0] for row in found]


def test_files_of_several_snapshots_stay_so(tmp_path: Path, stock: Stock) -> None:
    url, options = f"sqlite:///{tmp_path / 'lake.db'}", [f"DATA_PATH '{tmp_path / 'data'}/'"]
    inserts = [f"INSERT INTO t SELECT {n} FROM range(20)" for n in range(3)]
    stock.run(url, "CREATE TABLE t (a INTEGER)", *inserts, "CALL ducklake_merge_adjacent_files('l')", options=options)
    age(tmp_path / "lake.db")
    with quacklake.connect(url) as lake:
        assert [lake.at(version=v).table("t").count() for v in (2, 3, 4)] == [20, 40, 60]
        lake.migrate()
        assert [lake.at(version=v).table("t").count() for v in (2, 3, 4)] == [20, 40, 60]
    assert stock.run(url, "SELECT count(*) FROM t AT (VERSION => 3)") == [(40,)]


def test_a_file_of_duckdb_with_compacted_files_is_migrated(tmp_path: Path, stock: Stock) -> None:
    url, options = f"duckdb:///{tmp_path / 'lake.db'}", [f"DATA_PATH '{tmp_path / 'data'}/'"]
    inserts = [f"INSERT INTO t SELECT {n} FROM range(20)" for n in range(3)]
    stock.run(url, "CREATE TABLE t (a INTEGER)", *inserts, "CALL ducklake_merge_adjacent_files('l')", options=options)
    with duckdb.connect(tmp_path / "lake.db") as connection:
        for statement in AGE.split(";"):
            connection.execute(statement)
    with quacklake.connect(url, migrate=True) as lake:
        assert [lake.at(version=v).table("t").count() for v in (2, 3, 4)] == [20, 40, 60]
    columns, rows = dump(url)["ducklake_data_file"]
    assert columns[-2:] == ("mapping_id", "partial_max")
    assert [row[-1] for row in rows] == ["4"]
    assert stock.run(url, "SELECT count(*) FROM t AT (VERSION => 3)") == [(40,)]


def test_the_version_of_a_change_is_the_one_that_began_last_before_it() -> None:
    known = [(0, 0), (2, 1), (5, 2), (9, 3)]
    assert table_versions({7: [2, 9], 8: [5]}, known) == [(7, 2, 1), (7, 9, 3), (8, 5, 2)]
    # inlined rows may be kept under a version that another table's change has opened
    assert table_versions({7: [2]}, known, [(7, 2), (7, 1)]) == [(7, 2, 1), (7, 5, 2)]
    # of snapshots that have expired only the last change of a table is still to be seen
    assert table_versions({7: [1, 3]}, [(4, 6), (6, 7)]) == [(7, 3, 6)]
    # a table that is gone without a trace has no versions
    assert table_versions({}, known, [(7, 2)]) == []


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", [lake for lake in LAKES if lake.version == "0.2"], ids=lambda lake: lake.name)
def test_a_migration_that_fails_leaves_the_old_lake_whole(golden: GoldenLake, tmp_path: Path) -> None:
    with faults.record() as points, connect(make(golden, tmp_path / "recorded"), migrate=True):
        pass
    steps = [point for point in points if "migrate" in point or point == "catalog.commit.before"]
    assert len(steps) > 50
    copy = make(golden, tmp_path / "lake")
    before = dump(copy.url)
    for number in range(1, len(steps), 13):
        with connect(copy) as lake:
            armed = faults.Fault(at=number, pattern="catalog.*migrate*")
            with faults.arm(armed), pytest.raises(faults.FaultInjected):
                lake.migrate()
            assert lake.version == "0.1"
            assert lake.table("main.numbers").count() == 943
        assert dump(copy.url) == before, f"after a fault at {number}"
    with connect(copy, migrate=True) as lake:
        check_history(lake, golden)


@pytest.mark.mysql
def test_a_migration_is_taken_up_where_it_stopped_when_tables_cannot_be_undone(mysql_url: str, tmp_path: Path) -> None:
    golden = next(lake for lake in LAKES if lake.name == "v0.2-sqlite")
    transplant(golden, mysql_url, tmp_path)
    attempt = 0
    while True:
        attempt += 7
        with quacklake.connect(mysql_url, duckdb_threads=1) as lake:
            try:
                with faults.arm(faults.Fault(at=attempt, pattern="catalog.migrate*")):
                    lake.migrate()
                break
            except faults.FaultInjected:
                assert lake.table("main.numbers").count() == 943
    assert attempt > 30
    with quacklake.connect(mysql_url, duckdb_threads=1) as lake:
        assert lake.version == VERSION
        check_history(lake, golden)


def test_a_lake_that_is_open_read_only_is_not_migrated(tmp_path: Path) -> None:
    copy = OLD[0].copy(tmp_path)
    with connect(copy, read_only=True) as lake, pytest.raises(ReadOnlyError):
        lake.migrate()


def test_f13_4_an_unknown_version_is_refused_by_its_name(tmp_path: Path) -> None:
    copy = OLD[0].copy(tmp_path)
    with sqlite3.connect(copy.catalog_file) as connection:
        connection.execute("UPDATE ducklake_metadata SET value = '7.3' WHERE key = 'version'")
    with pytest.raises(UnsupportedVersionError, match=r"7\.3"):
        connect(copy, migrate=True)


# -- newer versions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", [lake for lake in LAKES if lake.version == VERSION], ids=lambda lake: lake.name)
def test_f13_3_a_lake_of_the_coming_version_is_read_and_written(golden: GoldenLake, tmp_path: Path) -> None:
    copy = golden.copy(tmp_path)
    connection: Any = (
        sqlite3.connect(copy.catalog_file) if golden.catalog == "sqlite" else duckdb.connect(str(copy.catalog_file))
    )
    for table in ("data_file", "delete_file"):
        connection.execute(f"ALTER TABLE ducklake_{table} ADD COLUMN row_group_count BIGINT")
    connection.execute(
        "CREATE TABLE ducklake_view_column_tag(view_id BIGINT, column_name VARCHAR, begin_snapshot BIGINT,"
        " end_snapshot BIGINT, key VARCHAR, value VARCHAR)"
    )
    inlined = connection.execute("SELECT table_name FROM ducklake_inlined_data_tables").fetchall()
    assert inlined
    for (table,) in inlined:
        for column in ("row_id", "begin_snapshot", "end_snapshot"):
            connection.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO _ducklake_{column}")
    connection.execute("UPDATE ducklake_metadata SET value = '1.1-dev1' WHERE key = 'version'")
    connection.commit()
    connection.close()
    with connect(copy, migrate=True) as lake:
        assert lake.version == "1.1-dev1"
        check_history(lake, golden)
        assert lake.migrate() == "1.1-dev1", "what can be written stays what it is"
        lake.table("main.numbers").delete()
        assert lake.table("main.numbers").count() == 0
        assert lake.migrate("1.0") == "1.0"
        check_history(lake, golden)
