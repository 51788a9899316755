"""Delete files that other formats brought: without field ids, with columns that nobody asked for."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.errors import QuacklakeError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as opened:
        opened.create_table("t", [{"x": n} for n in range(100)]).delete("x < 20")
        yield opened


def rewrite_deletes(tmp_path: Path, columns: dict[str, list[object]]) -> None:
    """Put other columns into the one delete file, none of them with a field id."""
    (path,) = (tmp_path / "data").rglob("*-delete.parquet")
    pq.write_table(pa.table(columns), path)
    with closing(sqlite3.connect(tmp_path / "lake.db")) as database, database:
        database.execute(
            "UPDATE ducklake_delete_file SET file_size_bytes = ?, footer_size = NULL", (path.stat().st_size,)
        )


def test_a_delete_file_without_field_ids_counts(lake: quacklake.Lake, tmp_path: Path) -> None:
    positions = list(range(9))
    rewrite_deletes(tmp_path, {"file_path": ["f"] * 9, "pos": positions, "row": [{"x": 1}] * 9})
    assert sorted(lake.table("t").to_arrow().column("x").to_pylist()) == list(range(9, 100))
    assert sorted(lake.table("t").deletions(2, 2).to_arrow().column("x").to_pylist()) == positions
    lake.table("t").delete("x = 50")
    assert lake.table("t").count() == 90


def test_a_delete_file_without_positions_is_an_error_and_not_ignored(lake: quacklake.Lake, tmp_path: Path) -> None:
    rewrite_deletes(tmp_path, {"file_path": ["f"] * 20, "position": list(range(20))})
    with pytest.raises(QuacklakeError, match="no positions"):
        lake.table("t").to_arrow()
