"""COPY to and from files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quacklake.engines.duckdb.queries import LAKE
from quacklake.format.names import quote
from quacklake.sql.attached import Target
from quacklake.sql.binder import Binder
from quacklake.sql.result import Result
from quacklake.sql.statements import queries, transactions
from quacklake.sql.statements.inserting import conforming
from quacklake.sql.statements.rows import append_bound, counted, find_table
from quacklake.sql.words import Cursor
from quacklake.transaction import Transaction

if TYPE_CHECKING:
    from quacklake.sql.session import Session


def copy(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run COPY name | (query) TO 'file' (…), or COPY name [(columns)] FROM 'file' (…)."""
    cursor.expect("COPY")
    if cursor.accept("FROM", "DATABASE"):
        return _database(session, cursor)
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


def _database(session: Session, cursor: Cursor) -> Result:
    """Run COPY FROM DATABASE a TO b [(SCHEMA | DATA)]: copy schemas, tables and views in one transaction."""
    source = cursor.name()
    cursor.expect("TO")
    target = cursor.name()
    what = cursor.parens().upper() if cursor.sees("(") else ""
    cursor.end()
    lake = session.attachments.get(source)
    if lake is None and session.attachments.get(target) is None:
        return session.native(cursor.text)
    own = not session.work.explicit
    if own:
        transactions.begin(session, Cursor("BEGIN"), None)
    try:
        for statement in _statements(session, source, target, what):
            session.statement(statement)
    except BaseException:
        if own:
            transactions.rollback(session, Cursor("ROLLBACK"), None)
        raise
    if own:
        transactions.commit(session, Cursor("COMMIT"), None)
    return Result()


def _statements(session: Session, source: str, target: str, what: str) -> list[str]:
    def listed(query: str) -> list[tuple[Any, ...]]:
        return session.query(query, {"source": source}).fetchall()

    where = "WHERE database_name = $source AND NOT internal ORDER BY ALL"
    found = []
    if what != "DATA":
        for (schema,) in listed(f"SELECT schema_name FROM duckdb_schemas() {where}"):
            found.append(f"CREATE SCHEMA IF NOT EXISTS {quote(target)}.{quote(schema)}")
    for schema, name in listed(f"SELECT schema_name, table_name FROM duckdb_tables() {where}"):
        place = f"{quote(schema)}.{quote(name)}"
        if what != "DATA":
            columns = ", ".join(
                f"{quote(column)} {type_}{'' if nullable else ' NOT NULL'}"
                f"{'' if default in (None, 'NULL') else f' DEFAULT {default}'}"
                for column, type_, nullable, default in session.query(
                    "SELECT column_name, data_type, is_nullable, column_default FROM duckdb_columns()"
                    " WHERE database_name = $source AND schema_name = $schema AND table_name = $name"
                    " ORDER BY column_index",
                    {"source": source, "schema": schema, "name": name},
                )
            )
            found.append(f"CREATE TABLE {quote(target)}.{place} ({columns})")
        if what != "SCHEMA":
            found.append(f"INSERT INTO {quote(target)}.{place} SELECT * FROM {quote(source)}.{place}")
    if what != "DATA" and session.attachments.get(source) is not None and session.attachments.get(target) is not None:
        for view in session.view(session.attachments.find(source)).objects.views():
            columns = f" ({', '.join(quote(alias) for alias in view.aliases)})" if view.aliases else ""
            place = f"{quote(view.schema_name)}.{quote(view.name)}"
            found.append(f"CREATE VIEW {quote(target)}.{place}{columns} AS {view.sql.replace(LAKE, '')}")
    return found


def _to(session: Session, query: str, rest: str, params: Any) -> Result:
    bound = Binder(session, params).bind(query)
    return session.native(f"COPY ({bound.sql}) {rest}", bound.values)


def _from(session: Session, target: Target, columns: list[str] | None, rest: str, params: Any) -> Result:
    """Let DuckDB read the file into a table with the same columns, and insert the rows from there."""
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
