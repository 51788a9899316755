"""SQL over lakes: statements and queries taken apart, and checked before they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from quacklake.core.engines.duckdb.expressions import parser, plain_expression
from quacklake.core.engines.duckdb.stored_texts import parse_query
from quacklake.core.sql.session_databases import LAKE
from quacklake.core.sql.words import Cursor, split, words_of
from quacklake.extend.duckdbs import connect

if TYPE_CHECKING:  # a lake takes long to load, and who only takes statements apart needs none
    from quacklake.core.sql.session import Session
    from quacklake.core.transaction import Transaction
    from quacklake.lake.lake import Lake, LakeAt, LakeTransaction

__all__ = [
    "Cursor",
    "check_query",
    "find_tables",
    "open_session",
    "plain_expression",
    "split",
    "view_lake",
    "words_of",
    "write_in",
]

T = TypeVar("T")


def check_query(query: str) -> None:
    """Raise ``NotPermittedError`` for a query that could read anything but tables and views, such as files.

    Raise ``SqlError`` for a text that is not one query. Names are not looked up.

    >>> check_query("SELECT count(*) FROM events WHERE id > 3")
    >>> check_query("SELECT * FROM read_csv('/etc/passwd')")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    NotPermittedError: a safe session does not call read_csv
    """
    from quacklake.core.sql import tree
    from quacklake.core.sql.safety.checks import check

    with connect() as connection:
        check(tree.parse(connection, query), lambda *_: False)


def find_tables(query: str) -> list[tuple[str | None, str]]:
    """Return the tables and views that a query names, each with its schema where it has one, before any is looked up.

    Raise ``InputError`` for any other statement, and for a query over another database.

    >>> find_tables("SELECT * FROM shop.orders WHERE id > 3")
    [('shop', 'orders')]
    """
    with parser() as connection:
        return list(parse_query(connection, query).relations)


def open_session(lake: Lake | LakeAt | LakeTransaction, *, queries_only: bool = False) -> Session:
    """Return a session of its own whose default catalog is a lake, called ``lake``; the caller closes the session.

    It is safe where the lake is that of a principal. With ``queries_only`` it runs what somebody else has written:
    queries over tables of lakes and registered rows, and nothing else. Raise ``ClosedError`` for a lake that is closed.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake, open_session(lake) as session:
    ...     session.sql("SELECT count(*) FROM events").fetchone()
    (6,)
    """
    from quacklake.core.sql.sessions import session_of

    session = session_of(lake.handle)
    if queries_only and not lake.handle.restricted:
        from quacklake.core.sql.safety.reading import ReadingGuard

        session.guard = ReadingGuard()
    return session


def view_lake(session: Session, catalog: str = LAKE) -> LakeTransaction:
    """Return a lake of a session as its next statement would read it: with the changes of an open transaction.

    Raise ``NotFoundError`` for a catalog that is no lake of the session.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake, open_session(lake) as session:
    ...     _ = session.sql("BEGIN; DELETE FROM events")
    ...     view_lake(session).table("events").count(), lake.table("events").count()
    (0, 6)
    """
    from quacklake.lake.lake import LakeTransaction

    attached = session.attachments.find(catalog)
    try:
        return LakeTransaction.of(attached.context, session.view(attached))
    finally:
        session.work.forget_views()


def write_in(session: Session, work: Callable[[LakeTransaction], T], catalog: str = LAKE) -> T:
    """Change a lake in the open transaction of a session, or else as one snapshot; return what ``work`` returns.

    An error of ``work`` aborts the open transaction, as that of a statement does: some changes may be made already.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake, open_session(lake) as session:
    ...     _ = session.sql("BEGIN; DELETE FROM events")
    ...     write_in(session, lambda change: change.table("events").append({"id": [1], "name": ["only"]}))
    ...     session.commit()
    ...     lake.table("events").to_pylist()
    1
    [{'id': 1, 'name': 'only'}]
    """
    from quacklake.lake.lake import LakeTransaction

    attached = session.attachments.find(catalog)
    session.work.check(ends=False)

    def change(tx: Transaction) -> T:
        return work(LakeTransaction.of(attached.context, tx))

    try:
        return session.write(attached, change)
    except BaseException:
        session.work.aborted = session.work.explicit
        raise
