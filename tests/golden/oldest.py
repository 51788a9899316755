"""Lakes of format 0.1, which no packaged release can write any more.

They are made from the golden lakes of format 0.2: the tables are those of the specification of 0.1, and the rows are
what a 0.1 release would have written for the same files. There schemas and tables have no folder: every file is named
from the data path on. A partition key names its column by its position in the table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb

from tests.golden.lakes import LAKES, CopiedLake, GoldenLake

__all__ = ["SOURCES", "make"]

SOURCES = [lake for lake in LAKES if lake.version == "0.2"]
"""The golden lakes that can be turned into lakes of 0.1."""

#: The specification of 0.1: table -> columns with types; the first column of a table marked ! is its key.
SPECIFICATION = {
    "metadata": "key VARCHAR, value VARCHAR",
    "snapshot!": "snapshot_id BIGINT, snapshot_time TIMESTAMPTZ, schema_version BIGINT, next_catalog_id BIGINT,"
    " next_file_id BIGINT",
    "snapshot_changes!": "snapshot_id BIGINT, changes_made VARCHAR",
    "schema!": "schema_id BIGINT, schema_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_name VARCHAR",
    "table": "table_id BIGINT, table_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_id BIGINT,"
    " table_name VARCHAR",
    "view": "view_id BIGINT, view_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_id BIGINT,"
    " view_name VARCHAR, dialect VARCHAR, sql VARCHAR, column_aliases VARCHAR",
    "tag": "object_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, key VARCHAR, value VARCHAR",
    "column_tag": "table_id BIGINT, column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, key VARCHAR,"
    " value VARCHAR",
    "data_file!": "data_file_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, file_order BIGINT,"
    " path VARCHAR, path_is_relative BOOLEAN, file_format VARCHAR, record_count BIGINT, file_size_bytes BIGINT,"
    " footer_size BIGINT, row_id_start BIGINT, partition_id BIGINT, encryption_key VARCHAR, partial_file_info VARCHAR",
    "file_column_statistics": "data_file_id BIGINT, table_id BIGINT, column_id BIGINT, column_size_bytes BIGINT,"
    " value_count BIGINT, null_count BIGINT, min_value VARCHAR, max_value VARCHAR, contains_nan BOOLEAN",
    "delete_file!": "delete_file_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT,"
    " data_file_id BIGINT, path VARCHAR, path_is_relative BOOLEAN, format VARCHAR, delete_count BIGINT,"
    " file_size_bytes BIGINT, footer_size BIGINT, encryption_key VARCHAR",
    "column": "column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, table_id BIGINT, column_order BIGINT,"
    " column_name VARCHAR, column_type VARCHAR, initial_default VARCHAR, default_value VARCHAR, nulls_allowed BOOLEAN,"
    " parent_column BIGINT",
    "table_stats": "table_id BIGINT, record_count BIGINT, next_row_id BIGINT, file_size_bytes BIGINT",
    "table_column_stats": "table_id BIGINT, column_id BIGINT, contains_null BOOLEAN, contains_nan BOOLEAN,"
    " min_value VARCHAR, max_value VARCHAR",
    "partition_info": "partition_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT",
    "partition_column": "partition_id BIGINT, table_id BIGINT, partition_key_index BIGINT, column_id BIGINT,"
    " transform VARCHAR",
    "file_partition_value": "data_file_id BIGINT, table_id BIGINT, partition_key_index BIGINT, partition_value VARCHAR",
    "files_scheduled_for_deletion": "data_file_id BIGINT, path VARCHAR, path_is_relative BOOLEAN,"
    " schedule_start TIMESTAMPTZ",
    "inlined_data_tables": "table_id BIGINT, table_name VARCHAR, schema_version BIGINT",
}
#: The types that SQLite uses for types it lacks.
SQLITE_TYPES = {"BOOLEAN": "BIGINT", "UUID": "VARCHAR", "TIMESTAMPTZ": "VARCHAR"}

Run = Callable[..., list[tuple[Any, ...]]]


def make(golden: GoldenLake, folder: Path) -> CopiedLake:
    """A lake of format 0.1 with the files and the history of a golden lake of 0.2, in ``folder``."""
    lake = golden.copy(folder)
    newer = lake.catalog_file.rename(lake.catalog_file.with_suffix(".newer"))
    read, write = _open(newer, golden.catalog), _open(lake.catalog_file, golden.catalog)
    for marked, text in SPECIFICATION.items():
        table = marked.removesuffix("!")
        columns = [tuple(column.split()) for column in text.split(", ")]
        write(f"CREATE TABLE ducklake_{table}({_declared(columns, golden.catalog, key=marked != table)})")
        names = ", ".join(name if type_ != "TIMESTAMPTZ" else f"CAST({name} AS VARCHAR)" for name, type_ in columns)
        marks = ", ".join("?" for _ in columns)
        for row in read(f"SELECT {names} FROM ducklake_{table}"):
            write(f"INSERT INTO ducklake_{table} VALUES ({marks})", row)
    write("UPDATE ducklake_metadata SET value = '0.1' WHERE key = 'version'")
    _name_from_the_root(read, write)
    _number_partition_columns(write)
    write("COMMIT")
    newer.unlink()
    return lake


def _declared(columns: Iterable[tuple[str, ...]], catalog: str, *, key: bool) -> str:
    parts = [f"{name} {SQLITE_TYPES.get(type_, type_) if catalog == 'sqlite' else type_}" for name, type_ in columns]
    if key and catalog == "duckdb":
        parts[0] += " PRIMARY KEY"
    return ", ".join(parts)


def _open(path: Path, catalog: str) -> Run:
    connection: Any = sqlite3.connect(path, isolation_level=None) if catalog == "sqlite" else duckdb.connect(str(path))
    connection.execute("BEGIN")

    def run(statement: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = connection.execute(statement, parameters).fetchall()
        if statement == "COMMIT":
            connection.close()
        return rows

    return run


def _name_from_the_root(read: Run, write: Run) -> None:
    folders = dict(
        read("SELECT t.table_id, s.path || t.path FROM ducklake_table t JOIN ducklake_schema s USING (schema_id)")
    )
    for table in ("data_file", "delete_file"):
        for id_, folder in folders.items():
            write(f"UPDATE ducklake_{table} SET path = ? || path WHERE table_id = ?", (folder, id_))


def _number_partition_columns(write: Run) -> None:
    for table, column in write("SELECT DISTINCT table_id, column_id FROM ducklake_partition_column ORDER BY 1, 2"):
        ids = write(
            "SELECT column_id FROM ducklake_column"
            " WHERE table_id = ? AND parent_column IS NULL AND end_snapshot IS NULL ORDER BY column_order",
            (table,),
        )
        position = [id_ for (id_,) in ids].index(column)
        # ids begin with 1 and positions with 0: in ascending order no position is taken for an id
        write(
            "UPDATE ducklake_partition_column SET column_id = ? WHERE table_id = ? AND column_id = ?",
            (position, table, column),
        )
