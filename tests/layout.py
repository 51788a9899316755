"""Which layout the lakes of the tests have: plain ones, or a catalog of a shared one each."""

from __future__ import annotations

import os
import sqlite3

__all__ = ["CATALOG", "LAYOUT", "move"]

LAYOUT = os.environ.get("QUACKLAKE_TEST_LAYOUT", "plain")
"""``shared`` runs the tests on the layout for many catalogs; those that let stock DuckDB open the lake are skipped."""

CATALOG = "acme"
"""The catalog that every lake of a test then is."""


def move(connection: sqlite3.Connection, data_path: str) -> None:
    """Let a lake that was copied have its files below ``data_path``, which ends with a slash."""
    mine = f"{data_path}{CATALOG}/" if LAYOUT == "shared" else data_path
    connection.execute("UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'", (mine,))
    if LAYOUT == "shared":
        connection.execute("UPDATE quacklake_shared SET data_path = ?", (data_path,))
