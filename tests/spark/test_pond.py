"""Series of a pond are tables for Spark, in both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import quacklake
from quacklake.core.materialized import registry as views
from quacklake.extend.names import TableRef
from quacklake.pond import Pond, reduces
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


def test_a_reduction_on_spark_has_the_numbers_of_duckdb(session: SparkSession) -> None:
    """Late readings change their buckets on either engine."""
    with Pond.memory() as pond:
        pond.run(["fill"], lambda fs: append_series(fs, "/dock.series", readings(200)))
        for engine in ("spark", "duckdb"):
            config: dict[str, Any] = {"in_pattern": "/dock.series", "resolutions": ["1h"], "engine": engine}
            config["aggregations"] = ["min", "max", "sum", "count"]
            pond.run(["reduce"], lambda fs, e=engine, c=config: fs.make_node(f"/{e}", "temporal-reduce", c))

        def hours(engine: str) -> list[dict[str, object]]:
            with rows(pond, f"/{engine}/dock/res=1h.series") as found:
                return list(found.read_all().to_pylist())

        assert len(hours("spark")) == 4
        assert hours("spark") == hours("duckdb")
        pond.run(["late"], lambda fs: append_series(fs, "/dock.series", readings(1, 5000)))
        assert len(hours("spark")) == 5
        assert hours("spark") == hours("duckdb")


def test_a_reduction_that_asks_for_spark_runs_there(session: SparkSession) -> None:
    with Pond.memory() as pond:
        pond.run(["fill"], lambda fs: append_series(fs, "/dock.series", readings(200)))
        config = {"in_pattern": "/dock.series", "resolutions": ["1h"], "engine": "spark"}
        pond.run(["reduce"], lambda fs: fs.make_node("/r", "temporal-reduce", config))
        with rows(pond, "/r/dock/res=1h.series") as found:
            assert found.read_all().num_rows == 4
        known = next(reduces.reduced_nodes(pond.fs()))
        options = reduces.options_of(known)
        assert options is not None
        kept = reduces.kept(pond.fs(), options)
        assert kept is not None
        context = pond.lake.handle.context
        view = views.find(context, context.latest(), TableRef(reduces.SCHEMA, kept.view))
        assert view is not None
        assert view.position is not None
        assert view.position.stale is None
        pond.run(["late"], lambda fs: append_series(fs, "/dock.series", readings(1, 5000)))
        assert pond.lake.refresh(kept.table).engine == "spark"
