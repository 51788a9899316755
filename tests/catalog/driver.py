"""Record the statements that reach a driver: PostgreSQL's through SQLAlchemy or around it, SQLite's around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from quacklake.core.catalog.databases import sqlite

__all__ = ["watch_driver", "watch_sqlite"]


def watch_driver(monkeypatch: pytest.MonkeyPatch, note: Callable[[str, Any], object]) -> None:
    """Have every statement noted, with its parameters."""
    import psycopg

    def watch(name: str) -> None:
        real = getattr(psycopg.Cursor, name)

        def noted(self: Any, statement: Any, params: Any = None, **options: Any) -> Any:
            note(str(statement), params)
            return real(self, statement, params, **options)

        monkeypatch.setattr(psycopg.Cursor, name, noted)

    watch("execute")
    watch("copy")


def watch_sqlite(monkeypatch: pytest.MonkeyPatch, note: Callable[[str, Any], object]) -> None:
    """Have every statement noted that goes around SQLAlchemy, with the parameters of one row."""
    real = sqlite._cursor

    class Noting:
        def __init__(self, connection: Any) -> None:
            self._cursor = real(connection)

        def execute(self, statement: str, params: Any) -> Any:
            note(statement, params)
            return self._cursor.execute(statement, params)

        def executemany(self, statement: str, rows: Any) -> Any:
            note(statement, rows[0])
            return self._cursor.executemany(statement, rows)

    monkeypatch.setattr(sqlite, "_cursor", Noting)
