"""Record the statements that a lake sends, and find those that do not say whose rows they mean."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

import quacklake
from tests.catalog.driver import watch_driver

_TABLE = re.compile(r"\b(FROM|JOIN|INTO|UPDATE|COPY)\s+(?:ONLY\s+)?\"?((?:ducklake|quacklake)_\w+)\"?", re.IGNORECASE)
_OF_ALL = ("ducklake_catalog", "quacklake_shared", "quacklake_shares")
_OWN = ("quacklake_unseen_", "quacklake_rows")


def unbound(sql: str) -> list[str]:
    """The tables that a statement reads or changes without saying whose rows."""
    found = []
    for match in _TABLE.finditer(sql):
        word, table, rest = match[1].upper(), match[2], sql[match.end() :]
        if table.startswith((*_OF_ALL, *_OWN)):
            continue
        if word in ("INTO", "COPY"):
            bound = re.match(r"\s*\([^)]*\bcatalog_id\b", rest)
        elif word == "UPDATE" or sql[: match.start()].rstrip().upper().endswith("DELETE"):
            bound = re.search(rf"WHERE.*\b{table}\.catalog_id = ", rest, re.DOTALL)
        else:
            bound = re.match(r"\s+WHERE catalog_id = ", rest)
        if bound is None:
            found.append(f"{table}: {sql}")
    return found


@contextmanager
def sent(lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every statement that reaches the database, those that go around SQLAlchemy too."""
    found: list[str] = []
    engine = lake._context.catalog._engine
    if engine.dialect.name == "sqlite":
        engine.dispose()

        @sa.event.listens_for(engine, "connect")
        def trace(connection: sqlite3.Connection, _: Any) -> None:
            connection.set_trace_callback(found.append)

    elif engine.dialect.name == "postgresql":
        watch_driver(monkeypatch, lambda statement, _: found.append(statement))
    else:

        @sa.event.listens_for(engine, "before_cursor_execute")
        def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
            found.append(statement)

    yield found
