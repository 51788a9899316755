"""Columns with their ids, rows of data files of any age in the columns of today, and rows of Python as Arrow.

A column keeps its id for ever, and data files bear the ids of their columns. So a column is found in a file by its id,
whatever its name was then; one that the file lacks is newer than the file, and has its initial default there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

import pyarrow as pa

from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import FIELD_ID, Column, TableSchema
from quacklake.core.format.types import parse_type
from quacklake.errors import InputError, UnsupportedFeatureError
from quacklake.inputs import column_types
from quacklake.inputs.column_types import to_column
from quacklake.inputs.frames import to_source

__all__ = [
    "Column",
    "TableInfo",
    "TableSchema",
    "can_conform",
    "conform",
    "is_portable",
    "parse_type",
    "to_column",
    "to_rows",
    "to_schema",
]

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)

_PORTABLE = frozenset(
    """
    boolean int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 decimal varchar blob date time timestamp
    timestamp_ms timestamp_ns timestamptz
    """.split()  # noqa: SIM905
)
"""Types whose values Arrow, Parquet and a lake hold alike."""
_BYTES = ("blob",)
"""Types whose defaults are texts that Arrow reads otherwise."""


def to_schema(columns: Any) -> TableSchema:
    """Return the columns of a new table: of an Arrow schema, a dataclass, or a mapping or list of names and types.

    Raise ``InputError`` for anything else, for types that a lake lacks, and for names that it cannot have.

    >>> [column.duckdb_type() for column in to_schema({"id": int, "tags": "VARCHAR[]"}).columns]
    ['BIGINT', 'VARCHAR[]']
    """
    schema = column_types.to_schema(columns)
    if schema is None:
        raise InputError(f"a {type(columns).__name__} of rows has no types", hint='write {"id": "BIGINT"}')
    return schema


def is_portable(column: Column) -> bool:
    """Return whether Arrow, Parquet and a lake hold the values of a column alike, at every depth.

    An engine may read and write such columns by itself, and leaves others to ``reads.read_part`` and ``Table.append``.

    >>> is_portable(Column(1, "name", "varchar")), is_portable(Column(2, "span", "interval"))
    (True, False)
    """
    return all(parse_type(leaf.type).base in _PORTABLE for leaf in column.leaves())


def to_rows(data: Any, *, index: bool = True) -> pa.Table:
    """Return rows of any kind that ``Table.append`` takes as an Arrow table; ``index`` is that of ``Table.append``.

    Raise ``SchemaMismatchError`` for data that has no rows and columns, and ``ConstraintError`` for a value that cannot
    be stored unchanged.

    >>> to_rows([{"id": 1, "name": "a"}, {"id": 2, "name": None}]).to_pydict()
    {'id': [1, 2], 'name': ['a', None]}
    """
    with to_source(data, index=index).opened().lend() as rows:
        return rows if isinstance(rows, pa.Table) else rows.read_all()


def can_conform(file: pa.Schema, columns: Sequence[Column]) -> bool:
    """Return whether ``conform`` can make these columns of the rows of a file with this Arrow schema.

    It cannot where a type is not portable, and where fields inside a nested column have changed since the file was
    written.

    >>> file = TableSchema((Column(1, "a", "int32"),)).to_arrow(field_ids=True)
    >>> can_conform(file, [Column(1, "renamed", "int64"), Column(2, "added", "varchar", initial_default="x")])
    True
    >>> can_conform(file, [Column(1, "a", "varchar")])
    False
    """
    places = _fields_by_id(file)
    fields = [file.field(places[column.id]) if column.id in places else None for column in columns]
    return all(_fits(given, column) for given, column in zip(fields, columns, strict=True))


def conform(rows: Rows, columns: Sequence[Column]) -> Rows:
    """Return rows as read from a data file in these columns of the table: renamed, widened, filled where it is older.

    The Arrow schema of the rows has the ids of the file, as ``pyarrow.parquet`` reads them; columns of other ids are
    left out. Raise ``UnsupportedFeatureError`` where ``can_conform`` returns False.

    >>> file = TableSchema((Column(1, "a", "int32"), Column(3, "gone", "int32"))).to_arrow(field_ids=True)
    >>> rows = pa.table([[1, 2], [3, 4]], schema=file)
    >>> conform(rows, [Column(1, "renamed", "int64"), Column(2, "added", "varchar", initial_default="x")]).to_pylist()
    [{'renamed': 1, 'added': 'x'}, {'renamed': 2, 'added': 'x'}]
    """
    if not can_conform(rows.schema, columns):
        raise UnsupportedFeatureError(
            "a file holds columns that cannot be conformed", hint="read the file with quacklake.extend.reads.read_part"
        )
    arrays = []
    places = _fields_by_id(rows.schema)
    for column in columns:
        place, wanted = places.get(column.id), column.arrow_type()
        if place is None:
            arrays.append(pa.repeat(_initial_value(column), rows.num_rows))
        else:
            array = rows.column(place)
            arrays.append(array if array.type == wanted else array.cast(wanted))
    if not columns:  # rows without columns still count
        return rows.select([])
    return type(rows).from_arrays(arrays, schema=pa.schema([column.arrow_field() for column in columns]))


def _fields_by_id(schema: pa.Schema) -> dict[int, int]:
    """Return the places of fields by their ids."""
    return {id_: place for place, field in enumerate(schema) if (id_ := _id(field)) is not None}


def _id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(FIELD_ID)
    return None if text is None else int(text)


def _fits(field: pa.Field | None, column: Column) -> bool:
    if not is_portable(column):
        return False
    if field is None:
        return column.initial_default is None or _is_readable(column)
    if column.nested:
        return _same_fields(field, column)
    return _casts(field.type, column)


@lru_cache(maxsize=1024)
def _is_readable(column: Column) -> bool:
    """Return whether Arrow reads the text of the initial default as DuckDB does."""
    if column.nested or column.type in _BYTES:
        return False
    try:
        _initial_value(column)
    except pa.ArrowException:
        return False
    return True


def _initial_value(column: Column) -> pa.Scalar:
    if column.initial_default is None:
        return pa.scalar(None, column.arrow_type())
    return pa.scalar(column.initial_default, pa.string()).cast(column.arrow_type())


def _casts(given: pa.DataType, column: Column) -> bool:
    """Return whether each value of an Arrow type has a place in a scalar column: it is of its type, or was narrower."""
    wanted, types = column.arrow_type(), pa.types
    if given == wanted:
        return True
    if types.is_signed_integer(wanted) or types.is_unsigned_integer(wanted):
        same = types.is_signed_integer(given) == types.is_signed_integer(wanted)
        return bool(types.is_integer(given) and same and given.bit_width <= wanted.bit_width)
    if types.is_floating(wanted):
        return bool(types.is_floating(given) and given.bit_width <= wanted.bit_width)
    if types.is_decimal(wanted):
        wider = types.is_decimal(given) and wanted.scale >= given.scale
        return bool(wider and wanted.precision - wanted.scale >= given.precision - given.scale)
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    blobs = (types.is_binary, types.is_large_binary, types.is_binary_view)
    for kinds in (texts, blobs):
        if any(kind(wanted) for kind in kinds):
            return any(kind(given) for kind in kinds)
    return False


def _same_fields(field: pa.Field, column: Column) -> bool:
    """Return whether a nested field has just the fields of a column, by id, name and type."""
    arrow, types = field.type, pa.types
    if not column.nested:
        return bool(arrow == column.arrow_type())
    if column.type == "struct" and types.is_struct(arrow):
        inside, named = list(arrow), True
    elif column.type == "list" and types.is_list(arrow):
        inside, named = [arrow.value_field], False
    elif column.type == "map" and types.is_map(arrow):
        inside, named = [arrow.key_field, arrow.item_field], False
    else:
        return False
    return len(inside) == len(column.children) and all(
        _id(one) == two.id and (not named or one.name == two.name) and _same_fields(one, two)
        for one, two in zip(inside, column.children, strict=True)
    )
