"""SQL in Spark over a lake: names of the lake become DataFrames, changes of it go through the lake."""

from quacklake.sql.spark.dispatch import run

__all__ = ["run"]
