"""A binary search over the snapshots finds the commit that broke a check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import ConstraintError, InputError, NotFoundError, SqlError
from tests.seeds import chance

NEGATIVE = "SELECT * FROM prices WHERE price < 0"
NONE_NEGATIVE = "SELECT count(*) = 0 FROM prices WHERE price < 0"


def fill(lake: quacklake.Lake, prices: Sequence[float]) -> None:
    """Create the table of prices, and append one price a snapshot: the first with snapshot 2."""
    table = lake.create_table("prices", {"n": "int", "price": "double"})
    for n, price in enumerate(prices):
        lake.signed(f"load {n}", "ann").table(table.name).append([{"n": n, "price": price}])


@pytest.mark.parametrize("check", [NEGATIVE, NONE_NEGATIVE])
def test_the_commit_and_its_bad_rows_are_found(lake: quacklake.Lake, check: str) -> None:
    fill(lake, [1.0, 2.0, 3.0, -4.0, 5.0, -6.0])
    found = lake.bisect(check)
    assert (found.good, found.bad) == (4, 5)
    assert (found.commit["author"], found.commit["commit_message"], found.commit["operation"]) == (
        "ann",
        "load 3",
        "INSERT",
    )
    assert found.rows is not None
    assert found.rows.to_pylist() == [{"n": 3, "price": -4.0}]
    assert found.skipped == (0,)


def test_a_function_of_past_lakes_is_a_check(lake: quacklake.Lake) -> None:
    fill(lake, [1.0] * 9)
    found = lake.bisect(lambda past: past.table("prices").count() <= 5)
    assert (found.good, found.bad, found.rows) == (6, 7, None)


def test_few_checks_find_one_of_a_thousand(lake: quacklake.Lake) -> None:
    fill(lake, [])
    versions: list[int] = []

    def check(past: quacklake.LakeAt) -> bool:
        versions.append(past.snapshot_id)
        return past.snapshot_id < 700

    for number in range(1000):
        lake.table("prices").set_column_comment("price", f"state {number}")
    found = lake.bisect(check)
    assert (found.good, found.bad) == (699, 700)
    assert len(versions) == found.checks <= 12


@pytest.mark.parametrize("number", range(12))
def test_each_break_is_the_one_that_a_walk_finds(lake: quacklake.Lake, number: int) -> None:
    random = chance("bisect", number)
    broken = random.randrange(1, 24)
    fill(lake, [-1.0 if n == broken or (n > broken and random.random() < 0.4) else 1.0 for n in range(24)])
    states = {version: lake.at(version=version).sql(NONE_NEGATIVE).fetchone() for version in range(1, 26)}
    good, bad = random.choice(
        [(None, None), (random.randrange(1, broken + 2), None), (None, random.randrange(broken + 2, 26))]
    )
    found = lake.bisect(random.choice([NEGATIVE, NONE_NEGATIVE]), good, bad)
    walked = next(version for version, state in states.items() if state == (False,))
    assert found.bad == walked == broken + 2
    assert found.good == found.bad - 1


def test_ends_are_tags_and_times_too(lake: quacklake.Lake) -> None:
    fill(lake, [1.0, -2.0, 3.0])
    lake.tag("release", 2)
    time = lake.snapshots().column("snapshot_time").to_pylist()[-1]
    assert lake.bisect(NEGATIVE, "release", time).bad == 3


def test_a_column_that_did_not_exist_was_not_bad(lake: quacklake.Lake) -> None:
    fill(lake, [1.0, 2.0])
    lake.table("prices").add_column("tax", "double", default=-1.0)
    found = lake.bisect("SELECT * FROM prices WHERE tax < 0", 2)
    assert (found.good, found.bad, found.skipped) == (3, 4, (2, 3))


def test_expired_snapshots_are_left_out(lake: quacklake.Lake) -> None:
    fill(lake, [1.0, 2.0, 3.0, -4.0, 5.0])
    lake.expire_snapshots(versions=[4, 5])
    found = lake.bisect(NEGATIVE)
    assert (found.good, found.bad) == (3, 6)


@pytest.mark.parametrize(
    ("check", "ends", "error", "message"),
    [
        (NEGATIVE, {"good": 3}, InputError, "the check fails at snapshot 3, too"),
        (NEGATIVE, {"bad": 2}, InputError, "the check does not fail at snapshot 2"),
        (NEGATIVE, {"good": 3, "bad": 2}, InputError, "the good snapshot 3 is not older than the bad snapshot 2"),
        (NEGATIVE, {"bad": 9}, NotFoundError, "No snapshot found at version 9"),
        ("SELECT * FROM nothing", {}, SqlError, "Table with name nothing does not exist"),
        ("SELECT price < 0 FROM prices", {}, InputError, "a check returns one boolean, or the rows that are bad"),
        ("SELECT CAST('x' || n AS INT) FROM prices", {}, ConstraintError, "a value does not fit"),
        ("DROP TABLE prices", {}, quacklake.QuacklakeError, "read-only"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    lake: quacklake.Lake, check: str, ends: dict[str, int], error: type[Exception], message: str
) -> None:
    fill(lake, [1.0, -2.0, 3.0])
    newest = lake.current_snapshot()
    with pytest.raises(error, match=message):
        lake.bisect(check, **ends)
    assert lake.current_snapshot() == newest
    assert lake.table("prices").count() == 3


def test_no_more_bad_rows_are_read_than_asked_for(lake: quacklake.Lake, tmp_path: Path) -> None:
    lake.create_table("prices", [{"price": 1.0}])
    lake.table("prices").append([{"price": float(-n)} for n in range(1, 500)])
    rows = lake.bisect(NONE_NEGATIVE, rows=7).rows
    assert rows is not None
    assert rows.num_rows == 7
