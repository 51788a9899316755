"""SQL over lakes: statements taken apart, and sessions whose transactions other work joins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from quacklake.core.sql.session import Session
from quacklake.core.sql.session_databases import LAKE
from quacklake.core.sql.sessions import session_of
from quacklake.core.sql.words import split, words_of
from quacklake.core.transaction import Transaction
from quacklake.lake.lake import Lake, LakeAt, LakeTransaction

__all__ = ["open_session", "split", "view_lake", "words_of", "write_in"]

T = TypeVar("T")


def open_session(lake: Lake | LakeAt | LakeTransaction) -> Session:
    """Return a session of its own whose default catalog is a lake, called ``lake``; the caller closes the session.

    It is safe where the lake is that of a principal. Raise ``ClosedError`` for a lake that is closed.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake, open_session(lake) as session:
    ...     session.sql("SELECT count(*) FROM events").fetchone()
    (6,)
    """
    return session_of(lake.handle)


def view_lake(session: Session, catalog: str = LAKE) -> LakeTransaction:
    """Return a lake of a session as its next statement would read it: with the changes of an open transaction.

    Raise ``NotFoundError`` for a catalog that is no lake of the session.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake, open_session(lake) as session:
    ...     _ = session.sql("BEGIN; DELETE FROM events")
    ...     view_lake(session).table("events").count(), lake.table("events").count()
    (0, 6)
    """
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
    attached = session.attachments.find(catalog)
    session.work.check(ends=False)

    def change(tx: Transaction) -> T:
        return work(LakeTransaction.of(attached.context, tx))

    try:
        return session.write(attached, change)
    except BaseException:
        session.work.aborted = session.work.explicit
        raise
