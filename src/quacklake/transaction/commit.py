"""Committing a change set: one short database transaction, replayed when a race is lost, never applied twice."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from quacklake import telemetry
from quacklake.catalog import Catalog
from quacklake.errors import CatalogUnavailableError, CommitConflict, CommitUnknown
from quacklake.format.snapshots import Snapshot
from quacklake.transaction.attempt import Attempt
from quacklake.transaction.changeset import ChangeSet

__all__ = ["Retry", "commit"]

_log = logging.getLogger("quacklake.commit")


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how long to try again: exponential backoff with full jitter."""

    count: int = 10
    wait_ms: float = 100
    backoff: float = 1.5
    max_wait_ms: float = 5_000

    def pause(self, attempt: int) -> None:
        """Sleep before the next attempt."""
        limit = min(self.wait_ms * self.backoff**attempt, self.max_wait_ms)
        time.sleep(random.uniform(0, limit) / 1000)


def commit(catalog: Catalog, changes: ChangeSet, retry: Retry, dated: Callable[[int], ChangeSet]) -> Snapshot:
    """Commit a change set and return its snapshot; ``dated`` gives the change set for a snapshot id.

    Raises ``CommitConflict`` when another commit excludes it (nothing is changed) and ``CommitUnknown`` when the
    database's answer was lost and could not be found again.
    """
    with telemetry.timed("commit"):
        for attempt in range(retry.count + 1):
            try:
                with catalog.commit() as writer:
                    work = Attempt(writer, catalog, changes, dated)
                    snapshot = work.apply()
            except CommitUnknown:
                found = _recover(catalog, changes, retry)
                if found is not None:
                    return found
            except CatalogUnavailableError:
                if attempt == retry.count:
                    raise
            else:
                work.remember(snapshot)
                return snapshot
            telemetry.count("commit.retries")
            _log.debug("commit %s: attempt %d lost, trying again", changes.token, attempt + 1)
            retry.pause(attempt)
    raise CommitConflict("the commit lost every race for its turn", hint="try again, or raise ducklake_max_retry_count")


def _recover(catalog: Catalog, changes: ChangeSet, retry: Retry) -> Snapshot | None:
    """After a lost answer: the snapshot the commit made, or None when it made none."""
    telemetry.count("commit.recoveries")
    for attempt in range(retry.count + 1):
        try:
            version = catalog.find_commit(changes.token)
            if version is None:
                return None
            with catalog.read() as reader:
                return reader.at_version(version)
        except (CatalogUnavailableError, CommitUnknown):
            if not catalog.has_tokens:
                raise
            retry.pause(attempt)  # also when the answer to the question was lost
    raise CommitUnknown(
        "the connection was lost during the commit, and the database could not be asked again",
        hint="compare lake.snapshots() with what you wrote before trying again",
    )
