"""The primary key of a table: a merge key that is kept as a tag, which clients that do not know it pass over."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from quacklake.errors import CatalogError, InputError
from quacklake.format.schema import TableSchema

PRIMARY_KEY = "quacklake_primary_key"
"""The tag; its value is the field ids of the columns as a JSON list, so that renaming a column does not matter."""

_NO_KEYS = ("list", "map", "struct", "variant", "geometry")


def key_tag(schema: TableSchema, names: Sequence[str]) -> str:
    """Return the value of the tag for these columns. Raises ``InputError`` for columns that cannot be a key."""
    columns = [schema.find(name) for name in names]
    if not columns or len({column.id for column in columns}) != len(columns):
        raise InputError("a primary key needs columns, each once")
    for column in columns:
        if column.type in _NO_KEYS:
            raise InputError(f'the column "{column.name}" of type {column.type} cannot be part of a primary key')
    return json.dumps([column.id for column in columns])


def with_required(schema: TableSchema, names: Sequence[str]) -> TableSchema:
    """Return the schema with columns that take no NULL."""
    ids = {schema.find(name).id for name in names}
    return TableSchema(
        tuple(replace(column, nullable=column.nullable and column.id not in ids) for column in schema.columns)
    )


def key_columns(schema: TableSchema, value: str | None) -> tuple[str, ...]:
    """Return the names of the columns of a key; none without a tag, or when a column is gone."""
    if value is None:
        return ()
    try:
        ids = [int(id_) for id_ in json.loads(value)]
    except (ValueError, TypeError):
        raise CatalogError(f"the primary key of a table is kept as {value!r}, which is no list of field ids") from None
    names = {column.id: column.name for column in schema.columns}
    return tuple(names[id_] for id_ in ids) if all(id_ in names for id_ in ids) else ()
