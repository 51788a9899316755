"""The metadata tables of a lake as relations: ``__ducklake_metadata_<alias>.ducklake_…``.

Queries read them like any table. INSERT, UPDATE and DELETE run in the database that holds them, for manual repairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quacklake.catalog.reading.health import metadata_table
from quacklake.errors import NotFoundError, ReadOnlyError, SqlError
from quacklake.format.names import fold
from quacklake.sql.attached import Attached
from quacklake.sql.result import Result
from quacklake.sql.words import Cursor

if TYPE_CHECKING:
    from quacklake.sql.session_connection import SessionConnection


def relation(session: SessionConnection, names: Sequence[str]) -> pa.Table | None:
    """Return the rows of a metadata table, or None for any other name."""
    attached = session.attachments.metadata_of(names[0]) if len(names) > 1 else None
    if attached is None and len(names) == 1:
        attached = session.attachments.metadata_of(session.names.catalog)
    return None if attached is None else rows(attached, names[-1])


def rows(attached: Attached, name: str) -> pa.Table:
    """Return a metadata table of a lake. Raises ``NotFoundError`` when there is no such table."""
    with attached.context.catalog.read() as reader:
        found = metadata_table(reader, name)
    if found is None:
        raise NotFoundError(f'the metadata of the lake "{attached.alias}" has no table "{name}"')
    return found


def change(session: SessionConnection, cursor: Cursor, params: Any) -> Result | None:
    """Run an INSERT, UPDATE or DELETE of a metadata table in its own database. Return None for any other table."""
    cursor.until("INTO", "UPDATE", "FROM")
    cursor.accept("INTO") or cursor.accept("UPDATE") or cursor.accept("FROM")
    word = cursor.peek()
    if word is None or word.kind not in ("word", "name"):
        return None
    names = cursor.names()
    attached = session.attachments.metadata_of(names[0]) if len(names) > 1 else None
    if attached is None:
        return None
    if attached.read_only:
        raise ReadOnlyError(f'the metadata of "{attached.alias}" cannot be changed: it is attached in read-only mode')
    if session.work.explicit:
        raise SqlError("metadata tables cannot be changed in a transaction: COMMIT or ROLLBACK first")
    if params:
        raise SqlError("a statement that changes metadata tables takes no parameters")
    context = attached.context
    count = context.catalog.run_sql(lambda prefix: _own_text(cursor.text, attached, prefix))
    context.forget()
    return Result(pa.table({"Count": pa.array([count], pa.int64())}), types=("BIGINT",), rowcount=count)


def _own_text(text: str, attached: Attached, prefix: str) -> str:
    """Return the statement with the names that its tables have in their own database."""
    cursor = Cursor(text)
    parts: list[str] = []
    done = 0
    while not cursor.done:
        first = cursor.at
        word = cursor.take()
        if word.kind in ("word", "name") and fold(word.value) == fold(attached.metadata) and cursor.accept("."):
            names = cursor.names()
            parts += [text[done : word.start], f"{prefix}{names[-1]}"]
            done = cursor.words[cursor.at - 1].end
        else:
            cursor.at = first + 1
    return "".join([*parts, text[done:]])
