"""Columns that every table has without being told: which row it is, since when, and where it is stored.

A column of the table's own with one of these names hides it.
"""

from __future__ import annotations

from quacklake.format.names import fold
from quacklake.format.schema import Column, TableSchema

__all__ = ["VIRTUAL", "find", "get", "with_virtual"]

#: The virtual columns by name; their ids are no field's.
VIRTUAL = {
    column.name: column
    for column in (
        Column(-1, "rowid", "int64"),
        Column(-2, "snapshot_id", "int64"),
        Column(-3, "filename", "varchar"),
        Column(-4, "file_row_number", "int64"),
        Column(-5, "file_index", "uint64"),
    )
}


def get(schema: TableSchema, name: str) -> Column | None:
    """The virtual column of that name, or None when there is none or the table has a column of that name itself."""
    return VIRTUAL.get(fold(name)) if schema.get(name) is None else None


def find(schema: TableSchema, name: str) -> Column:
    """The column of that name, virtual ones among them. Raises ``InputError`` with the nearest names."""
    return get(schema, name) or schema.find(name)


def with_virtual(schema: TableSchema) -> TableSchema:
    """The columns a filter can speak of."""
    return TableSchema((*schema.columns, *(c for c in VIRTUAL.values() if schema.get(c.name) is None)))
