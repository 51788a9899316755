"""Find DROPs of a schema, table or view of the metadata database that is still needed.

The oracle checks every DROP before it runs, with its own SQL on the same connection, so that it sees what the transaction
sees. What the rows must no longer name is checked again before the commit. The oracle uses no code of the library. It
knows SQLite, DuckDB and PostgreSQL.

A client may drop: temporary tables; tables of inlined rows that no snapshot shows; what a conversion put aside, once all
its rows are elsewhere; the table that 1.0 does not have; views over the metadata; and what exposing a catalog made, if
nothing names it afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from tests.drop_looks import DuckDBLook, Look, PostgresLook, SqliteLook

__all__ = ["DropOracle", "listening"]

_NAME = r'(?:"(?:[^"]|"")*"|[\w$]+)'
_DROP = re.compile(
    rf"\s*DROP\s+(TABLE|VIEW|SCHEMA|FUNCTION)\s+(?:IF\s+EXISTS\s+)?({_NAME}(?:\.{_NAME})?)\s*(\(\))?\s*(CASCADE)?\s*;?\s*",
    re.IGNORECASE,
)
_RENAME = re.compile(rf"\s*ALTER\s+TABLE\s+({_NAME}(?:\.{_NAME})?)\s+RENAME\s+TO\s+({_NAME})\s*", re.IGNORECASE)
_WORDS = re.compile(r"\s*(DROP|ALTER)\s+(TABLE|VIEW|SCHEMA|FUNCTION|MATERIALIZED|OWNED|DATABASE)\b", re.IGNORECASE)

Later = Callable[[Look], str | None]
"""Asked before the commit: what is wrong, if anything is."""


@dataclass
class _Transaction:
    renamed: set[tuple[str, str]] = field(default_factory=set)
    exposures: set[str] = field(default_factory=set)
    later: list[Later] = field(default_factory=list)


class DropOracle:
    """Looks at each DROP, and adds to ``mistakes`` what should not have been dropped."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        self.asked = 0
        self._open: WeakKeyDictionary[Any, _Transaction] = WeakKeyDictionary()

    def before(self, connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        """Raise ``AssertionError`` for a DROP of something that is needed."""
        if not _WORDS.match(statement):
            return
        look = _look(connection)
        if look is None:
            return
        state = self._open.setdefault(connection, _Transaction())
        renamed = _RENAME.fullmatch(statement)
        if renamed:
            schema, _name = look.place(_parts(renamed[1]))
            state.renamed.add((schema, _parts(renamed[2])[-1]))
        elif statement.lstrip()[:4].upper() == "DROP":
            self.asked += 1
            found = _DROP.fullmatch(statement)
            if found is None:
                self._tell(f"nobody knows what this drops: {statement.strip()}")
                return
            kind, name = found[1].upper(), _parts(found[2])
            for mistake in _mistakes(look, state, kind, name, cascade=bool(found[4])):
                self._tell(mistake)

    def commit(self, connection: Any) -> None:
        """Raise ``AssertionError`` when something still names what this transaction has dropped."""
        state = self._open.pop(connection, None)
        look = None if state is None else _look(connection)
        for later in state.later if state else ():
            assert look is not None
            mistake = later(look)
            if mistake is not None:
                look.raw.rollback()  # SQLAlchemy takes the transaction for one that has ended
                self._tell(mistake)

    def rollback(self, connection: Any) -> None:
        """Forget what was not done."""
        self._open.pop(connection, None)

    def _tell(self, mistake: str) -> None:
        self.mistakes.append(mistake)
        raise AssertionError(mistake)


@contextmanager
def listening(oracle: DropOracle) -> Iterator[None]:
    """Let an oracle look at the statements of all engines."""
    hooks = [("before_cursor_execute", oracle.before), ("commit", oracle.commit), ("rollback", oracle.rollback)]
    for name, hook in hooks:
        sa.event.listen(sa.Engine, name, hook)
    try:
        yield
    finally:
        for name, hook in hooks:
            sa.event.remove(sa.Engine, name, hook)


def _look(connection: Any) -> Look | None:
    kinds: dict[str, type[Any]] = {"postgresql": PostgresLook, "sqlite": SqliteLook, "duckdb": DuckDBLook}
    kind = kinds.get(connection.dialect.name)
    return None if kind is None else kind(connection.connection.dbapi_connection)


def _parts(name: str) -> list[str]:
    return [part[1:-1].replace('""', '"') if part[0] == '"' else part for part in re.findall(_NAME, name)]


def _mistakes(look: Look, state: _Transaction, kind: str, name: list[str], *, cascade: bool) -> Iterator[str]:
    if kind == "SCHEMA":
        yield from _of_schema(look, state, name[-1])
        return
    schema, relation = look.place(name)
    if kind == "FUNCTION":
        if schema not in state.exposures or not relation.startswith("quacklake_mirror"):
            yield f"the function {schema}.{relation} is not of an exposed catalog"
    elif not look.exists(schema, relation) or look.is_temporary(schema, relation):
        return
    elif kind == "VIEW":
        yield from _of_view(look, state, schema, relation)
    elif look.is_lake(schema) or (schema, "quacklake_old_snapshot") in state.renamed:
        yield from _of_table(look, state, schema, relation)
    else:
        yield from _of_exposed_table(look, state, schema, relation)
    if cascade:
        yield from (f"{other} is dropped with {schema}.{relation}" for other in look.solid_dependents(schema, relation))


def _of_schema(look: Look, state: _Transaction, schema: str) -> Iterator[str]:
    if schema not in state.exposures:
        yield f"the schema {schema} is not of an exposed catalog"
    yield from (f"the schema {schema} is dropped with {name}" for name in look.content(schema))


def _of_view(look: Look, state: _Transaction, schema: str, view: str) -> Iterator[str]:
    lake = look.lake_under(schema, view)
    if lake is None:
        yield f"the view {schema}.{view} shows nothing of a lake"
    elif look.exposed_by(schema) == lake:
        _unexposed(state, schema)
    elif schema != "lakehouse" and not (schema == lake and view.startswith("lakehouse_")):
        yield f"the view {schema}.{view} is not one of those over the metadata"


def _of_exposed_table(look: Look, state: _Transaction, schema: str, table: str) -> Iterator[str]:
    lake = look.exposed_by(schema)
    if lake is None or look.lake_under(schema, "ducklake_snapshot") != lake:
        yield f"the table {schema}.{table} is not of an exposed catalog"
    elif table not in ("ducklake_metadata", "ducklake_files_scheduled_for_deletion"):
        yield f"the table {schema}.{table} was not made by exposing"
    elif look.unmirrored(schema, table, lake):
        yield f"the table {schema}.{table} has rows that the lake has not"
    _unexposed(state, schema)


def _unexposed(state: _Transaction, schema: str) -> None:
    def still(look: Look) -> str | None:
        return None if look.exposed_by(schema) is None else f"the schema {schema} is still that of an exposed catalog"

    if schema not in state.exposures:
        state.exposures.add(schema)
        state.later.append(still)


def _of_table(look: Look, state: _Transaction, schema: str, table: str) -> Iterator[str]:
    inlined = re.fullmatch(r"ducklake_inlined_(data|delete)_(\d+)(?:_(\d+))?", table)
    if inlined:
        if look.shows(schema, table, int(inlined[2])):
            yield f"the table {schema}.{table} has rows that a snapshot shows"
        state.later.append(
            lambda after: f"{schema}.{table} was dropped and is named" if after.lists(schema, table) else None
        )
    elif (schema, table) in state.renamed and table.startswith("quacklake_old_"):
        lost = look.uncarried(schema, table)
        if lost:
            yield f"{lost} rows of {schema}.{table} are nowhere else"
    elif table == "ducklake_view_column_tag":
        state.later.append(
            lambda after: (
                None if after.version(schema) == "1.0" else f"{schema}.{table} is part of {after.version(schema)}"
            )
        )
    else:
        yield f"the table {schema}.{table} was not made by this call"
