"""A large file on its own is read with all threads, and gives the rows it has and no other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake import Lake, Safety
from quacklake.core.engines.duckdb.sql import NOTHING, scan_sql

ROWS = 300_000
"""More than a row group has."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    home = tmp_path_factory.mktemp("lake")
    with quacklake.connect(f"sqlite:///{home / 'lake.db'}", data_path=home / "data") as opened:
        opened.create_table("large", pa.table({"a": np.arange(ROWS), "b": np.arange(ROWS) % 7}))
        opened.create_table("deleted", pa.table({"a": np.arange(ROWS)})).delete("a % 1000 = 3")
        opened.create_table("small", pa.table({"a": np.arange(100)}))
        opened.create_table("several", pa.table({"a": np.arange(ROWS)}))
        opened.table("several").append(pa.table({"a": np.arange(ROWS)}))
        yield opened


def _query(lake: Lake, table: str) -> str:
    plan = lake.table(table).plan()
    return scan_sql(plan, lake._context.store, "q", plan.schema.columns).query


def test_only_a_large_file_on_its_own_has_another_beside_it(lake: Lake) -> None:
    assert _query(lake, "large").count(str(NOTHING)) == 1
    assert str(NOTHING) not in _query(lake, "small")
    assert str(NOTHING) not in _query(lake, "several")


def test_the_file_beside_it_has_no_rows_and_is_part_of_the_package() -> None:
    assert NOTHING.is_relative_to(next(iter(quacklake.__path__)))
    metadata = pq.read_metadata(NOTHING)
    assert (metadata.num_rows, metadata.num_row_groups) == (0, 0)


def test_its_rows_come_in_their_order_and_know_their_file(lake: Lake) -> None:
    assert lake.table("large").to_arrow().column("a").to_pylist() == list(range(ROWS))
    found = lake.sql("SELECT count(*), sum(a), min(rowid), max(rowid), max(file_index) FROM large").fetchone()
    assert found == (ROWS, ROWS * (ROWS - 1) // 2, 0, ROWS - 1, 0)
    names = lake.sql("SELECT DISTINCT filename FROM large").fetchall()
    assert len(names) == 1
    assert not names[0][0].endswith(NOTHING.name)


def test_its_deleted_rows_are_gone(lake: Lake) -> None:
    assert str(NOTHING) in _query(lake, "deleted")
    expected = [n for n in range(ROWS) if n % 1000 != 3]
    assert sorted(lake.table("deleted").to_arrow().column("a").to_pylist()) == expected


def test_a_safe_session_reads_it(lake: Lake) -> None:
    with quacklake.session(safety=Safety.server()) as session:
        session.attach(lake, "lake")
        found = session.execute("SELECT b, count(*) FROM lake.large GROUP BY b ORDER BY b").fetchall()
    assert [b for b, _ in found] == list(range(7))
    assert sum(count for _, count in found) == ROWS
