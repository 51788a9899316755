"""Group commit in a process: appends of several threads that wait for their turn share the snapshot of one of them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from quacklake.core import forks
from quacklake.core.format.snapshots import Snapshot, operations_of
from quacklake.core.transaction.changeset import ChangeSet, TableChange

__all__ = ["CommitGroup", "PendingCommit", "merged"]


@dataclass(eq=False, slots=True)
class PendingCommit:
    """A change set that waits in a group, until ``woken``: it leads the next commit, or one has settled it.

    A commit that took it along has settled it: with a ``snapshot``, or without one when it failed. ``lost`` is the
    change set of a commit that failed in a way that leaves open whether it was made.
    """

    changes: ChangeSet
    settled: bool = False
    snapshot: Snapshot | None = None
    lost: ChangeSet | None = None
    woken: threading.Event = field(default_factory=threading.Event)

    def settle(self, snapshot: Snapshot | None, lost: ChangeSet | None) -> None:
        """Say how the commit ended that took it along; who waits with it goes on at once, beside the one that led."""
        self.snapshot, self.lost, self.settled = snapshot, lost, True
        self.woken.set()


class CommitGroup:
    """The appends to one lake that threads of this process want to commit; at most ``most`` share a snapshot.

    One thread commits at a time, the next is the one that has waited longest. It takes along those that wait when the
    database lets it in, so that nobody waits for a group to form, and an append that is alone costs nothing more.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._renew()
        forks.watch(self, CommitGroup._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._leader: PendingCommit | None = None
        self._waiting: list[PendingCommit] = []
        self._led: list[PendingCommit] = []

    @contextmanager
    def turn(self, changes: ChangeSet) -> Iterator[PendingCommit]:
        """Wait until a change set is settled, or the turn of this thread has come; leaving the block ends the turn."""
        place = PendingCommit(changes)
        try:
            with self._lock:
                self._waiting.append(place)
                self._leader = self._leader or place
            if self._leader is not place:
                place.woken.wait()
            yield place
        finally:
            try:
                self._leave(place)
            except BaseException:  # Ctrl-C: without a leader all others would wait for ever
                self._leave(place)
                raise

    def _leave(self, place: PendingCommit) -> None:
        """Take a place out, and let the next one lead if this one did; to do it twice does no harm.

        Those that were taken along and not told how it ended, because Ctrl-C came between, find that out themselves.
        """
        with self._lock:
            if place in self._waiting:
                self._waiting.remove(place)
            if self._leader is place:
                for other in self._led:
                    if not (other is place or other.settled):
                        other.settle(None, merged([each.changes for each in self._led]))
                self._led = []
                self._leader = self._waiting[0] if self._waiting else None
            if self._leader is not None:
                self._leader.woken.set()

    def take(self, first: PendingCommit) -> list[PendingCommit]:
        """Return those that wait and can be committed together with the one whose turn it is, which comes first."""
        with self._lock:
            alike = [place for place in self._waiting if place is first or joins(first.changes, place.changes)]
            taken = sorted(alike, key=lambda place: place is not first)[: self.most]
            self._led += taken
            self._waiting = [place for place in self._waiting if place not in taken]
        return taken


def joins(one: ChangeSet, other: ChangeSet) -> bool:
    """Return whether two change sets can be one: both only add rows, and their snapshots would say the same."""
    return (
        one.only_adds
        and other.only_adds
        and one.base.schema_version == other.base.schema_version
        and one.signature == other.signature
        and operations_of(one.token) == operations_of(other.token)
    )


def merged(parts: Sequence[ChangeSet]) -> ChangeSet:
    """Return one change set that adds the rows of several, with the token of the first and the oldest base."""
    first = parts[0]
    if len(parts) == 1:
        return first
    local_ids = itertools.count(-1, -1)
    tables: dict[int, list[TableChange]] = {}
    for part in parts:
        for change in part.tables:
            tables.setdefault(change.table.id, []).append(change)
    return replace(
        first,
        base=min((part.base for part in parts), key=lambda base: base.id),
        tables=tuple(_together(changes, local_ids) for changes in tables.values()),
    )


def _together(changes: Sequence[TableChange], local_ids: Iterable[int]) -> TableChange:
    """Return the rows that several change sets add to one table; files get local ids that differ."""
    files = [file for change in changes for file in change.data_files]
    return replace(
        changes[0],
        data_files=tuple(replace(file, id=id_) for file, id_ in zip(files, local_ids, strict=False)),
        inlined=tuple(insert for change in changes for insert in change.inlined),
    )
