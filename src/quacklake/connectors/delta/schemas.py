"""Rows in the columns of a Delta table, which may get new ones."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError

from quacklake.connectors.delta.tables import arrow_schema, plain
from quacklake.connectors.evolution import holds
from quacklake.errors import SchemaMismatchError

_ATTEMPTS = 5


def delta_schema(schema: pa.Schema) -> Schema:
    """Return the Delta form of a schema. Raise ``SchemaMismatchError`` for a type that Delta does not have."""
    for field in schema:
        try:
            kept = plain(pa.schema(Schema.from_arrow(pa.schema([field])).to_arrow())).field(0).type
        except Exception as error:  # the library has no class for it
            reason = str(error).partition("\n")[0]
            raise SchemaMismatchError(f'Delta cannot keep the column "{field.name}": {reason}') from error
        if not kept.equals(field.type):
            raise SchemaMismatchError(f'Delta cannot keep the column "{field.name}": it has no type {field.type}')
    return Schema.from_arrow(schema)


def fitted(table: DeltaTable, schema: pa.Schema, *, evolve: bool) -> pa.Schema:
    """Return the schema in which rows are written: with ``evolve``, new columns are added to the table.

    Raise ``SchemaMismatchError`` for rows that the table cannot take.
    """
    for attempt in range(_ATTEMPTS):
        there = {field.name: field for field in arrow_schema(table)}
        new = [field.with_nullable(True) for field in schema if field.name not in there]
        for field in schema:
            _check(field, there.get(field.name), evolve=evolve)
        if not new:
            break
        try:
            table.alter.add_columns(delta_schema(pa.schema(new)).fields)
        except CommitFailedError:  # another writer changed the table, perhaps in the same way
            if attempt == _ATTEMPTS - 1:
                raise
        table.update_incremental()
    lacking = [field.name for field in there.values() if not field.nullable and field.name not in schema.names]
    if lacking:
        raise SchemaMismatchError(f'the rows lack the column "{lacking[0]}", which the Delta table requires')
    return pa.schema([there.get(field.name, field) for field in schema])


def _check(field: pa.Field, there: pa.Field | None, *, evolve: bool) -> None:
    given = f'a column "{field.name}" of the type {field.type}'
    if there is None and not evolve:
        hint = "Set schema_evolution=true to add it."
        raise SchemaMismatchError(f"the rows have {given}, the Delta table has no such column", hint=hint)
    if there is not None and there.type != field.type and not (evolve and holds(there.type, field.type)):
        raise SchemaMismatchError(
            f"the rows have {given}, the Delta table has the type {there.type}",
            hint="a column of a Delta table cannot be widened" if evolve else None,
        )
