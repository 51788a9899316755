"""Texts with a NUL character: in files they are texts as any other, in bounds no database must hold them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import quacklake


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_bound_with_a_nul_is_left_out(database: str, new_url: Callable[[str], str], tmp_path: Path) -> None:
    with quacklake.connect(new_url(database), tmp_path / "data", data_inlining_row_limit=0) as lake:
        t = lake.create_table("t", {"a": ["a\0b", "c"], "b": ["x", "y"]})
        t.append({"a": ["d", "z\0"], "b": ["x", "y"]})
        t.append({"a": ["e"], "b": ["z"]})
        assert t.count("a >= 'd'") == 3
        assert t.to_pylist(where="a < 'b'") == [{"a": "a\0b", "b": "x"}]
        assert not lake.verify(deep=True).errors
        with lake._context.catalog.read() as reader:
            stats = reader.meta["table_column_stats"]
            rows = reader.run("test", stats.select().order_by(stats.c.column_id)).mappings().all()
    assert [(row["min_value"], row["max_value"]) for row in rows] == [(None, None), ("x", "z")]
