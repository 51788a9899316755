"""A lake in Spark. The driver alone speaks to the catalog, executors read and write files.

Imports point down in this table. Names are loaded when they are first used, so that executors load only what they run.

=====================  ==========================================================================
module                 what it holds
=====================  ==========================================================================
:mod:`.lake`           ``SparkLake``: tables as DataFrames, DataFrames into tables
:mod:`.streaming`      its streams and pipelines
:mod:`.upkeep`         its maintenance
:mod:`.speaking`       its SQL
:mod:`.compaction`     the files of compactions
:mod:`.datasource`     ``format("quacklake")``
:mod:`.streams`        streams into a table and out of one
:mod:`.dml`            DELETE, UPDATE, MERGE and overwriting
:mod:`.expressions`    expressions of the lake in the SQL of Spark
:mod:`.writing`        rows on their way into a table
:mod:`.task_writing`   files that DuckDB writes on the executors
:mod:`.slices`         parts of tables and feeds that DuckDB reads on the executors
:mod:`.feed_names`     what the columns of a change feed are called
=====================  ==========================================================================
"""

from typing import TYPE_CHECKING

from quacklake.lazy import lazily

if TYPE_CHECKING:
    from quacklake.lake.spark.lake import SparkLake, spark, spark_settings
else:
    __getattr__ = lazily(__name__, {"quacklake.lake.spark.lake": "SparkLake spark spark_settings"})

__all__ = ["SparkLake", "spark", "spark_settings"]
