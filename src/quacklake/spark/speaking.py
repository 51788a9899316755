"""SQL of Spark where a lake is at hand."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SparkSpeaking"]


class SparkSpeaking:
    """Lets a lake in Spark run statements in the SQL of Spark."""

    def sql(self, text: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> DataFrame:
        """Run one statement in the SQL of Spark, over tables of the lake and of Spark; returns its rows.

        Tables of the lake are named ``table``, ``schema.table`` or ``lake.schema.table``, also at a past state
        (``table VERSION AS OF 3``); other names are Spark's. Changes of the lake are made at once, in one snapshot,
        and give their numbers as a row. ``params`` are values for ``?`` (a list) or ``:name`` (a dictionary).
        Raises ``SqlError``, ``NotFoundError``, or what the operation itself raises.
        """
        # the layer above: a lake is whole without it
        found: DataFrame = importlib.import_module("quacklake.spark.sql").run(self, text, params)
        return found
