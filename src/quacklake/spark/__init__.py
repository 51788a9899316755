"""A lake in Spark. Only the driver uses the catalog; executors read and write files.

``lake`` has ``SparkLake``; ``maintenance`` is its upkeep; ``sql`` is Spark SQL over lakes; ``datasource`` is
``format("quacklake")``. Below them are ``streams``, ``changes`` (DELETE, UPDATE, MERGE and overwriting),
``expressions`` of the lake as Spark SQL, ``write``, ``read``, and ``runtime``: sessions and types. Names are loaded on
first use, so that executors load only what they run.

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
