"""Assign tests to processes in units, and start long units first.

A unit is a file of tests, so that a run makes the fixtures of a file only once. Files that share something that takes
seconds to make (the Spark session, the lakes of the format rules) are one unit. A file whose tests share a lake of each
kind of database is one unit for each kind. Long units start first, so that all processes are busy to the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

__all__ = ["SHARED", "rank", "scheduler", "unit"]

#: Folders whose tests share what takes long to make.
SHARED = ("tests/spark/", "tests/conformance/rules/")
#: Tests below these that share nothing of it: they start a Spark of their own.
APART = ("tests/spark/test_cluster.py", "tests/spark/test_connect.py::test_tables_are_read")
#: Files whose tests share something for each value of their first parameter.
BY_PARAMETER = frozenset({"tests/crash/test_crashes.py", "tests/scan/test_pruning.py"})
#: The long units, longest first; others come after them, and the quickest tests last.
FIRST = (
    "tests/test_forks.py",  # quick, but the system may refuse to fork a process that has grown
    "tests/services/",
    *SHARED,
    *APART,
    "tests/connectors/test_hudi_sink.py",
    "tests/conformance/",
    "tests/concurrency/",
    "tests/prove/",
    "tests/crash/",
    "tests/tenants/",
    "tests/maintenance/",
)
LAST = ("tests/format/",)


def unit(nodeid: str) -> str:
    """Return the unit that a test belongs to."""
    path, _, name = nodeid.partition("::")
    for place in (*APART, *SHARED):
        if nodeid.startswith(place):
            return place
    if path in BY_PARAMETER and "[" in name:
        return f"{path} {name.partition('[')[2].partition('-')[0].rstrip(']')}"
    return path


def rank(nodeid: str) -> int:
    """Return a number that is smaller for a test whose unit starts sooner."""
    scope = unit(nodeid)
    if scope in FIRST:
        return FIRST.index(scope)
    if any(scope.startswith(place) for place in LAST):
        return len(FIRST) + 1
    return next((number for number, place in enumerate(FIRST) if scope.startswith(place)), len(FIRST))


def scheduler(config: pytest.Config, log: Any) -> Any:
    """Return the scheduler of pytest-xdist that hands out units in the order of the tests."""
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit(nodeid)

    config.option.loadscopereorder = False
    return Units(config, log)
