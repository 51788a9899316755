"""A process that dies while it creates, refreshes or drops a view leaves it as it was, or as it should be.

In the long profile, every operation dies at every fault point on every catalog.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from quacklake.core.faults import EXIT_CODE, Fault, FaultInjected, arm, record
from tests.crash.forks import Forks
from tests.crash.homes import Home, Workshop
from tests.crash.view_operations import CHANGES, OPERATIONS, check_next, check_views, operate, prepare
from tests.seeds import some

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1200)]

COMMITTED = "catalog.commit.after"
_NEXT = 8
"""After how many deaths without a commit the next refresh is tried, on all that they have left."""
CATALOGS = [
    "sqlite",
    pytest.param("duckdb", marks=pytest.mark.daily(0.2)),
    pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.daily(0.3)]),
    pytest.param("mysql", marks=[pytest.mark.mysql, pytest.mark.daily(0.2)]),
]


@pytest.fixture(scope="module")
def viewed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """A template lake with views, to be copied."""
    database: str = request.param
    server = request.getfixturevalue(f"{database}_server") if database in ("postgres", "mysql") else None
    made = Workshop(database, tmp_path_factory.mktemp("viewed"), server)
    with made.create() as lake:
        prepare(lake)
    yield made
    made.close()


def changed(viewed: Workshop, operation: str) -> Home:
    """Return a lake with the change that an operation finds."""
    home = viewed.copy()
    if operation in CHANGES:
        with home.connect() as lake:
            lake.sql(CHANGES[operation][0])
    return home


def points_of(viewed: Workshop, operation: str) -> list[str]:
    """Return the points that an operation passes; what it does without a crash must be right, too."""
    home = changed(viewed, operation)
    with home.connect() as lake:
        with record() as points:
            report = OPERATIONS[operation](lake)
        if operation in CHANGES:
            assert getattr(report, "way", None) == CHANGES[operation][1]
        check_views(lake)
    return points


def chosen(points: list[str], count: int, *what: object) -> list[int]:
    """Return the numbers of some points, among them those around the commits."""
    commits = [n for n, point in enumerate(points, 1) if point == COMMITTED]
    always = [n for commit in commits[-1:] for n in (commit - 1, commit) if n <= len(points)]
    return some(range(1, len(points) + 1), count, "view crashes", *what, always=always)


@pytest.mark.parametrize("operation", some(OPERATIONS, 2, "views that die"))
@pytest.mark.parametrize("viewed", CATALOGS, indirect=True)
def test_a_view_is_right_after_the_death_of_a_process_at_any_point(
    viewed: Workshop, forks: Forks, operation: str
) -> None:
    points = points_of(viewed, operation)
    numbers = chosen(points, 3, viewed.database, operation)
    home = changed(viewed, operation)
    for at, n in enumerate(numbers):
        action, code = ("kill", -signal.SIGKILL) if at % 2 else ("exit", EXIT_CODE)
        ended = forks.run(
            "tests.crash.view_operations:operate", url=home.url, operation=operation, fault=f"{n}:{action}"
        )
        assert ended.code == code, f"{points[n - 1]}: {ended.errors}"
        with home.connect() as lake:
            check_views(lake)
            last = n == numbers[-1] or at % _NEXT == _NEXT - 1 or COMMITTED in points[:n]
            if last:
                check_next(home, lake)
        if last:
            home = changed(viewed, operation)


@pytest.mark.daily(0.5)
@pytest.mark.parametrize("operation", some(OPERATIONS, 2, "views that fail"))
@pytest.mark.parametrize("viewed", ["sqlite"], indirect=True)
def test_a_view_is_right_after_an_error_at_any_point(viewed: Workshop, operation: str) -> None:
    points = points_of(viewed, operation)
    for n in chosen(points, 4, "errors", operation):
        home = changed(viewed, operation)
        with home.connect() as lake:
            try:
                with arm(Fault(at=n)):
                    OPERATIONS[operation](lake)
            except FaultInjected:
                pass
            check_views(lake)
            check_next(home, lake)


def test_an_operation_can_be_run_from_outside(tmp_path_factory: pytest.TempPathFactory) -> None:
    workshop = Workshop("sqlite", tmp_path_factory.mktemp("outside"), None)
    with workshop.create() as lake:
        prepare(lake)
    operate(workshop.template.url, "on commit", "100000:exception")
    with workshop.template.connect() as lake:
        assert lake.sql("SELECT sum(n) FROM eager").fetchall() == [(83,)]
    workshop.close()
