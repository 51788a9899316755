"""A plugin of pytest that takes some classes of a suite, by the seed of the day."""

from __future__ import annotations

import os

import pytest

from tests import seeds

_LARGE = "ComponentReflectionTest"
"""A class of hundreds of tests, of which a sample takes a few."""
_SOME = 10


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of as many classes as the environment says."""
    wanted = int(os.environ.get("QUACKLAKE_TEST_CLASSES", "0"))
    if not wanted:
        return
    chance = seeds.chance("dialect")
    known = sorted({_class(item) for item in items})
    chosen = set(chance.sample(known, min(wanted, len(known)))) - {_LARGE}
    few = set(chance.sample([item.nodeid for item in items if _class(item) == _LARGE], _SOME))
    left = [item for item in items if _class(item) not in chosen and item.nodeid not in few]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in set(left)]


def _class(item: pytest.Item) -> str:
    return item.nodeid.split("::")[1].partition("_quacklake")[0]
