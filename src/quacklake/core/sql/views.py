"""Read and check views through the binder of a session, as statements do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from quacklake.core.engines.duckdb.stored_texts import LAKE, parse_query
from quacklake.core.format.names import fold, quote
from quacklake.core.format.objects import TableInfo, ViewInfo
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.format.texts import parse_column
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.handles import LakeHandle, TransactionHandle
from quacklake.core.sql.attached import Target
from quacklake.core.sql.binder import Binder
from quacklake.core.sql.failures import translated
from quacklake.core.sql.session import Session
from quacklake.core.sql.sessions import LakeSessions
from quacklake.core.sql.titles import with_titles
from quacklake.core.transaction import Transaction
from quacklake.errors import InputError, NotFoundError, NotPermittedError, UnsupportedFeatureError, nearest

_lock = threading.Lock()


def kept_session(context: LakeContext, tx: Transaction) -> Session:
    """Return the session of this thread, which is kept, reading the lake as a transaction sees it."""
    if tx.rules is not None:
        raise NotPermittedError("views are read with SQL", hint='lake.sql("FROM view")')
    with _lock:
        if context.view_sessions is None:
            base = LakeHandle(context).begin(tx.base, read_only=True)
            context.view_sessions = LakeSessions(TransactionHandle(context, base))
    session: Session = context.view_sessions.current()
    session.settle()
    session.work.read(session.attachments.find("lake"), tx)
    return session


@contextmanager
def cursor_on(context: LakeContext, tx: Transaction) -> Iterator[Session]:
    """Yield a connection of its own, with temporary tables of its own, that reads a lake as a transaction sees it.

    It is for binding queries: a whole statement would read the lake at another snapshot.
    """
    kept = kept_session(context, tx)
    try:
        session = kept.cursor()
    finally:
        kept.work.forget_views()
    session.work.read(session.attachments.find("lake"), tx)
    try:
        yield session
    finally:
        session.close()


@contextmanager
def _reading(context: LakeContext, tx: Transaction) -> Iterator[Session]:
    """Yield a session that reads the lake as a transaction sees it."""
    session = kept_session(context, tx)
    try:
        with translated([context.store.root]):
            yield session
    finally:
        session.work.forget_views()


def read_view(
    context: LakeContext, tx: Transaction, view: ViewInfo, select: str = "*", *, limit: int | None = None
) -> pa.Table:
    """Return rows of a view."""
    with _reading(context, tx) as session:
        end = "" if limit is None else f" LIMIT {limit:d}"
        return session.query(f"SELECT {select} FROM {_place(view)}{end}").to_arrow()


def _place(view: ViewInfo) -> str:
    return f"lake.{quote(view.schema_name)}.{quote(view.name)}"


def view_column(context: LakeContext, tx: Transaction, view: ViewInfo, name: str) -> str:
    """Return a column's name as the view spells it. Raise ``NotFoundError``."""
    columns: list[str] = read_view(context, tx, view, limit=0).column_names
    found = next((column for column in columns if fold(column) == fold(name)), None)
    if found is None:
        raise NotFoundError(f'the view "{view.qualified_name}" has no column "{name}"', hint=nearest(name, columns))
    return found


def check_view(context: LakeContext, tx: Transaction, schema: str, sql: str, aliases: tuple[str, ...]) -> str:
    """Return the query of a new view in stored form. Raise ``InputError`` or ``NotFoundError`` when it cannot run."""
    with _reading(context, tx) as session:
        text = parse_query(session.connection, sql).sql
        target = Target(session.attachments.find("lake"), schema, "")
        return with_titles(session.connection, sql.replace(LAKE, ""), Binder(session).check(text, target, tx, aliases))


def view_tables(context: LakeContext, tx: Transaction, view: ViewInfo) -> list[TableInfo]:
    """Return the tables that a view reads, directly or through other views."""
    with _reading(context, tx) as session:
        scans = Binder(session).bind(f"SELECT * FROM {_place(view)}").scans
        return list({scan.table.id: scan.table for scan in scans}.values())


def view_rows(context: LakeContext, tx: Transaction, view: ViewInfo, limit: int) -> tuple[TableSchema, pa.Table]:
    """Return the columns of a view, and rows with columns ``c<number>`` of types that Spark takes."""
    with _reading(context, tx) as session:
        bound = Binder(session).bind(f"SELECT * FROM {_place(view)}")
        columns = []
        for number, (title, type_, *_) in enumerate(session.connection.execute(f"DESCRIBE {bound.sql}").fetchall()):
            try:
                columns.append(replace(parse_column(title, type_), id=number))
            except InputError as error:
                raise UnsupportedFeatureError(f"{type_} has no equivalent in Spark", hint=error.hint) from None
        select = ", ".join(f"{_plain(f'c{column.id}', column)} AS c{column.id}" for column in columns)
        names = ", ".join(f"c{column.id}" for column in columns)
        query = f"SELECT {select} FROM {_place(view)} AS ql_rows({names}) LIMIT {limit:d}"
        return TableSchema(tuple(columns)), session.query(query).to_arrow()


def _plain(name: str, column: Column) -> str:
    if column.type in ("uuid", "interval", "timetz", "time_ns", "uint128"):
        return f"CAST({name} AS VARCHAR)"
    return f"CAST({name} AS DECIMAL(38,0))" if column.type == "int128" else name
