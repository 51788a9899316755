"""Handles on the states of a lake: the newest snapshot, a past one, or an open transaction."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self, TypeVar

from quacklake import telemetry
from quacklake.catalog import Collision, own_tables
from quacklake.catalog.reading.reader import Reader
from quacklake.errors import (
    CommitConflict,
    ConfigError,
    InputError,
    NotFoundError,
    ReadOnlyError,
    SnapshotExpiredError,
)
from quacklake.format.options import column_ids
from quacklake.format.snapshots import Snapshot
from quacklake.operations import sealing
from quacklake.operations.context import LakeContext
from quacklake.operations.signature import NO_SIGNATURE, Signature
from quacklake.operations.times import instant
from quacklake.transaction import Transaction, commit

T = TypeVar("T")


class Handle(ABC):
    """One state of a lake, with the ways to read and change it. ``is_lake`` is true for the newest snapshot."""

    is_lake = False

    def __init__(self, context: LakeContext) -> None:
        self.context = context

    @abstractmethod
    def view(self) -> Transaction:
        """Return a transaction that reads this state."""

    @abstractmethod
    def run(self, work: Callable[[Transaction], T], *, blind: bool = False, replayable: bool = True) -> T:
        """Change the lake. ``work`` may run again after a conflict with another commit, unless it is not replayable.

        A ``blind`` change reads nothing, and may start from a snapshot that is no longer the newest.
        """

    @abstractmethod
    def once(self, base: Snapshot, work: Callable[[Transaction], None]) -> Snapshot:
        """Run work on a snapshot in a transaction of its own, without retries."""


class HasHandle(Protocol):
    """A lake, a past snapshot or an open transaction of a user."""

    @property
    def handle(self) -> Handle:
        """The handle on its state."""


class LakeHandle(Handle):
    """A handle on the newest snapshot. Each operation is a transaction, and each transaction a snapshot."""

    is_lake = True

    def __init__(self, context: LakeContext, signature: Signature = NO_SIGNATURE) -> None:
        super().__init__(context)
        self.signature = signature

    def close(self) -> None:
        """Close every connection."""
        self.context.engine.close()
        self.context.catalog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self, base: Snapshot | None = None, *, read_only: bool = False) -> Transaction:
        """Start a transaction on a snapshot, by default the newest."""
        context = self.context
        base = context.latest() if base is None else base
        return Transaction(context.catalog, context.store, context.tables, base, read_only=read_only)

    def view(self) -> Transaction:
        """Return a transaction that reads the newest snapshot."""
        return self.begin(read_only=True)

    def at(
        self, version: int | str | None = None, timestamp: dt.datetime | str | None = None, tag: str | None = None
    ) -> SnapshotHandle:
        """Return a handle on a snapshot by id, tag or time (text and naive times are UTC)."""
        if [version, timestamp, tag].count(None) != 2:
            raise InputError("pass one of version=, timestamp= and tag=")
        if isinstance(version, str):
            version, tag = None, version
        with self.context.catalog.read() as reader:
            if tag is not None:
                snapshot = _tagged(reader, tag)
            elif version is not None:
                snapshot = reader.snapshots.at_version(version)
            else:
                snapshot = reader.snapshots.at_time(instant(timestamp))
        return SnapshotHandle(self.context, self.begin(snapshot, read_only=True))

    def run(self, work: Callable[[Transaction], T], *, blind: bool = False, replayable: bool = True) -> T:
        """Run one operation as one snapshot: plan, commit, and plan again after a conflict."""
        recent = self.context.recent if blind else None
        results: list[T] = []

        def plan() -> Transaction:
            tx = self.begin(recent)
            try:
                results[:] = [work(tx)]
                return self.seal(tx)
            except BaseException:
                tx.rollback()
                raise

        def replan(error: BaseException, left: int) -> bool:
            nonlocal recent
            stale, recent = recent is not None, None
            again = replayable and left > 0
            if isinstance(error, NotFoundError):  # a snapshot may expire right after it was read
                return stale or (again and isinstance(error, SnapshotExpiredError))
            return again

        self.context.saw(commit.run(self.context.catalog, plan, self.context.retry, replan))
        return results[0]

    def once(self, base: Snapshot, work: Callable[[Transaction], None]) -> Snapshot:
        """Run work on a snapshot in a transaction of its own, without retries."""
        tx = self.begin(base)
        try:
            work(tx)
            return self.commit(tx)
        except BaseException:
            tx.rollback()
            raise

    def commit(self, tx: Transaction, signature: Signature = NO_SIGNATURE) -> Snapshot:
        """Commit a transaction, without planning it again after a conflict."""
        snapshot = commit.run(self.context.catalog, lambda: self.seal(tx, signature), self.context.retry)
        self.context.saw(snapshot)
        return snapshot

    def seal(self, tx: Transaction, signature: Signature = NO_SIGNATURE) -> Transaction:
        """Write the files that are missing, and settle the changes of a transaction; return it."""
        context, signature = self.context, signature if signature.given else self.signature
        try:
            sealing.seal(context, tx)
            changes = tx.change_set(sealing.DeleteFiles(context), context.delete_limit, context.inline_limit)
            if context.catalog.is_next:
                changes = changes.without_bounds(
                    lambda table: column_ids(str(context.option("skip_stats_columns", table)))
                )
            if not (changes.empty or signature.given) and context.option("require_commit_message"):
                raise ConfigError(
                    "Commit Information for the snapshot is required but has not been provided.",
                    hint="use lake.transaction(message=…, author=…) or lake.signed(…), or unset require_commit_message",
                )
        except BaseException as error:
            if not isinstance(error, CommitConflict | Collision):
                telemetry.count("commit.failures", tenant=context.catalog.label)
            raise
        tx.seal(changes.signed(author=signature.author, message=signature.message, extra=signature.extra))
        return tx


class SnapshotHandle(Handle):
    """A read-only handle on a past snapshot."""

    def __init__(self, context: LakeContext, tx: Transaction) -> None:
        super().__init__(context)
        self.tx = tx

    def view(self) -> Transaction:
        """Return the transaction that reads the snapshot. Raises ``SnapshotExpiredError`` once it has expired."""
        with self.context.catalog.read() as reader:
            reader.snapshots.at_version(self.tx.base.id)
        return self.tx

    def run(self, work: Callable[[Transaction], T], *, blind: bool = False, replayable: bool = True) -> T:
        """Raise ``ReadOnlyError``."""
        raise _read_only()

    def once(self, base: Snapshot, work: Callable[[Transaction], None]) -> Snapshot:
        """Raise ``ReadOnlyError``."""
        raise _read_only()


class TransactionHandle(Handle):
    """A handle on an open transaction, which commits all changes as one snapshot at its end."""

    def __init__(self, context: LakeContext, tx: Transaction) -> None:
        super().__init__(context)
        self.tx = tx

    def view(self) -> Transaction:
        """Return the transaction itself, which reads its own changes."""
        return self.tx

    def run(self, work: Callable[[Transaction], T], *, blind: bool = False, replayable: bool = True) -> T:
        """Change something in the transaction."""
        return work(self.tx)

    def once(self, base: Snapshot, work: Callable[[Transaction], None]) -> Snapshot:
        """Raise ``InputError``, because compaction needs a transaction of its own."""
        raise InputError(
            "a transaction can either make changes or perform compaction", hint="call it on the lake, outside"
        )


def _tagged(reader: Reader, tag: str) -> Snapshot:
    try:
        return own_tables.tagged(reader, tag)
    except (NotFoundError, InputError) as error:
        with suppress(InputError):
            instant(tag)
            error.hint = f'for a time, pass timestamp="{tag}"'
        raise


def _read_only() -> ReadOnlyError:
    hint = "write through the lake itself, at its newest snapshot"
    return ReadOnlyError("this view of the lake is read-only", hint=hint)
