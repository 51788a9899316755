"""Schemas of Arrow in the form of Iceberg, and rows in the columns of a table that may get new ones."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, ResolveError, ValidationError
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids, schema_to_pyarrow
from pyiceberg.schema import Schema, assign_fresh_schema_ids, promote
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, NestedField

from quacklake.errors import SchemaMismatchError

_ATTEMPTS = 5


def with_ids(schema: pa.Schema) -> Schema:
    """Return the Iceberg form of a schema, with numbers for its columns. Raise ``SchemaMismatchError``."""
    try:
        return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema, downcast_ns_timestamp_to_us=True))
    except (TypeError, ValueError) as error:
        raise SchemaMismatchError(f"Iceberg cannot keep the rows: {error}") from error


def fit(table: Table, schema: pa.Schema, *, evolve: bool) -> None:
    """Check that a table takes rows: with ``evolve``, it gets new columns and wider types.

    Raise ``SchemaMismatchError`` for rows that the table cannot take.
    """
    for attempt in range(_ATTEMPTS):
        there = {field.name: field for field in table.schema().fields}
        given = with_ids(schema)
        changes = [_is_change(field, there.get(field.name), evolve=evolve) for field in given.fields]
        if not any(changes):
            break
        try:
            with table.update_schema() as update:
                update.union_by_name(with_ids(pa.schema([field.with_nullable(True) for field in schema])))
        except CommitFailedException:  # another writer changed the table, perhaps in the same way
            if attempt == _ATTEMPTS - 1:
                raise
        except (ResolveError, ValidationError) as error:
            raise SchemaMismatchError(f"the Iceberg table cannot take the rows: {error}") from error
        table.refresh()
    lacking = [field.name for field in there.values() if field.required and field.name not in schema.names]
    if lacking:
        raise SchemaMismatchError(f'the rows lack the column "{lacking[0]}", which the Iceberg table requires')


def _is_change(field: NestedField, there: NestedField | None, *, evolve: bool) -> bool:
    """Return whether a column of rows asks for a change of the table. Raise ``SchemaMismatchError``."""
    if there is None and evolve:
        return True
    if there is not None and _same(there.field_type, field.field_type):
        return False
    if there is not None and evolve:
        if _can_hold(there.field_type, field.field_type):
            return False
        if _can_hold(field.field_type, there.field_type) or not field.field_type.is_primitive:
            return True
    kind = "no such column" if there is None else f"the type {there.field_type}"
    raise SchemaMismatchError(
        f'the rows have a column "{field.name}" of the type {field.field_type}, the Iceberg table has {kind}',
        hint="set schema_evolution=true to add it" if there is None else None,
    )


def is_same_schema(first: Schema, second: Schema) -> bool:
    """Return whether schemas are the same but for the numbers of their fields."""
    return _same(first.as_struct(), second.as_struct())


def _same(first: IcebergType, second: IcebergType) -> bool:
    """Return whether types are the same but for the numbers of their fields."""
    return first == second or bool(
        schema_to_pyarrow(first, include_field_ids=False) == schema_to_pyarrow(second, include_field_ids=False)
    )


def _can_hold(wide: IcebergType, narrow: IcebergType) -> bool:
    try:
        promote(narrow, wide)
    except ResolveError:
        return False
    return True
