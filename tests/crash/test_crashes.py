"""An operation that ends at any point whatsoever leaves the old lake or the new one, whole, and the next one works."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field

import pytest

from quacklake import Lake
from quacklake.faults import EXIT_CODE, Fault, FaultInjected, arm, record
from tests.catalog.stock import Stock
from tests.crash.forks import Forks
from tests.crash.homes import Home, State, Workshop, look
from tests.crash.operations import OPERATIONS, note

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1200)]

LONG = os.environ.get("QUACKLAKE_TEST_PROFILE") == "long"


@dataclass
class Expected:
    """The lake before an operation and after it, and what has been noted since."""

    old: State
    new: State
    noted: list[int] = field(default_factory=list)

    def state(self, *, done: bool) -> State:
        state = self.new if done else self.old
        log = sorted([*state.tables["main.log"], *((n,) for n in self.noted)], key=repr)
        return State({**state.tables, "main.log": log}, state.snapshots + len(self.noted))


class Bench:
    """One operation on one kind of catalog, crashed again and again on a lake that is replaced when it has changed."""

    def __init__(self, workshop: Workshop, stock: Stock, operation: str) -> None:
        self.workshop = workshop
        self.stock = stock
        self.operation = operation
        home = workshop.copy()
        with home.connect() as lake:
            old = look(lake)
            OPERATIONS[operation](lake)
            self.old, self.new = old, look(lake)
        assert self.old != self.new
        self.renew()

    def renew(self) -> Home:
        self.home = self.workshop.copy()
        self.expected = Expected(self.old, self.new)
        self.before = self.home.metadata()
        return self.home

    def judge(self, lake: Lake, n: int, point: str) -> bool:
        """Check the lake after a crash at the ``n``-th point; True when the operation was done."""
        done = self.home.metadata() != self.before
        assert look(lake) == self.expected.state(done=done), f"after {point}"
        assert self.home.referenced() <= self.home.files(), f"after {point}: files are missing"
        note(lake, n)
        self.expected.noted.append(n)
        state = self.expected.state(done=done)
        assert look(lake).tables["main.log"] == state.tables["main.log"]
        if self.workshop.database != "mysql" and (done or LONG or n % 8 == 0):
            assert self.stock.rows(self.home.url) == state.tables, f"after {point}"
        self.before = self.home.metadata()
        return done


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_exception_at_any_point_leaves_the_old_lake_or_the_new_one(
    workshop: Workshop, stock: Stock, operation: str
) -> None:
    bench = Bench(workshop, stock, operation)
    lake = bench.home.connect()
    n, fired = 0, True
    while fired:
        n += 1
        error: Exception | None = None
        with record() as points, arm(Fault(at=n)):
            try:
                OPERATIONS[operation](lake)
            except FaultInjected as fault:
                error = fault
        fired = len(points) >= n
        done = bench.judge(lake, n, points[n - 1] if fired else "the end")
        # nobody hears of success when the lake is the old one
        assert done or error is not None
        if fired and done:
            assert points[n - 1] not in ("catalog.commit.before",)
            lake.close()
            lake = bench.renew().connect()
    lake.close()
    assert n > 20


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_death_of_the_process_at_any_point_leaves_the_old_lake_or_the_new_one(
    workshop: Workshop, stock: Stock, forks: Forks, operation: str
) -> None:
    bench = Bench(workshop, stock, operation)
    run = forks.run("tests.crash.operations:operate", url=workshop.copy().url, operation=operation)
    assert run.code == 0, run.errors
    points: list[str] = run.value
    for n, point in enumerate(points, 1):
        for action, code in (("exit", EXIT_CODE), ("kill", -signal.SIGKILL)):
            if not LONG and not _sampled(points, n, action):
                continue
            fault = f"{n}:{action}"
            ended = forks.run("tests.crash.operations:operate", url=bench.home.url, operation=operation, fault=fault)
            assert ended.code == code, ended.errors
            with bench.home.connect() as lake:
                done = bench.judge(lake, n, f"{action} at {point}")
            assert done == ("catalog.commit.after" in points[:n])
            if done:
                bench.renew()


def _sampled(points: list[str], n: int, action: str) -> bool:
    """Every third point, in turn with one action and the other, and both around the database's commit."""
    near = any("catalog.commit" in point for point in points[max(0, n - 2) : n + 1])
    return near or (n % 3 == 0 and (n % 2 == 0) == (action == "kill"))
