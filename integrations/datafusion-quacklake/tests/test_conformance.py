"""DataFusion sees the lakes of the conformance suite as the other engines do, at every snapshot."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from datafusion import SessionContext
from datafusion_quacklake import DataFusionLake

from quacklake.core.format.names import quote
from tests.conformance.clients import LONG, LakeSite, plain_duckdb
from tests.conformance.history import DIRECTIONS, History
from tests.conformance.scenarios import SCENARIOS
from tests.conformance.steps import Stock

#: Scenarios that DataFusion cannot read, with the reason.
NOT_YET: dict[str, str] = {}
_STOCK = frozenset(name for name, steps in SCENARIOS.items() if any(isinstance(step, Stock) for step in steps))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LakeSite]:
    opened = LakeSite("sqlite", tmp_path, 10)
    yield opened
    opened.close()


def _texts(rows: pa.Table, types: list[str]) -> list[tuple[str | None, ...]]:
    with plain_duckdb() as scratch:
        scratch.register("found", rows.rename_columns([f"c{i}" for i in range(rows.num_columns)]))
        select = ", ".join(f"CAST(CAST(c{i} AS {type_}) AS VARCHAR)" for i, type_ in enumerate(types))
        return sorted(scratch.execute(f"SELECT {select} FROM found").fetchall(), key=str)


def combinations() -> list[object]:
    """Scenario and inlining: all of them, or each scenario in one way."""
    every = itertools.product(SCENARIOS, (10, 0)) if LONG else [(n, 10 * (i % 2)) for i, n in enumerate(SCENARIOS)]
    return [
        pytest.param(
            name, inlining, marks=[pytest.mark.xfail(reason=NOT_YET[name], strict=True)] if name in NOT_YET else []
        )
        for name, inlining in every
    ]


@pytest.mark.parametrize(("scenario", "inlining"), combinations())
def test_datafusion_sees_the_same_lake_at_every_snapshot(scenario: str, inlining: int, site: LakeSite) -> None:
    site.inlining = inlining
    direction = "alternating" if scenario in _STOCK else "we-write"
    history = History(site)
    history.play(SCENARIOS[scenario], DIRECTIONS[direction])
    lake = DataFusionLake(SessionContext(), site.lake())
    versions = sorted(history.expected)
    for version in versions if LONG else {versions[-1], versions[len(versions) // 2], versions[-len(versions) // 4]}:
        for (schema, name), expected in history.expected[version].items():
            found = lake.table(f"{quote(schema)}.{quote(name)}", version=version).to_arrow_table()
            assert tuple(found.schema.names) == tuple(column for column, _ in expected.columns)
            wanted = sorted(expected.rows, key=str)
            assert _texts(found, [type_ for _, type_ in expected.columns]) == wanted, f"{schema}.{name} at {version}"
