"""Rows of an upsert before they reach the table."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from quacklake.connectors.upserts import last_rows

COLUMNS = {
    "fixed": pa.array([b"ab", b"cd", None], pa.binary(2)),
    "time": pa.array([1, 2, None], pa.time64("us")),
    "decimal": pa.array([Decimal("1.10"), Decimal("-2.00"), None], pa.decimal128(38, 2)),
    "list": pa.array([[{"a": 1}], None, []], pa.list_(pa.struct([("a", pa.int32())]))),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
    "instant": pa.array([0, 1, None], pa.timestamp("us", "UTC")),
    "large": pa.array(["x", "", None], pa.large_string()),
    "small": pa.array([1, 2, None], pa.int8()),
    "uuid": pa.array([b"a" * 16, b"b" * 16, None], pa.uuid()),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_the_last_row_of_each_key_is_kept_with_its_type(name: str) -> None:
    rows = pa.table({"id": [1, 1, 2], "x": COLUMNS[name]})
    found = pa.Table.from_batches(last_rows(rows.to_batches(max_chunksize=1), rows.schema, ["id"]), rows.schema)
    assert found.to_pylist() == rows.slice(1).to_pylist()


def test_rows_without_repeats_come_in_their_order() -> None:
    rows = pa.table({"id": [3, 1, 2], "part": ["a", "a", "b"]})
    found = pa.Table.from_batches(last_rows(rows.to_batches(), rows.schema, ["part", "id"]), rows.schema)
    assert found == rows
    assert list(last_rows([], rows.schema, ["id"])) == []
