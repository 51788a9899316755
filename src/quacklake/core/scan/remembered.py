"""Plans that are remembered: those of the newest snapshot, until another one comes.

A snapshot is known by its whole row, with the time to the microsecond, and a table by its uuid: a catalog that was
restored under an open process may give an id again, but not to the same row. Plans of older snapshots are not
remembered, because a compaction gives these other files. No plan is believed for long: a lake may be repaired in place.

Only plans of whole tables are kept, so that the rules of principals apply to them each time.

A filter that is new needs no look into the catalog where the plan of all files and their bounds are known. The plan of
all files is made when so many filters have come that it pays. Of a table with very many files, a filter that leaves few
of them needs only the plan of the windows of ids that these are in.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields, is_dataclass
from typing import Protocol, TypeVar

from quacklake import telemetry
from quacklake.core import forks
from quacklake.core.catalog.reading.known_bounds import Judgement, Window
from quacklake.core.format.bounds import ANYTHING, Predicate
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.scan.feed import FeedPlan
from quacklake.core.scan.inlined_rows import KnownRows
from quacklake.core.scan.plan import ScanPlan

P = TypeVar("P", ScanPlan, FeedPlan)

Judge = Callable[[Snapshot, TableInfo, Predicate], Judgement | None]
"""Says by bounds which files may match; None to ask otherwise."""


class Make(Protocol):
    """Makes the plan of a table: that of a predicate with so many files at most, or of the files in windows of ids."""

    def __call__(
        self, predicate: Predicate, max_files: int | None, windows: Sequence[Window] | None = None, /
    ) -> ScanPlan: ...


SECONDS = 10.0
"""The age from which on a plan is made anew."""
FILES_OF_A_PLAN = 250
"""The files that take as long to list as a plan that finds few of them."""
_MAX_COUNTED = 256
"""The states of tables whose new filters are counted."""
_LEAST = 3_072
"""The bytes of a plan's own objects in Python, and of its place here."""
_CHUNK = 700
"""The bytes of Arrow's objects for a column of a table, in each of its chunks, beside its values."""


class Plans:
    """Plans by snapshot, table and predicate, up to a number of bytes. Safe to share between threads."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._known: OrderedDict[Hashable, tuple[float, TableInfo, int, ScanPlan | FeedPlan]] = OrderedDict()
        self._bytes = 0
        self._missed: OrderedDict[Hashable, int] = OrderedDict()
        self.rows = KnownRows(most_bytes)
        self._lock = threading.Lock()
        forks.watch(self, forks.new_lock)

    def scan(
        self,
        snapshot: Snapshot,
        table: TableInfo,
        predicate: Predicate,
        most: int | None,
        make: Make,
        judge: Judge,
    ) -> ScanPlan:
        """Return the plan of a table at the newest snapshot, which has just been read; ``make`` makes a missing one.

        One with more than ``most`` files is made, too: that fails as it should. ``judge`` says which files may match.
        """
        key = (snapshot, table.id, table.uuid, predicate)
        plan = self._get(key, table, ScanPlan)
        if plan is None and predicate != ANYTHING:
            plan = self._derive_plan(key, table, make, judge)
        if plan is None or (most is not None and plan.files.num_rows > most):
            plan = self._add(key, table, make(predicate, most))
        return plan

    def _derive_plan(
        self,
        key: tuple[Snapshot, int, str, Predicate],
        table: TableInfo,
        make: Make,
        judge: Judge,
    ) -> ScanPlan | None:
        """Return a plan by that of the whole table or of windows, made when that pays; None to make one anew.

        It is as old as the plan that it comes from. Partitions tell more than bounds, and are looked at anew.
        """
        if table.partition is not None:
            return None
        snapshot, *_, predicate = key
        judged = judge(snapshot, table, predicate)
        if judged is None:
            return None
        windows = judged.windows
        state = (*key[:3], ANYTHING if windows is None else windows)
        with self._lock:
            made, known, _, wider = self._known.get(state, (0.0, None, 0, None))
            if wider is not None:
                self._known.move_to_end(state)
        if not isinstance(wider, ScanPlan) or known != table or time.monotonic() - made >= SECONDS:
            if not self._pays(state, judged.listed):
                return None
            made = time.monotonic()
            wider = self._add(state, table, make(ANYTHING, None, windows))
        if wider.files.column("partition_id").null_count < wider.files.num_rows:
            return None
        chosen = judged.chosen(wider.files.column("data_file_id").combine_chunks())
        telemetry.count("scan.plans_filtered")
        return self._add(key, table, wider.where(chosen), made)

    def _pays(self, state: Hashable, files: int) -> bool:
        """Count a new filter; return whether there were enough since the last time to list so many files."""
        with self._lock:
            missed = self._missed.pop(state, 0) + 1
            pays = missed * FILES_OF_A_PLAN >= files
            self._missed[state] = 0 if pays else missed
            if len(self._missed) > _MAX_COUNTED:
                self._missed.popitem(last=False)
        return pays

    def feed(self, table: TableInfo, touched: Hashable, make: Callable[[], FeedPlan]) -> FeedPlan:
        """Return the plan of changes; ``touched`` identifies the snapshots that made them by their times."""
        key = (table.id, table.uuid, touched)
        return self._get(key, table, FeedPlan) or self._add(key, table, make())

    def clear(self) -> None:
        """Forget everything."""
        self.rows.clear()
        with self._lock:
            self._known.clear()
            self._missed.clear()
            self._bytes = 0

    def _get(self, key: Hashable, table: TableInfo, kind: type[P]) -> P | None:
        with self._lock:
            made, known, _, plan = self._known.get(key, (0.0, None, 0, None))
            if not isinstance(plan, kind) or known != table or time.monotonic() - made >= SECONDS:
                return None
            self._known.move_to_end(key)
        telemetry.count("scan.plans_remembered")
        return plan

    def _add(self, key: Hashable, table: TableInfo, plan: P, made: float | None = None) -> P:
        size = _size(plan) + _size_of(key)
        with self._lock:
            self._drop(key)
            if size <= self._most // 2:  # one plan must not push out all the others
                self._known[key] = time.monotonic() if made is None else made, table, size, plan
                self._bytes += size
            while self._bytes > self._most:
                self._drop(next(iter(self._known)))
        return plan

    def _drop(self, key: Hashable) -> None:
        _, _, size, _ = self._known.pop(key, (0.0, None, 0, None))
        self._bytes -= size


def _size(plan: ScanPlan | FeedPlan) -> int:
    if isinstance(plan, ScanPlan):
        tables = [plan.files, plan.deletes, plan.inlined]
    else:
        tables = [plan.rows.files, plan.delete_files, plan.positions, plan.inserted, plan.deleted]
    chunks = sum(column.num_chunks for table in tables if table is not None for column in table.columns)
    return _LEAST + int(_CHUNK * chunks + sum(table.nbytes for table in tables if table is not None))


def _size_of(value: object) -> int:
    """Return the bytes of a key: tuples, and objects of predicates and snapshots."""
    if is_dataclass(value):
        return sys.getsizeof(value) + sum(_size_of(getattr(value, each.name)) for each in fields(value))
    if isinstance(value, tuple | list | frozenset):
        return sys.getsizeof(value) + sum(map(_size_of, value))
    return sys.getsizeof(value)


_shared: weakref.WeakValueDictionary[Hashable, Plans] = weakref.WeakValueDictionary()
_sharing = threading.Lock()


def _renew() -> None:
    """Give a forked child another lock."""
    global _sharing
    _sharing = threading.Lock()


def plans_of(identity: Hashable, most_bytes: int) -> Plans:
    """Return the plans of a catalog, which all of its open lakes in this process share.

    ``identity`` has everything that a plan depends on beside snapshot and table: the database, as which user it is
    read, the catalog in it, and which folders the paths of files may lead to.
    """
    with _sharing:
        plans = _shared.get((identity, most_bytes))
        if plans is None:
            plans = _shared[identity, most_bytes] = Plans(most_bytes)
        return plans
