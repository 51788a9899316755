"""Spark sees the same lake as Quacklake and the reference implementation, no matter who wrote it.

What those two see of the same histories is compared in ``tests/conformance``.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.conformance.clients import LONG
from tests.conformance.conftest import MakeSite
from tests.conformance.history import DIRECTIONS, History
from tests.conformance.scenarios import SCENARIOS, VALUES

from .reading import compare_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DAILY = ("deletes", "updates", "evolution", "fields", "evolving", "maintenance", *VALUES)


def combinations() -> list[tuple[str, int, str]]:
    """Scenario, inlining and direction: all of them, or those that mean most to a reader, each in one way."""
    if LONG:
        return list(itertools.product(SCENARIOS, (10, 0), DIRECTIONS))
    directions = list(DIRECTIONS)
    return [(name, 10 if i % 2 else 0, directions[i % 3]) for i, name in enumerate(DAILY)]


@pytest.mark.parametrize(("scenario", "inlining", "direction"), combinations())
def test_spark_sees_the_same_lake_at_every_snapshot(
    scenario: str, inlining: int, direction: str, make_site: MakeSite, session: SparkSession
) -> None:
    history = History(make_site("sqlite", inlining))
    history.play(SCENARIOS[scenario], DIRECTIONS[direction])
    versions = sorted(history.expected)
    compare_spark(history, session, versions if LONG else [versions[-1], versions[len(versions) // 2]])
