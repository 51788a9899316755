"""How the operations of a lake become snapshots: planned, committed, and planned again when another got in the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from quacklake import telemetry
from quacklake.catalog import Collision
from quacklake.errors import (
    CatalogUnavailableError,
    CommitConflict,
    ConfigError,
    NotFoundError,
    SnapshotExpiredError,
)
from quacklake.format.options import column_ids
from quacklake.format.snapshots import Snapshot
from quacklake.lake import sealing
from quacklake.lake.settings import Shared
from quacklake.lake.signature import Signature
from quacklake.transaction import Transaction, Turn

__all__ = ["Committing"]

T = TypeVar("T")


class Committing:
    """What ``Lake`` does with an operation: each becomes a transaction, and each transaction a snapshot."""

    _shared: Shared
    _signature: Signature

    def _transaction(self, base: Snapshot, *, read_only: bool = False) -> Transaction:
        return Transaction(self._shared.catalog, self._shared.store, self._shared.tables, base, read_only=read_only)

    def _view(self) -> Transaction:
        return self._transaction(self._shared.latest(), read_only=True)

    def _run(self, work: Callable[[Transaction], T], *, blind: bool = False, replayable: bool = True) -> T:
        """One operation, one snapshot: plan, commit, and plan again when another commit got in the way."""
        retry = self._shared.retry
        recent = self._shared.recent if blind else None
        took = 0.0
        for attempt in range(retry.count + 1):
            began = time.monotonic()
            turn = self._turn() if retry.gives_turn(attempt, took) else None
            tx = self._transaction(recent or self._shared.latest())
            try:
                return self._attempt(work, tx, turn)
            except NotFoundError as error:
                tx.rollback()
                # a snapshot may expire right after it was read
                again = isinstance(error, SnapshotExpiredError) and replayable and attempt < retry.count
                if recent is None and not again:
                    raise
            except (CommitConflict, Collision):
                tx.rollback()
                if attempt == retry.count or not replayable:
                    telemetry.count("commit.failures", tenant=self._shared.catalog.label)
                    raise
                telemetry.count("commit.replans", tenant=self._shared.catalog.label)
                took = time.monotonic() - began
                if attempt > 0:
                    retry.pause(attempt)
            except BaseException:
                tx.rollback()
                raise
            recent = None
        raise CommitConflict("the operation lost every race", hint="try again, or raise ducklake_max_retry_count")

    def _attempt(self, work: Callable[[Transaction], T], tx: Transaction, turn: Turn | None) -> T:
        try:
            result = work(tx)
            self._commit(tx, self._signature, turn, again=True)
            return result
        finally:
            if turn is not None:
                turn.leave()

    def _turn(self) -> Turn | None:
        """The head of the commit queue, where it can be had."""
        try:
            return Turn(self._shared.catalog) if self._shared.catalog.reads_beside_commits else None
        except CatalogUnavailableError:
            return None

    def _once(self, base: Snapshot, work: Callable[[Transaction], None]) -> Snapshot:
        tx = self._transaction(base)
        try:
            work(tx)
            return self._commit(tx, self._signature)
        except BaseException:
            tx.rollback()
            raise

    def _commit(
        self, tx: Transaction, signature: Signature, turn: Turn | None = None, *, again: bool = False
    ) -> Snapshot:
        """Commit a transaction; one that another excludes may be planned ``again``, and has not failed then."""
        try:
            return self._sealed(tx, signature, turn)
        except BaseException as error:
            if not (again and isinstance(error, CommitConflict | Collision)):
                telemetry.count("commit.failures", tenant=self._shared.catalog.label)
            raise

    def _sealed(self, tx: Transaction, signature: Signature, turn: Turn | None) -> Snapshot:
        sealing.seal(self._shared, tx)
        shared = self._shared
        changes = tx.change_set(sealing.DeleteFiles(shared), shared.delete_limit, shared.inline_limit)
        if shared.catalog.is_next:
            changes = changes.without_bounds(lambda table: column_ids(str(shared.option("skip_stats_columns", table))))
        if not (changes.empty or signature.given) and shared.option("require_commit_message"):
            raise ConfigError(
                "Commit Information for the snapshot is required but has not been provided.",
                hint="use lake.transaction(message=…, author=…) or lake.signed(…), or unset require_commit_message",
            )
        changes = changes.signed(author=signature.author, message=signature.message, extra=signature.extra)
        snapshot = tx.commit(changes, self._shared.retry, turn)
        self._shared.saw(snapshot)
        return snapshot
