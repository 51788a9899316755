"""Convert between Spark's type objects and the types of rows and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import types as st

from quacklake.errors import InputError
from quacklake.format.schema import Column, TableSchema
from quacklake.format.types import parse_type
from quacklake.spark.runtime.types import stored_type

FIELD_ID = "parquet.field.id"
"""The metadata key of a field that becomes a Parquet field id."""

_ARROW: Mapping[type[st.DataType], pa.DataType] = {
    st.NullType: pa.null(),
    st.BooleanType: pa.bool_(),
    st.ByteType: pa.int8(),
    st.ShortType: pa.int16(),
    st.IntegerType: pa.int32(),
    st.LongType: pa.int64(),
    st.FloatType: pa.float32(),
    st.DoubleType: pa.float64(),
    st.DateType: pa.date32(),
    st.TimestampType: pa.timestamp("us", "UTC"),
    st.TimestampNTZType: pa.timestamp("us"),
    st.StringType: pa.string(),
    st.BinaryType: pa.binary(),
    # types of newer versions; Arrow has no variants: see with_variants
    **({st.TimeType: pa.time64("us")} if hasattr(st, "TimeType") else {}),
    **({st.VariantType: pa.string()} if hasattr(st, "VariantType") else {}),
}
_SPARK: Mapping[str, st.DataType] = {
    "BOOLEAN": st.BooleanType(),
    "TINYINT": st.ByteType(),
    "SMALLINT": st.ShortType(),
    "INT": st.IntegerType(),
    "BIGINT": st.LongType(),
    "FLOAT": st.FloatType(),
    "DOUBLE": st.DoubleType(),
    "DATE": st.DateType(),
    "TIMESTAMP_LTZ": st.TimestampType(),
    "TIMESTAMP_NTZ": st.TimestampNTZType(),
    "STRING": st.StringType(),
    "BINARY": st.BinaryType(),
    **({"TIME(6)": st.TimeType(6)} if hasattr(st, "TimeType") else {}),
    **({"VARIANT": st.VariantType()} if hasattr(st, "VariantType") else {}),
}


def arrow_schema(schema: st.StructType, *, required: bool) -> pa.Schema:
    """Return the Arrow schema of a DataFrame. With ``required``, columns that reject NULL are marked.

    Raises ``InputError`` for a type that a lake lacks.
    """
    fields = []
    for field in schema.fields:
        fields.append(pa.field(field.name, _arrow(field.dataType, field.name), field.nullable or not required))
    return pa.schema(fields)


def _arrow(type_: st.DataType, path: str) -> pa.DataType:
    if isinstance(type_, st.StructType):
        return pa.struct([pa.field(field.name, _arrow(field.dataType, f"{path}.{field.name}")) for field in type_])
    if isinstance(type_, st.ArrayType):
        return pa.list_(_arrow(type_.elementType, f"{path}.element"))
    if isinstance(type_, st.MapType):
        return pa.map_(_arrow(type_.keyType, f"{path}.key"), _arrow(type_.valueType, f"{path}.value"))
    if isinstance(type_, st.DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    found = next((arrow for spark, arrow in _ARROW.items() if isinstance(type_, spark)), None)
    if found is None:
        raise InputError(
            f'the column "{path}" has the type {type_.simpleString()}, which a lake has not', hint="cast it to another"
        )
    return found


def with_variants(columns: TableSchema, schema: st.StructType) -> TableSchema:
    """Return the columns of :func:`arrow_schema` with the variants that Arrow cannot express."""
    pairs = zip(columns.columns, schema.fields, strict=True)
    return TableSchema(tuple(_with_variants(column, field.dataType) for column, field in pairs))


def _with_variants(column: Column, type_: st.DataType) -> Column:
    if type_.typeName() == "variant":
        return replace(column, type="variant")
    if isinstance(type_, st.StructType):
        inner = [field.dataType for field in type_.fields]
    elif isinstance(type_, st.ArrayType):
        inner = [type_.elementType]
    elif isinstance(type_, st.MapType):
        inner = [type_.keyType, type_.valueType]
    else:
        return column
    pairs = zip(column.children, inner, strict=True)
    return replace(column, children=tuple(_with_variants(child, one) for child, one in pairs))


def file_type(column: Column) -> st.DataType:
    """Return the type of a column in a file, with the field ids of its fields. Lists and maps cannot hold any."""
    match column.type:
        case "struct":
            fields = [
                st.StructField(child.name, file_type(child), True, {FIELD_ID: child.id}) for child in column.children
            ]
            return st.StructType(fields)
        case "list":
            return st.ArrayType(file_type(column.children[0]), True)
        case "map":
            return st.MapType(file_type(column.children[0]), file_type(column.children[1]), True)
    name = parse_type(column.type)
    if name.base == "decimal":
        return st.DecimalType(name.precision or 0, name.scale or 0)
    text = stored_type(column)
    return st.DecimalType(20, 0) if text == "DECIMAL(20,0)" else _SPARK[text]
