"""Undo and stock DuckDB: what it did is taken back, and it reads the new snapshot and every old one as before."""

from __future__ import annotations

import pytest

from tests.conformance.clients import LONG, LakeSite
from tests.conformance.conftest import MakeSite, kinds, make_site  # noqa: F401
from tests.conformance.feeds import our_feed, stock_feed
from tests.conformance.history import State
from tests.maintenance.undoing import HISTORIES, both_see, play, same_rows

pytestmark = pytest.mark.daily(0.45)

CASES = [
    pytest.param(history, kind.values[0], marks=kind.marks)
    for history in HISTORIES
    for kind in kinds("sqlite", "duckdb", "postgres")
    if LONG or (history, kind.values[0]) in {("rows", "postgres"), ("compacted", "duckdb"), ("evolved", "sqlite")}
]


def chosen(last: int) -> list[int]:
    """The versions to go back to: all of them when there is time."""
    return list(range(1, last)) if LONG else sorted({last // 4, 2 * last // 3} - {0})


@pytest.mark.parametrize(("history", "kind"), CASES)
def test_a_table_goes_back_to_what_stock_made(make_site: MakeSite, history: str, kind: str) -> None:  # noqa: F811
    site = make_site(kind, 5)
    play(site, HISTORIES[history])
    lake = site.lake()
    last = lake.current_snapshot()
    made = {lake.table("t").restore(to=version).snapshot: version for version in chosen(last)}
    assert list(made) == list(range(last + 1, last + 1 + len(made)))
    seen = both_see(site)
    for newest, version in made.items():
        same_rows(seen[newest], seen[version])
        if history in ("rows", "compacted"):
            assert our_feed(site.lake().table("t"), newest, newest) == stock_feed(site, "t", newest, newest)


DROPPED = (
    "CREATE TABLE t(i BIGINT, part VARCHAR, n STRUCT(a INTEGER))",
    "ALTER TABLE t SET PARTITIONED BY (part)",
    "INSERT INTO t SELECT i, 'p' || (i % 3), {'a': i} FROM range(30) r(i)",
    "COMMENT ON TABLE t IS 'what'",
    "DELETE FROM t WHERE i % 3 = 1 AND i < 20",
    "DELETE FROM t WHERE i = 2",
    "INSERT INTO t VALUES (100, 'x', NULL), (101, 'y', NULL)",
    "UPDATE t SET part = 'q' WHERE i IN (100, 3)",
    "CREATE SCHEMA s",
    "CREATE TABLE s.u AS SELECT i FROM range(20) r(i)",
    "CREATE VIEW s.v AS SELECT * FROM main.t",
    "DROP TABLE t",
    "DROP SCHEMA s CASCADE",
    "CREATE TABLE z AS SELECT i FROM range(20) r(i)",
)
WHOLE = 11


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"] if LONG else ["sqlite"])
def test_what_stock_dropped_comes_back_and_outlives_its_history(make_site: MakeSite, kind: str) -> None:  # noqa: F811
    site = make_site(kind, 5)
    play(site, DROPPED)
    lake = site.lake()
    lake.undrop("t")
    assert lake.table("t").comment == "what"
    before = both_see(site)
    newest = max(before)
    assert before[newest][("main", "t")] == before[WHOLE][("main", "t")]
    assert ("main", "t") not in before[newest - 1]
    for since in (1, WHOLE, newest):
        assert our_feed(site.lake().table("t"), since, newest) == stock_feed(site, "t", since, newest)
    play(site, ["INSERT INTO t SELECT i, 'x', NULL FROM range(600, 620) r(i)", "UPDATE t SET part = 'z' WHERE i = 5"])
    site.lake().rollback(to=WHOLE)
    after = both_see(site)
    _alike(after[max(after)], before[WHOLE])
    assert {version: after[version] for version in before} == before
    _outlive(site, before[WHOLE], max(after))


def _alike(found: State, expected: State) -> None:
    """The same state; a table whose schema was dropped has new row ids."""
    assert set(found) == set(expected)
    assert found[("main", "t")] == expected[("main", "t")]
    assert [row[1:] for row in found[("s", "u")].rows] == [row[1:] for row in expected[("s", "u")].rows]


def _outlive(site: LakeSite, expected: State, newest: int) -> None:
    """Stock expires everything older, cleans up and compacts: what came back stays."""
    play(site, [f"CALL ducklake_expire_snapshots('l', versions => {list(range(newest))})"])
    play(site, ["CALL ducklake_cleanup_old_files('l', cleanup_all => true)"])
    seen = both_see(site)
    assert list(seen) == [newest]
    _alike(seen[newest], expected)
    play(site, ["CALL ducklake_flush_inlined_data('l')", "CALL ducklake_merge_adjacent_files('l')"])
    play(site, ["CALL ducklake_cleanup_old_files('l', cleanup_all => true)", "INSERT INTO t VALUES (1000, 'n', NULL)"])
    seen = both_see(site)
    assert len(seen[max(seen)][("main", "t")].rows) == len(expected[("main", "t")].rows) + 1
    ((views,),) = site.stock().execute("SELECT count(*) FROM s.v").fetchall()
    assert views == len(expected[("main", "t")].rows) + 1
