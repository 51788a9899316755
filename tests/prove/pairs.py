"""Two operations at once, in lockstep: the first stops at a fault point, the second runs whole, the first goes on.

For every ordered pair of operations and every point of the first. Where the first holds the database's queue the second
has to wait for it; then the first goes on while the second waits. Whatever comes of it must be as if one had come after
the other, or one was refused and left no trace.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from quacklake import Lake, faults
from quacklake.errors import CommitConflict, NotFoundError, QuacklakeError
from tests.catalog.stock import Rows, Stock
from tests.crash.homes import Home, Workshop, check_rows, look
from tests.crash.operations import OPERATIONS, Operation, note

__all__ = ["Meeting", "meet", "meetings"]

#: The same table whatever its name: who drops it need not know that another has renamed it meanwhile.
BY_ID = {frozenset(("drop", "rename"))}
_SECONDS = 4
"""How many others meet one operation at least, in a sample."""
_EARLY = 8
_PATIENCE = 20.0
_STANDSTILL = 0.06


@dataclass(frozen=True)
class Meeting:
    """Where the second operation comes in; ``block``: the first is in a transaction block, so nobody repeats it."""

    first: str
    second: str
    point: int
    block: bool

    def __str__(self) -> str:
        return f"{self.second} while {self.first}{' in a block' if self.block else ''} is at point {self.point}"


@cache
def phases(workshop: Workshop, name: str) -> list[str]:
    """The points that an operation passes in its own thread, on a lake that was just opened."""
    operation = OPERATIONS[name]
    with _prepared(workshop, operation, operation).connect() as lake:
        names: list[str] = []
        me = threading.get_ident()
        with faults._hooked(lambda point: names.append(point) if threading.get_ident() == me else None):
            operation.run(lake)
    return names


def meetings(workshop: Workshop, count: int | None, chance: random.Random) -> Iterator[Meeting]:
    """All of them, or so many by chance: several for each that comes first, since its points must be found out."""
    if count is None:
        for first, second in itertools.product(OPERATIONS, OPERATIONS):
            for point, _ in enumerate(phases(workshop, first), 1):
                for block in (False, True) if OPERATIONS[first].block else (False,):
                    yield Meeting(first, second, point, block)
        return
    chosen = chance.sample(list(OPERATIONS), min(len(OPERATIONS), -(-count // _SECONDS)))
    orders = [chance.sample(list(OPERATIONS), len(OPERATIONS)) for _ in chosen]
    pairs = [pair for seconds in zip(*orders, strict=True) for pair in zip(chosen, seconds, strict=True)]
    for first, second in itertools.islice(itertools.cycle(pairs), count):
        # every other one early, when the first knows its snapshot and not yet its files: there is most to go wrong
        point = chance.randint(1, min(len(phases(workshop, first)), chance.choice((_EARLY, 10**9))))
        yield Meeting(first, second, point, OPERATIONS[first].block and chance.random() < 0.5)


def _prepared(workshop: Workshop, *operations: Operation) -> Home:
    home = workshop.copy()
    if any(operation.prepare is not None for operation in operations):
        with home.connect() as lake:
            for prepare in dict.fromkeys(operation.prepare for operation in operations):
                if prepare is not None:
                    prepare(lake)
    return home


@cache
def _start(workshop: Workshop, *names: str) -> Rows:
    """What is seen before both."""
    with _prepared(workshop, *(OPERATIONS[name] for name in names)).connect() as lake:
        return look(lake).tables


def meet(workshop: Workshop, meeting: Meeting, stock: Stock | None = None) -> bool:
    """Let two operations meet and judge the lake; True when both were done. Raises ``AssertionError``."""
    first, second = OPERATIONS[meeting.first], OPERATIONS[meeting.second]
    home = _prepared(workshop, first, second)
    with home.connect() as lake, home.connect() as elsewhere:
        start = _start(workshop, *(one.name for one in (first, second) if one.prepare is not None))
        errors = _together(lake, elsewhere, first, second, meeting)
    with home.connect() as lake:
        found = look(lake).tables
        try:
            _judge(found, start, (first, second), errors)
            for name in found.keys() & {"main.t", "main.renamed"}:
                check_rows(lake, name)
            note(lake, 1)
            home.check_ids()
            # nobody died, so nothing is left behind; maintenance may have its own way with files
            home.check_files(left=())
            for operation in (first, second):
                if operation.check is not None:
                    operation.check(home)
        except AssertionError as error:
            told = ", ".join(f"{type(one).__name__}: {one}" for one in errors if one is not None)
            raise AssertionError(f"{meeting} on {workshop.database} ({told or 'no errors'}): {error}") from error
    if stock is not None and workshop.database != "mysql":
        log = sorted([*found["main.log"], (1,)], key=repr)
        wanted = {name: rows for name, rows in found.items() if not name.startswith("view ")} | {"main.log": log}
        assert stock.rows(home.url) == wanted, f"{meeting}: stock DuckDB sees other rows"
    return errors == [None, None]


def _together(
    lake: Lake, elsewhere: Lake, first: Operation, second: Operation, meeting: Meeting
) -> list[QuacklakeError | None]:
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
    with _stopping(meeting.point, lambda moves: _let(thread, moves)):
        try:
            if meeting.block:
                with lake.transaction() as tx:
                    first.run(tx)
            else:
                first.run(lake)
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


def _let(thread: threading.Thread, moves: list[str]) -> None:
    """Let the other run to its end, or until it stands still, which means that it waits for us.

    A standstill that was none is no harm: then both run at once.
    """
    thread.start()
    waited, seen = 0.0, -1
    while thread.is_alive() and waited < _PATIENCE:
        if len(moves) == seen and waited >= _STANDSTILL:
            return
        if len(moves) != seen:
            waited, seen = 0.0, len(moves)
        thread.join(0.005)
        waited += 0.005


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
        if isinstance(error, NotFoundError) and operation.past and not other.snapshots:
            continue
        assert after(start, other, operation) is None, f"{operation} was refused: {error!r}"


def after(tables: Rows, *operations: Operation) -> Rows | None:
    """What is seen after operations one after the other, or None when one of them must be refused."""
    try:
        for operation in operations:
            tables = operation.mean(tables)
    except LookupError:
        return None
    return tables
