"""Connections to a SQLite file that take SQLite's locks themselves; see ``sqlite_locks`` for the reason."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from quacklake import forks
from quacklake.catalog.databases.sqlite_cursors import TidyConnection
from quacklake.catalog.databases.sqlite_locks import FileLock, Identity, busy, is_supported, read_only


class LockedConnection(TidyConnection):
    """A connection whose transactions hold locks of an open file description.

    SQLite itself locks nothing here. It writes nothing to the file before the end of a commit, when nobody else reads:
    what does not fit into its cache stays in memory.
    """

    lock: FileLock
    seconds: float
    read_only = False
    _writing = False
    _query_only: bool | None = None

    def begin(self, *, write: bool) -> None:
        """Begin a transaction: one that may ``write`` waits for its turn, any other is refused changes."""
        try:
            if write:
                self.lock.reserve(self.seconds)
            else:
                self.lock.share(self.seconds)
            if self.lock.is_wal():
                raise busy("the database has got a write-ahead log meanwhile")
            if self.lock.is_empty() or self.lock.needs_recovery():
                self._have_alone(write=write)
            if self._query_only is write or self._query_only is None:
                self.execute("PRAGMA cache_spill=OFF")
                self.execute(f"PRAGMA query_only={'OFF' if write else 'ON'}")
                self._query_only = not write
            self.execute("BEGIN IMMEDIATE" if write else "BEGIN DEFERRED")
            self._writing = write
        except BaseException:
            self.rollback()
            raise

    def commit(self) -> None:
        """Commit; the file is written when nobody reads it any more. A commit that fails is undone."""
        try:
            if self._writing and self.in_transaction:
                self.lock.exclude(self.seconds)
            super().commit()
        except BaseException:
            self.rollback()
            raise
        self._leave()

    def rollback(self) -> None:
        """Undo the transaction, if there is one, and give its locks back, whatever happens."""
        try:
            super().rollback()
        finally:
            self._leave()

    def close(self) -> None:
        """Close as soon as that takes nobody's locks.

        Closing a file drops the POSIX locks that any other SQLite in this process has on it. None can have one while
        all are ours; until then the connection is kept for the next who opens the file.
        """
        if self.lock.fd < 0:
            return
        with suppress(sqlite3.Error):
            self.rollback()
        if self._try_close():
            _sweep()
        else:
            with _guard:
                _parked.append(self)

    def _try_close(self) -> bool:
        if not self.lock.excludes_all():
            return False
        super().close()
        self.lock.close()
        return True

    def __del__(self) -> None:
        if hasattr(self, "lock"):
            self.close()

    def _leave(self) -> None:
        self._writing = False
        self.lock.release()

    def _have_alone(self, *, write: bool) -> None:
        """Have SQLite undo what a writer that died has left half-written.

        An empty file stays ours alone: SQLite takes the journal of whoever fills one for a left-over, and removes it.
        """
        if self.read_only:
            raise read_only("a writer has died, and what it left can be undone by one who may write")
        self.lock.release()
        self.lock.exclude_all(self.seconds)
        self.execute("SELECT count(*) FROM sqlite_master").fetchall()
        if not self.lock.is_empty():
            self.lock.downgrade(write=write)


#: The connections of this process: a child that is forked must neither use them nor hold their locks.
_open: weakref.WeakSet[LockedConnection] = weakref.WeakSet()
#: Connections and locks that nobody uses, and that could not be closed yet.
_parked: list[LockedConnection] = []
_spare: list[FileLock] = []
_guard = threading.RLock()


def open_locked(path: str, seconds: float, *, read_only: bool) -> LockedConnection | None:
    """Open a connection to a file; None when that needs the locks of SQLite itself.

    A write-ahead log does, and an empty file that is opened for reading only: nobody can have that alone.
    """
    with _guard:
        identity = _identity(path)
        for parked in _parked:
            if parked.lock.identity == identity and parked.read_only == read_only and not parked.lock.is_wal():
                _parked.remove(parked)
                parked.seconds = seconds
                return parked
    lock = lock_of(path, write=not read_only)
    if lock is None:
        return None
    if (lock.is_wal() and (read_only or not leave_wal(lock))) or (read_only and lock.is_empty()):
        set_aside(lock)
        return None
    uri = f"file:{quote(lock.path)}?mode={'ro' if read_only else 'rw'}&vfs=unix-none"
    try:
        connection = sqlite3.connect(
            uri, uri=True, isolation_level=None, check_same_thread=False, factory=LockedConnection
        )
    except BaseException:
        set_aside(lock)
        raise
    connection.lock, connection.seconds, connection.read_only = lock, seconds, read_only
    with _guard:
        _open.add(connection)
    return connection


def leave_wal(lock: FileLock) -> bool:
    """Give a file with a write-ahead log a rollback journal; False when another client has it open.

    Whoever uses a log has a lock for as long as the file is open.
    """
    if not lock.try_exclude_all():
        return False
    try:
        uri = f"file:{quote(lock.path)}?mode=rw&vfs=unix-none"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            # a log without shared memory: nobody else is there to share it
            connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
            (mode,) = connection.execute("PRAGMA journal_mode=DELETE").fetchone()
        return bool(mode == "delete")
    finally:
        lock.release()


def lock_of(path: str, *, write: bool) -> FileLock | None:
    """Return a lock of a file that nobody else has; None where the system or the file knows no such locks."""
    if not is_supported():
        return None
    with _guard:
        identity = _identity(path)
        for lock in _spare:
            if lock.identity == identity and lock.can_write == write:
                _spare.remove(lock)
                return lock
    lock = FileLock(path, write=write)
    if lock.works():
        return lock
    set_aside(lock)
    return None


def set_aside(lock: FileLock) -> None:
    """Close a lock that is not needed, or keep it for the next when that would take somebody's locks."""
    if not lock.excludes_all():
        lock.release()
        with _guard:
            _spare.append(lock)
        return
    lock.close()


def read_head(path: Path, size: int) -> bytes:
    """Return the first bytes of a file, without taking the locks of another SQLite in this process."""
    lock = lock_of(str(path), write=False)
    if lock is None:
        with path.open("rb") as file:
            return file.read(size)
    try:
        return os.pread(lock.fd, size, 0)
    finally:
        set_aside(lock)


def _sweep() -> None:
    """Close what could not be closed before."""
    with _guard:
        _parked[:] = [connection for connection in _parked if not connection._try_close()]
        kept, _spare[:] = list(_spare), []
        for lock in kept:
            set_aside(lock)


def _identity(path: str) -> Identity | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _forget() -> None:
    """Let go of the locks in a child process, and never touch the connections: their transactions are the parent's."""
    global _guard
    _guard = threading.RLock()
    for connection in list(_open):
        # SQLite would roll back what the parent is writing
        forks.abandon(connection)
        connection.lock.close()
    for lock in _spare:
        lock.close()
    _open.clear()
    _parked.clear()
    _spare.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
