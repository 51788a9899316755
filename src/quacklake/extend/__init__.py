"""The extension API: all that a package outside of the core needs to read and write lakes with an engine of its own.

========================  ============================================================================================
``extend.reads``          a table at one snapshot as a plan: data files, deleted positions, rows of the catalog
``extend.schemas``        columns with their ids, and rows of files of any age in the columns of today
``extend.files``          data files that an engine writes: names, partitions, statistics, clean-up
``extend.writes``         work in one commit, again after a conflict, once for a key
``extend.checkpoints``    batches that are in a lake once, checkpoints, and definitions of streams
``extend.marks``          jobs, consumers and keys of requests that a lake remembers
``extend.history``        what each snapshot has of a table: its columns, files and options
``extend.inputs``         input of people: rows and files of any kind, addresses of lakes, and times
``extend.adopting``       tables of other formats whose files a lake adopts
``extend.names``          names of tables and columns: checked, compared, and written into SQL
``extend.sql``            sessions, statements and queries: taken apart, checked and run
``extend.predicates``     filters over bounds: which files may match
``extend.plans``          plans of scans and of changes, as data
``extend.partitions``     whole partitions that new rows replace
``extend.streams``        a table as the source of a stream: positions, and the rows between them
``extend.stores``         files wherever they are, and files that appear whole or not at all
``extend.backups``        backups of lakes in a place: made, listed, removed and read
``extend.duckdbs``        DuckDB beside the lake, the same on every version
``extend.display``        rows shown to people: in a terminal, in a notebook, and as Python values
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
        adopting,
        backups,
        checkpoints,
        display,
        duckdbs,
        files,
        history,
        inputs,
        marks,
        names,
        partitions,
        plans,
        predicates,
        reads,
        reporting,
        schemas,
        sql,
        stores,
        streams,
        writes,
    )

__all__ = [
    "adopting",
    "backups",
    "checkpoints",
    "display",
    "duckdbs",
    "files",
    "history",
    "inputs",
    "marks",
    "names",
    "partitions",
    "plans",
    "predicates",
    "reads",
    "reporting",
    "schemas",
    "sql",
    "stores",
    "streams",
    "writes",
]


def __getattr__(name: str) -> ModuleType:
    """Load a module when it is first used: who needs names only, loads no engine."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
