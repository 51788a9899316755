"""Safe sessions for the statements of requests, kept open: making one takes longer than most statements."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import duckdb

from quacklake import session, telemetry
from quacklake.errors import QuacklakeError
from quacklake.service.settings import ServiceSettings

if TYPE_CHECKING:
    from quacklake import Session
    from quacklake.lake import Lake, LakeAt

__all__ = ["LentSession", "SafeSessions"]

_LAKE = "lake"
_Key = tuple[int, int | None, bool]


class SafeSessions:
    """Lends safe sessions by lake, snapshot and right to write. A session serves one statement at a time."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._pools: OrderedDict[_Key, _Pool] = OrderedDict()
        self._closed = False

    def lend(self, lake: Lake, *, writes: bool, version: int | None = None) -> LentSession:
        """Return a session on the newest snapshot of a lake, or on a past one, which cannot write."""
        writes = writes and version is None
        key = (id(lake.handle), version, writes)
        with self._lock:
            pool = self._pools.get(key)
            if pool is None:
                pool = self._pools[key] = _Pool(lake, version, self._settings, writes)
            self._pools.move_to_end(key)
            gone = [self._pools.popitem(last=False)[1] for _ in range(len(self._pools) - self._settings.open_lakes)]
        for each in gone:
            each.close()
        return pool.lend()

    def close(self) -> None:
        """Close the sessions that nobody uses; the others close when they come back."""
        with self._lock:
            pools, self._closed = list(self._pools.values()), True
            self._pools.clear()
        for pool in pools:
            pool.close()


class LentSession:
    """A session for one statement. Give it back when its rows are read."""

    def __init__(self, session: Session, back: Callable[[Session], None]) -> None:
        self.session = session
        self._back: Callable[[Session], None] | None = back
        self._lock = threading.Lock()

    def interrupt(self) -> bool:
        """Stop the statement; False when none runs. What others run in the session after this one goes on."""
        with self._lock:
            return self._back is not None and self.session.interrupt()

    def give_back(self) -> None:
        """Give the session back; a second time does nothing."""
        with self._lock:
            back, self._back = self._back, None
        if back is not None:
            back(self.session)


class _Pool:
    """The sessions on one state of a lake. They share DuckDB's memory."""

    def __init__(self, lake: Lake, version: int | None, settings: ServiceSettings, writes: bool) -> None:
        self._lake = lake  # as long as this exists, no other lake has its id
        self._version = version
        self._settings = settings
        self._writes = writes
        self._lock = threading.Lock()
        self._root: Session | None = None
        self._idle: list[Session] = []
        self._closed = False

    def lend(self) -> LentSession:
        with self._lock:
            if self._idle:
                telemetry.count("service.sessions.reused")
                return LentSession(self._idle.pop(), self._take_back)
            telemetry.count("service.sessions.made")
            if self._root is None:
                self._root = self._open_session()
            return LentSession(self._root.cursor(), self._take_back)

    def _open_session(self) -> Session:
        made = session(safety=self._settings.safety(read_only=not self._writes))
        try:
            state: Lake | LakeAt = self._lake if self._version is None else self._lake.at(version=self._version)
            made.attach(state, _LAKE)
            made.use(_LAKE)
        except BaseException:
            made.close()
            raise
        return made

    def _take_back(self, used: Session) -> None:
        """Keep a session that is as it was before; close any other."""
        clean = not used.work.explicit and not used.prepared and (used.names.catalog, used.names.schema) == self._place
        if clean:
            try:
                used.settle()
            except (QuacklakeError, duckdb.Error):
                clean = False
        with self._lock:
            if clean and not self._closed and len(self._idle) < self._settings.idle_sessions:
                self._idle.append(used)
                return
        _close(used)

    @property
    def _place(self) -> tuple[str, str]:
        assert self._root is not None
        return self._root.names.catalog, self._root.names.schema

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            root = self._root
        for each in idle:
            _close(each)
        if root is not None:
            _close(root)


def _close(session: Session) -> None:
    with suppress(QuacklakeError, duckdb.Error):
        session.close()
