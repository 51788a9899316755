"""Choose the tests of a run by its seed, and report the choice."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable

import pytest

from tests import seeds
from tests.layout import LAYOUT

__all__ = ["Counts", "headline", "repeat", "summary", "take"]

Counts = dict[str, tuple[int, int]]
"""Of how many things how many were taken, by their purpose."""

FOLDERS = {
    "tests/access/": 0.25,
    "tests/conformance/": 0.2,
    "tests/connectors/": 0.2,
    "tests/crash/": 0.25,
    "tests/dbt/": 0.3,
    "tests/dlt/": 0.3,
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
"""Folders whose tests take long, and the share of those without a mark of their own."""
VARIANTS = {
    "tests/catalog/": 0.5,
    "tests/cli/": 0.5,
    "tests/engines/": 0.5,
    "tests/lake/": 0.5,
    "tests/scan/": 0.5,
    "tests/sql/": 0.5,
    "tests/storage/": 0.5,
    "tests/transaction/": 0.5,
}
"""Folders with many tests, and the share of those of a function that has several: each function runs every day."""
_TESTS = "tests"
_MOST = 8


def take(config: pytest.Config, items: list[pytest.Item]) -> Counts:
    """Take the share of the tests with the mark ``daily`` or of a slow folder out of ``items``, and count them.

    The same tests are taken for the same seed. Of a function that has several, every run or every other one takes some.
    Whoever names a file gets all of it.
    """
    before = len(items)
    if not seeds.LONG and not any(".py" in argument for argument in config.args):
        alike: dict[tuple[str, bool], list[tuple[pytest.Item, float]]] = {}
        several = Counter(_function(item) for item in items)
        for item in items:
            share, daily = _share(item, several=several[_function(item)] > 1)
            if share < 1:
                alike.setdefault((_function(item), daily), []).append((item, share))
        left = {
            item
            for (_, daily), tests in alike.items()
            for item in _left_out([item for item, _ in tests], tests[0][1], daily=daily)
        }
        if left:
            config.hook.pytest_deselected(items=list(left))
            items[:] = [item for item in items if item not in left]
    return {_TESTS: (len(items), before)}


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _share(item: pytest.Item, *, several: bool) -> tuple[float, bool]:
    """Return the share of a test and those like it, and True if no run may take less of them."""
    mark = item.get_closest_marker("daily")
    if mark is not None:
        return float(mark.args[0]), False
    for shares, daily in ((FOLDERS, False), (VARIANTS if several else {}, True)):
        for folder, share in shares.items():
            if item.nodeid.startswith(folder):
                return share, daily
    return 1.0, True


def _left_out(tests: list[pytest.Item], share: float, *, daily: bool) -> list[pytest.Item]:
    """Return the tests of one function that a run does not take."""
    ranked = sorted((seeds.chance("daily", item.nodeid).random(), number) for number, item in enumerate(tests))
    if len(tests) == 1:
        return [tests[number] for chance, number in ranked if chance >= share]
    expected = share * len(tests)
    if daily:
        count = math.ceil(expected)
    elif 0 < expected < 1:
        # every other run has one at least
        count = int(seeds.chance("daily", _function(tests[0])).random() < max(0.5, expected))
    else:
        count = int(expected)
    return [tests[number] for _, number in ranked[count:]]


def headline() -> str:
    """Say at the start of a run which samples it takes."""
    if seeds.LONG:
        return f"seed {seeds.SEED}: everything, random histories by this seed, {LAYOUT} lakes"
    return (
        f"seed {seeds.SEED}: samples of the tests marked daily, of crash points and of random histories by this seed,"
        f" {LAYOUT} lakes; make test SEED=… takes others, make test-all takes all"
    )


def summary(counts: Counts) -> str:
    """Say at the end of a run what was sampled."""
    taken, tests = counts.get(_TESTS, (0, 0))
    sums: dict[str, list[int]] = {}
    for what, (some, known) in sorted(counts.items()):
        if what != _TESTS:
            both = sums.setdefault(what.partition(": ")[0], [0, 0])
            both[0] += some
            both[1] += known
    parts = [f"{taken} of {tests} tests", *(f"{what} {some} of {known}" for what, (some, known) in sums.items())]
    return f"seed {seeds.SEED} took {', '.join(parts)}"


def repeat(nodeids: Iterable[str]) -> list[str]:
    """Return the commands that run tests again with the samples of this run."""
    words = "QUACKLAKE_TEST_LAYOUT=shared " if LAYOUT == "shared" else ""
    target = "test-all" if seeds.LONG else "test"
    failed = list(dict.fromkeys(nodeids))
    lines = [f"{words}make {target} SEED={seeds.SEED} ARGS={shlex.quote(_chosen(nodeid))}" for nodeid in failed[:_MOST]]
    return lines if len(failed) <= _MOST else [*lines, f"… and {len(failed) - _MOST} more"]


def _chosen(nodeid: str) -> str:
    """Return the arguments of pytest that choose a test, as make and the shell hand them on."""
    path, _, name = nodeid.partition("::")
    if any(letter in nodeid for letter in "'\"$`\\"):
        return f"{path} -k {name.partition('[')[0]}"
    return f'"{nodeid}"' if "[" in nodeid or " " in nodeid else nodeid
