"""The user decides what TIMESTAMP means in a session; instants of the lake stay instants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import quacklake
from quacklake.spark.runtime.session import settings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_LOCAL = {"spark.sql.timestampType": "TIMESTAMP_NTZ"}


@pytest.mark.needs_spark("4.0")
def test_a_filter_on_instants_means_the_same_whatever_timestamp_means(tmp_path: Path, session: SparkSession) -> None:
    lake = quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data"), data_inlining_row_limit=0
    )
    lake.sql("CREATE TABLE t AS SELECT i, TIMESTAMPTZ '2024-01-01 00:00:00+00' + to_hours(i) AS tz FROM range(24) r(i)")
    lake.table("t").add_column("later", "TIMESTAMPTZ", default="2024-01-01 00:00:00+00")
    where = "tz >= TIMESTAMPTZ '2024-01-01 20:00:00+00' AND tz < '2024-01-01 22:00:00+00' AND later < tz"
    with settings(session, _LOCAL):
        spark = quacklake.spark(lake, session)
        assert dict(spark.table("t").dtypes)["tz"] == "timestamp"
        assert [row.i for row in spark.table("t", where=where).collect()] == [20, 21]
        assert (
            spark.sql(
                "SELECT max(i) FROM t WHERE tz < ?", [lake.sql("SELECT max(tz) FROM t").fetchall()[0][0]]
            ).first()[0]
            == 22
        )
        assert dict(spark.table("t").select("later").dtypes) == {"later": "timestamp"}
        assert spark.delete("t", where).rows_deleted == 2
        assert (
            spark.sql(
                "SELECT count(*) FROM t.changes WHERE _commit_timestamp > TIMESTAMP_LTZ '2024-01-01 00:00:00Z'"
            ).first()[0]
            == 26
        )
    assert lake.table("t").count() == 22
