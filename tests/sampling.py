"""Choose the tests of a run by its seed, and report the choice."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

import pytest

from tests import seeds
from tests.layout import LAYOUT

__all__ = ["Counts", "headline", "repeat", "summary", "take"]

Counts = dict[str, tuple[int, int]]
"""Of how many things how many were taken, by their purpose."""

FOLDERS = {
    "tests/access/": 0.3,
    "tests/conformance/": 0.25,
    "tests/connectors/": 0.25,
    "tests/crash/": 0.3,
    "tests/dbt/": 0.4,
    "tests/dlt/": 0.4,
    "tests/maintenance/": 0.3,
    "tests/materialized/": 0.3,
    "tests/pipelines/": 0.25,
    "tests/pond/": 0.16,
    "tests/prove/": 0.25,
    "tests/service/": 0.18,
    "tests/spark/": 0.2,
    "tests/tenants/": 0.25,
    "tests/transfer/": 0.25,
}
"""Folders whose tests take long, and the share of those without a mark of their own."""
_TESTS = "tests"
_MOST = 8


def take(config: pytest.Config, items: list[pytest.Item]) -> Counts:
    """Take the share of the tests with the mark ``daily`` or of a slow folder out of ``items``, and count them.

    The same tests are taken for the same seed, and some of each function that has several; whoever names a file gets all
    of it.
    """
    before = len(items)
    if not seeds.LONG and not any(".py" in argument for argument in config.args):
        alike: dict[str, list[tuple[float, pytest.Item, float]]] = {}
        for item in items:
            share = _share(item)
            if share < 1:
                chance = seeds.chance("daily", item.nodeid).random()
                alike.setdefault(item.nodeid.partition("[")[0], []).append((chance, item, share))
        left = {item for tests in alike.values() for item in _left_out(tests)}
        if left:
            config.hook.pytest_deselected(items=list(left))
            items[:] = [item for item in items if item not in left]
    return {_TESTS: (len(items), before)}


def _share(item: pytest.Item) -> float:
    mark = item.get_closest_marker("daily")
    if mark is not None:
        return float(mark.args[0])
    return next((share for folder, share in FOLDERS.items() if item.nodeid.startswith(folder)), 1.0)


def _left_out(tests: list[tuple[float, pytest.Item, float]]) -> list[pytest.Item]:
    """Of the tests of one function, each with its chance and the share, those that a run does not take."""
    share = tests[0][2]
    if len(tests) == 1:
        return [item for chance, item, _ in tests if chance >= share]
    ranked = sorted(tests, key=lambda test: test[0])
    return [item for _, item, _ in ranked[max(share > 0, int(share * len(ranked))) :]]


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
