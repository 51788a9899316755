"""Deletion vectors: each client reads at every snapshot what the other has deleted with them."""

from __future__ import annotations

import pytest

from .clients import LakeSite
from .conftest import MakeSite, kinds
from .feeds import check_single_snapshots, our_feed, stock_feed
from .history import DIRECTIONS, History, compare
from .steps import Append, Create, Delete, Step, Stock, Update

pytestmark = pytest.mark.daily(0.45)


def numbers(first: int, count: int) -> str:
    return f"SELECT i::INTEGER AS id, 'n' || i AS name FROM range({first}, {first + count}) r(i)"


ON = Stock("CALL l.set_option('write_deletion_vectors', true)")
BEGINNING: list[Step] = [
    Create("t", "id INTEGER, name VARCHAR"),
    Append("t", numbers(0, 200)),
    Append("t", numbers(200, 200)),
    Append("t", numbers(400, 100)),
]
#: No file is touched twice: a second vector of stock DuckLake takes the first one's history with it.
ONCE: list[Step] = [
    *BEGINNING,
    Delete("t", "id BETWEEN 20 AND 60"),
    Update("t", {"name": "'new'"}, "id BETWEEN 250 AND 299"),
    Delete("t", "id >= 400"),
]
OFTEN: list[Step] = [
    *BEGINNING,
    Delete("t", "id BETWEEN 20 AND 60"),
    Delete("t", "id % 7 = 0"),
    Update("t", {"name": "'new'"}, "id BETWEEN 100 AND 299"),
    Delete("t", "id < 3 OR id = 120"),
    Delete("t", "id >= 400"),
    Delete("t", "id BETWEEN 110 AND 310"),
]


def formats(site: LakeSite) -> set[str]:
    return {format for (format,) in site.metadata("SELECT DISTINCT format FROM {m}.ducklake_delete_file")}


@pytest.mark.parametrize("kind", kinds("sqlite", "duckdb", "postgres"))
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_f5_8_vectors_are_read_by_both_at_every_snapshot(kind: str, direction: str, make_site: MakeSite) -> None:
    history = History(make_site(kind, 0))
    writers = DIRECTIONS[direction]
    history.begin(writers[0])
    history.take(ON, writers[0])
    for number, step in enumerate(ONCE):
        history.take(step, writers[number % len(writers)])
    assert formats(history.site) == {"puffin"}
    compare(history)
    last = max(history.expected)
    told = stock_feed(history.site, "t", 1, last)
    assert our_feed(history.site.lake().table("t"), 1, last) == told


@pytest.mark.parametrize("inlining", [0, 5])
def test_further_deletes_of_ours_keep_every_snapshot_readable_by_both(inlining: int, make_site: MakeSite) -> None:
    history = History(make_site("sqlite", inlining))
    history.begin("ours")
    history.take(ON, "ours")
    for step in OFTEN:
        history.take(step, "ours")
    assert formats(history.site) == {"parquet", "puffin"}
    compare(history)
    check_single_snapshots(history.site.lake(), max(history.expected))


def test_our_further_deletes_of_a_file_with_a_vector_of_stock_ducklake_lose_nothing(make_site: MakeSite) -> None:
    history = History(make_site("sqlite", 0))
    history.begin("stock")
    history.take(ON, "stock")
    for step in OFTEN[:5]:
        history.take(step, "stock")
    assert formats(history.site) == {"puffin"}
    for step in OFTEN[5:]:
        history.take(step, "ours")
    compare(history)


def test_where_a_second_vector_of_stock_ducklake_loses_the_first_ours_does_not(make_site: MakeSite) -> None:
    counts: dict[str, list[int]] = {}
    for writer in ("stock", "ours"):
        history = History(make_site("sqlite", 0))
        history.begin(writer)
        history.take(ON, writer)
        for step in OFTEN[:6]:
            history.take(step, writer)
        site = history.site
        last = sorted(history.expected)[-3:]
        counts[writer] = [
            site.stock().execute(f"SELECT count(*) FROM t AT (VERSION => {v:d})").fetchall()[0][0] for v in last
        ]
        expected = [len(history.expected[version]["main", "t"].rows) for version in last]
    assert counts["ours"] == expected
    assert counts["stock"] != expected
