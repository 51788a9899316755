"""Spark SQL over a lake: names of the lake become DataFrames, and changes go through the lake."""

from quacklake.spark.sql.dispatch import run

__all__ = ["run"]
