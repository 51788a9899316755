"""A new lake's metadata is, table by table and row by row, what stock DuckLake makes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import quacklake
from quacklake.core.catalog import parse_url
from quacklake.core.catalog.shared_tables import SharedTables
from quacklake.core.catalog.tables import SPEC, VERSION, Tables
from tests.catalog.stock import Stock, attached, connect
from tests.layout import LAYOUT

NewUrl = Callable[[str], str]
Columns = list[tuple[str, str, bool, bool]]

#: The values in which two new lakes differ.
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def tables(url: str, schema: str | None = None) -> dict[str, Columns]:
    """Every metadata table: name, type, whether it may be NULL and whether it is the key, as the database says.

    In SQLite a key of stock DuckLake might be NULL; ours may not.
    """
    with sa.create_engine(parse_url(url).url, poolclass=sa.NullPool).connect() as connection:
        if connection.dialect.name == "duckdb":
            return _duckdb_tables(connection)
        inspector = sa.inspect(connection)
        found: dict[str, Columns] = {}
        for name in inspector.get_table_names(schema=schema):
            key = inspector.get_pk_constraint(name, schema=schema)["constrained_columns"]
            found[name] = [
                (
                    column["name"],
                    str(column["type"]),
                    column["nullable"] and column["name"] not in key,
                    column["name"] in key,
                )
                for column in inspector.get_columns(name, schema=schema)
            ]
        return found


def _duckdb_tables(connection: sa.Connection) -> dict[str, Columns]:
    keys = {
        (table, column)
        for table, columns in connection.exec_driver_sql(
            "SELECT table_name, constraint_column_names FROM duckdb_constraints() WHERE constraint_type = 'PRIMARY KEY'"
        )
        for column in columns
    }
    found: dict[str, Columns] = {}
    for table, column, type_, nullable in connection.exec_driver_sql(
        "SELECT table_name, column_name, data_type, is_nullable FROM duckdb_columns()"
        " WHERE NOT internal ORDER BY table_name, column_index"
    ).all():
        found.setdefault(table, []).append((column, type_, nullable, (table, column) in keys))
    return found


def rows(url: str, schema: str | None = None) -> dict[str, list[list[Any]]]:
    """Every row of the stock tables, without what must differ."""
    found: dict[str, list[list[Any]]] = {}
    prefix = f"{schema}." if schema else ""
    with sa.create_engine(parse_url(url).url, poolclass=sa.NullPool).connect() as connection:
        columns = "CAST(COLUMNS(*) AS VARCHAR)" if connection.dialect.name == "duckdb" else "*"
        for name in SPEC:
            result = connection.exec_driver_sql(f"SELECT {columns} FROM {prefix}ducklake_{name}")
            keys = (["catalog_id"] if LAYOUT == "shared" else []) + [column.name for column in SPEC[name]]
            found[name] = sorted(([*map(_neutral, keys, row)] for row in result), key=repr)
    return {
        name: [row for row in values if not {"created_by", "data_path"}.intersection(map(str, row[:2]))]
        for name, values in found.items()
    }


def _neutral(column: str, value: Any) -> Any:
    if value is None:
        return None
    if column.endswith("_uuid"):
        assert _UUID.fullmatch(str(value))
        return "uuid"
    return "time" if column == "snapshot_time" else value


@pytest.mark.parametrize("database", ["sqlite", "duckdb", "postgres"])
def test_tables_columns_and_first_rows_are_those_of_stock_ducklake(
    database: str, new_url: NewUrl, stock: Stock, tmp_path: Path
) -> None:
    ours, theirs = new_url(database), new_url(database)
    stock.run(theirs, "SELECT 1", options=[f"DATA_PATH '{tmp_path / 'theirs'}/'"])
    quacklake.connect(ours, data_path=tmp_path / "ours").close()
    mine = tables(ours)
    own = {name: mine.pop(name) for name in list(mine) if name.startswith("quacklake_")}
    assert set(own) == {
        "quacklake_checkpoints",
        "quacklake_commits",
        "quacklake_definitions",
        "quacklake_leases",
        "quacklake_policies",
        "quacklake_principals",
        "quacklake_privileges",
        "quacklake_retention",
        "quacklake_roles",
        "quacklake_snapshot_tags",
        "quacklake_streams",
        "quacklake_tokens",
    }
    assert mine == tables(theirs)
    assert rows(ours) == rows(theirs)


@pytest.mark.mysql
def test_mysql_has_the_same_tables_and_first_rows(new_url: NewUrl, tmp_path: Path) -> None:
    sqlite, mysql = new_url("sqlite"), new_url("mysql")
    for url in (sqlite, mysql):
        quacklake.connect(url, data_path=tmp_path / "data").close()
    assert rows(mysql) == rows(sqlite)
    found, expected = tables(mysql), tables(sqlite)
    assert {name: [(c[0], c[3]) for c in columns] for name, columns in found.items()} == {
        name: [(c[0], c[3]) for c in columns] for name, columns in expected.items()
    }


@pytest.mark.parametrize(
    "database",
    ["sqlite", "postgres", "mysql"],
)
def test_our_indexes_are_there(database: str, new_url: NewUrl, tmp_path: Path) -> None:
    url = new_url(database)
    quacklake.connect(url, data_path=tmp_path / "data").close()
    tables = SharedTables.of() if LAYOUT == "shared" else Tables.of()
    wanted = {index.name for index in tables.indexes(database)}
    with sa.create_engine(parse_url(url).url, poolclass=sa.NullPool).connect() as connection:
        found = sa.inspect(connection).get_multi_indexes().values()
        assert wanted <= {index["name"] for indexes in found for index in indexes}


@pytest.mark.parametrize(
    "database",
    ["sqlite", "duckdb", "postgres"],
)
def test_a_lake_of_stock_ducklake_gets_our_tables_with_its_first_write_and_not_before(
    database: str, new_url: NewUrl, stock: Stock, tmp_path: Path
) -> None:
    url = new_url(database)
    stock.run(url, "CREATE TABLE t (x BIGINT)", options=[f"DATA_PATH '{tmp_path / 'data'}/'"])
    with quacklake.connect(url) as lake:
        assert lake.table("t").count() == 0
        assert "quacklake_commits" not in tables(url)
        lake.table("t").append([{"x": 1}])
        assert "quacklake_commits" in tables(url)
    assert stock.rows(url) == {"main.t": [(1,)]}


@pytest.mark.postgres
def test_metadata_may_live_in_a_schema_of_its_own(postgres_url: str, stock: Stock, tmp_path: Path) -> None:
    with quacklake.connect(postgres_url, data_path=tmp_path / "a", metadata_schema="one") as lake:
        lake.create_table("t", [{"x": 1}])
        lake.table("t").append([{"x": n} for n in range(2, 30)])
        lake.table("t").delete("x = 5")
    stock.run(
        postgres_url,
        "CREATE TABLE u AS SELECT 7 AS y",
        options=[f"DATA_PATH '{tmp_path / 'b'}/'", "METADATA_SCHEMA 'Two'"],
    )
    # two lakes in one database, each seen by both
    with quacklake.connect(f"{postgres_url}?metadata_schema=Two") as lake:
        assert lake.tables() == ["main.u"]
        assert lake.table("u").to_pylist() == [{"y": 7}]
        lake.table("u").append([{"y": 8}])
        assert lake.snapshots().num_rows == 3
    assert stock.run(postgres_url, "SELECT sum(x) FROM t", options=["METADATA_SCHEMA 'one'"]) == [(sum(range(30)) - 5,)]
    assert stock.run(postgres_url, "SELECT y FROM u ORDER BY y", options=["METADATA_SCHEMA 'Two'"]) == [(7,), (8,)]
    assert tables(postgres_url) == {}
    assert set(tables(postgres_url, "one")) >= {"ducklake_snapshot", "quacklake_commits", "ducklake_inlined_data_1_1"}


def test_the_version_is_the_one_stock_ducklake_writes(tmp_path: Path) -> None:
    connection = connect()
    with attached(connection, f"duckdb:///{tmp_path / 'l.db'}", [f"DATA_PATH '{tmp_path}/'"]):
        query = "SELECT value FROM __ducklake_metadata_l.ducklake_metadata WHERE key = 'version'"
        assert connection.execute(query).fetchall() == [(VERSION,)]
    connection.close()
