"""The policy calls the right jobs due."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from quacklake.core.catalog import TableHealth
from quacklake.core.maintenance.policy import JobKind, LakeHealth, Policy, due
from quacklake.errors import ConfigError

HOUR = dt.timedelta(hours=1)
QUIET = Policy(orphans_every=None)


def lake(
    *tables: TableHealth, age: dt.timedelta = HOUR, removable: int = 0, inlined: dt.timedelta = HOUR
) -> LakeHealth:
    names = {table.table_id: f"main.t{table.table_id}" for table in tables}
    return LakeHealth(
        {table.table_id: table for table in tables},
        names,
        {table.table_id: inlined for table in tables if table.inlined_rows},
        age,
        removable,
    )


def kinds(policy: Policy, health: LakeHealth) -> list[JobKind]:
    return [job.kind for job in due(policy, health)]


def test_a_lake_in_good_shape_wants_nothing() -> None:
    assert kinds(QUIET, lake(TableHealth(1, files=3, bytes=1 << 30))) == []


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (TableHealth(1, inlined_rows=10_000, inlined_since=3), [JobKind.FLUSH]),
        (TableHealth(1, inlined_rows=9_999, inlined_since=3), []),
        (TableHealth(1, files=40, small=(0, 16)), [JobKind.MERGE]),
        (TableHealth(1, files=40, small=(15, 15)), []),
        (TableHealth(1, files=40, worn_files=1), [JobKind.REWRITE]),
        (TableHealth(1, files=40, chipped=(0, 16)), [JobKind.REWRITE]),
        (TableHealth(1, files=40, chipped=(15, 15)), []),
    ],
)
def test_a_table_wants_care_from_a_number_on(table: TableHealth, expected: list[JobKind]) -> None:
    assert kinds(QUIET, lake(table, inlined=dt.timedelta(minutes=1))) == expected


@pytest.mark.parametrize(
    ("counts", "below"),
    [((16, 99, 99, 99), 4096), ((15, 16, 0, 99), 512), ((0, 0, 0, 16), 8), ((15, 15, 15, 15), None)],
)
def test_small_files_go_together_with_others_of_their_size_and_smaller_ones(
    counts: tuple[int, ...], below: int | None
) -> None:
    table = TableHealth(1, files=999, small_size=4096, small=counts, chipped=counts)
    expected = [] if below is None else [(JobKind.MERGE, below), (JobKind.REWRITE, below)]
    assert [(job.kind, job.below) for job in due(QUIET, lake(table))] == expected
    off = Policy(small_files=None, orphans_every=None)
    assert due(off, lake(table)) == []


def test_few_inlined_rows_are_flushed_when_they_are_old() -> None:
    table = TableHealth(1, inlined_rows=1, inlined_since=3)
    assert kinds(QUIET, lake(table, inlined=HOUR)) == [JobKind.FLUSH]
    assert kinds(QUIET, lake(table, inlined=HOUR - dt.timedelta(seconds=1))) == []


def test_a_table_that_was_dropped_meanwhile_wants_nothing() -> None:
    health = lake(TableHealth(1, files=100, small=(100,)))
    assert due(QUIET, LakeHealth(health.tables, {}, {}, HOUR, 0)) == []


def test_care_comes_in_the_order_that_saves_work() -> None:
    policy = Policy(expire_older_than=dt.timedelta(minutes=1), delete_older_than=dt.timedelta(0))
    table = TableHealth(1, files=40, small=(20,), worn_files=2, inlined_rows=20_000, inlined_since=1)
    assert kinds(policy, lake(table, removable=5)) == list(JobKind)


def test_without_an_age_nothing_expires() -> None:
    assert kinds(QUIET, lake(age=dt.timedelta(days=999), removable=5)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"flush_rows": 0},
        {"small_files": 1},
        {"small_ratio": 1.5},
        {"delete_ratio": -0.1},
        {"jitter": 2},
        {"interval": -HOUR},
        {"expire_older_than": -HOUR},
        {"lease": dt.timedelta(0)},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Policy(**wrong)
