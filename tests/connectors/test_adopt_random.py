"""Random histories of Delta tables, followed by a lake that maintains itself: the rows are those the library reads.

The long form of it, with many and long histories, is that of ``make test-all``.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from tests import seeds
from tests.catalog.stock import Stock
from tests.connectors.adoption import check_stock, contents, sorted_rows

deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not installed")

HISTORIES, STEPS = (60, 40) if seeds.LONG else (2, 8)
_PARTS = ["a", "b c", "d/e", None, "ü"]


class DeltaHistory:
    """A Delta table that changes at random."""

    def __init__(self, place: Path, chance: random.Random) -> None:
        self.place = place
        self.chance = chance
        self.next_id = 0
        self.extras = 0
        self.partitioned = chance.choice([[], ["part"], ["day", "part"]])
        self.append()

    @property
    def table(self) -> Any:
        return deltalake.DeltaTable(str(self.place))

    def rows(self, count: int, *, first: int | None = None) -> pa.Table:
        first = self.next_id if first is None else first
        self.next_id = max(self.next_id, first + count)
        ids = range(first, first + count)
        day = dt.date(2024, 1, 1)
        found = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "part": pa.array([self.chance.choice(_PARTS) for _ in ids], pa.string()),
                "day": pa.array([day + dt.timedelta(self.chance.randrange(3)) for _ in ids], pa.date32()),
                "at": pa.array([dt.datetime(2024, 1, 1, 0, 0, n % 60) for n in ids], pa.timestamp("us", "UTC")),
                "s": pa.array([{"x": n, "l": [str(n), None][: n % 3]} if n % 4 else None for n in ids],
                              pa.struct([("x", pa.int64()), ("l", pa.list_(pa.string()))])),
            }
        )  # fmt: skip
        for number in range(self.extras):
            found = found.append_column(
                f"e{number}", pa.array([self.chance.choice([None, n]) for n in ids], pa.int32())
            )
        return found

    def append(self) -> None:
        rows = self.rows(self.chance.randrange(1, 25))
        deltalake.write_deltalake(str(self.place), rows, mode="append", partition_by=self.partitioned or None)

    def grow(self) -> None:
        self.extras += 1
        rows = self.rows(5)
        deltalake.write_deltalake(str(self.place), rows, mode="append", schema_mode="merge")

    def overwrite(self) -> None:
        deltalake.write_deltalake(str(self.place), self.rows(8), mode="overwrite")

    def delete(self) -> None:
        low = self.chance.randrange(self.next_id)
        self.table.delete(f"id >= {low} AND id < {low + self.chance.randrange(1, 9)}")

    def delete_part(self) -> None:
        self.table.delete("part = 'b c'")

    def update(self) -> None:
        self.table.update(predicate=f"id % {self.chance.randrange(2, 7)} = 0", updates={"part": "'d/e'"})

    def merge(self) -> None:
        rows = self.rows(12, first=self.chance.randrange(self.next_id))
        merger = self.table.merge(rows, "s.id = t.id", source_alias="s", target_alias="t")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    def optimize(self) -> None:
        self.table.optimize.compact()

    def restore(self) -> None:
        if not self.extras and self.table.version():
            self.table.restore(self.chance.randrange(self.table.version()))

    def checkpoint(self) -> None:
        self.table.create_checkpoint()

    def change(self) -> str:
        weights: dict[Callable[[], None], int] = {
            self.append: 4, self.delete: 4, self.merge: 3, self.update: 2, self.optimize: 2, self.delete_part: 1,
            self.overwrite: 1, self.restore: 2, self.checkpoint: 1, self.grow: 1,
        }  # fmt: skip
        (action,) = self.chance.choices(list(weights), list(weights.values()))
        action()
        return action.__name__

    def read(self) -> pa.Table:
        query = deltalake.QueryBuilder().register("t", self.table).execute("SELECT * FROM t")
        return pa.table(query)


@pytest.mark.parametrize("number", range(HISTORIES))
def test_a_followed_table_is_what_the_library_reads(tmp_path: Path, stock_if_plain: Stock | None, number: int) -> None:
    chance = seeds.chance("adopt", number)
    history = DeltaHistory(tmp_path / "foreign" / "t", chance)
    done: list[str] = []
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db",
        data_path=tmp_path / "data",
        duckdb_threads=1,
        foreign_paths=[tmp_path / "foreign"],
        data_inlining_row_limit=chance.choice([0, 10]),
    ) as lake:
        for _ in range(STEPS):
            done += [history.change() for _ in range(chance.randrange(1, 3))]
            before = contents(history.place)
            lake.adopt(f"delta:{history.place}", as_="t", sync=True)
            _maintain(lake, chance, done)
            version = lake.current_snapshot()
            assert lake.adopt(f"delta:{history.place}", as_="t", sync=True).added_files == 0
            assert lake.current_snapshot() == version
            expected, found = history.read(), lake.table("t").to_arrow()
            assert sorted_rows(found) == sorted_rows(expected.cast(found.select(expected.column_names).schema)), done
            assert contents(history.place) == before, done
        lake.adopt(f"delta:{history.place}", as_="fresh")  # all files at once
        assert sorted_rows(lake.table("fresh").to_arrow()) == sorted_rows(found), done
        assert lake.verify(deep=True).ok, done
        if stock_if_plain is not None:
            check_stock(lake, found, stock_if_plain)


def _maintain(lake: quacklake.Lake, chance: random.Random, done: list[str]) -> None:
    if chance.random() < 0.3:
        done.append("compacted")
        lake.maintenance.merge_adjacent_files()
        lake.maintenance.rewrite_data_files(delete_threshold=0)
    if chance.random() < 0.3:
        done.append("expired")
        lake.expire_snapshots(keep_last=1)
        lake.cleanup_old_files(cleanup_all=True)
        lake.delete_orphaned_files(cleanup_all=True)
