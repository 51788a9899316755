"""The change feeds of both clients agree on each other's commits, and are the differences between snapshots."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quacklake.lake.table import Table

from .conftest import HISTORIES, LONG, MakeSite, kinds
from .feeds import Feed, check_single_snapshots, our_feed, stock_feed
from .history import DIRECTIONS, History
from .scenarios import SCENARIOS
from .steps import Append, Create, Delete, Stock, Together
from .test_random_histories import TURNS, Turns, play

pytestmark = pytest.mark.daily(0.3)

KEY = ("main", "things")
FED = ["inserts", "deletes", "updates", "merges", "replacements", "transactions", "maintenance"]


def feed(history: History, function: str, version: int) -> Counter[tuple[str | None, ...]]:
    """The rows that one snapshot inserted or deleted, as text."""
    rows = history.site.stock().execute(
        f"SELECT id::VARCHAR, name, amount::VARCHAR FROM {function}('l', 'main', 'things', {version:d}, {version:d})"
    )
    return Counter(rows.fetchall())


@pytest.mark.parametrize("direction", DIRECTIONS if LONG else ["we-write", "alternating"])
@pytest.mark.parametrize("scenario", ["deletes", "updates"])
@pytest.mark.parametrize("inlining", [10, 0] if LONG else [10])
def test_the_change_feed_is_the_difference_of_snapshots(
    direction: str, scenario: str, inlining: int, make_site: MakeSite
) -> None:
    history = History(make_site("sqlite", inlining))
    history.play(SCENARIOS[scenario], DIRECTIONS[direction])
    for version in sorted(history.expected)[2:]:
        before, after = (Counter(history.expected[v][KEY].rows) for v in (version - 1, version))
        inserted = feed(history, "ducklake_table_insertions", version)
        deleted = feed(history, "ducklake_table_deletions", version)
        # an update that changes nothing is told as both
        assert inserted - deleted == after - before, f"inserted by {version}"
        assert deleted - inserted == before - after, f"deleted by {version}"


@pytest.mark.parametrize("direction", DIRECTIONS if LONG else ["alternating"])
@pytest.mark.parametrize("scenario", FED if LONG else ["transactions", "maintenance"])
@pytest.mark.parametrize("inlining", [10, 0])
def test_our_feed_is_the_difference_of_snapshots(
    direction: str, scenario: str, inlining: int, make_site: MakeSite
) -> None:
    history = History(make_site("sqlite", inlining))
    history.play(SCENARIOS[scenario], DIRECTIONS[direction])
    check_single_snapshots(history.site.lake(), max(history.expected))


@pytest.mark.parametrize("kind", kinds("sqlite", "duckdb", "postgres"))
@pytest.mark.parametrize("direction", DIRECTIONS if LONG else ["stock-writes", "alternating"])
def test_f12_2_both_clients_tell_the_same_changes(kind: str, direction: str, make_site: MakeSite) -> None:
    scenarios = [*(name for name in FED if name != "transactions"), "evolution"]
    if not LONG:
        scenarios = ["updates" if direction == "stock-writes" else "evolution"]
    for scenario in scenarios:
        for inlining in (10, 0) if LONG or kind == "sqlite" else (10,):
            history = History(make_site(kind, inlining))
            history.play(SCENARIOS[scenario], DIRECTIONS[direction])
            last = max(history.expected)
            ranges = [
                (1, last),
                (last // 2, last),
                (3, last - 2),
                *((v, v) for v in range(4, last + 1, 1 if LONG else 5)),
            ]
            theirs = {span: stock_feed(history.site, "things", *span) for span in ranges}
            table = history.site.lake().table("things")
            for span in ranges:
                assert our_feed(table, *span) == _right(theirs[span], table, span), (scenario, inlining, span)


def _right(feed: Feed, table: Table, span: tuple[int, int]) -> Feed:
    """Return the feed of stock DuckLake without the rows that a rewrite moved, which no snapshot shows."""
    plan = table.changes(*span).plan()
    return Counter({row: n for row, n in feed.items() if int(row[0] or 0) not in plan.compactions})


def test_a_rewrite_is_no_change_though_stock_ducklake_tells_of_one(make_site: MakeSite) -> None:
    history = History(make_site("sqlite", 0))
    rewrite = Stock("CALL ducklake_rewrite_data_files('l', delete_threshold => 0.1)")
    history.play(
        [Create("t", "id INTEGER"), Append("t", "SELECT i FROM range(50) r(i)"), Delete("t", "id < 30")], ("stock",)
    )
    last = history.take(rewrite, "stock")
    assert len(stock_feed(history.site, "t", last, last)) == 40, "20 rows, before and after"
    check_single_snapshots(history.site.lake(), last)
    assert our_feed(history.site.lake().table("t"), last, last) == Counter()


def test_a_row_of_one_transaction_only_is_no_change_though_stock_ducklake_tells_of_one(make_site: MakeSite) -> None:
    history = History(make_site("sqlite", 0))
    both = Together([Append("t", "SELECT i FROM range(50) r(i)"), Delete("t", "id < 30")])
    history.play([Create("t", "id INTEGER"), both], ("stock",))
    assert Counter(row[2] for row in stock_feed(history.site, "t", 2, 2)) == {
        "insert": 20,
        "update_preimage": 30,
        "update_postimage": 30,
    }
    check_single_snapshots(history.site.lake(), 2)
    assert {row[2] for row in our_feed(history.site.lake().table("t"), 2, 2)} == {"insert"}


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"] if LONG else ["sqlite"])
@settings(max_examples=150 if LONG else 6, **HISTORIES)
@given(inlining=st.sampled_from([10, 3, 0]), turns=TURNS)
def test_our_feed_of_any_history_is_the_difference_of_snapshots(kind: str, inlining: int, turns: Turns) -> None:
    play(kind, inlining, turns, lambda history: check_single_snapshots(history.site.lake(), history.newest()))
