"""Which layout the lakes of the tests have: plain ones, or a catalog of a shared one each."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from quacklake.catalog.reading.statements import Statements

__all__ = ["CATALOG", "LAYOUT", "NAMED", "add_row", "by_hand", "folder", "move", "plain_only"]

LAYOUT = os.environ.get("QUACKLAKE_TEST_LAYOUT", "plain")
"""``shared`` runs the tests on the layout for many catalogs; those that let stock DuckDB open the lake are skipped."""

CATALOG = "acme"
"""The catalog that every lake of a test then is."""

NAMED = f"CATALOG '{CATALOG}', " if LAYOUT == "shared" else ""
"""What ATTACH says of it, before its other options: settings do not name the catalog there."""


def plain_only(reason: str) -> None:
    """Skip what cannot be done with a catalog of a shared lake."""
    if LAYOUT == "shared":
        pytest.skip(reason)


def folder(data_path: Path) -> Path:
    """Where the files of a lake that was made with a data path are."""
    return data_path / CATALOG if LAYOUT == "shared" else data_path


def by_hand(lines: Statements, sql: str) -> sa.CursorResult[Any]:
    """Run a text on the metadata as it is, which a shared lake would refuse; the lake has one catalog."""
    return lines._connection.exec_driver_sql(sql)


def add_row(connection: sa.Connection, table: str, **values: Any) -> None:
    """Add a row to a metadata table as it is; the lake has one catalog."""
    if LAYOUT == "shared":
        values["catalog_id"] = connection.exec_driver_sql("SELECT catalog_id FROM ducklake_catalog").scalar_one()
    found = sa.table(table, *(sa.column(name) for name in values))
    connection.execute(sa.insert(found).values(**values))


def move(connection: sqlite3.Connection, data_path: str) -> None:
    """Let a lake that was copied have its files below ``data_path``, which ends with a slash."""
    mine = f"{data_path}{CATALOG}/" if LAYOUT == "shared" else data_path
    connection.execute("UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'", (mine,))
    if LAYOUT == "shared":
        connection.execute("UPDATE quacklake_shared SET data_path = ?", (data_path,))
