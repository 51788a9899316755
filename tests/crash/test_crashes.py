"""An operation that ends at any point whatsoever leaves the old lake or the new one, whole, and the next one works.

Every operation of ``tests.crash.operations`` × every fault point × an exception, an exit and SIGKILL × every catalog in
the long profile. A day's run takes samples of each, and always the points around the database's commit.
"""

from __future__ import annotations

import signal
from functools import cache

import pytest

from quacklake import Lake
from quacklake.core.faults import EXIT_CODE, Fault, FaultInjected, arm, record
from tests.catalog.stock import Rows, Stock
from tests.crash.forks import Forks
from tests.crash.homes import Home, State, Workshop, look
from tests.crash.operations import OPERATIONS, Operation, note
from tests.seeds import LONG, some

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1200)]

#: Operations that are crashed every day: one creates tables in the catalog, one writes every kind of thing.
ALWAYS = ("create", "delete_few")
SERVERS = ("postgres", "mysql")
#: The number of operations a day, with exceptions and with deaths. One process has a DuckDB file open anyway.
RAISED = {"sqlite": 5, "duckdb": 1, "postgres": 2, "mysql": 1}
ENDED = {"sqlite": 3, "duckdb": 1, "postgres": 2, "mysql": 1}
COMMITTED = "catalog.commit.after"


class Bench:
    """One operation on one kind of catalog, crashed again and again on a lake that is replaced when it has changed."""

    def __init__(self, workshop: Workshop, stock: Stock | None, operation: Operation) -> None:
        self.workshop = workshop
        self.stock = stock
        self.operation = operation
        self.points, self.old, self.new = _alone(workshop, operation.name)
        commits = [n for n, point in enumerate(self.points, 1) if point == COMMITTED]
        self.last = max(commits, default=len(self.points) + 1)
        self.renew()

    def renew(self) -> Home:
        """Go on with a fresh lake."""
        self.home = prepared(self.workshop, self.operation)
        self.noted: list[int] = []
        self.left: set[str] = set()
        self.before = self.home.metadata()
        return self.home

    def judge(self, lake: Lake, n: int, point: str, *, closely: bool, tidy: bool) -> bool:
        """Check the lake after a crash at the ``n``-th point; True when it has changed.

        Metadata that is the same to the last row is the old lake, and needs no second look.
        """
        changed = self.home.metadata() != self.before
        try:
            self.left = self.home.check_files(left=self.left if tidy else None)
            if self.operation.check is not None:
                self.operation.check(self.home)
            if changed or closely:
                note(lake, n)
                self.noted.append(n)
                expected = self._expected(done=changed)
                if changed or LONG:
                    self._compare(look(lake), done=changed, last=n >= self.last)
                    self.home.check_ids()
                else:
                    assert lake.table("log").count() == len(expected.tables["main.log"])
                self.before = self.home.metadata()
        except AssertionError as error:
            raise AssertionError(f"{self.operation} on {self.workshop.database}, {point}: {error}") from error
        return changed

    def _compare(self, found: State, *, done: bool, last: bool) -> None:
        """Assert that the lake is the new one; between the commits of one operation, the old rows are right too."""
        new = self._expected(done=done)
        if done and not last and found.tables != new.tables:
            new = self._expected(done=False)
        assert found.tables == new.tables
        between = sorted((self.old.snapshots, self.new.snapshots))
        count = found.snapshots - len(self.noted)
        assert not self.operation.snapshots or between[0] <= count <= between[1]
        assert not last or not self.operation.snapshots or count == self.new.snapshots

    def judge_by_stock(self, point: str, *, done: bool) -> None:
        """Stock DuckDB sees the same; it does not know MySQL."""
        if self.stock is not None and self.workshop.database != "mysql":
            found: Rows = self.stock.rows(self.home.url)
            wanted = [self._expected(done=done).stock, self._expected(done=False).stock]
            assert found in wanted, f"{self.operation}, {point}"

    def _expected(self, *, done: bool) -> State:
        state = self.new if done else self.old
        log = sorted([*state.tables["main.log"], *((n,) for n in self.noted)], key=repr)
        return State({**state.tables, "main.log": log}, state.snapshots + len(self.noted))


def prepared(workshop: Workshop, operation: Operation) -> Home:
    """A lake for an operation."""
    home = workshop.copy()
    if operation.prepare is not None:
        with home.connect() as lake:
            operation.prepare(lake)
    return home


@cache
def _alone(workshop: Workshop, name: str) -> tuple[list[str], State, State]:
    """The points that an operation passes, the lake before it and after it, which must be what the model says."""
    operation = OPERATIONS[name]
    home = prepared(workshop, operation)
    before = home.metadata()
    with home.connect() as lake:
        old = look(lake)
    # a lake of its own, which has cached nothing yet
    with home.connect() as lake:
        with record() as points:
            operation.run(lake)
        new = look(lake)
    assert new.tables == operation.mean(old.tables), f"{operation} is not what its model says"
    assert COMMITTED not in points or home.metadata() != before
    if operation.check is not None:
        operation.check(home)
    home.check_files(left=())
    return points, old, new


def _marks(catalog: str) -> list[pytest.MarkDecorator]:
    return [getattr(pytest.mark, catalog)] if catalog in SERVERS else []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "operation" not in metafunc.fixturenames:
        return
    forked = "forks" in metafunc.fixturenames
    cases = [
        pytest.param(catalog, operation, marks=_marks(catalog))
        for catalog, count in (ENDED if forked else RAISED).items()
        for operation in some(OPERATIONS, count, "crashed operations", catalog, forked, always=ALWAYS[:count])
    ]
    metafunc.parametrize(("workshop", "operation"), cases, indirect=["workshop"], scope="session")


def sampled(bench: Bench, count: int, *what: object) -> list[int]:
    """Points to end at: some, and always the last ones before the database's commit and the first after it."""
    always = [n for n in (bench.last - 1, bench.last) if n <= len(bench.points)]
    return some(range(1, len(bench.points) + 1), count, "crash points", bench.workshop.database, *what, always=always)


def test_an_exception_at_any_point_leaves_the_old_lake_or_the_new_one(
    workshop: Workshop, stock_if_plain: Stock | None, operation: str
) -> None:
    bench = Bench(workshop, stock_if_plain, OPERATIONS[operation])
    lake = bench.home.connect()
    chosen = sampled(bench, 6 if operation in ALWAYS else 5, operation)
    for n in [*chosen, len(bench.points) + 50]:
        error: Exception | None = None
        with record() as points, arm(Fault(at=n)):
            try:
                bench.operation.run(lake)
            except FaultInjected as fault:
                error = fault
        fired = len(points) >= n
        point = f"exception at {points[n - 1]}" if fired else "the end"
        # before the commit everything is tidied up; during it the files may be part of the lake already
        writing = fired and points[n - 1].startswith(("storage.", "engine."))
        tidy = not fired or (writing and "catalog.commit.before" not in points[:n])
        done = bench.judge(lake, n, point, closely=LONG or n == chosen[0], tidy=tidy)
        # nobody is told of success while the lake is the old one
        assert done or error is not None or COMMITTED not in bench.points
        if done or LONG or n == chosen[0]:
            lake.close()
            bench.judge_by_stock(point, done=done)
            lake = (bench.renew() if done else bench.home).connect()
    lake.close()


def test_the_death_of_the_process_at_any_point_leaves_the_old_lake_or_the_new_one(
    workshop: Workshop, stock_if_plain: Stock | None, forks: Forks, operation: str
) -> None:
    bench = Bench(workshop, stock_if_plain, OPERATIONS[operation])
    first = bench.points.index(COMMITTED) + 1 if COMMITTED in bench.points else len(bench.points)
    looked = False
    for action, code in (("exit", EXIT_CODE), ("kill", -signal.SIGKILL)):
        for n in sampled(bench, 3, operation, action):
            what = f"{action} at {bench.points[n - 1]}"
            ended = forks.run(
                "tests.crash.operations:operate", url=bench.home.url, operation=operation, fault=f"{n}:{action}"
            )
            assert ended.code == code, ended.errors
            with bench.home.connect() as lake:
                done = bench.judge(lake, n, what, closely=True, tidy=False)
            assert done or n < bench.last
            assert not done or n >= first
            if done or LONG or not looked:
                looked = True
                bench.judge_by_stock(what, done=done)
            if done:
                bench.renew()
