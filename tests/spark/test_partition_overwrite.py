"""Overwriting partitions from Spark: those that are named, or those with new rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import InputError
from quacklake.spark.runtime.session import settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DYNAMIC = {"spark.sql.sources.partitionOverwriteMode": "dynamic"}


@pytest.mark.needs_spark("4.0")
def test_partitions_are_overwritten_as_the_session_or_an_option_says(tmp_path: Path, session: SparkSession) -> None:
    lake = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data"))
    lake.options.set("data_inlining_row_limit", 1)
    lake.create_table("t", {"id": pa.int64(), "a": pa.int32(), "b": pa.string()}, partition_by=["a", "b"])
    spark = quacklake.spark(lake, session)

    def held() -> dict[int, str]:
        rows = lake.table("t").to_pylist()
        return {row["id"]: f"{row['a']}{row['b']}" for row in rows}

    def rows(*given: tuple[int, int, str]) -> DataFrame:
        return session.createDataFrame(list(given), "id BIGINT, a INT, b STRING")

    spark.append("t", rows((1, 1, "x"), (2, 1, "y"), (3, 2, "x")))
    spark.overwrite("t", rows((4, 1, "y"), (5, 3, "x")), partition_overwrite_mode="dynamic")
    assert held() == {1: "1x", 3: "2x", 4: "1y", 5: "3x"}
    with settings(session, DYNAMIC):
        spark.sql("INSERT OVERWRITE t SELECT 6, 3, 'x'")  # few enough for the catalog
        assert held() == {1: "1x", 3: "2x", 4: "1y", 6: "3x"}
        done = spark.sql("INSERT OVERWRITE t PARTITION (a = 1, b) SELECT 7, 'y' UNION ALL SELECT 8, 'z'")
        assert done.collect()[0].num_inserted_rows == 2
        assert held() == {1: "1x", 3: "2x", 6: "3x", 7: "1y", 8: "1z"}
        spark.sql("INSERT OVERWRITE t PARTITION (a = 2, b = 'x') SELECT 9 WHERE false")
        assert held() == {1: "1x", 6: "3x", 7: "1y", 8: "1z"}, "what is named as a whole is replaced as a whole"
    spark.sql("INSERT OVERWRITE t PARTITION (a = 1, b) SELECT 10, 'x'")
    assert held() == {6: "3x", 10: "1x"}
    write = rows((11, 3, "x"), (12, 4, "x")).write.format("quacklake").mode("overwrite")
    write.option("partitionOverwriteMode", "dynamic").save("t")
    assert held() == {10: "1x", 11: "3x", 12: "4x"}
    with pytest.raises(InputError, match="both say"):
        spark.overwrite("t", rows((1, 1, "x")), where="a = 1", partition_overwrite_mode="dynamic")
    with pytest.raises(InputError, match="partition_overwrite_mode"):
        spark.overwrite("t", rows((1, 1, "x")), partition_overwrite_mode="dynamical")
    write.option("partitionOverwriteMode", "static").save("t")
    assert held() == {11: "3x", 12: "4x"}
    assert lake.verify(deep=True).findings == ()
