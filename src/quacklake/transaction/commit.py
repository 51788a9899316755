"""Committing a change set: one short database transaction, replayed when a race is lost, never applied twice."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

from quacklake import telemetry
from quacklake.catalog import Catalog
from quacklake.errors import (
    CatalogError,
    CatalogLockedError,
    CatalogUnavailableError,
    CommitConflict,
    CommitUnknown,
    TenantBusyError,
)
from quacklake.format.snapshots import Snapshot
from quacklake.transaction.attempt import Attempt
from quacklake.transaction.changeset import ChangeSet
from quacklake.transaction.limits import Patience

_log = logging.getLogger("quacklake.commit")


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how long to try again: exponential backoff with full jitter.

    An operation that loses again and again gets a turn: its next attempt plans at the head of the commit queue. An
    attempt that takes longer than ``turn_ms`` does not, since everybody would wait for it. A catalog at its limit of
    commits waits up to ``limit_wait_ms`` for the next.
    """

    count: int = 10
    wait_ms: float = 100
    backoff: float = 1.5
    max_wait_ms: float = 5_000
    turn_ms: float = 5_000
    turn_after: int = 3
    limit_wait_ms: float = 0

    def gives_turn(self, attempt: int, seconds: float) -> bool:
        """Return whether the next attempt may hold the commit queue; ``seconds`` is how long the last one took."""
        return attempt >= self.turn_after and seconds * 1000 < self.turn_ms

    def pause(self, attempt: int) -> None:
        """Sleep before the next attempt."""
        limit = min(self.wait_ms * self.backoff**attempt, self.max_wait_ms)
        time.sleep(random.uniform(0, limit) / 1000)


class CommitTurn:
    """A commit transaction whose turn in the queue has come. Leaving the block commits, an exception undoes it.

    Taken before an operation plans, it keeps other clients of ours from committing meanwhile; taken after, it may bring
    the newest snapshot along.
    """

    def __init__(self, catalog: Catalog, *, planned: bool = False) -> None:
        self._stack = ExitStack()
        self.writer = self._stack.enter_context(catalog.commit(latest=planned))

    def __enter__(self) -> CommitTurn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def leave(self) -> None:
        """Let the next one in, if that has not been done: nothing was written."""
        self._stack.close()


def commit(
    catalog: Catalog,
    changes: ChangeSet,
    retry: Retry,
    dated: Callable[[int], ChangeSet],
    turn: CommitTurn | None = None,
) -> Snapshot:
    """Commit a change set and return its snapshot; ``dated`` gives the change set for a snapshot id.

    Raise ``CommitConflict`` when another commit excludes it, ``TenantLimitError`` (nothing is changed then) and
    ``CommitUnknown`` when the database's answer was lost and could not be found again.
    """
    patience = Patience(retry.limit_wait_ms / 1000)
    attempt = 0
    with telemetry.timed("commit", tenant=catalog.label):
        while attempt <= retry.count:
            try:
                mine, turn = turn or CommitTurn(catalog, planned=True), None
                with mine:
                    work = Attempt(mine.writer, catalog, changes, dated)
                    snapshot = work.apply()
            except CommitUnknown:
                recovered = _recover(catalog, changes, retry)
                if recovered is not None:
                    return recovered
            except TenantBusyError as error:
                patience.wait(error)
                continue
            except CatalogUnavailableError as error:
                if attempt == retry.count or isinstance(error, CatalogLockedError):
                    raise
            else:
                work.remember(snapshot)
                telemetry.count("commit.rows", changes.added_rows, tenant=catalog.label)
                return snapshot
            telemetry.count("commit.retries", tenant=catalog.label)
            _log.debug("commit %s: attempt %d lost, trying again", changes.token, attempt + 1)
            retry.pause(attempt)
            attempt += 1
    raise CommitConflict("the commit lost every race for its turn", hint="try again, or raise ducklake_max_retry_count")


def _recover(catalog: Catalog, changes: ChangeSet, retry: Retry) -> Snapshot | None:
    """Return the snapshot that a commit made whose answer was lost, or None when it made none."""
    telemetry.count("commit.recoveries", tenant=catalog.label)
    for attempt in range(retry.count + 1):
        try:
            version = catalog.find_commit(changes.token)
            if version is None:
                return None
            with catalog.read() as reader:
                return reader.snapshots.at_version(version)
        except (CatalogUnavailableError, CommitUnknown):
            if not catalog.has_tokens:
                raise
            retry.pause(attempt)  # the answer to this query may be lost, too
        except CatalogError:
            break  # nobody can tell any more whether the commit was made
    raise CommitUnknown(
        "the connection was lost during the commit, and the database could not be asked again",
        hint="compare lake.snapshots() with what you wrote before trying again",
    )
