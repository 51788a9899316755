"""The extension API: all that a package outside of the core needs to read and write lakes with an engine of its own.

========================  ============================================================================================
``extend.reads``          a table at one snapshot as a plan: data files, deleted positions, rows of the catalog
``extend.schemas``        columns with their ids, rows of files of any age in the columns of today, rows of Python
``extend.files``          data files that an engine writes: names, partitions, statistics, clean-up
``extend.writes``         work in one commit, again after a conflict, once for a key
``extend.names``          names of tables and columns: checked, compared, and written into SQL
``extend.stores``         files of a lake wherever they are
``extend.duckdbs``        DuckDB beside the lake, the same on every version
``extend.reporting``      progress and reports of long work, and the steps at which tests of crashes stop a process
``extend.history``        a table through time, for catalogs of other formats
``extend.marks``          small records in the metadata of a lake, which processes share
``extend.sql``            SQL taken apart, and sessions whose transactions other work joins
========================  ============================================================================================

Everything here works on the objects that users hold, such as ``Lake``, and raises the errors of ``quacklake.errors``.
The guide ``docs/extending.md`` builds a small engine with it.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quacklake.extend import duckdbs, files, history, marks, names, reads, reporting, schemas, sql, stores, writes

__all__ = ["duckdbs", "files", "history", "marks", "names", "reads", "reporting", "schemas", "sql", "stores", "writes"]


def __getattr__(name: str) -> ModuleType:
    """Load a module when it is first used: who needs names only, loads no engine."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
