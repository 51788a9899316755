"""Committing: one short database transaction, tried again when a race is lost, never applied twice."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc

from quacklake import telemetry
from quacklake.core.catalog import Catalog, Collision, Writer
from quacklake.core.catalog.turns import CommitTurn, TransactionTurn, early_turn
from quacklake.core.format.bounds import Bounds, Predicate, columns_of, may_match
from quacklake.core.format.conflicts import Check, compare, explain
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import Column
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.format.stats import of_array
from quacklake.core.scan.inlined_rows import decode_inlined
from quacklake.core.scan.plan import column_key
from quacklake.core.transaction.attempt import Attempt
from quacklake.core.transaction.changeset import ChangeSet, TableChange
from quacklake.core.transaction.groups import CommitGroup, PendingCommit, merged
from quacklake.errors import (
    CatalogError,
    CatalogLockedError,
    CatalogUnavailableError,
    CommitConflict,
    CommitUnknown,
    NotFoundError,
    QuacklakeError,
    TenantBusyError,
)

if TYPE_CHECKING:
    from quacklake.core.transaction.transaction import Transaction
_log = logging.getLogger("quacklake.commit")
_AGAIN = "run the operation again on the new state"
_JITTER = 0.05
"""Seconds by which those who wait for the same moment are spread."""
_MAX_PARTS = 128
"""The most parts of new rows whose bounds are compared with what a change has read."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The number and length of retries: exponential backoff with full jitter.

    An operation that loses again and again gets a turn: its next attempt plans at the head of the commit queue, unless
    that takes longer than ``turn_ms``. A catalog at its limit of commits waits up to ``limit_wait_ms`` for the next.
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


def run(
    catalog: Catalog,
    plan: Callable[[], Transaction],
    retry: Retry,
    replan: Callable[[BaseException, int], bool] = lambda error, left: False,
    group: CommitGroup | None = None,
    kept: TransactionTurn | None = None,
) -> Snapshot:
    """Plan, commit, try again after a lost race and plan again after a conflict; return the snapshot.

    ``plan`` runs each time in a transaction of its own. ``replan`` says, given an error of it or of the commit and how
    many plans are left, whether another plan may succeed. Changes that only add rows may be committed together with
    others of a ``group``. The first attempt uses the turn that is ``kept`` for it. Raise ``CommitConflict`` when
    another commit excludes the changes, ``TenantLimitError`` and ``CommitUnknown`` when the database's answer was lost
    for good.
    """
    plans = tries = 0
    took = began = patient_until = 0.0
    turn: CommitTurn | None = None
    tx: Transaction | None = None
    with ExitStack() as stack:  # the turn and the clock of the plan that is under way
        while plans <= retry.count:
            try:
                if tx is None:
                    began = time.monotonic()
                    if kept is not None:
                        turn, kept = kept.take(), None
                    elif retry.gives_turn(plans, took):
                        turn = early_turn(catalog)
                    if turn is not None:
                        stack.callback(turn.close)
                    planned = plan()
                    tries, tx = 0, planned
                    if planned.changes.empty and not planned.changes.marks:
                        return planned.succeeded(None)
                    patient_until = time.monotonic() + retry.limit_wait_ms / 1000
                    stack.enter_context(telemetry.timed("commit", tenant=catalog.label))
                mine, turn = turn, None
                last = tries == retry.count
                if group is not None and mine is None and catalog.has_tokens and tx.changes.only_adds:
                    snapshot = _join(catalog, tx, group, retry, last=last)
                else:
                    snapshot = _attempt(catalog, tx, mine, retry, last=last)
                if snapshot is not None:
                    return tx.succeeded(snapshot)
                telemetry.count("commit.retries", tenant=catalog.label)
                _log.debug("commit %s: attempt %d lost, trying again", tx.changes.token, tries + 1)
                retry.pause(tries)
                tries += 1
                if tries > retry.count:
                    hint = "try again, or raise ducklake_max_retry_count"
                    raise CommitConflict("the commit lost every race for its turn", hint=hint)
            except BaseException as error:
                if tx is not None and isinstance(error, TenantBusyError) and _wait_for_room(error, patient_until):
                    continue  # with the same plan
                if tx is not None:
                    tx.failed(error)
                stack.close()
                lost = isinstance(error, CommitConflict | Collision)
                again = (lost or isinstance(error, NotFoundError)) and replan(error, retry.count - plans)
                if (lost and not again) or (not lost and tx is not None):
                    telemetry.count("commit.failures", tenant=catalog.label)
                if not again:
                    raise
                if lost:
                    telemetry.count("commit.replans", tenant=catalog.label)
                    took = time.monotonic() - began
                    if plans > 0:
                        retry.pause(plans)
                plans, tx = plans + 1, None
    raise CommitConflict("the operation lost every race", hint="try again, or raise ducklake_max_retry_count")


def _join(catalog: Catalog, tx: Transaction, group: CommitGroup, retry: Retry, *, last: bool) -> Snapshot | None:
    """Commit once, as ``_attempt`` does, together with others that wait; or find that another has done it."""
    with group.turn(tx.changes) as place:
        if not place.settled:
            with _Lead(group, place) as lead:
                return lead.made(_attempt(catalog, tx, None, retry, last=last, gather=lead.gather))
    made = place.snapshot if place.lost is None else _recover(catalog, place.lost, retry)
    # what failed together is tried alone, and by all threads at once
    return made or _attempt(catalog, tx, None, retry, last=last)


class _Lead:
    """Leads a commit of a group: gathers those that wait, and tells them how it ended."""

    def __init__(self, group: CommitGroup, place: PendingCommit) -> None:
        self._group = group
        self._place = place
        self._taken: list[PendingCommit] = []
        self._changes = place.changes

    def gather(self) -> ChangeSet:
        """Return the changes of all that wait now."""
        self._taken = self._group.take(self._place)
        self._changes = merged([place.changes for place in self._taken])
        telemetry.count("commit.joined", len(self._taken) - 1)
        return self._changes

    def made(self, snapshot: Snapshot | None) -> Snapshot | None:
        """Tell all the snapshot; None when the commit was certainly not made."""
        self._settle(snapshot)
        return snapshot

    def _settle(self, snapshot: Snapshot | None, lost: ChangeSet | None = None) -> None:
        # where the turn itself failed, nobody else has to wait for the same
        for place in self._taken or self._group.take(self._place):
            if not place.settled:
                place.settle(snapshot, lost)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            unclear = isinstance(error, CommitUnknown) or not isinstance(error, QuacklakeError)
            self._settle(None, self._changes if unclear and self._taken else None)


def _attempt(
    catalog: Catalog,
    tx: Transaction,
    turn: CommitTurn | None,
    retry: Retry,
    *,
    last: bool,
    gather: Callable[[], ChangeSet] | None = None,
) -> Snapshot | None:
    """Commit once; return None when that was not done, and the same changes can be tried again.

    ``gather`` returns, once the turn has come, the changes with those of others that are committed with them.
    """
    changes = tx.changes
    dated: Callable[[int], ChangeSet] = tx.dated
    try:
        with turn or CommitTurn(catalog, planned=True) as mine:
            if gather is not None:
                changes = gather()
                dated = lambda _: changes  # noqa: E731 - what only adds rows has no dates
            work = Attempt(mine.writer, catalog, changes, dated)
            if not changes.empty:
                check_conflicts(mine.writer, changes, work.latest, catalog.encoding)
            snapshot = work.apply()
    except CommitUnknown:
        return _recover(catalog, changes, retry)
    except CatalogUnavailableError as error:
        if last or isinstance(error, CatalogLockedError):
            raise
        return None
    work.remember(snapshot)
    telemetry.count("commit.rows", changes.added_rows, tenant=catalog.label)
    return snapshot


def _wait_for_room(error: TenantBusyError, until: float) -> bool:
    """Sleep until there may be room; return False when that would be too long."""
    pause = error.after + random.uniform(0, _JITTER)
    if time.monotonic() + pause > until:
        return False
    time.sleep(pause)
    return True


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


# -- the conflict rules ------------------------------------------------------------------------------------------------


def check_conflicts(writer: Writer, changes: ChangeSet, latest: Snapshot, database: str) -> None:
    """Raise ``CommitConflict`` when a commit after the change set's base excludes it."""
    base = changes.base
    if latest.id == base.id:
        return
    if latest.id < base.id:
        raise CommitConflict("the lake is older than the transaction's snapshot", hint="was it restored from a backup?")
    for table in changes.tables:
        added = {file.path for file in table.data_files if file.mapping_id is not None}
        if added and not added.isdisjoint(writer.files.added_since(table.table.id, base.id)):
            raise overtaken(table.table, "a file was added")
    if changes.blind and latest.schema_version == base.schema_version:
        return  # an insert conflicts only with changes of the schema
    by_id = {table.table.id: table for table in changes.tables}
    for table_id, needed in _needed_checks(writer, changes, by_id, latest).items():
        if Check.SAME_FILE in needed:
            _check_files(writer, by_id[table_id], base)
        if Check.READ in needed:
            _check_reads(writer, by_id[table_id], base, latest, database)


def _needed_checks(
    writer: Writer, changes: ChangeSet, by_id: dict[int, TableChange], latest: Snapshot
) -> dict[int, set[Check]]:
    """Return what must be looked at per table; raise at once for what always conflicts."""
    mine = changes.changes()
    needed: dict[int, set[Check]] = {}
    since = writer.snapshots.changes_since(changes.base.id)
    if len(since) != latest.id - changes.base.id:
        raise CommitConflict(
            "snapshots since the transaction began have expired: what they changed is unknown", hint=_AGAIN
        )
    for other in (other for _, others in since for other in others):
        for change in mine:
            table = by_id.get(change.id) if change.id is not None else None
            reads = table is not None and table.reads is not None
            check = compare(change, other, reads=reads, schema_ids=changes.schema_ids)
            if check is Check.CONFLICT:
                raise CommitConflict(explain(change, other), hint=_AGAIN)
            if table is not None and check is not Check.OK:
                needed.setdefault(table.table.id, set()).add(check)
    return needed


def _check_files(writer: Writer, table: TableChange, base: Snapshot) -> None:
    """Raise unless every touched file is still live with the deletes it had; inlined rows are checked when they end."""
    files = list(table.touched)
    if not files:
        return
    live = writer.files.live(table.table.id, files, base.id)
    if any(id_ not in live or live[id_] != table.touched[id_] for id_ in files):
        raise overtaken(table.table, "a file of it was changed")
    if writer.inlined.deletes_since(table.table.id, files, base.id):
        raise overtaken(table.table, "rows of the same file were deleted")


def _check_reads(writer: Writer, table: TableChange, base: Snapshot, latest: Snapshot, database: str) -> None:
    """Raise when others inserted rows that this change depends on having read."""
    reads = table.reads
    if reads is None:
        return
    files = writer.files.matching(latest, table.table, reads)
    # a merged file begins with the oldest of its rows
    newest = pc.coalesce(files.column("partial_max"), files.column("begin_snapshot"))
    if pc.any(pc.greater(newest, base.id)).as_py():
        raise overtaken(table.table, "rows it depends on were inserted")
    rows = decode_inlined(writer.inlined.rows(latest, table.table, since=base.id), table.table.schema, database)
    if rows is not None and any_may_match(reads, rows, table.table.schema.columns):
        raise overtaken(table.table, "rows it depends on were inserted")


def any_may_match(reads: Predicate, rows: pa.Table, columns: Sequence[Column]) -> bool:
    """Return whether one of some inlined rows may satisfy a predicate.

    The bounds of many rows enclose what none of them has, so parts are looked at that are ever smaller. A part is
    taken to match when too many would have to be looked at.
    """
    known = [column for column in columns if column.id in columns_of(reads)]
    if not known:
        return may_match(reads, {})
    keys = [(column_key(column), "ascending") for column in known]
    with suppress(pa.ArrowException):  # rows that cannot be sorted have wider bounds
        rows = rows.sort_by(keys)
    parts = [rows]
    for _ in range(_MAX_PARTS):
        if not parts:
            return False
        part = parts.pop()
        bounds = {
            column.id: Bounds.of(of_array(part.column(column_key(column)), column)[0], column.type) for column in known
        }
        if may_match(reads, bounds):
            half = part.num_rows // 2
            if not half:
                return True
            parts += [part.slice(half), part.slice(0, half)]
    return bool(parts)


def overtaken(table: TableInfo, why: str) -> CommitConflict:
    """Return the error for a change to a table that conflicts with a later commit."""
    return CommitConflict(f"the change to {table.qualified_name} was overtaken: {why} by another commit", hint=_AGAIN)
