"""A lake in Spark. Only the driver uses the catalog; executors read and write files.

Imports point down in this table. Names are loaded on first use, so that executors load only what they run.

====================  ==========================================================================
module                contents
====================  ==========================================================================
:mod:`.lake`          ``SparkLake``: tables as DataFrames, DataFrames into tables
:mod:`.sql`           Spark SQL over lakes
:mod:`.streaming`     the stream and pipeline methods of ``SparkLake``
:mod:`.maintenance`   maintenance with Spark
:mod:`.datasource`    ``format("quacklake")``
:mod:`.streams`       streams into a table and out of one
:mod:`.changes`       DELETE, UPDATE, MERGE and overwriting
:mod:`.expressions`   expressions of the lake as Spark SQL
:mod:`.write`         DataFrames as files of a table
:mod:`.read`          scan plans as DataFrames
:mod:`.runtime`       sessions, types, errors, jobs on executors
====================  ==========================================================================

The package itself can be called, as ``quacklake.spark(lake)``: a module and a function cannot share one name.
"""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        from quacklake.spark.lake import spark

        return spark(*args, **options)


sys.modules[__name__].__class__ = _Callable
