"""Small tables of the driver as DataFrames, such as inlined rows, and types between Spark and Arrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from quacklake.core.scan.inlined_rows import check_readable
from quacklake.core.scan.plan import column_key
from quacklake.errors import InputError
from quacklake.extend.duckdbs import arrow_table, connect
from quacklake.extend.names import quote as lake_quote
from quacklake.extend.schemas import Column, TableSchema, parse_type
from quacklake.spark.runtime.session import new_client
from quacklake.spark.runtime.types import quote, retyped, shown, stored_type

#: Types that Arrow cannot hold, or that Spark does not take from it, are carried as text.
_AS_TEXT = ("interval", "timetz", "uint128", "variant")
_CARRIED: Mapping[str, tuple[str, pa.DataType]] = {
    **dict.fromkeys((*_AS_TEXT, "uuid", "time_ns"), ("varchar", pa.string())),
    "uint8": ("int16", pa.int16()),
    "uint16": ("int32", pa.int32()),
    "uint32": ("int64", pa.int64()),
    "uint64": ("decimal(20,0)", pa.decimal128(20, 0)),
    "int128": ("decimal(38,0)", pa.decimal128(38, 0)),
    # Spark takes times without a zone from Arrow as instants
    **dict.fromkeys(("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "time"), ("int64", pa.int64())),
}
_MICROS = ("timestamp", "timestamp_s", "timestamp_ms")
_VARIANT = (
    pa.field("value", pa.binary(), nullable=False),
    pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
)
"""The Arrow fields from which Spark reads a variant."""


def to_frame(session: SparkSession, table: pa.Table) -> DataFrame:
    """Return an Arrow table as a DataFrame, with few values in the plan itself."""
    if new_client():
        return session.createDataFrame(table)
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = [[_plain(value, column.type) for value in column.to_pylist()] for column in table.columns]
    return session.createDataFrame(list(zip(*columns, strict=True)), from_arrow_schema(table.schema))


def _plain(value: Any, type_: pa.DataType) -> Any:
    """Convert a value to the form that PySpark accepts. Arrow returns maps as lists of pairs."""
    if value is None:
        return None
    if pa.types.is_map(type_):
        return {_plain(key, type_.key_type): _plain(one, type_.item_type) for key, one in value}
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [_plain(one, type_.value_type) for one in value]
    if pa.types.is_struct(type_):
        return {field.name: _plain(value[field.name], field.type) for field in type_}
    return value


def inlined_columns(columns: Sequence[Column]) -> list[Column]:
    """Return the columns of inlined rows as Spark gets them."""
    return [retyped(column, lambda type_: _CARRIED.get(parse_type(type_).base, (type_,))[0]) for column in columns]


def shown_columns(columns: Sequence[Column], *, time: bool) -> list[str]:
    """Return the SQL that turns columns in transport form into those that users see."""
    stored = zip(columns, inlined_columns(columns), strict=True)
    return [
        f"{shown(column_key(column), carrier, column, time=time)} AS {quote(column.name)}" for column, carrier in stored
    ]


def inlined_rows(
    session: SparkSession, rows: pa.Table, columns: Sequence[Column], *, meta: Sequence[str] = ()
) -> DataFrame:
    """Return inlined rows in the types of :func:`inlined_columns`, and ``meta`` columns of numbers as they are."""
    return to_frame(session, carried(rows, columns, meta=meta))


def carried(rows: pa.Table, columns: Sequence[Column], *, meta: Sequence[str] = ()) -> pa.Table:
    """Return rows under the names ``c<id>`` in Arrow types that Spark takes: those of :func:`inlined_columns`."""
    check_readable(rows, columns)
    keys = [column_key(column) for column in columns]
    beside = rows.select(list(meta))
    rows = rows.select(keys)
    rows = _with_texts(rows, columns, (*_AS_TEXT, "time_ns"))
    made = rows.cast(_arrow_schema(columns, partial(_arrow, units=True))).cast(_arrow_schema(columns, _arrow))
    for name in meta:
        made = made.append_column(name, beside.column(name).cast(pa.int64()))
    return made


def shown_rows(rows: pa.Table, columns: Sequence[Column], *, time: bool) -> pa.Table:
    """Return rows under the names ``c<id>`` in the Arrow types that Spark shows. ``time`` says whether it has TIME."""
    if not time:
        rows = _with_texts(rows, columns, ("time",))
        columns = [retyped(column, lambda type_: "varchar" if type_ == "time" else type_) for column in columns]
    found = carried(rows, columns)
    for nanos in (False, True):  # Arrow converts numbers to times of the same unit only
        found = found.cast(_arrow_schema(columns, partial(_show_type, nanos=nanos)))
    for index, column in enumerate(columns):
        if column.type == "variant":
            texts = found.column(index)
            values = [st.VariantVal.parseJson("null" if text is None else text) for text in texts.to_pylist()]
            parts = [
                pa.array([bytes(getattr(value, field.name)) for value in values], field.type) for field in _VARIANT
            ]
            mask = texts.is_null().combine_chunks()
            variants = pa.StructArray.from_arrays(parts, fields=list(_VARIANT), mask=mask)
            found = found.set_column(index, pa.field(column_key(column), variants.type), variants)
    return found


def _show_type(column: Column, *, nanos: bool) -> pa.DataType:
    """Return the Arrow type in which Spark shows a value that is not nested."""
    match column.type:
        case "time":
            return pa.time64("ns" if nanos else "us")
        case "int128" | "uint128":
            return pa.float64()
        case _:
            return pa.timestamp("us") if column.type in _MICROS else _arrow(column)


def _with_texts(rows: pa.Table, columns: Sequence[Column], texts: Sequence[str]) -> pa.Table:
    """Return the rows with the values of some types as text, at every depth."""
    hard = [column for column in columns if any(leaf.type in texts for leaf in column.leaves())]
    if not hard:
        return rows
    keys = [(column, column_key(column)) for column in columns]
    select = [f"CAST({key} AS {_duckdb(one, texts)}) AS {key}" if one in hard else key for one, key in keys]
    with connect(config={"threads": 1, "autoload_known_extensions": False}) as connection:
        connection.register("rows", rows)
        return arrow_table(connection, f"SELECT {', '.join(select)} FROM rows")


def _duckdb(column: Column, texts: Sequence[str]) -> str:
    inner = [_duckdb(child, texts) for child in column.children]
    match column.type:
        case "list":
            return f"{inner[0]}[]"
        case "map":
            return f"MAP({inner[0]}, {inner[1]})"
        case "struct":
            fields = zip(column.children, inner, strict=True)
            return "STRUCT(" + ", ".join(f"{lake_quote(child.name)} {type_}" for child, type_ in fields) + ")"
        case _:
            return "VARCHAR" if column.type in texts else column.duckdb_type()


def _arrow(column: Column, *, units: bool = False) -> pa.DataType:
    """Return the Arrow type that Spark gets. With ``units``, times stay times, of microseconds where possible."""
    base = parse_type(column.type).base
    if units and base in _MICROS:
        return pa.timestamp("us")
    if (units and base in ("timestamp_ns", "time")) or base not in _CARRIED:
        return column.arrow_type()
    return _CARRIED[base][1]


def _arrow_schema(columns: Sequence[Column], leaf: Callable[[Column], pa.DataType]) -> pa.Schema:
    """Return the schema of columns under the names ``c<id>``, with a type for each value that is not nested."""

    def type_of(column: Column) -> pa.DataType:
        match column.type:
            case "list":
                return pa.list_(type_of(column.children[0]))
            case "map":
                return pa.map_(*map(type_of, column.children))
            case "struct":
                return pa.struct([(child.name, type_of(child)) for child in column.children])
        return leaf(column)

    return pa.schema([(column_key(column), type_of(column)) for column in columns])


FIELD_ID = "parquet.field.id"  # the metadata key of a field that becomes a Parquet field id

#: Types of Spark by name, with those of Arrow. Arrow has no variants: see :func:`with_variants`.
_TYPES: Sequence[tuple[str, st.DataType, pa.DataType]] = (
    ("VOID", st.NullType(), pa.null()),
    ("BOOLEAN", st.BooleanType(), pa.bool_()),
    ("TINYINT", st.ByteType(), pa.int8()),
    ("SMALLINT", st.ShortType(), pa.int16()),
    ("INT", st.IntegerType(), pa.int32()),
    ("BIGINT", st.LongType(), pa.int64()),
    ("FLOAT", st.FloatType(), pa.float32()),
    ("DOUBLE", st.DoubleType(), pa.float64()),
    ("DATE", st.DateType(), pa.date32()),
    ("TIMESTAMP_LTZ", st.TimestampType(), pa.timestamp("us", "UTC")),
    ("TIMESTAMP_NTZ", st.TimestampNTZType(), pa.timestamp("us")),
    ("STRING", st.StringType(), pa.string()),
    ("BINARY", st.BinaryType(), pa.binary()),
    # types of newer versions
    *([("TIME(6)", st.TimeType(6), pa.time64("us"))] if hasattr(st, "TimeType") else []),
    *([("VARIANT", st.VariantType(), pa.string())] if hasattr(st, "VariantType") else []),
)


def arrow_schema(schema: st.StructType, *, required: bool) -> pa.Schema:
    """Return an Arrow schema, with ``required`` also NOT NULL. Raise ``InputError`` for a type that lakes lack."""
    return pa.schema(
        pa.field(field.name, _arrow_of(field.dataType, field.name), field.nullable or not required) for field in schema
    )


def _arrow_of(type_: st.DataType, path: str) -> pa.DataType:
    if isinstance(type_, st.StructType):
        return pa.struct([pa.field(field.name, _arrow_of(field.dataType, f"{path}.{field.name}")) for field in type_])
    if isinstance(type_, st.ArrayType):
        return pa.list_(_arrow_of(type_.elementType, f"{path}.element"))
    if isinstance(type_, st.MapType):
        return pa.map_(_arrow_of(type_.keyType, f"{path}.key"), _arrow_of(type_.valueType, f"{path}.value"))
    if isinstance(type_, st.DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    found = next((arrow for _, known, arrow in _TYPES if isinstance(type_, type(known))), None)
    if found is None:
        raise InputError(
            f'the column "{path}" has the type {type_.simpleString()}, which a lake does not have',
            hint="cast it to another",
        )
    return found


def inner_types(type_: st.DataType) -> list[st.DataType]:
    if isinstance(type_, st.StructType):
        return [field.dataType for field in type_.fields]
    if isinstance(type_, st.MapType):
        return [type_.keyType, type_.valueType]
    return [type_.elementType] if isinstance(type_, st.ArrayType) else []


def with_variants(columns: TableSchema, schema: st.StructType) -> TableSchema:
    """Return the columns of :func:`arrow_schema` with the variants that Arrow cannot express."""
    pairs = zip(columns.columns, schema.fields, strict=True)
    return TableSchema(tuple(_with_variants(column, field.dataType) for column, field in pairs))


def _with_variants(column: Column, type_: st.DataType) -> Column:
    if type_.typeName() == "variant":
        return replace(column, type="variant")
    inner = inner_types(type_)
    if not inner:
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
    found = parse_type(column.type)
    if found.base == "decimal":
        return st.DecimalType(found.precision or 0, found.scale or 0)
    text = stored_type(column)
    return st.DecimalType(20, 0) if text == "DECIMAL(20,0)" else next(one for name, one, _ in _TYPES if name == text)
