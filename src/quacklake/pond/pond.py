"""A pond: a lake seen as a tree, with a log of the commands that changed it. One command is one transaction."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from quacklake import telemetry
from quacklake.errors import AlreadyExistsError, NotFoundError, QuacklakeError, UnsupportedFeatureError
from quacklake.extend import reporting
from quacklake.extend.stores import find_store
from quacklake.lake.connect import connect
from quacklake.lake.lake import Lake, LakeAt, LakeTransaction
from quacklake.pond import backend, control, places
from quacklake.pond.backend import Backend
from quacklake.pond.control import TXNS, Command, ControlLog, Transaction
from quacklake.pond.fs import FS
from quacklake.pond.large_files import LargeFiles
from quacklake.pond.mounts import Mounts
from quacklake.pond.places import DATA, PondPlace
from quacklake.pond.tree import Tree

T = TypeVar("T")

_IN_MEMORY = Path("/dev/shm")
"""The folder of Linux whose files are in memory."""
MARK = "pond"
"""The key of what the pond notes in the extra text of its snapshots."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """The report of ``recover``."""

    was_needed: bool
    removed_files: int


class Pond:
    """A tree of directories, files, tables and series in a lake. Also a context manager.

    ``lake`` holds everything, and can be any lake; ``control`` is the log of commands in it.
    """

    def __init__(self, lake: Lake) -> None:
        if TXNS not in lake:
            if not backend.exists(lake):
                raise backend.missing()
            raise UnsupportedFeatureError(
                "the pond was made by an older version, which kept its log of commands in a lake of its own",
                hint="mount it in a new pond, which can read it, and copy out what is in it",
            )
        self.lake = lake
        self.control = ControlLog(lake)
        self.on_commit: Callable[[Pond, Tree], None] | None = None
        """Called after each transaction that changed the pond, with the tree that it made; it must not raise."""
        self._folders = ExitStack()

    # -- opening -------------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, place: str | Path | PondPlace, args: Sequence[str] = ("pond", "init"), **settings: Any) -> Pond:
        """Make a pond in a folder, or where a URL or YAML file says; see ``places.find``.

        Raise ``AlreadyExistsError`` for a place that has a pond already. Settings are those of ``quacklake.connect``.
        """
        found = places.find(place)
        if found.may_exist() and cls._is_pond(found, settings):
            raise AlreadyExistsError("Pond already exists", hint=found.name)
        lake = found.lake.create(**settings)
        try:
            return cls.create_in(lake, args)
        except BaseException:
            lake.close()
            raise

    @classmethod
    def _is_pond(cls, place: PondPlace, settings: dict[str, Any]) -> bool:
        try:
            with place.lake.open(read_only=True, **settings) as lake:
                return backend.exists(lake)
        except NotFoundError:
            return False

    @classmethod
    def create_in(cls, lake: Lake, args: Sequence[str] = ("pond", "init")) -> Pond:
        """Make a pond in a lake of any kind."""
        if backend.exists(lake):
            raise AlreadyExistsError("Pond already exists", hint=lake.url)
        command = Command.of(args)
        command.txn_seq = 1
        with lake.transaction(message=command.text, extra=_extra(command)) as tx:
            backend.create(tx, command.txn_seq)
            control.create(tx)
            ControlLog.complete(tx, command, {"added": 1})
        reporting.reach("pond.committed")
        return cls(lake)

    @classmethod
    def open(cls, place: str | Path | PondPlace, *, read_only: bool = False, **settings: Any) -> Pond:
        """Open the pond in a folder, or where a URL or YAML file says. Raise ``NotFoundError`` when there is none."""
        found = places.find(place)
        if not found.may_exist():
            raise found.missing()
        try:
            lake = found.lake.open(read_only=read_only, **settings)
        except NotFoundError:
            raise found.missing() from None
        try:
            return cls(lake)
        except BaseException:
            lake.close()
            raise

    @classmethod
    def memory(cls) -> Pond:
        """Make a pond that ends with its process, for tests. Any number of threads may use it.

        Its catalog is in memory where the system has a folder there, and its files in a temporary folder.
        """
        with ExitStack() as folders:
            in_memory = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
            files, catalog = (Path(folders.enter_context(_temporary(where))) for where in (None, in_memory))
            made = cls.create_in(connect(f"sqlite:///{catalog / DATA}.db", str(files / DATA), catalog=""))
            made._folders = folders.pop_all()
        return made

    def close(self) -> None:
        """Close the lake, and the ponds that are mounted."""
        if "mounts" in self.__dict__:
            self.mounts.close()
        self.lake.close()
        self._folders.close()

    def __enter__(self) -> Pond:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Pond {self.lake.url}>"

    @cached_property
    def large_files(self) -> LargeFiles:
        """The large files."""
        return LargeFiles(find_store(self.lake))

    @cached_property
    def mounts(self) -> Mounts:
        """The ponds that are mounted in this one."""
        return Mounts(_newest)

    @property
    def read_only(self) -> bool:
        """True when the pond is open for reading only."""
        return self.lake.handle.context.catalog.read_only

    # -- reading -------------------------------------------------------------------------------------------------------

    def fs(self, at: int | str | None = None) -> FS:
        """Return the tree as it is now, or as it was at a snapshot, tag or time; it can be read only."""
        state = self.at(self.lake.current_snapshot() if at is None else at)
        return FS(Backend(state, self.large_files, self.mounts))

    def at(self, at: int | str) -> LakeAt:
        """Return the lake as it was at a snapshot number, a tag or a time."""
        if isinstance(at, str) and at.isdigit():
            at = int(at)
        return self.lake.at(to=at)

    # -- transactions --------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self, args: Sequence[str] = ("python",)) -> Iterator[FS]:
        """Change the tree: everything in the block becomes one snapshot when it ends, nothing when it raises.

        The control log notes the arguments, the outcome and the time it took. The end raises ``CommitConflict`` when
        another transaction was faster; ``run`` tries again by itself.
        """
        command = Command.of(args)
        with self._ending(command):
            with self.lake.transaction(message=command.text, extra=_extra(command)) as tx:
                fs = self._begin(tx, command)
                yield fs
                self._finish(tx, command, fs)
            self._tell(fs)

    def run(self, args: Sequence[str], work: Callable[[FS], T]) -> T:
        """Run work in a transaction, and again when another transaction was faster."""
        command, attempts = Command.of(args), list[FS]()
        results: list[T] = []

        def attempt(tx: LakeTransaction) -> None:
            if attempts:
                telemetry.count("pond.conflicts")
            attempts.append(self._begin(tx, command))
            results[:] = [work(attempts[-1])]
            self._finish(tx, command, attempts[-1])

        with self._ending(command):
            self.lake.run(attempt, message=command.text, extra=_extra(command))
            self._tell(attempts[-1])
        return results[0]

    def _begin(self, tx: LakeTransaction, command: Command) -> FS:
        """Return the tree for a command to change, which gets the next number."""
        command.txn_seq = backend.last_sequence(tx) + 1
        return FS(Backend(tx, self.large_files, self.mounts), command.txn_seq)

    def _finish(self, tx: LakeTransaction, command: Command, fs: FS) -> None:
        """Write what a command changed, with its record. Raise ``_Unchanged`` when there is nothing to write."""
        reporting.reach("pond.save")
        with telemetry.timed("pond.save"):
            changed = fs.backend.save(fs.tree)
        if not changed:
            raise _Unchanged
        backend.advance(tx, command.txn_seq)
        reporting.reach("pond.log")
        ControlLog.complete(tx, command, changed.counts)
        reporting.reach("pond.commit")

    @contextmanager
    def _ending(self, command: Command) -> Iterator[None]:
        """Note in the log that a command failed."""
        try:
            yield
        except _Unchanged:
            return
        except BaseException as error:
            with suppress(QuacklakeError):
                self.control.fail(command, error)
            raise

    def _tell(self, fs: FS) -> None:
        reporting.reach("pond.committed")
        if self.on_commit is not None:
            self.on_commit(self, fs.tree)

    # -- history -------------------------------------------------------------------------------------------------------

    def commits(self, last: int | None = None) -> list[Transaction]:
        """Return the commands that changed the pond, oldest first, or those among the ``last`` ones."""
        return self.control.commits(last)

    def last_commit(self, snapshot: int | None = None) -> Transaction:
        """Return the last command that changed the pond, up to a snapshot."""
        return self.control.last_commit(None if snapshot is None else self.lake.at(version=snapshot))

    def recover(self) -> Recovery:
        """Remove the large files that processes left unfinished when they were killed. Nothing else needs it."""
        removed = self.large_files.remove_leftovers()
        return Recovery(bool(removed), removed)


class _Unchanged(Exception):
    """Leaves a transaction that has changed nothing, so that no snapshot is made."""


def _temporary(above: Path | None) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="pond-", dir=above, ignore_cleanup_errors=True)


def _newest(lake: Lake, large_files: LargeFiles, mounts: Mounts) -> FS:
    fs = FS(Backend(lake.at(version=lake.current_snapshot()), large_files, mounts))
    fs.tree  # noqa: B018 (read whole: a mounted directory is looked at node by node)
    return fs


def _extra(command: Command) -> str:
    return json.dumps({MARK: {"txn_id": command.txn_id}})
