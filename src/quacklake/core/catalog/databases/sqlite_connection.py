"""Connections to a SQLite file that take SQLite's locks themselves, held by an open file description.

DuckDB's SQLite extension brings a SQLite of its own. POSIX locks belong to the process, so two copies of SQLite in one
process do not exclude each other, and either drops the locks of both when it unlocks or closes the file. Locks of an
open file description (Linux) have neither fault, and exclude POSIX locks, those of the same process included. So we
take SQLite's locks ourselves, by its documented protocol (https://sqlite.org/lockingv3.html), and our own SQLite none.
"""

from __future__ import annotations

import os
import random
import sqlite3
import struct
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from quacklake.core import forks

if sys.platform == "linux":
    import fcntl

#: The device and the number of a file.
Identity = tuple[int, int]

_PENDING = 0x40000000
_RESERVED = _PENDING + 1
_SHARED, _SHARED_SIZE = _PENDING + 2, 510
_ALL_SIZE = 2 + _SHARED_SIZE
#: ``struct flock`` where numbers of files have 64 bits.
_FLOCK = struct.Struct("hhqqi4x")
_WAL_VERSION = 2
_MAX_PAUSE = 0.025


def is_supported() -> bool:
    """Return whether this system has locks of open file descriptions."""
    return sys.platform == "linux" and struct.calcsize("P") == 8 and hasattr(fcntl, "F_OFD_SETLK")


class LockedHere(sqlite3.OperationalError):
    """SQLite's busy error, when it is another client in this process that has the lock."""

    sqlite_errorcode = sqlite3.SQLITE_BUSY


def busy(message: str = "database is locked") -> sqlite3.OperationalError:
    """Return the error that SQLite raises when a lock is not free in time."""
    return _failure(message, sqlite3.SQLITE_BUSY)


def _failure(message: str, code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    return error


class FileLock:
    """The locks of one connection on one SQLite file; another connection has another."""

    def __init__(self, path: str, *, write: bool = True) -> None:
        self.path = os.path.realpath(path)
        flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
        try:
            self.fd = os.open(self.path, flags | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _failure(f"unable to open database file: {error.strerror}", sqlite3.SQLITE_CANTOPEN) from error
        self.can_write = write
        status = os.fstat(self.fd)
        self.identity: Identity = status.st_dev, status.st_ino

    # -- the file ----------------------------------------------------------------------------------------------------

    def is_wal(self) -> bool:
        """Return whether the file says that it has a write-ahead log."""
        return os.pread(self.fd, 2, 18) == bytes([_WAL_VERSION, _WAL_VERSION])

    def needs_recovery(self) -> bool:
        """Return whether a writer has died in its commit; asked while a lock is held.

        A journal gets its first byte once its writer has excluded everybody, who then cannot have this lock.
        """
        try:
            with Path(f"{self.path}-journal").open("rb") as journal:
                first = journal.read(1)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _failure(f"unable to open database file: {error.strerror}", sqlite3.SQLITE_CANTOPEN) from error
        return first not in (b"", b"\0")

    def is_empty(self) -> bool:
        """Return whether nothing was ever committed to the file."""
        return os.fstat(self.fd).st_size == 0

    # -- locks -------------------------------------------------------------------------------------------------------

    def share(self, seconds: float) -> None:
        """Wait until nobody is in the end of a commit, and keep everybody from it. Raise SQLite's busy error."""
        self._wait(self._try_share, seconds)

    def reserve(self, seconds: float) -> None:
        """Wait to be the only writer; others may read."""
        self._wait(self._try_reserve, seconds)

    def exclude(self, seconds: float) -> None:
        """Wait until nobody reads or writes any more, and keep everybody from it; a failure leaves the locks so."""
        self._wait(lambda: self._lock(fcntl.F_WRLCK, _PENDING, 1), seconds)
        try:
            self._wait(lambda: self._lock(fcntl.F_WRLCK, _SHARED, _SHARED_SIZE), seconds)
        except BaseException:
            self._lock(fcntl.F_UNLCK, _PENDING, 1)
            raise

    def try_exclude_all(self) -> bool:
        """Take every lock at once, if nobody has any."""
        return self._lock(fcntl.F_WRLCK, _PENDING, _ALL_SIZE)

    def excludes_all(self) -> bool:
        """Return whether nobody has a lock; then all are ours, unless the file is open for reading only."""
        return self.try_exclude_all() if self.can_write else self.holder() is None

    def works(self) -> bool:
        """Return whether the file system has such locks."""
        try:
            self.holder()
        except OSError:
            return False
        return True

    def exclude_all(self, seconds: float) -> None:
        """Wait to have every lock."""
        self._wait(self.try_exclude_all, seconds)

    def downgrade(self, *, write: bool) -> None:
        """Let others read again, after ``exclude_all``."""
        self._lock(fcntl.F_RDLCK, _SHARED, _SHARED_SIZE)
        if not write:
            self._lock(fcntl.F_UNLCK, _RESERVED, 1)
        self._lock(fcntl.F_UNLCK, _PENDING, 1)

    def release(self) -> None:
        """Give every lock back; none need be held."""
        if self.fd >= 0:
            self._lock(fcntl.F_UNLCK, 0, 0)

    def close(self) -> None:
        """Close the file, which drops all POSIX locks of this process on it, no matter who took them."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def holder(self) -> int | None:
        """Return the process that has a lock that excludes ours: 0 where the system does not tell, None for nobody."""
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _PENDING, _ALL_SIZE, 0)
        kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(self.fd, fcntl.F_OFD_GETLK, request))
        return None if kind == fcntl.F_UNLCK else max(process, 0)

    def _try_share(self) -> bool:
        if not self._lock(fcntl.F_RDLCK, _PENDING, 1):
            return False
        taken = self._lock(fcntl.F_RDLCK, _SHARED, _SHARED_SIZE)
        self._lock(fcntl.F_UNLCK, _PENDING, 1)
        return taken

    def _try_reserve(self) -> bool:
        if not self._try_share():
            return False
        if self._lock(fcntl.F_WRLCK, _RESERVED, 1):
            return True
        self.release()
        return False

    def _wait(self, attempt: Callable[[], bool], seconds: float) -> None:
        deadline, pause = time.monotonic() + seconds, 0.0005
        while not attempt():
            left = deadline - time.monotonic()
            if left <= 0:
                raise LockedHere("database is locked") if self.holder() == os.getpid() else busy()
            time.sleep(min(left, random.uniform(pause / 2, pause)))
            pause = min(pause * 1.5, _MAX_PAUSE)

    def _lock(self, kind: int, start: int, size: int) -> bool:
        try:
            fcntl.fcntl(self.fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, start, size, 0))
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            raise _failure(f"disk I/O error: {error.strerror}", sqlite3.SQLITE_IOERR) from error
        return True


class TidyConnection(sqlite3.Connection):
    """A connection that closes its cursors at the end of a transaction.

    A SELECT that was interrupted between two rows lives as long as its cursor. SQLite continues it even after a
    rollback and trusts the pages it has read: the next transaction would mix old and new pages, and commit on top.
    """

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


class LockedConnection(TidyConnection):
    """A connection whose transactions hold locks of an open file description.

    SQLite itself locks nothing here, and writes nothing to the file before the end of a commit, when nobody else reads.
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
                raise busy("the database has got a write-ahead log in the meantime")
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
            message = "a writer has died, and what it left can be undone by one who may write"
            raise _failure(message, sqlite3.SQLITE_READONLY)
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
        identity = identity_of(path)
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
    """Give a file with a write-ahead log a rollback journal; False when another client has it open, and so a lock."""
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
        identity = identity_of(path)
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
    if lock.excludes_all():
        lock.close()
        return
    lock.release()
    with _guard:
        _spare.append(lock)


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


def identity_of(path: str) -> Identity | None:
    """Return which file a path names; None when there is none."""
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
