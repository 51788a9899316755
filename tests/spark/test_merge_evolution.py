"""A merge that evolves the table leaves alone what the source does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import quacklake

from .test_small_batches import sink_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_spark("4.0")


@pytest.mark.parametrize("how", ["builder", "statement", "driver", "executors"])
def test_columns_that_the_source_lacks_keep_their_values_in_rows_that_match(
    how: str, tmp_path: Path, session: SparkSession
) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data")) as lake:
        lake.sql("CREATE TABLE t(id BIGINT, kept VARCHAR, n INT DEFAULT 7)")
        lake.sql("INSERT INTO t VALUES (1, 'old', 1), (2, 'old', 2)")
        rows = session.sql("SELECT 1L AS id, 'x' AS fresh UNION ALL SELECT 3L, 'y'")
        match how:
            case "builder":
                merge = quacklake.spark(lake, session).merge("t", rows, on="id").with_schema_evolution()
                merge.when_matched_update_all().when_not_matched_insert_all().execute()
            case "statement":
                source = "(SELECT 1L AS id, 'x' AS fresh UNION ALL SELECT 3L, 'y') AS s"
                quacklake.spark(lake, session).sql(
                    f"MERGE WITH SCHEMA EVOLUTION INTO t USING {source} ON t.id = s.id"
                    " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                )
            case _:
                here = how == "driver"
                sink_of(lake, session, "t", here=here, mode="upsert", on=["id"], evolve=True).write(rows, 0)
        assert lake.sql("SELECT id, kept, n, fresh FROM t ORDER BY id").fetchall() == [
            (1, "old", 1, "x"),
            (2, "old", 2, None),
            (3, None, 7, "y"),
        ]
