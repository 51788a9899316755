"""Two operations in lockstep: the first stops at a fault point, the second runs to its end, the first continues.

For every ordered pair of operations and every phase of the first. Where the first holds the database's queue the second
has to wait for it; then the first goes on while the second waits. Whatever comes of it must be as if one had come after
the other, or one was refused and left no trace.

A **phase** is a run of points between which nothing happens that the other could see, and at which the first has seen the
same of what the other may have done: all points of one read transaction after its first statement (it reads one state of
the database, whatever is committed meanwhile), all points in the queue before the commit (the other plans on the old
state, then waits), all points between two calls of the store. It makes no difference at which of them the other comes in,
so each phase has one meeting, at one of its points by chance: other seeds take other points. A new phase begins

- with each read transaction, and when the turn in the queue has come;
- after each commit, and where tables are made that others see at once, which is on MySQL;
- after each file that was written or read, each listing, and each step of maintenance that removes something.

There is no meeting after the last commit, which is one after the other, nor in the queue of a block, which is that of the
operation alone. To read the options of the lake begins no phase: no operation here changes them.

Operations that touch no table both (``Operation.touches``) have only the queue in common: they meet once, in any phase.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest import mock

from quacklake import Lake
from quacklake.core import faults
from quacklake.core.catalog import Catalog, Reader, Writer
from quacklake.errors import CommitConflict, NotFoundError, QuacklakeError
from tests.catalog.stock import Rows, Stock
from tests.crash.operations import OPERATIONS, Operation, discard, note
from tests.prove.stands import Stand

__all__ = ["Meeting", "meet", "meetings"]

#: The same table whatever its name: who drops it need not know that another has renamed it meanwhile.
BY_ID = {frozenset(("drop", "rename"))}
_SECONDS = 4
"""The least number of operations that meet one operation, in a sample."""
_EARLY = 5
_PATIENCE = 20.0
_STANDSTILL = 1.0

#: Points that end a phase, as the beginning of a transaction does: others see more from then on, or we have seen more.
_STEPS = ("catalog.commit.after", "engine.write.after", "storage.publish.after", "storage.read.after")
_STEPS += ("storage.list.after", "maintenance.")


@dataclass(frozen=True)
class Meeting:
    """The point where the second operation runs; ``block``: the first is in a transaction block, which nobody repeats."""

    first: str
    second: str
    point: int
    block: bool

    def __str__(self) -> str:
        return f"{self.second} while {self.first}{' in a block' if self.block else ''} is at point {self.point}"


@dataclass
class Watch:
    """The threads in the queue of commits and at its head; ``changed`` is called when a transaction begins."""

    changed: Callable[[], None] = lambda: None
    waiting: set[int] = field(default_factory=set)
    within: set[int] = field(default_factory=set)


@contextmanager
def _watched() -> Iterator[Watch]:
    """See who waits in the queue and who is at its head."""
    watch = Watch()
    read, queued = Catalog.read, Catalog.queued

    @contextmanager
    def reading(self: Catalog, **options: Any) -> Iterator[Reader]:
        watch.changed()
        with read(self, **options) as reader:
            yield reader

    @contextmanager
    def queueing(self: Catalog, **options: Any) -> Iterator[Writer]:
        me = threading.get_ident()
        watch.waiting.add(me)
        try:
            with queued(self, **options) as writer:
                watch.waiting.discard(me)
                watch.within.add(me)
                watch.changed()
                yield writer
        finally:
            watch.waiting.discard(me)
            watch.within.discard(me)

    with mock.patch.object(Catalog, "read", reading), mock.patch.object(Catalog, "queued", queueing):
        yield watch


@cache
def phases(stand: Stand, name: str, *, block: bool = False) -> list[list[int]]:
    """The points that an operation passes in its own thread, on a lake that was just opened, by phase."""
    operation = OPERATIONS[name]
    stand.put(operation.prepare)
    lake = stand.client(0)
    found: list[list[str]] = [[]]
    me = threading.get_ident()

    def begin() -> None:
        if threading.get_ident() == me and found[-1]:
            found.append([])

    def point(reached: str) -> None:
        if threading.get_ident() != me:
            return
        made = stand.database == "mysql" and reached.startswith("catalog.create_") and reached.endswith(".after")
        if made or reached.startswith(_STEPS):
            begin()
        found[-1].append(reached)

    with _watched() as watch, faults._hooked(point):
        watch.changed = begin
        _run(operation, lake, block=block)
    return _numbered([points for points in found if points], block=block)


def _numbered(found: list[list[str]], *, block: bool) -> list[list[int]]:
    """Phases by the numbers of their points, without those that show nothing more; see the head of this module."""
    numbers = itertools.count(1)
    phases: list[list[int]] = []
    for points in found:
        mine = [next(numbers) for _ in points]
        if phases and points[0] == "catalog.options.before":
            phases[-1] += mine
        else:
            phases.append(mine)
    if found[-1][0] == "catalog.commit.after":
        del phases[-1]
        if block:
            del phases[-1]
    return phases


def _run(operation: Operation, lake: Lake, *, block: bool) -> None:
    if not block:
        operation.run(lake)
        return
    with lake.transaction() as tx:
        operation.run(tx)


def meetings(stand: Stand, count: int | None, chance: random.Random) -> Iterator[Meeting]:
    """Yield all meetings, or so many by chance: several for each first operation, whose points must be recorded."""
    if count is None:
        yield from _all(stand, chance)
        return
    chosen = chance.sample(list(OPERATIONS), min(len(OPERATIONS), -(-count // _SECONDS)))
    orders = [chance.sample(list(OPERATIONS), len(OPERATIONS)) for _ in chosen]
    pairs = [pair for seconds in zip(*orders, strict=True) for pair in zip(chosen, seconds, strict=True)]
    for first, second in itertools.islice(itertools.cycle(pairs), count):
        block = OPERATIONS[first].block and chance.random() < 0.5
        found = phases(stand, first, block=block)
        # every other one early, when the first knows its snapshot and not yet its files: there is most to go wrong
        yield Meeting(first, second, _point(chance.choice(found[: chance.choice((_EARLY, len(found)))]), chance), block)


def _all(stand: Stand, chance: random.Random) -> Iterator[Meeting]:
    for first in OPERATIONS:
        for block in (False, True) if OPERATIONS[first].block else (False,):
            found = phases(stand, first, block=block)
            for second in OPERATIONS:
                meet = OPERATIONS[first].meets(OPERATIONS[second])
                for points in found if meet else [chance.choice(found)]:
                    yield Meeting(first, second, _point(points, chance), block)


def _point(points: list[int], chance: random.Random) -> int:
    """A point of a phase. The first is before the first statement of a transaction, which decides what that sees."""
    return chance.choice(points[1:] or points)


def meet(stand: Stand, meeting: Meeting, stock: Stock | None = None, *, deep: bool = False) -> bool:
    """Let two operations meet and judge the lake; True when both were done. Raise ``AssertionError``.

    With ``deep`` every rule of the format is checked, and what neither should have touched; ``stock`` looks too.
    """
    first, second = OPERATIONS[meeting.first], OPERATIONS[meeting.second]
    start = stand.put(first.prepare, second.prepare)
    errors = _together(stand, first, second, meeting)
    lake = stand.client(0)
    try:
        touched = {*first.touches, *second.touches}
        found = _look(lake, start, None if deep or "*" in touched else touched)
        _judge(found, start, (first, second), errors)
        note(lake, 1)
        # nobody died, so nothing is left behind; maintenance may have its own way with files
        stand.home.check(left=())
        for operation in (first, second):
            if operation.check is not None:
                operation.check(stand.home)
        if deep:
            findings = lake.verify(deep=True).findings
            assert not findings, f"verification finds {findings}"
        if stock is not None and stand.database != "mysql":
            stand.release()
            log = sorted([*found["main.log"], (1,)], key=repr)
            wanted = {name: rows for name, rows in found.items() if not name.startswith("view ")} | {"main.log": log}
            assert stock.rows(stand.home.url) == wanted, "stock DuckDB sees other rows"
    except AssertionError as error:
        told = ", ".join(f"{type(one).__name__}: {one}" for one in errors if one is not None)
        raise AssertionError(f"{meeting} on {stand.database} ({told or 'no errors'}): {error}") from error
    return errors == [None, None]


def _look(lake: Lake, start: Rows, touched: set[str] | None) -> Rows:
    """Read all tables and views; take the rows of tables at the start that nobody ``touched`` from ``start``."""
    with lake.transaction() as tx:
        found: Rows = {f"view {name}": [] for name in tx.views()}
        for name in tx.tables():
            table = tx.table(name)
            if touched is not None and name in start and name not in touched:
                found[name] = start[name]
                continue
            ids, *columns = (column.to_pylist() for column in table.scan(["rowid", *table.columns]).to_arrow().columns)
            assert len(ids) == len(set(ids)), f"two rows of {name} have one row id"
            found[name] = sorted(zip(*columns, strict=True), key=repr)
    return found


def _together(stand: Stand, first: Operation, second: Operation, meeting: Meeting) -> list[QuacklakeError | None]:
    lake, elsewhere = stand.client(0), stand.client(1)
    errors: list[QuacklakeError | None] = [None, None]
    thrown: list[BaseException] = []

    def other() -> None:
        try:
            second.run(elsewhere)
        except QuacklakeError as error:
            errors[1] = error
        except BaseException as error:
            thrown.append(error)

    thread = threading.Thread(target=other)
    with _watched() as watch, _stopping(meeting.point, lambda moves: _let(thread, moves, watch)):
        try:
            _run(first, lake, block=meeting.block)
        except QuacklakeError as error:
            errors[0] = error
        if thread.ident is None:
            thread.start()  # the first ended before its point
        thread.join()
    if thrown:
        raise thrown[0]
    return errors


@contextmanager
def _stopping(at: int, stop: Callable[[list[str]], None]) -> Iterator[None]:
    """Call ``stop`` when this thread reaches its ``at``-th point; it gets the points that others reach."""
    me = threading.get_ident()
    mine = 0
    others: list[str] = []

    def hook(point: str) -> None:
        nonlocal mine
        if threading.get_ident() != me:
            others.append(point)
            return
        mine += 1
        if mine == at:
            stop(others)

    with faults._hooked(hook):
        yield


def _let(thread: threading.Thread, moves: list[str], watch: Watch) -> None:
    """Let the other run to its end, or until it waits for us in the queue, or stands still.

    A standstill that was none is no harm: then both run at once.
    """
    me = threading.get_ident()
    thread.start()
    assert thread.ident is not None
    waited, seen = 0.0, -1
    while thread.is_alive() and waited < _PATIENCE:
        if me in watch.within and thread.ident in watch.waiting:
            return
        if len(moves) == seen and waited >= _STANDSTILL:
            return
        if len(moves) != seen:
            waited, seen = 0.0, len(moves)
        thread.join(0.002)
        waited += 0.002


def _judge(
    found: Rows, start: Rows, operations: tuple[Operation, Operation], errors: list[QuacklakeError | None]
) -> None:
    first, second = operations
    done = [operation for operation, error in zip(operations, errors, strict=True) if error is None]
    serial = [after(start, *order) for order in itertools.permutations(done)]
    if len(done) == 2 and frozenset((first.name, second.name)) in BY_ID:
        serial.append({name: rows for name, rows in start.items() if name != "main.t"})
    assert found in serial, "not as if one came after the other"
    for operation, error in zip(operations, errors, strict=True):
        if error is None or isinstance(error, CommitConflict):
            continue
        # any other refusal must be what it deserves after the other
        other = second if operation is first else first
        fewer = not other.snapshots or other.prepare is discard
        if isinstance(error, NotFoundError) and operation.past and fewer:
            continue
        assert after(start, other, operation) is None, f"{operation} was refused: {error!r}"


def after(tables: Rows, *operations: Operation) -> Rows | None:
    """Return the tables after these operations in turn, or None when one of them must be refused."""
    try:
        for operation in operations:
            tables = operation.mean(tables)
    except LookupError:
        return None
    return tables
