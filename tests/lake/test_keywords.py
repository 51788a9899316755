"""Columns that are called like the keywords of a database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import quacklake

_WORDS = ("nothing", "returning", "anti", "asof", "at", "by", "collation", "glob", "select", "semi", "unpack", "Order")


@pytest.mark.parametrize("database", ["sqlite", "duckdb", "postgres", "mysql"])
def test_inlined_columns_may_be_called_like_any_keyword(
    database: str, new_url: Callable[[str], str], tmp_path: Path
) -> None:
    row = {word: number for number, word in enumerate(_WORDS)}
    with quacklake.connect(new_url(database), data_path=tmp_path / "data", data_inlining_row_limit=100) as lake:
        table = lake.create_table("t", [row])
        table.append([{**row, "nothing": 7}])
        table.update({"by": 3}, "nothing = 7")
        table.delete("nothing = 0")
        assert table.to_pylist() == [{**row, "nothing": 7, "by": 3}]
        assert table.files().num_rows == 0
        table.flush_inlined_data()
        assert table.to_pylist() == [{**row, "nothing": 7, "by": 3}]
