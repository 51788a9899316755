"""Series of a pond are tables for Spark, in both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import quacklake
from quacklake.pond import Pond
from quacklake.pond.queries import rows
from quacklake.pond.series import append_series
from tests.pond.conftest import readings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_reads_a_series_and_its_rows_come_back(session: SparkSession) -> None:
    with Pond.memory() as pond:
        pond.run(["fill"], lambda fs: append_series(fs, "/dock.series", readings(50)))
        frame = quacklake.spark(pond.lake, session).table('pond_data."/dock.series"')
        found = frame.selectExpr("count(*) AS n", "max(temp) AS m", "unix_timestamp(min(timestamp)) AS t").collect()
        assert [tuple(row) for row in found] == [(50, 49.0, 1704067200)]
        warm = frame.where("temp >= 45").selectExpr("timestamp", "temp * 2 AS temp").toArrow()
        pond.run(["spark"], lambda fs: append_series(fs, "/warm.series", warm))
        with rows(pond, "/warm.series", "SELECT count(*) AS n, min(temp) AS t FROM series") as result:
            assert result.read_all().to_pylist() == [{"n": 5, "t": 90.0}]
