"""SQLite's file locks, held by an open file description instead of the process.

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
import time
from collections.abc import Callable
from pathlib import Path

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
_LONGEST_PAUSE = 0.025


def is_supported() -> bool:
    """Return whether this system has locks of open file descriptions."""
    return sys.platform == "linux" and struct.calcsize("P") == 8 and hasattr(fcntl, "F_OFD_SETLK")


class LockedHere(sqlite3.OperationalError):
    """SQLite's busy error, when it is another client in this process that has the lock."""

    sqlite_errorcode = sqlite3.SQLITE_BUSY


def busy(message: str = "database is locked") -> sqlite3.OperationalError:
    """Return the error that SQLite raises when a lock is not free in time."""
    return _failure(message, sqlite3.SQLITE_BUSY)


def read_only(message: str) -> sqlite3.OperationalError:
    """Return the error that SQLite raises where nothing can be written."""
    return _failure(message, sqlite3.SQLITE_READONLY)


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
        """Wait until nobody is in the end of a commit, and keep everybody from it. Raises SQLite's busy error."""
        self._wait(self._try_share, seconds)

    def reserve(self, seconds: float) -> None:
        """Wait to be the only writer; others may read."""
        self._wait(self._try_reserve, seconds)

    def exclude(self, seconds: float) -> None:
        """Wait until nobody reads or writes any more, and keep everybody from beginning.

        A lock that was held before is held again after a failure.
        """
        self._wait(self._try_pending, seconds)
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
        """Close the file: that drops the POSIX locks that this process has on it, whoever took them."""
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

    def _try_pending(self) -> bool:
        return self._lock(fcntl.F_WRLCK, _PENDING, 1)

    def _wait(self, attempt: Callable[[], bool], seconds: float) -> None:
        deadline, pause = time.monotonic() + seconds, 0.0005
        while not attempt():
            left = deadline - time.monotonic()
            if left <= 0:
                raise LockedHere("database is locked") if self.holder() == os.getpid() else busy()
            time.sleep(min(left, random.uniform(pause / 2, pause)))
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def _lock(self, kind: int, start: int, size: int) -> bool:
        try:
            fcntl.fcntl(self.fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, start, size, 0))
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            raise _failure(f"disk I/O error: {error.strerror}", sqlite3.SQLITE_IOERR) from error
        return True
