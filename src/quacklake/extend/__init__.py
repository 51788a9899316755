"""The extension API: all that a package outside of the core needs to read and write lakes with an engine of its own.

========================  ============================================================================================
``extend.reads``          a table at one snapshot as a plan: data files, deleted positions, rows of the catalog
``extend.plans``          plans as the core makes them, for engines that run a whole one at once
``extend.predicates``     what a filter says about the columns of files, to leave files out
``extend.schemas``        tables, columns with their ids, and rows of files of any age in the columns of today
``extend.files``          data files that an engine writes: names, partitions, statistics, clean-up
``extend.writes``         work in one commit, again after a conflict, once for a key
``extend.partitions``     whole partitions that new rows replace
``extend.streams``        a table as the source of a stream: positions, and the rows between them
``extend.names``          names of tables and columns: checked, compared, and written into SQL
``extend.stores``         files of a lake wherever they are
``extend.duckdbs``        DuckDB beside the lake, the same on every version
``extend.reporting``      progress of long work, and the steps at which tests of crashes stop a process
========================  ============================================================================================

Everything here works on the objects that users hold, such as ``Lake``, and raises the errors of ``quacklake.errors``.
The guide ``docs/extending.md`` builds a small engine with it.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quacklake.extend import (
        duckdbs,
        files,
        names,
        partitions,
        plans,
        predicates,
        reads,
        reporting,
        schemas,
        stores,
        streams,
        writes,
    )

__all__ = [
    "duckdbs",
    "files",
    "names",
    "partitions",
    "plans",
    "predicates",
    "reads",
    "reporting",
    "schemas",
    "stores",
    "streams",
    "writes",
]


def __getattr__(name: str) -> ModuleType:
    """Load a module when it is first used: who needs names only, loads no engine."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
