"""Find statements of a shared lake for which the database reads more than the rows of one catalog."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa

from tests.catalog.driver import watch_driver, watch_sqlite

__all__ = ["Statement", "astray", "captured", "multiply"]

_WORDS = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
_COPIED = re.compile(r"COPY \((?P<query>.*)\) TO STDOUT", re.DOTALL)
_OURS = re.compile(r"(ducklake|quacklake)_(?!unseen_|shared\b)")
"""Tables that grow with the catalogs; ``quacklake_shared`` has one row."""

_NARROW = {"catalog_id", "catalog_key", "folder_key", "owner_id", "borrower_id", "rowid"}
"""Columns by which an index must be entered, so that few rows are left."""

_SMALL = ("quacklake_catalog_gone",)
"""Indexes that hold few rows themselves."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as the driver gets it, with the parameters of one row."""

    sql: str
    params: Any


@contextmanager
def captured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Statement]]:
    """Record every statement that any lake of this process sends, including those that bypass SQLAlchemy."""
    found: list[Statement] = []

    def note(connection: Any, _cursor: Any, sql: str, params: Any, _context: Any, many: bool) -> None:
        if connection.dialect.name != "postgresql" and sql.lstrip().startswith(_WORDS):
            found.append(Statement(sql, params[0] if many else params))

    def noted(sql: str, params: Any) -> None:
        match = _COPIED.match(sql)
        if match is not None:
            found.append(Statement(match["query"].replace("%", "%%"), {}))
        elif sql.lstrip().startswith(_WORDS):
            # a text without parameters may be several statements
            parts = re.split(r"; (?=SELECT )", sql) if params is None else [sql]
            found.extend(Statement(part, params) for part in parts)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        with monkeypatch.context() as patch:
            watch_driver(patch, noted)
            watch_sqlite(patch, noted)
            yield found
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


def multiply(connection: sa.Connection, source: int) -> None:
    """Give every other catalog the rows that one has, at least one in each table, and none else."""
    for name in sa.inspect(connection).get_table_names():
        first, *columns = sa.inspect(connection).get_columns(name)
        if not _OURS.match(name) or first["name"] != "catalog_id" or name == "ducklake_catalog":
            continue
        connection.execute(sa.text(f"DELETE FROM {name} WHERE catalog_id <> {source}"))
        if connection.execute(sa.text(f"SELECT 1 FROM {name} LIMIT 1")).first() is None:
            values = ("NULL" if each["nullable"] else _least(each["type"]) for each in columns)
            connection.execute(sa.text(f"INSERT INTO {name} VALUES ({source}, {', '.join(values)})"))
        others = ", ".join(f't."{column["name"]}"' for column in columns)
        rows = f"SELECT c.catalog_id, {others} FROM {name} t, ducklake_catalog c WHERE c.catalog_id <> {source}"
        connection.execute(sa.text(f"INSERT INTO {name} {rows}"))
    # the rows name files in the folder of the one
    path = f"SELECT value FROM ducklake_metadata WHERE catalog_id = {source} AND key = 'data_path'"
    connection.execute(sa.text(f"UPDATE ducklake_catalog SET folder = ({path})"))
    connection.commit()


def _least(type_: sa.types.TypeEngine[Any]) -> str:
    return "'00000000-0000-0000-0000-000000000000'" if isinstance(type_, sa.Uuid) else "0"


def astray(connection: Any, statement: Statement) -> list[str]:
    """The tables that grow with the catalogs and that the database would look through for a statement.

    ``connection`` is one of the driver.
    """
    if isinstance(connection, sqlite3.Connection):
        lines = connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", statement.params).fetchall()
        return _gone_through([line for *_, line in lines])
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {statement.sql}", statement.params or None)
        plan = cursor.fetchone()[0]
        loaded = json.loads(plan) if isinstance(plan, str) else plan
    return [found for each in loaded for found in _lost(each["Plan"], limited=False)]


def _gone_through(lines: list[str]) -> list[str]:
    """Of SQLite: what goes through a table, unless in the order of the names of catalogs, page by page."""
    made = {match[1] for line in lines if (match := re.match(r"(?:MATERIALIZE|CO-ROUTINE) (\w+)", line))}
    return [line for line in lines if not _is_narrow(line, made)]


def _is_narrow(line: str, made: set[str]) -> bool:
    if match := re.match(r"SEARCH (\w+) .*\((\w+)", line):
        return match[2] in _NARROW or (match[1] in made or match[1].startswith("anon_"))
    match = re.match(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?", line)
    if match is None or match[1] in made or not _OURS.match(match[1]):
        return True
    return match[1] == "ducklake_catalog" and "catalog" in (match[2] or "")


def _lost(node: dict[str, Any], *, limited: bool) -> Iterator[str]:
    """Of PostgreSQL: likewise; an index without a condition is of use only for the first rows in its order."""
    kind, table = node["Node Type"], node.get("Relation Name") or node.get("Index Name") or ""
    limited = limited or kind == "Limit"
    if _OURS.match(table) and node.get("Index Name") not in _SMALL:
        whole = "Index" in kind and "Index Cond" not in node and not (limited and table == "ducklake_catalog")
        if "Seq Scan" in kind or whole:
            yield f"{kind} of {table}"
    for child in node.get("Plans", ()):
        yield from _lost(child, limited=limited)
