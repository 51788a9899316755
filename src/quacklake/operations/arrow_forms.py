"""Convert Arrow types that DuckDB cannot read to the nearest type that it can; no value changes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.errors import SchemaMismatchError

_PRECISION = 38


def readable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with types that DuckDB can read; unchanged if it reads all. Raises ``SchemaMismatchError``."""
    fields = [field.with_type(_type(field.type, field.name)) for field in schema]
    return schema if fields == list(schema) else pa.schema(fields, schema.metadata)


def readable(rows: Any, schema: pa.Schema) -> Any:
    """Convert a table or batch to a schema of ``readable_schema``. Raises ``SchemaMismatchError``."""
    if rows.schema.types == schema.types:
        return rows
    columns = [_array(column, field) for column, field in zip(rows.columns, schema, strict=True)]
    return type(rows).from_arrays(columns, schema=schema)


def _type(arrow: pa.DataType, name: str) -> pa.DataType:
    if pa.types.is_float16(arrow):
        return pa.float32()
    if pa.types.is_decimal(arrow) and not 0 <= arrow.scale <= arrow.precision:
        raise SchemaMismatchError(
            f'the column "{name}" is {arrow}, which DuckLake does not have', hint="its scale is 0 to its precision"
        )
    if pa.types.is_decimal256(arrow) and arrow.precision <= _PRECISION:
        return pa.decimal128(arrow.precision, arrow.scale)
    if isinstance(arrow, pa.DictionaryType | pa.RunEndEncodedType):
        inner = _type(arrow.value_type, name)
        return inner if inner != arrow.value_type or pa.types.is_nested(inner) else arrow
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        make = pa.large_list if pa.types.is_large_list(arrow) else pa.list_
        return make(_field(arrow.value_field, name))
    if pa.types.is_map(arrow):
        return pa.map_(_field(arrow.key_field, name), _field(arrow.item_field, name), arrow.keys_sorted)
    return pa.struct([_field(field, name) for field in arrow]) if pa.types.is_struct(arrow) else arrow


def _field(field: pa.Field, name: str) -> pa.Field:
    return field.with_type(_type(field.type, name))


def _array(array: Any, field: pa.Field) -> Any:
    wanted = field.type
    if array.type == wanted:
        return array
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([_array(chunk, field) for chunk in array.chunks], wanted)
    if isinstance(array.type, pa.DictionaryType):
        return _array(array.dictionary_decode(), field)
    if isinstance(array.type, pa.RunEndEncodedType):
        return _array(pc.run_end_decode(array), field)
    try:
        return array.cast(wanted)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise SchemaMismatchError(
            f'the column "{field.name}" is {array.type}, which cannot be stored', hint=f"cast it to {wanted} first"
        ) from None
