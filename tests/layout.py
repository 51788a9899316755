"""The layout of the lakes of the tests: plain, or each a catalog of a shared lake."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from quacklake.core.catalog.statements import CatalogStatements
from quacklake.core.format.names import literal

__all__ = [
    "CATALOG",
    "LAYOUT",
    "NAMED",
    "add_row",
    "by_hand",
    "copy_lake",
    "folder",
    "inlined_rows",
    "move",
    "moved",
    "new_inlined_delete",
    "new_row",
    "plain_only",
]

LAYOUT = os.environ.get("QUACKLAKE_TEST_LAYOUT", "plain")
"""``shared`` runs the tests on the layout for many catalogs; those that let stock DuckDB open the lake are skipped."""

CATALOG = "acme"
"""The catalog that every lake of a test then is."""

NAMED = f"CATALOG '{CATALOG}', " if LAYOUT == "shared" else ""
"""The option of ATTACH that names the catalog, in front of other options: settings cannot name it there."""


def plain_only(reason: str) -> None:
    """Skip what cannot be done with a catalog of a shared lake."""
    if LAYOUT == "shared":
        pytest.skip(reason)


def folder(data_path: Path) -> Path:
    """Return the folder with the files of a lake that was made with a data path."""
    return data_path / CATALOG if LAYOUT == "shared" else data_path


def by_hand(lines: CatalogStatements, sql: str) -> sa.CursorResult[Any]:
    """Run a text on the metadata unchanged, which a shared lake would refuse; the lake has one catalog."""
    return lines.connection.exec_driver_sql(sql)


def new_row(table: str, **values: str | int | None) -> str:
    """The statement that adds a row to a metadata table as it is; the lake has one catalog."""
    texts = {
        name: literal(value) if isinstance(value, str) else "NULL" if value is None else f"{value:d}"
        for name, value in values.items()
    }
    if LAYOUT == "shared":
        texts["catalog_id"] = "(SELECT catalog_id FROM ducklake_catalog)"
    return f"INSERT INTO {table} ({', '.join(texts)}) VALUES ({', '.join(texts.values())})"


def add_row(connection: sa.Connection, table: str, **values: str | int | None) -> None:
    """Add a row to a metadata table as it is; the lake has one catalog."""
    connection.exec_driver_sql(new_row(table, **values))


def inlined_rows(table_id: int, version: int) -> tuple[str, str]:
    """The metadata table that has the inlined rows of a schema version, and the condition that its rows are these."""
    if LAYOUT == "shared":
        return "ducklake_inlined_rows", f"table_id = {table_id} AND schema_version = {version}"
    return f"ducklake_inlined_data_{table_id}_{version}", "1 = 1"


def new_inlined_delete(table_id: int, **values: int) -> str:
    """The statement that adds an inlined delete."""
    if LAYOUT == "shared":
        return new_row("ducklake_inlined_deletes", table_id=table_id, **values)
    return new_row(f"ducklake_inlined_delete_{table_id}", **values)


def moved(data_path: str) -> list[str]:
    """The statements that let a lake which was copied have its files below ``data_path``, which ends with a slash."""
    mine = f"{data_path}{CATALOG}/" if LAYOUT == "shared" else data_path
    statements = [f"UPDATE ducklake_metadata AS m SET value = {literal(mine)} WHERE m.key = 'data_path'"]
    if LAYOUT == "shared":
        statements.append(f"UPDATE quacklake_shared SET data_path = {literal(data_path)}")
    return statements


def copy_lake(original: Path, folder: Path) -> None:
    """Copy a closed lake, with ``lake.db`` and files in ``data``, into a folder."""
    shutil.copytree(original, folder, dirs_exist_ok=True)
    with closing(sqlite3.connect(folder / "lake.db")) as connection, connection:
        move(connection, f"{folder}/data/")


def move(connection: sqlite3.Connection, data_path: str) -> None:
    """Let a lake that was copied have its files below ``data_path``, which ends with a slash."""
    for statement in moved(data_path):
        connection.execute(statement)
