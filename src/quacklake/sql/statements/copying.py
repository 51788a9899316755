"""COPY, to files and from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quacklake.format.names import quote
from quacklake.lake.result import Result
from quacklake.sql.attached import Target
from quacklake.sql.binder import Binder
from quacklake.sql.statements import queries
from quacklake.sql.statements.inserting import append_bound, conforming
from quacklake.sql.statements.rows import counted, find_table
from quacklake.sql.words import Cursor
from quacklake.transaction import Transaction

if TYPE_CHECKING:
    from quacklake.sql.session import Session

__all__ = ["copy"]


def copy(session: Session, cursor: Cursor, params: Any) -> Result:
    """COPY name | (query) TO 'file' (…), or COPY name [(columns)] FROM 'file' (…)."""
    cursor.expect("COPY")
    if cursor.sees("FROM", "DATABASE"):
        return queries.native(session, cursor, params)
    if cursor.sees("("):
        query = cursor.parens()
        return _to(session, query, cursor.rest(), params)
    target = session.names.target(cursor.names())
    if target is None:
        return queries.native(session, cursor, params)
    columns = [Cursor(item).name() for item in cursor.items()] if cursor.sees("(") else None
    if cursor.sees("TO"):
        names = "*" if columns is None else ", ".join(quote(name) for name in columns)
        named = ".".join(quote(part) for part in (target.attached.alias, target.schema, target.name))
        return _to(session, f"SELECT {names} FROM {named}", cursor.rest(), params)
    cursor.expect("FROM")
    return _from(session, target, columns, cursor.rest(), params)


def _to(session: Session, query: str, rest: str, params: Any) -> Result:
    bound = Binder(session, params).bind(query)
    return session.native(f"COPY ({bound.sql}) {rest}", bound.values)


def _from(session: Session, target: Target, columns: list[str] | None, rest: str, params: Any) -> Result:
    """Let DuckDB read the file into a table of the same columns, and take the rows from there."""
    name = session.fresh_name()

    def work(tx: Transaction) -> int:
        table = find_table(target, tx)
        chosen = list(table.schema.columns) if columns is None else [table.schema.find(n) for n in columns]
        listed = ", ".join(f"{quote(column.name)} {column.duckdb_type()}" for column in chosen)
        session.connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({listed})")
        session.connection.execute(f"COPY {name} FROM {rest}", params)
        places = {column.id: place for place, column in enumerate(chosen)}
        sql = conforming(table, places, f"SELECT * FROM temp.main.{name}")
        return append_bound(session, tx, target.attached, table, sql, None)

    return counted(session.write(target.attached, work))
