"""What every engine owes: a lake's tables in the engine's own SQL, and bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import quacklake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        yield lake


def test_every_table_can_be_queried_in_a_duckdb_connection(lake: quacklake.Lake) -> None:
    lake.create_schema("shop")
    lake.create_table("shop.orders", pa.table({"id": range(100), "product": [i % 3 for i in range(100)]}))
    lake.create_table("products", [{"id": 0, "name": "tea"}, {"id": 1, "name": "cocoa"}])
    lake.table("shop.orders").delete("id >= 90")
    with duckdb.connect() as connection:
        lake.register(connection)
        found = connection.execute(
            "SELECT p.name, count(*) FROM shop.orders o JOIN products p ON p.id = o.product GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    assert found == [("cocoa", 30), ("tea", 30)]


def test_memory_stays_within_the_limit_while_a_table_is_streamed(tmp_path: Path) -> None:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_memory_limit="64MB"
    ) as lake:
        schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
        batch = pa.record_batch({"id": list(range(50_000)), "text": ["some text of a row"] * 50_000}, schema=schema)
        table = lake.create_table("t", schema)
        assert table.append(pa.RecordBatchReader.from_batches(schema, (batch for _ in range(60)))) == 3_000_000
        assert sum(found.num_rows for found in table.to_batches()) == 3_000_000
