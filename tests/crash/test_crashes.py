"""An operation that ends at any point whatsoever leaves the old lake or the new one, whole, and the next one works."""

from __future__ import annotations

import os
import signal
from functools import cache

import pytest

from quacklake import Lake
from quacklake.faults import EXIT_CODE, Fault, FaultInjected, arm, record
from tests.catalog.stock import Rows, Stock
from tests.crash.forks import Forks
from tests.crash.homes import Home, State, Workshop, look
from tests.crash.operations import OPERATIONS, note

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1200)]

LONG = os.environ.get("QUACKLAKE_TEST_PROFILE") == "long"
#: What is crashed on the other catalogs when there is little time: what makes tables inside the catalog.
FEW = ("create", "delete_few")
SERVERS = ("postgres", "mysql")


class Bench:
    """One operation on one kind of catalog, crashed again and again on a lake that is replaced when it has changed."""

    def __init__(self, workshop: Workshop, stock: Stock, operation: str) -> None:
        self.workshop = workshop
        self.stock = stock
        self.old, self.new = _states(workshop, operation)
        self.renew()

    def renew(self) -> Home:
        """Go on with a fresh lake."""
        self.home = self.workshop.copy()
        self.noted: list[int] = []
        self.before = self.home.metadata()
        return self.home

    def judge(self, lake: Lake, n: int, point: str, *, closely: bool) -> bool:
        """Check the lake after a crash at the ``n``-th point; True when the operation was done.

        Metadata that is the same to the last row is the old lake, and needs no second look.
        """
        done = self.home.metadata() != self.before
        assert self.home.referenced() <= self.home.files(), f"{point}: files are missing"
        if done or closely:
            note(lake, n)
            self.noted.append(n)
            expected = self._expected(done=done)
            if done or LONG:
                assert look(lake) == expected, point
            else:
                assert lake.table("log").count() == len(expected.tables["main.log"])
            self.before = self.home.metadata()
        return done

    def judge_by_stock(self, point: str, *, done: bool) -> None:
        """Stock DuckDB sees the same; it does not know MySQL."""
        if self.workshop.database != "mysql":
            found: Rows = self.stock.rows(self.home.url)
            assert found == self._expected(done=done).tables, point

    def _expected(self, *, done: bool) -> State:
        state = self.new if done else self.old
        log = sorted([*state.tables["main.log"], *((n,) for n in self.noted)], key=repr)
        return State({**state.tables, "main.log": log}, state.snapshots + len(self.noted))


@cache
def _states(workshop: Workshop, operation: str) -> tuple[State, State]:
    """The lake before an operation and after it."""
    with workshop.copy().connect() as lake:
        old = look(lake)
        OPERATIONS[operation](lake)
        new = look(lake)
    assert old != new
    return old, new


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    catalogs = {"sqlite": OPERATIONS, "postgres": OPERATIONS, "mysql": FEW, "duckdb": FEW}
    if "forks" in metafunc.fixturenames:
        # one process at a time has a DuckDB file open anyway
        catalogs |= {"duckdb": FEW[:1], "postgres": (*FEW, "merge", "transaction")}
    cases = [
        pytest.param(catalog, operation, marks=[getattr(pytest.mark, catalog)] if catalog in SERVERS else [])
        for catalog, few in catalogs.items()
        for operation in (OPERATIONS if LONG else few)
    ]
    metafunc.parametrize(("workshop", "operation"), cases, indirect=["workshop"], scope="session")


def test_an_exception_at_any_point_leaves_the_old_lake_or_the_new_one(
    workshop: Workshop, stock: Stock, operation: str
) -> None:
    bench = Bench(workshop, stock, operation)
    with workshop.copy().connect() as other, record() as all_points:
        OPERATIONS[operation](other)
    committed = len(all_points) - all_points[::-1].index("catalog.commit.after")
    assert len(all_points) > 15
    lake = bench.home.connect()
    looked, every = False, 3 if operation in FEW else 6
    for n in range(1, len(all_points) + 2):
        if not (LONG or n % every == 0 or abs(n - committed) < 2 or n > len(all_points)):
            continue
        error: Exception | None = None
        with record() as points, arm(Fault(at=n)):
            try:
                OPERATIONS[operation](lake)
            except FaultInjected as fault:
                error = fault
        fired = len(points) >= n
        point = f"exception at {points[n - 1]}" if fired else "the end"
        done = bench.judge(lake, n, point, closely=LONG or n % 18 == 0)
        # nobody is told of success while the lake is the old one
        assert done or error is not None
        if done or LONG or not looked:
            looked = True
            lake.close()
            bench.judge_by_stock(point, done=done)
            lake = (bench.renew() if done else bench.home).connect()
    lake.close()


def test_the_death_of_the_process_at_any_point_leaves_the_old_lake_or_the_new_one(
    workshop: Workshop, stock: Stock, forks: Forks, operation: str
) -> None:
    bench = Bench(workshop, stock, operation)
    run = forks.run("tests.crash.operations:operate", url=workshop.copy().url, operation=operation)
    assert run.code == 0, run.errors
    points: list[str] = run.value
    committed = len(points) - points[::-1].index("catalog.commit.after")
    for n, point in enumerate(points, 1):
        for action, code in (("exit", EXIT_CODE), ("kill", -signal.SIGKILL)):
            if not LONG and not _sampled(n, committed, action):
                continue
            fault = f"{n}:{action}"
            ended = forks.run("tests.crash.operations:operate", url=bench.home.url, operation=operation, fault=fault)
            assert ended.code == code, ended.errors
            with bench.home.connect() as lake:
                done = bench.judge(lake, n, f"{action} at {point}", closely=True)
            assert done == (n >= committed)
            if done or LONG or n == 8:
                bench.judge_by_stock(f"{action} at {point}", done=done)
            if done:
                bench.renew()


def _sampled(n: int, committed: int, action: str) -> bool:
    """Every tenth point, in turn with one action and the other, and both around the database's commit."""
    return n in (committed - 1, committed) or (n % 10 == 0 and (n % 20 == 0) == (action == "kill"))
