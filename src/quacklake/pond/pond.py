"""A pond: a lake seen as a tree, and a control log beside it. One command is one transaction."""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from quacklake import faults, telemetry
from quacklake.errors import AlreadyExistsError, CommitConflict, NotFoundError, QuacklakeError
from quacklake.format.names import uuid7
from quacklake.format.snapshots import Snapshot, is_tag
from quacklake.lake.connect import connect
from quacklake.lake.lake import Lake, LakeAt, LakeTransaction
from quacklake.pond import backend, places
from quacklake.pond.backend import LakeBackend
from quacklake.pond.control import BEGIN, COMPLETED, FAILED, ControlLog, Transaction, is_running
from quacklake.pond.fs import FS
from quacklake.pond.large_files import LargeFiles
from quacklake.pond.mounts import Mounts
from quacklake.pond.places import CONTROL, DATA, PondPlace

T = TypeVar("T")

_ATTEMPTS = 10
_WAIT = 0.05
_PAGE = 20  # the last transaction is mostly the last snapshot
_IN_MEMORY = Path("/dev/shm")
"""The folder of Linux whose files are in memory."""
_MARK = "pond"
"""The key of what the pond notes in the extra text of its snapshots."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """The report of ``recover``."""

    was_needed: bool
    recovered_count: int
    failed_count: int
    removed_files: int


class Pond:
    """A tree of directories, files, tables and series in a lake. Also a context manager.

    ``lake`` holds everything; ``control`` holds the log of commands and the settings. Either can be any lake.
    """

    def __init__(self, lake: Lake, control: Lake) -> None:
        if not backend.exists(lake):
            raise NotFoundError("Pond does not exist. Run 'pond init' first.")
        self.lake = lake
        self.control = ControlLog(control)
        self.on_commit: Callable[[Pond], None] | None = None
        """Called after each transaction that changed the pond; it must not raise."""
        self._folders = ExitStack()

    # -- opening -------------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, place: str | Path | PondPlace, args: Sequence[str] = ("pond", "init"), **settings: Any) -> Pond:
        """Make a pond in a folder, or where a URL or YAML file says; see ``places.find``.

        Raises ``AlreadyExistsError`` for a place that has a pond already. Settings are those of ``quacklake.connect``.
        """
        found = places.find(place)
        if found.may_exist() and cls._is_pond(found, settings):
            raise AlreadyExistsError("Pond already exists", hint=found.name)
        lake = found.data.create(**settings)
        try:
            return cls.create_in(lake, found.control.create(**settings), args)
        except BaseException:
            lake.close()
            raise

    @classmethod
    def _is_pond(cls, place: PondPlace, settings: dict[str, Any]) -> bool:
        try:
            with place.data.open(read_only=True, **settings) as lake:
                return backend.exists(lake)
        except NotFoundError:
            return False

    @classmethod
    def create_in(cls, lake: Lake, control: Lake, args: Sequence[str] = ("pond", "init")) -> Pond:
        """Make a pond in two lakes of any kind."""
        if backend.exists(lake):
            raise AlreadyExistsError("Pond already exists", hint=lake.url)
        log = ControlLog.create(control)
        seq, txn_id, begun = log.last_sequence() + 1, str(uuid7()), time.monotonic()
        log.begin(seq, txn_id, args)
        with lake.transaction(message=" ".join(args), extra=_extra(seq, txn_id, args)) as tx:
            backend.create(tx, seq)
        faults.reach("pond.committed")
        assert tx.snapshot is not None
        log.completed(seq, txn_id, tx.snapshot.id, _since(begun))
        return cls(lake, control)

    @classmethod
    def open(cls, place: str | Path | PondPlace, *, read_only: bool = False, **settings: Any) -> Pond:
        """Open the pond in a folder, or where a URL or YAML file says. Raises ``NotFoundError`` when there is none."""
        found = places.find(place)
        if not found.may_exist():
            raise found.missing()
        try:
            lake = found.data.open(read_only=read_only, **settings)
        except NotFoundError:
            raise found.missing() from None
        try:
            return cls(lake, found.control.open(read_only=read_only, **settings))
        except BaseException:
            lake.close()
            raise

    @classmethod
    def memory(cls) -> Pond:
        """Make a pond that ends with its process, for tests. Any number of threads may use it.

        Its catalogs are in memory where the system has a folder there, and its files in a temporary folder.
        """
        with ExitStack() as folders:
            in_memory = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
            files, catalogs = (Path(folders.enter_context(_temporary(where))) for where in (None, in_memory))
            lake, control = (
                connect(f"sqlite:///{catalogs / part}.db", str(files / part), catalog="") for part in (DATA, CONTROL)
            )
            made = cls.create_in(lake, control)
            made._folders = folders.pop_all()
        return made

    def close(self) -> None:
        """Close both lakes, and the ponds that are mounted."""
        if "mounts" in self.__dict__:
            self.mounts.close()
        self.lake.close()
        self.control.lake.close()
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
        return LargeFiles(self.lake.handle.context.store)

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
        return FS(LakeBackend(state, self.large_files, self.mounts))

    def at(self, at: int | str) -> LakeAt:
        """Return the lake as it was at a snapshot number, a tag or a time."""
        if isinstance(at, str) and at.isdigit():
            at = int(at)
        if isinstance(at, int) or is_tag(at):
            return self.lake.at(version=at)
        return self.lake.at(timestamp=at)

    # -- transactions --------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self, args: Sequence[str] = ("python",)) -> Iterator[FS]:
        """Change the tree: everything in the block becomes one snapshot when it ends, nothing when it raises.

        The control log notes the arguments, the outcome and the time it took. The end raises ``CommitConflict`` when
        another transaction was faster; ``run`` tries again by itself.
        """
        seq = self.control.last_sequence(backend.last_sequence(self.lake)) + 1
        txn_id, begun = str(uuid7()), time.monotonic()
        self.control.begin(seq, txn_id, args)
        try:
            snapshot = yield from self._committed(seq, txn_id, args)
        except BaseException as error:
            with suppress(QuacklakeError):
                message = error.message if isinstance(error, QuacklakeError) else str(error)
                self.control.failed(seq, txn_id, f"{type(error).__name__}: {message}", _since(begun))
            raise
        faults.reach("pond.committed")
        self.control.completed(seq, txn_id, None if snapshot is None else snapshot.id, _since(begun))
        if snapshot is not None and self.on_commit is not None:
            self.on_commit(self)

    def _committed(self, seq: int, txn_id: str, args: Sequence[str]) -> Generator[FS, None, Snapshot | None]:
        with suppress(_Unchanged):
            with self.lake.transaction(message=" ".join(args), extra=_extra(seq, txn_id, args)) as tx:
                fs = FS(LakeBackend(tx, self.large_files, self.mounts), seq)
                yield fs
                faults.reach("pond.save")
                with telemetry.timed("pond.save"):
                    if not fs.backend.save(fs.tree):
                        raise _Unchanged
                self._advance(tx, seq)
                faults.reach("pond.commit")
            return tx.snapshot
        return None

    def _advance(self, tx: LakeTransaction, seq: int) -> None:
        """Move the clock of the pond. Two transactions that do so from the same state conflict."""
        if tx.table(backend.STATE).update({"txn_seq": seq}, f"txn_seq < {seq}") != 1:
            raise CommitConflict("another transaction of the pond was faster")

    def run(self, args: Sequence[str], work: Callable[[FS], T]) -> T:
        """Run work in a transaction, and again when another transaction was faster."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self.transaction(args) as fs:
                    return work(fs)
            except CommitConflict:
                if attempt == _ATTEMPTS:
                    raise
                telemetry.count("pond.conflicts")
                time.sleep(random.uniform(0, _WAIT * 2**attempt))
        raise AssertionError("unreachable")

    # -- history -------------------------------------------------------------------------------------------------------

    def commits(self) -> list[Commit]:
        """Return the transactions that the data itself knows, oldest first."""
        return [found for row in self.lake.snapshots().to_pylist() if (found := Commit.of(row)) is not None]

    def last_commit(self, snapshot: int | None = None) -> Commit:
        """Return the last transaction that the data knows, up to a snapshot. Raises ``NotFoundError``."""
        found = last_commit(self.lake, snapshot)
        if found is None:
            raise NotFoundError("the pond has no transaction", hint="its snapshots have expired")
        return found

    def knows(self, txn_id: str) -> bool:
        """Return whether a transaction is part of this pond."""
        return self.control.has_completed(txn_id) or any(each.txn_id == txn_id for each in self.commits())

    def unfinished(self) -> tuple[list[Commit], list[Transaction]]:
        """Return the commits that the control log lacks, and the commands that began and never ended."""
        known = {each.txn_id: each for each in self.control.transactions()}
        commits = self.commits()
        lost = [each for each in commits if each.txn_id not in known or known[each.txn_id].state != COMPLETED]
        done = {each.txn_id for each in commits}
        dead = [
            each
            for each in known.values()
            if each.state not in (COMPLETED, FAILED) and each.txn_id not in done and not is_running(each.process)
        ]
        return lost, dead

    def lost_sequences(self) -> list[int]:
        """Return the numbers of the transactions that ``recover`` would complete."""
        lost, dead = self.unfinished()
        return sorted([*(each.txn_seq for each in lost), *(each.txn_seq for each in dead)])

    def recover(self) -> Recovery:
        """Complete the control log after a crash, from what the data knows, and remove unfinished large files."""
        lost, dead = self.unfinished()
        for commit in lost:
            self.control.completed(commit.txn_seq, commit.txn_id, commit.snapshot_id, 0, args=commit.args)
        for each in dead:
            self.control.failed(each.txn_seq, each.txn_id, "interrupted", 0)
        running = any(each.state == BEGIN and is_running(each.process) for each in self.control.transactions())
        removed = 0 if running else self.large_files.remove_leftovers()
        return Recovery(bool(lost or dead), len(lost), len(dead), removed)


class _Unchanged(Exception):
    """Leaves a transaction that has changed nothing, so that no snapshot is made."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction as a snapshot of the data has it."""

    txn_seq: int
    txn_id: str
    args: tuple[str, ...]
    snapshot_id: int
    time: Any

    @classmethod
    def of(cls, row: dict[str, Any]) -> Commit | None:
        """Return the transaction of a row of ``Lake.snapshots``, None for a snapshot of somebody else."""
        try:
            facts = json.loads(row["commit_extra_info"] or "{}").get(_MARK)
        except (ValueError, AttributeError):
            return None
        if not isinstance(facts, dict):
            return None
        seq, txn_id, args = facts["txn_seq"], facts["txn_id"], tuple(facts["args"])
        return cls(seq, txn_id, args, row["snapshot_id"], row["snapshot_time"])

    @property
    def command(self) -> str:
        """The command as it was typed."""
        return " ".join(self.args)


def _temporary(above: Path | None) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="pond-", dir=above, ignore_cleanup_errors=True)


def _newest(lake: Lake, large_files: LargeFiles, mounts: Mounts) -> FS:
    fs = FS(LakeBackend(lake.at(version=lake.current_snapshot()), large_files, mounts))
    fs.tree  # noqa: B018 (read whole: a mounted directory is looked at node by node)
    return fs


def last_commit(lake: Lake, snapshot: int | None = None) -> Commit | None:
    """Return the last transaction that a lake knows, up to a snapshot."""
    before = None if snapshot is None else snapshot + 1
    while rows := lake.snapshots(_PAGE, before=before).to_pylist():
        if (found := next(filter(None, map(Commit.of, reversed(rows))), None)) is not None:
            return found
        before = rows[0]["snapshot_id"]
    return None


def _extra(seq: int, txn_id: str, args: Sequence[str]) -> str:
    return json.dumps({_MARK: {"txn_seq": seq, "txn_id": txn_id, "args": list(args)}})


def _since(begun: float) -> int:
    return round((time.monotonic() - begun) * 1000)
