"""The versions of the format: their names, and the parts that 1.1 adds to 1.0.

A lake in development of 1.1 (``1.1-dev1``) may lack any of these parts, whatever its version says. So the database is
asked for them when the lake is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

VERSION = "1.0"
"""The version of a new lake, unless another is asked for."""
NEXT = "1.1"
DEVELOPMENT = "1.1-dev1"
"""The extension's name for 1.1 before its release."""

WRITABLE_VERSIONS = (VERSION, NEXT, DEVELOPMENT)
READABLE_VERSIONS = ("0.1", "0.2", "0.3-dev1", "0.3", "0.4-dev1", "0.4", *WRITABLE_VERSIONS)

Part = tuple[str, str | None]
"""A column of a table, or the whole table."""

#: The columns that 1.1 adds, always last: stock DuckLake inserts by position.
ADDED_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "schema": "parent_schema_id:id",
        "data_file": "row_group_count:id",
        "delete_file": "row_group_count:id",
        "file_column_stats": "min_is_exact:flag max_is_exact:flag",
        "table_column_stats": "min_is_exact:flag max_is_exact:flag",
    }
)
ADDED_TABLES: Mapping[str, str] = MappingProxyType(
    {
        "view_column_tag": "view_id:id column_name:text begin_snapshot:id end_snapshot:id key:text value:text",
    }
)
#: All of it.
PARTS: frozenset[Part] = frozenset(
    [(table, column.split(":")[0]) for table, columns in ADDED_COLUMNS.items() for column in columns.split()]
    + [(table, None) for table in ADDED_TABLES]
)


def has_next(version: str) -> bool:
    """Return true for 1.1, also before its release.

    >>> [has_next(version) for version in ("0.4", "1.0", "1.1-dev1", "1.1")]
    [False, False, True, True]
    """
    return version.split("-")[0] == NEXT
