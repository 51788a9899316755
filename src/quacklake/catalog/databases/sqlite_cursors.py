"""Connections to SQLite whose statements end with their transaction.

A SELECT that was interrupted between two rows lives as long as its cursor, for example in the frames of an exception
that a notebook keeps. SQLite continues it even after a rollback and trusts the pages it has read: the next transaction
of this connection would mix old and new pages, and commit on top of them.
"""

from __future__ import annotations

import sqlite3
import weakref
from contextlib import suppress
from typing import Any


class TidyConnection(sqlite3.Connection):
    """A connection that closes its cursors at the end of a transaction."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._cursors: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()

    def cursor(self, factory: Any = sqlite3.Cursor) -> Any:
        """Return a cursor that is closed when the transaction ends."""
        cursor = super().cursor(factory)
        self._cursors.add(cursor)
        return cursor

    def commit(self) -> None:
        """Commit, and end what was not read to its end."""
        super().commit()
        self._end_statements()

    def rollback(self) -> None:
        """Undo the transaction, if there is one, and end what was not read to its end."""
        try:
            super().rollback()
        finally:
            self._end_statements()

    def _end_statements(self) -> None:
        for cursor in list(self._cursors):
            with suppress(sqlite3.Error):
                cursor.close()
        self._cursors.clear()
