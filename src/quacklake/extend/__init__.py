"""The extension API: all that a package outside of the core needs to read and write lakes with an engine of its own.

======================  ==============================================================================================
``extend.reads``        a table at one snapshot as a plan: data files, deleted positions, rows of the catalog
``extend.schemas``      columns with their ids, and rows of files of any age in the columns of today
``extend.files``        data files that an engine writes: names, partitions, statistics, clean-up
``extend.writes``       work in one commit, again after a conflict, once for a key
======================  ==============================================================================================

Everything here works on the objects that users hold, such as ``Lake``, and raises the errors of ``quacklake.errors``.
The guide ``docs/extending.md`` builds a small engine with it.
"""

from quacklake.extend import files, reads, schemas, writes

__all__ = ["files", "reads", "schemas", "writes"]
