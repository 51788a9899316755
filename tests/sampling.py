"""Choose the tests of a run by its seed, and report the choice."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

import pytest

from tests import seeds
from tests.layout import LAYOUT

__all__ = ["Counts", "headline", "last_line", "repeat", "summary", "take"]

Counts = dict[str, tuple[int, int]]
"""The number of things that a run took, and of those that there are, by their purpose."""

FOLDERS = {
    "tests/access/": 0.25,
    "tests/conformance/": 0.2,
    "tests/connectors/": 0.2,
    "tests/crash/": 0.25,
    "tests/datafusion/": 0.3,
    "tests/dbt/": 0.3,
    "tests/dlt/": 0.3,
    "tests/ekko/": 0.2,
    "tests/maintenance/": 0.22,
    "tests/materialized/": 0.22,
    "tests/pipelines/": 0.2,
    "tests/pond/": 0.13,
    "tests/prove/": 0.2,
    "tests/service/": 0.14,
    "tests/smoke/": 0.6,
    "tests/spark/": 0.15,
    "tests/tenants/": 0.2,
    "tests/transfer/": 0.2,
}
"""Folders whose tests take long, and the share of them in a short run, unless a mark says another."""
VARIANTS = {
    "tests/catalog/": 0.5,
    "tests/cli/": 0.5,
    "tests/engines/": 0.5,
    "tests/inputs/": 0.5,
    "tests/lake/": 0.5,
    "tests/scan/": 0.5,
    "tests/sql/": 0.5,
    "tests/storage/": 0.5,
    "tests/transaction/": 0.5,
}
"""Folders with many tests, and the share of the parameters of each function that has several."""
_TESTS = "tests"
_FUNCTIONS = "functions"
_MAX_COMMANDS = 8


def take(config: pytest.Config, items: list[pytest.Item]) -> Counts:
    """Remove the tests from ``items`` that this run leaves out, and count the others.

    A seed always takes the same tests. A run of every function takes each test that a short run of its seed takes.
    A run of a named file takes all of its tests.
    """
    before, functions = len(items), len({_function(item) for item in items})
    if not seeds.LONG and not any(".py" in argument for argument in config.args):
        groups: dict[str, list[pytest.Item]] = {}
        for item in items:
            groups.setdefault(_function(item), []).append(item)
        left = {item for tests in groups.values() for item in _left_out(tests)}
        if left:
            config.hook.pytest_deselected(items=list(left))
            items[:] = [item for item in items if item not in left]
    return {_TESTS: (len(items), before), _FUNCTIONS: (len({_function(item) for item in items}), functions)}


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _share(item: pytest.Item, *, several: bool) -> float:
    """Return the share of tests like this one that a short run takes."""
    mark = item.get_closest_marker("daily")
    if mark is not None:
        return float(mark.args[0])
    for shares in (FOLDERS, VARIANTS if several else {}):
        for folder, share in shares.items():
            if item.nodeid.startswith(folder):
                return share
    return 1.0


def _left_out(tests: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests of one function that a run does not take.

    Tests with a share are ranked by chance. A short run takes their share of them, in one run of several none; a run of
    every function takes one at least, so that it takes all that the short run takes.
    """
    shares = {item: _share(item, several=len(tests) > 1) for item in tests}
    sampled = [item for item in tests if shares[item] < 1]
    if not sampled:
        return []
    ranked = sorted(sampled, key=lambda item: (seeds.chance("daily", item.nodeid).random(), item.nodeid))
    expected = sum(shares[item] for item in sampled)
    count = int(expected) + (seeds.chance("daily", _function(tests[0])).random() < expected % 1)
    if seeds.FUNCTIONS and len(sampled) == len(tests):
        count = max(count, 1)
    return ranked[count:]


def headline() -> str:
    """Return the first line of a run: its seed, and the share of the tests that it takes."""
    if seeds.LONG:
        return f"seed {seeds.SEED}, share: everything, random histories by this seed, {LAYOUT} lakes"
    if seeds.FUNCTIONS:
        share = "every test function, a share of the parameters and random histories"
    else:
        low, high = min(FOLDERS.values()), max(FOLDERS.values())
        share = f"{low:.0%} to {high:.0%} of the test functions in slow folders, every function elsewhere"
    return (
        f"seed {seeds.SEED}, share: {share}, {LAYOUT} lakes;"
        " FUNCTIONS=all takes every function, SEED=… another sample, make test-all everything"
    )


def last_line(counts: Counts) -> str:
    """Return the last line of a run: its seed, and the share of the tests that it took."""
    shares = [
        f"{some} of {known} {what} ({some / known:.0%})"
        for what in (_TESTS, _FUNCTIONS)
        for some, known in [counts.get(what, (0, 0))]
        if known
    ]
    return f"seed {seeds.SEED}, share: {', '.join(shares) or 'none'}"


def summary(counts: Counts) -> str:
    """Return what was sampled besides tests and functions, for the end of a run."""
    sums: dict[str, list[int]] = {}
    for what, (some, known) in sorted(counts.items()):
        if what not in (_TESTS, _FUNCTIONS):
            both = sums.setdefault(what.partition(": ")[0], [0, 0])
            both[0] += some
            both[1] += known
    parts = [f"{what} {some} of {known}" for what, (some, known) in sums.items()]
    return f"samples: {', '.join(parts) or 'none'}"


def repeat(nodeids: Iterable[str]) -> list[str]:
    """Return the commands that run tests again with the samples of this run."""
    words = "QUACKLAKE_TEST_LAYOUT=shared " if LAYOUT == "shared" else ""
    target = "test-all" if seeds.LONG else "test FUNCTIONS=all" if seeds.FUNCTIONS else "test"
    failed = list(dict.fromkeys(nodeids))
    lines = [
        f"{words}make {target} SEED={seeds.SEED} ARGS={shlex.quote(_chosen(nodeid))}"
        for nodeid in failed[:_MAX_COMMANDS]
    ]
    return lines if len(failed) <= _MAX_COMMANDS else [*lines, f"… and {len(failed) - _MAX_COMMANDS} more"]


def _chosen(nodeid: str) -> str:
    """Return the arguments of pytest that choose a test, as make and the shell hand them on."""
    path, _, name = nodeid.partition("::")
    if any(letter in nodeid for letter in "'\"$`\\"):
        return f"{path} -k {name.partition('[')[0]}"
    return f'"{nodeid}"' if "[" in nodeid or " " in nodeid else nodeid
