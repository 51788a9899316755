"""Rows at known positions: what is read of large files, and that it is just the rows that are wanted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.core.engines.duckdb import feed
from tests import seeds

ROWS = 200_000
BLOCKS = "WHERE p.file_row_number >= "
"""The beginning of the condition of a call that reads some blocks only."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[quacklake.Lake]:
    """Three large files, a small one and one from elsewhere; then changes here and there."""
    folder = tmp_path_factory.mktemp("positions")
    foreign = folder / "foreign"
    foreign.mkdir()
    with quacklake.connect(
        f"sqlite:///{folder}/lake.db", data_path=folder / "data", data_inlining_row_limit=5, foreign_paths=[foreign]
    ) as lake:
        table = lake.create_table("t", {"id": pa.int64(), "v": pa.int64()})
        for first in (0, ROWS, 2 * ROWS):
            table.append(_rows(first, ROWS))
        table.append(_rows(3 * ROWS, 100))
        pq.write_table(_rows(4 * ROWS, ROWS), foreign / "f.parquet")
        table.add_files(foreign / "f.parquet")
        table.delete("id IN (7, 2050, 399999)")
        table.update({"v": -1}, f"id BETWEEN {ROWS + 130_000} AND {ROWS + 130_009} OR id IN (9, {3 * ROWS + 5})")
        table.delete(f"id % 2048 = 100 AND id BETWEEN {2 * ROWS} AND {3 * ROWS - 1}")
        table.delete(f"id = {4 * ROWS + 150_000} OR id = {ROWS + 130_003}")
        yield lake


def _rows(first: int, count: int) -> pa.Table:
    return pa.table({"id": range(first, first + count), "v": range(count)})


def test_the_feed_has_the_rows_that_went_and_no_others(lake: quacklake.Lake) -> None:
    found = lake.table("t").changes(6).to_arrow().sort_by([("snapshot_id", "ascending"), ("id", "ascending")])
    went = [row for row in found.to_pylist() if row["change_type"] in ("delete", "update_preimage")]
    spread = [id_ for id_ in range(2 * ROWS, 3 * ROWS) if id_ % 2048 == 100]
    updated = [9, *range(ROWS + 130_000, ROWS + 130_010), 3 * ROWS + 5]
    assert [(row["snapshot_id"], row["change_type"], row["id"]) for row in went] == [
        *((7, "delete", id_) for id_ in (7, 2050, 399_999)),
        *((8, "update_preimage", id_) for id_ in updated),
        *((9, "delete", id_) for id_ in spread),
        *((10, "delete", id_) for id_ in (ROWS + 130_003, 4 * ROWS + 150_000)),
    ]
    assert all(row["v"] == row["id"] % ROWS for row in went if row["id"] != ROWS + 130_003)
    # rows of the file from elsewhere are numbered after the others
    assert {row["rowid"] - row["id"] for row in went} == {0, 100 - ROWS}
    came = [row for row in found.to_pylist() if row["change_type"] == "update_postimage"]
    assert [(row["id"], row["v"]) for row in came] == [(id_, -1) for id_ in updated]


def test_large_files_of_which_little_went_are_read_by_blocks(lake: quacklake.Lake) -> None:
    plan = lake.table("t").changes(7, 7).plan()
    sql = _sql(lake, plan)
    assert sql.count(BLOCKS) == 2
    assert "file_row_number >= 0 " in sql  # positions 7 and 2,050 of the first file
    assert "file_row_number >= 198656 " in sql  # the last of the second
    spread = _sql(lake, lake.table("t").changes(9, 9).plan())
    assert BLOCKS not in spread  # every block of the third file


@pytest.mark.parametrize("count", [1, 2, 3, 8, 13, 14, 20, 40])
def test_few_gaps_between_blocks_are_compared_with_and_many_are_bits(tmp_path: Path, count: int) -> None:
    chance = seeds.chance("gaps between blocks", count)
    blocks = sorted(chance.sample(range(1, ROWS // 2048), count))
    # the first and last positions of blocks, and some between
    gone = {block * 2048 + chance.choice((0, 2047, chance.randrange(2048))) for block in blocks}
    gaps = sum(after - before > 1 for before, after in pairwise(blocks))
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        table = lake.create_table("t", {"id": pa.int64(), "v": pa.int64()})
        table.append(_rows(1_000_000, ROWS))
        table.append(_rows(2_000_000, ROWS))
        for first in (1_000_000, 2_000_000):
            table.delete(f"id IN ({', '.join(str(first + position) for position in gone)})")
        sql = _sql(lake, table.changes(4, 5).plan())
        assert (sql.count(BLOCKS), sql.count(" OR p.file_row_number")) == (1, gaps if gaps <= 12 else 0)
        assert sql.count("get_bit") == (gaps > 12)
        found = table.changes(4, 5).to_arrow().to_pylist()
    assert sorted((row["snapshot_id"], row["change_type"], row["id"], row["v"]) for row in found) == [
        (snapshot, "delete", first + position, position)
        for snapshot, first in ((4, 1_000_000), (5, 2_000_000))
        for position in sorted(gone)
    ]


def test_files_share_calls_when_there_are_many(monkeypatch: pytest.MonkeyPatch, lake: quacklake.Lake) -> None:
    monkeypatch.setattr(feed, "_CALLS", 1)
    plan = lake.table("t").changes(7, 10).plan()
    before = lake.table("t").deletions(7, 10).to_arrow().num_rows
    assert _sql(lake, plan).count(BLOCKS) == 2  # one of our files, one of those from elsewhere
    assert before == 3 + 12 + 97 + 2


def test_calls_of_files_of_one_shape_meet_in_one_join(lake: quacklake.Lake) -> None:
    sql = _sql(lake, lake.table("t").changes(7, 9).plan())
    assert sql.count(BLOCKS) == 2  # two large files; the third and the small one are read whole
    assert sql.count("read_parquet") == 3
    assert sql.count(" JOIN (SELECT (f.place") == 1


def test_few_rows_of_several_calls_are_sorted(monkeypatch: pytest.MonkeyPatch, lake: quacklake.Lake) -> None:
    spans = {(7, 7): 1, (7, 8): 1, (8, 8): 1, (9, 9): 0, (7, 9): 0}  # one call needs no sort, and many rows are not few
    found = {}
    for most in (64, 0):
        monkeypatch.setattr(feed, "_SORTED", most)
        for span, sorts in spans.items():
            changes = lake.table("t").changes(*span)
            assert _sql(lake, changes.plan()).count("ORDER BY _ql_snapshot") == (sorts if most else 0)
            found[most, span] = sorted(map(repr, changes.to_arrow().to_pylist()))
            assert changes.count() == len(found[most, span])
    assert all(found[64, span] == found[0, span] for span in spans)
    gone = lake.table("t").deletions(7, 8).to_arrow().column("id").to_pylist()
    assert sorted(gone) == sorted([7, 2050, 399_999, 9, *range(ROWS + 130_000, ROWS + 130_010), 3 * ROWS + 5])


def test_inlined_rows_are_handed_over_once(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        table = lake.create_table("t", {"id": pa.int64(), "v": pa.int64()})
        table.append(_rows(0, 5))
        table.update({"v": -1}, "id IN (1, 3)")
        plan = table.changes(3, 3).plan()
        builder = feed.FeedBuilder(plan, lake._context.engine.store, "ql", lambda *_: {}, lambda _: set(), {})
        sql = builder.build(inserts=True, deletes=True)
        assert len(sql.tables) == len({name for name, _ in sql.tables}) == 2  # what came, and what went
        assert sum("_rows AS FROM" in statement for statement in sql.setup) == 2
        found = [(row["change_type"], row["id"], row["v"]) for row in table.changes(3, 3).to_arrow().to_pylist()]
    updated = [("update_postimage", id_, -1) for id_ in (1, 3)] + [("update_preimage", id_, id_) for id_ in (1, 3)]
    assert sorted(found) == updated


def test_a_position_behind_the_end_of_a_file_makes_it_read_whole(lake: quacklake.Lake) -> None:
    plan = lake.table("t").changes(7, 7).plan()
    first = plan.rows.files.column("data_file_id")[0].as_py()
    store = lake._context.engine.store
    builder = feed.FeedBuilder(plan, store, "ql", lambda _plan, _columns: {}, lambda _plan: set(), {first: [0, 5000]})
    sql = builder.build(inserts=True, deletes=True)
    assert BLOCKS not in sql.query


def _sql(lake: quacklake.Lake, plan: object) -> str:
    engine = lake._context.engine
    with engine.connection() as connection:
        return engine.bind_feed(connection, plan, inserts=False)  # type: ignore[arg-type]
