"""A lake in Spark. The driver alone speaks to the catalog, executors read and write files.

Imports point down in this table. Names are loaded when they are first used, so that executors load only what they run.

====================  ==========================================================================
module                what it holds
====================  ==========================================================================
:mod:`.lake`          ``SparkLake``: tables as DataFrames, DataFrames into tables
:mod:`.sql`           its SQL
:mod:`.streaming`     its streams and pipelines
:mod:`.maintenance`   its maintenance
:mod:`.compaction`    the files of compactions
:mod:`.datasource`    ``format("quacklake")``
:mod:`.streams`       streams into a table and out of one
:mod:`.changes`       DELETE, UPDATE, MERGE and overwriting
:mod:`.expressions`   expressions of the lake in the SQL of Spark
:mod:`.write`         rows on their way into a table
:mod:`.read`          scan plans as DataFrames
:mod:`.runtime`       sessions, types, errors, jobs on executors
====================  ==========================================================================

The package is also what ``quacklake.spark(lake)`` calls: a module and a function of one name cannot stand side by side.
"""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        from quacklake.spark.lake import spark

        return spark(*args, **options)


sys.modules[__name__].__class__ = _Callable
