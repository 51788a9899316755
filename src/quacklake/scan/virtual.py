"""Columns that every table has without declaring them: the id of a row, its snapshot, and where it is stored.

A column of the table with one of these names hides the virtual one.
"""

from __future__ import annotations

from quacklake.format.names import fold
from quacklake.format.schema import Column, TableSchema

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
    """Return the virtual column of that name; None when there is none or a column of the table hides it."""
    return VIRTUAL.get(fold(name)) if schema.get(name) is None else None


def find(schema: TableSchema, name: str) -> Column:
    """Return the column of that name, virtual ones among them. Raise ``InputError`` with the nearest names."""
    return get(schema, name) or schema.find(name)


def with_virtual(schema: TableSchema) -> TableSchema:
    """Return the columns a filter can speak of."""
    return TableSchema((*schema.columns, *(c for c in VIRTUAL.values() if schema.get(c.name) is None)))
