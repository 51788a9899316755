"""The change feed: what both clients tell of each other's commits, and whether it is the difference of snapshots."""

from __future__ import annotations

from collections import Counter

import pytest

from .conftest import LONG, MakeSite, kinds
from .feeds import applied, difference, our_feed, our_rows, stock_feed, without_idle_updates
from .history import DIRECTIONS, History
from .scenarios import SCENARIOS

KEY = ("main", "things")
#: Those whose table is ``things`` from beginning to end and keeps its columns.
FED = ["inserts", "deletes", "updates", "merges", "replacements", "transactions", "maintenance"]
#: Those in which no row comes and goes within one transaction, which stock DuckLake tells of all the same.
ALIKE = [name for name in FED if name != "transactions"]


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


@pytest.mark.parametrize("direction", DIRECTIONS if LONG else ["stock-writes", "alternating"])
@pytest.mark.parametrize("scenario", FED)
@pytest.mark.parametrize("inlining", [10, 0])
def test_our_feed_is_the_difference_of_snapshots(
    direction: str, scenario: str, inlining: int, make_site: MakeSite
) -> None:
    history = History(make_site("sqlite", inlining))
    history.play(SCENARIOS[scenario], DIRECTIONS[direction])
    lake = history.site.lake()
    versions = [version for version, tables in sorted(history.expected.items()) if KEY in tables]
    rows = {version: our_rows(lake, "things", version) for version in [versions[0] - 1, *versions]}
    for version in versions:
        found = without_idle_updates(our_feed(lake, "things", version, version))
        assert found == difference(rows[version - 1], rows[version], version), f"snapshot {version}"
    last = versions[-1]
    for first in versions[:: 1 if LONG else 4]:
        assert applied(rows[first - 1], our_feed(lake, "things", first, last)) == rows[last]


@pytest.mark.parametrize("kind", kinds("sqlite", "duckdb", "postgres"))
@pytest.mark.parametrize("scenario", ["evolution", "maintenance"])
def test_our_feed_of_any_range_is_that_of_its_snapshots(kind: str, scenario: str, make_site: MakeSite) -> None:
    history = History(make_site(kind))
    history.play(SCENARIOS[scenario], DIRECTIONS["alternating"])
    lake = history.site.lake()
    last = max(history.expected)
    single = {version: our_feed_at(lake, version, last) for version in range(1, last + 1)}
    for first in range(1, last + 1, 1 if LONG else 3):
        for until in range(first, last + 1, 1 if LONG else 4):
            if until == last:
                together: Counter[tuple[str | None, ...]] = sum((single[v] for v in range(first, last + 1)), Counter())
                assert our_feed(lake, "things", first, last) == together
            found = our_feed(lake, "things", first, until)
            assert {int(row[0] or 0) for row in found} <= set(range(first, until + 1))
            assert len(found) == sum(len(single[version]) for version in range(first, until + 1))


def our_feed_at(lake: object, version: int, last: int) -> Counter[tuple[str | None, ...]]:
    """The changes of one snapshot in the columns of the last one."""
    found = our_feed(lake, "things", version, last)  # type: ignore[arg-type]
    return Counter({row: n for row, n in found.items() if row[0] == str(version)})


@pytest.mark.parametrize("kind", kinds("sqlite", "duckdb", "postgres"))
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_both_clients_tell_the_same(kind: str, direction: str, make_site: MakeSite) -> None:
    scenarios = ["updates", "deletes"] if LONG else ["updates"]
    for inlining in (10, 0):
        for scenario in scenarios:
            history = History(make_site(kind, inlining))
            history.play(SCENARIOS[scenario], DIRECTIONS[direction])
            last = max(history.expected)
            ranges = [(1, last), (last // 2, last), *((v, v) for v in range(1, last + 1))]
            theirs = {span: stock_feed(history.site, "things", *span) for span in ranges}
            for span in ranges:
                assert our_feed(history.site.lake(), "things", *span) == theirs[span], span
