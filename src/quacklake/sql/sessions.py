"""The SQL sessions of a lake: one for each thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from quacklake import forks
from quacklake.operations.handles import Handle

if TYPE_CHECKING:
    from quacklake.sql.session import Session


class LakeSessions:
    """The sessions in which a lake, a past snapshot or an open transaction is the default catalog.

    The sessions of several threads share one DuckDB. A forked process opens its own sessions.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._begin()
        forks.watch(self, LakeSessions._leave_parent)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._local: Any = threading.local()
        self._first: Session | None = None

    def _leave_parent(self) -> None:
        """Start without sessions in a forked process, where the threads of the parent do not exist."""
        forks.abandon((self._first, self._local))
        self._begin()

    def current(self) -> Session:
        """Return the session of this thread."""
        if not hasattr(self._local, "session"):
            with self._lock:
                self._local.session = self._open() if self._first is None else self._first.cursor()
        session: Session = self._local.session
        return session

    def _open(self) -> Session:
        from quacklake.sql.opening import session_of

        self._first = session_of(self._handle)
        return self._first

    def close(self) -> None:
        """Close the sessions of all threads."""
        first, self._first = self._first, None
        self._local = threading.local()
        if first is not None:
            first.close()
            first.attachments.close()
