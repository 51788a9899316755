"""The types that Hudi keeps, which are those of Avro."""

from __future__ import annotations

import pyarrow as pa

from quacklake.errors import SchemaMismatchError

_WIDER = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}
_KEPT = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_decimal128,
    pa.types.is_nested,
)


def hudi_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema as Hudi keeps it. Raise ``SchemaMismatchError`` for a type that it does not have."""
    return pa.schema([pa.field(field.name, hudi_type(field.name, field.type)) for field in schema])


def hudi_type(name: str, kind: pa.DataType) -> pa.DataType:
    """Return the type in which Hudi keeps the values of a column."""
    if pa.types.is_dictionary(kind):
        return hudi_type(name, kind.value_type)
    if pa.types.is_timestamp(kind) and kind.tz:
        return pa.timestamp("us", "UTC")
    found = _WIDER.get(kind, kind)
    if not any(test(found) for test in _KEPT):
        hint = "Give it a time zone." if pa.types.is_timestamp(kind) else "Cast it to another type."
        raise SchemaMismatchError(f'Hudi cannot keep the column "{name}" of the type {kind}', hint=hint)
    return found


def check_fit(rows: pa.Schema, table: pa.Schema) -> None:
    """Check that rows have the columns of a table, with their types. Raise ``SchemaMismatchError``."""
    for field in rows:
        place = table.get_field_index(field.name)
        there = None if place < 0 else hudi_type(field.name, table.field(place).type)
        if there is None or (there != field.type and not pa.types.is_nested(there)):
            kind = "no such column" if there is None else f"the type {there}"
            raise SchemaMismatchError(
                f'the rows have a column "{field.name}" of the type {field.type}, the Hudi table has {kind}'
            )
    missing = next((name for name in table.names if name not in rows.names), None)
    if missing is not None:
        raise SchemaMismatchError(f'the rows lack the column "{missing}" of the Hudi table')
