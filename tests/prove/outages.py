"""Operations that are struck at a fault point: cancelled from another thread, cut off from the database, out of room.

``cancel``: another thread raises KeyboardInterrupt in the one that works, at about that point. ``interrupt``: another
thread stops what DuckDB does, from that point on. ``shut``: the sockets to the database are shut down. ``kill``: the server
ends its connections. ``full``: the disk of the files, and of a catalog that is a file, has no room from that point on.

Afterwards, while the error and all its frames are alive: another process commits at once; the client itself goes on; the
lake is the old one or the new one, and whole; files that nothing names can be removed; and the error was one of ours, of
the right kind, in bounded time.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import random
import resource
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql

import quacklake
from quacklake import Lake
from quacklake.core import faults
from quacklake.core.catalog import parse_url
from quacklake.errors import (
    CancelledError,
    CatalogError,
    CommitUnknown,
    CorruptFileError,
    QuacklakeError,
    StorageError,
)
from services import DatabaseServer, MySQLServer, PostgresServer
from tests.catalog.stock import Rows
from tests.crash.forks import Forks
from tests.crash.homes import Home, Workshop, check_rows, look
from tests.crash.operations import OPERATIONS, Operation, note, prepare

__all__ = ["OUTAGES", "Tally", "commit_at_once", "kill_connections", "round_of_outages", "shut_connections"]

OUTAGES = 40
"""The number of outages in a round."""
_FILES = ("cancel", "interrupt", "full")
_SERVERS = ("cancel", "interrupt", "shut", "kill", "full")
_COMMITTED = "catalog.commit.after"
_SECONDS = 30.0
"""Seconds that an operation may take after an outage, on a busy machine."""
_DISK = 320 << 20
_NOTED = 1_000_000


@dataclass
class Tally:
    """Counts of a proof."""

    outages: int = 0
    raised: int = 0
    unknown: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


# -- a disk that can be filled -----------------------------------------------------------------------------------------


class Disk:
    """A folder that can run full: a small file system in memory or, without one, a limit on the size of files."""

    def __init__(self, folder: Path, *, small: bool) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.mounted = small and os.geteuid() == 0 and self._run("mount", "-t", "tmpfs", "-o", f"size={_DISK}", "lakes")
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def _run(self, *command: str) -> bool:
        with suppress(OSError):
            return subprocess.run([*command, self.folder], capture_output=True, check=False).returncode == 0
        return False

    def fill(self) -> None:
        """Leave no room."""
        if not self.mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, self._limits[1]))
            return
        with suppress(OSError), (self.folder / "filler").open("ab", buffering=0) as filler:
            while filler.write(bytes(1 << 20)):
                pass
        with suppress(OSError), (self.folder / "filler").open("ab", buffering=0) as filler:
            while filler.write(bytes(512)):
                pass

    def free(self) -> None:
        """Give the room back."""
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)
        (self.folder / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        """Take it away."""
        self.free()
        if self.mounted:
            self._run("umount", "-l")


# -- what strikes ------------------------------------------------------------------------------------------------------


def shut_connections(url: str) -> None:
    """Shut down every connection of this process to the server of a URL."""
    port = parse_url(url).url.port
    for link in Path("/proc/self/fd").iterdir():
        number = int(link.name)
        with suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with socket.socket(fileno=os.dup(number)) as found:
                if found.family == socket.AF_INET and found.getpeername()[1] == port:
                    found.shutdown(socket.SHUT_RDWR)


def kill_connections(server: DatabaseServer, url: str) -> None:
    """Let the server end its connections to the database of a URL."""
    name = parse_url(url).url.database
    if isinstance(server, PostgresServer):
        with server._connect() as connection:
            ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"
            connection.execute(ended, (name,))
        return
    assert isinstance(server, MySQLServer)
    other = server._connect()
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (name,))
            for (id_,) in cursor.fetchall():
                with suppress(pymysql.err.MySQLError):  # gone already
                    cursor.execute(f"KILL {id_}")
            while cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (name,)):
                time.sleep(0.01)
    finally:
        other.close()


class Work:
    """An operation in its own thread, which others can strike."""

    def __init__(self, operation: Operation, lake: Lake) -> None:
        self.error: BaseException | None = None
        self.points: list[str] = []
        self.seconds = 0.0
        self._operation = operation
        self._lake = lake
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def run(self, strike: Callable[[Work], None], at: int) -> None:
        """Run it to its end; it is struck at its ``at``-th point."""
        count = itertools.count(1)

        def hook(point: str) -> None:
            self.points.append(point)
            if next(count) == at:
                strike(self)

        began = time.monotonic()
        with faults._hooked(hook), _quiet():
            self._thread.start()
            self._thread.join()
        self.seconds = time.monotonic() - began

    def _work(self) -> None:
        with suppress(KeyboardInterrupt):  # one that comes late
            try:
                self._operation.run(self._lake)
            except BaseException as error:
                self.error = error
            with self._lock:
                self._ended.set()
            for _ in range(100):
                pass

    def cancel(self, delay: float) -> None:
        """Raise KeyboardInterrupt in the thread, from another one, after some time."""

        def raise_there() -> None:
            time.sleep(delay)
            with self._lock:
                if not self._ended.is_set():
                    found = ctypes.c_ulong(self._thread.ident or 0)
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(found, ctypes.py_object(KeyboardInterrupt))

        threading.Thread(target=raise_there).start()

    def interrupt(self) -> None:
        """Stop what DuckDB does for the thread, again and again until it ends."""

        def stop() -> None:
            while not self._ended.wait(0.001):
                self._lake._context.engine.interrupt(self._thread.ident or 0)

        threading.Thread(target=stop).start()


@contextmanager
def _quiet() -> Iterator[None]:
    """Say nothing of an interrupt that came while Python removed an object: it is lost there, as every Ctrl-C is."""
    usual = sys.unraisablehook

    def hook(told: Any) -> None:
        if told.exc_type is not KeyboardInterrupt:
            usual(told)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual


# -- a round -----------------------------------------------------------------------------------------------------------


@dataclass
class _Round:
    workshop: Workshop
    server: DatabaseServer | None
    disk: Disk
    forks: Forks
    chance: random.Random
    tally: Tally
    kinds: Iterator[str]
    rehearsed: dict[str, tuple[list[str], Rows, Rows]] = field(default_factory=dict)

    def rehearse(self, operation: Operation) -> tuple[list[str], Rows, Rows]:
        """Return the points of an operation, and the rows before and after it."""
        if operation.name not in self.rehearsed:
            home = self.place(operation)
            with home.connect() as lake:
                old = look(lake).tables
            with home.connect() as lake:
                with faults.record() as points:
                    operation.run(lake)
                new = look(lake).tables
            self.rehearsed[operation.name] = points, old, new
        return self.rehearsed[operation.name]

    def place(self, operation: Operation) -> Home:
        home = self.workshop.copy()
        if operation.prepare is not None:
            with home.connect() as lake:
                operation.prepare(lake)
        return home

    def strike(self, operation: Operation, times: int) -> None:
        """Strike an operation at some of its points, on one lake for as long as that does not change."""
        points, _, _ = self.rehearse(operation)
        home: Home | None = None
        for _ in range(times):
            how = next(self.kinds)
            at = self.chance.randrange(1, len(points) + 1)
            if _COMMITTED in points and self.chance.random() < 0.4:  # where most can go wrong
                at = max(1, points.index(_COMMITTED) + 1 - self.chance.randrange(6))
            home = home or self.place(operation)
            told = f"{how} at point {at} ({points[at - 1]}) of {operation} on {self.workshop.database}"
            changed = False
            try:
                changed = self._one(operation, home, how, at)
            except AssertionError as error:
                raise AssertionError(f"{told}, in {home.data.parent.name}: {error}") from error
            except Exception as error:
                raise AssertionError(f"{told}, in {home.data.parent.name}: {error!r}") from error
            home = None if changed else home

    def _one(self, operation: Operation, home: Home, how: str, at: int) -> bool:
        """Strike once, and look; True if the lake has changed."""
        points, old, new = self.rehearse(operation)
        with home.connect() as lake:
            work = Work(operation, lake)
            try:
                work.run(lambda work: self._strike(work, home, how), at)
            finally:
                self.disk.free()
            self._count(how, work.error)
            assert work.seconds < _SECONDS, f"it took {work.seconds:.0f} s: {work.error!r}"
            _check_error(how, work.error)
            self._others_commit(home)
            note(lake, _NOTED)
            found = {name: rows for name, rows in look(lake).tables.items() if name != "main.log"}
            before, after = ({k: v for k, v in rows.items() if k != "main.log"} for rows in (old, new))
            assert found in (before, after), f"the lake is neither the old nor the new one: {work.error!r}"
            assert work.error is not None or found == after, "it is not done, and said nothing"
            once = points.count(_COMMITTED) == 1 and isinstance(work.error, QuacklakeError)
            told = isinstance(work.error, CommitUnknown | CancelledError)
            assert not once or told or before == after or found == before, f"it is done, and said {work.error!r}"
            home.check_ids()
            home.check_files()
            lake.delete_orphaned_files(cleanup_all=True)
            home.check_files(left=())
            check_rows(lake, next(name for name in found if not name.startswith("view ")))
            report = lake.verify()
            assert report.ok, f"{report.findings[:3]}"
        return found != before or before == after  # where rows tell nothing, it may have

    def _strike(self, work: Work, home: Home, how: str) -> None:
        if how == "cancel":
            work.cancel(self.chance.choice((0, 0, 0.0005, 0.002)))
        elif how == "interrupt":
            work.interrupt()
        elif how == "shut":
            shut_connections(home.url)
        elif how == "kill":
            assert self.server is not None
            kill_connections(self.server, home.url)
        else:
            self.disk.fill()

    def _count(self, how: str, error: BaseException | None) -> None:
        self.tally.outages += 1
        self.tally.kinds[how] += 1
        self.tally.raised += error is not None
        self.tally.unknown += isinstance(error, CommitUnknown)

    def _others_commit(self, home: Home) -> None:
        if self.workshop.database == "duckdb":  # whose file only one process has open
            commit_at_once(home.url)
            return
        ended = self.forks.run("tests.prove.outages:commit_at_once", url=home.url)
        assert ended.code == 0, f"another process cannot commit: {ended.errors[-1500:]}"


def _check_error(how: str, error: BaseException | None) -> None:
    if error is None:
        return
    assert not isinstance(error, CorruptFileError), f"told as damage: {error!r}"
    if how in ("cancel", "interrupt"):
        assert isinstance(error, KeyboardInterrupt | CancelledError | CommitUnknown), f"{error!r}"
    elif how == "full":
        assert isinstance(error, StorageError | CatalogError | CommitUnknown), f"{error!r}"
    else:
        assert isinstance(error, QuacklakeError), f"{error!r}"
        assert error.transient or isinstance(error, CommitUnknown), f"not transient: {error!r}"


def commit_at_once(url: str) -> None:
    """Commit a row, with no more than a second of waiting for a lock and no second try."""
    with quacklake.connect(url, busy_timeout_ms=1000, ducklake_max_retry_count=0, duckdb_threads=1) as lake:
        note(lake, _NOTED + 1)


def round_of_outages(
    folder: Path,
    forks: Forks,
    database: str,
    server: DatabaseServer | None,
    count: int,
    seed: str,
    *,
    small_disk: bool = False,
) -> Tally:
    """Strike so many operations on one kind of database. Raise ``AssertionError`` for the first that shows a fault.

    With ``small_disk`` the lake is on a file system of its own if that can be made; that of one who is killed stays.
    """
    began = time.perf_counter()
    chance, tally = random.Random(seed), Tally()
    disk = Disk(folder, small=small_disk)
    try:
        workshop = Workshop(database, folder, server)
        with workshop.create() as lake:
            prepare(lake)
        kinds = _FILES if server is None else _SERVERS
        work = _Round(workshop, server, disk, forks, chance, tally, itertools.cycle(chance.sample(kinds, len(kinds))))
        names = itertools.cycle(chance.sample(sorted(OPERATIONS), len(OPERATIONS)))
        while tally.outages < count:
            try:
                work.strike(OPERATIONS[next(names)], min(4, count - tally.outages))
            except AssertionError as error:
                kept = folder.with_name(f"{folder.name}-kept")
                shutil.copytree(folder, kept, dirs_exist_ok=True)  # the disk goes away
                raise AssertionError(f"seed {seed!r}, lakes kept in {kept}: {error}") from error
        workshop.close()
    finally:
        disk.close()
    tally.seconds = time.perf_counter() - began
    return tally
