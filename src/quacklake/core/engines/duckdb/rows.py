"""Queries for the rows that go into files: by partition, and without values that DuckDB would write as others.

Parquet has no whole numbers of 128 bits, and DuckDB writes them as doubles: whatever those would round is refused.
Intervals have months, days and milliseconds there, each 32 bits and none below zero; DuckDB cuts microseconds off, and
lets 50 days of milliseconds begin at 0 again. Times of day have no offset there, and those that have one become UTC.
Nobody could tell later that it was another value. Rows in the catalog keep every one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from quacklake.core.duckdb_versions import IS_2
from quacklake.core.format.layout import EPOCH, PartitionSpec, directory
from quacklake.core.format.names import fold, literal, quote
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.format.transforms import duckdb_expression
from quacklake.errors import InputError, UnsupportedFeatureError

_UNWRITTEN = ("null", "timestamptz_ns")  # types that no file is written with; a whole column of the first is left out
_ENDLESS = 9_000_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Keys:
    """The partition keys of a table: the names they have in a query, and the SQL that computes each."""

    spec: PartitionSpec
    schema: TableSchema
    names: tuple[str, ...]
    expressions: tuple[str, ...]

    def query(self, rows: str) -> str:
        keys = ", ".join(f"{sql} AS {name}" for sql, name in zip(self.expressions, self.names, strict=True))
        return f"SELECT *, {keys} FROM ({rows})"

    def values(self, texts: Sequence[str | None]) -> dict[int, str | None]:
        """Return the texts of the keys, in their order, as the catalog has them. Raise ``InputError`` for a NUL."""
        if any(text is not None and "\0" in text for text in texts):
            raise InputError("a partition value contains a NUL character, which no catalog can store")
        return {key.index: text for key, text in zip(self.spec.keys, texts, strict=True)}

    def folder(self, values: Mapping[int, str | None], *, hive: bool) -> str:
        return directory(self.spec, self.schema, values, hive=hive)


def partition_keys(table: TableInfo, *, epochs: bool = True) -> Keys | None:
    """Return the partition keys of new files. Raise ``UnsupportedFeatureError`` for epochs that the lake lacks."""
    spec = table.partition
    if spec is None or not spec.keys:
        return None
    prefix = "_ql_key"
    while any(fold(column.name).startswith(prefix) for column in table.schema.columns):
        prefix += "_"
    expressions = []
    for key in spec.keys:
        transform, column = key.parsed, table.schema.by_id(key.column_id)
        if transform.name in EPOCH and not epochs:
            raise UnsupportedFeatureError(
                f"{table.qualified_name} is partitioned by {transform}, which needs a later version of the format",
                hint='lake.migrate("1.1") brings the lake there',
            )
        expressions.append(duckdb_expression(transform, quote(column.name), column.type))
    names = tuple(f"{prefix}{index}" for index in range(len(expressions)))
    return Keys(spec, table.schema, names, tuple(expressions))


def stored_columns(table: TableInfo) -> TableInfo:
    """Return the table without columns of type ``null``, which no file holds. Raise ``UnsupportedFeatureError``."""
    kept = tuple(column for column in table.schema.columns if column.type != "null")
    for node in (node for column in kept for node in column.walk()):
        if node.type in _UNWRITTEN:
            raise UnsupportedFeatureError(
                f'the column "{node.name}" of {table.qualified_name} has the type {node.type}, which cannot be written'
            )
    if not kept:
        raise UnsupportedFeatureError(f"{table.qualified_name} has no column that a file could hold")
    return table if len(kept) == len(table.schema.columns) else replace(table, schema=TableSchema(kept))


def without_nulls(query: str, table: TableInfo, names: Sequence[str]) -> str:
    """Return a query for the columns that files hold; a value in a column of the type ``null`` is an error."""
    nothing = [quote(column.name) for column in table.schema.columns if column.type == "null"]
    message = literal("a column of the type null holds nothing but NULL")
    wrong = " OR ".join(f"{name} IS NOT NULL" for name in nothing)
    kept = ", ".join(map(quote, names))
    return f"SELECT {kept} FROM ({query}) WHERE CASE WHEN {wrong} THEN error({message}) ELSE true END"


def by_one_thread(rows: str) -> str:
    """Return a query whose rows DuckDB writes in order, also into several files: a limit keeps it to one thread."""
    return f"SELECT * FROM ({rows}) LIMIT {_ENDLESS:d}"


def reads_back(value: str, column: Column) -> str:
    """Return the condition that the text of a value, which is what a catalog stores, gives the same value again.

    DuckDB writes ``[['a]']]`` and ``[NULL]::JSON[]`` as texts that it reads as something else, or not at all. Values
    that compare as equal, such as both zeros, or one month and 30 days, have texts of their own.
    """
    again = f"TRY_CAST({value}::VARCHAR AS {column.duckdb_type()})"
    same = f"{again} IS NOT DISTINCT FROM {value}"
    return f"({same} AND {again}::VARCHAR IS NOT DISTINCT FROM {value}::VARCHAR)"


_ROUNDED = "would be rounded in a file, which holds it as a double"
_ENDLESS_SECONDS = "is a time of seconds that a file cannot hold"
_CUT = "is an interval that a file cannot hold"
_SHIFTED = "is a time with an offset, which a file does not hold"
REFUSALS: Mapping[str, str] = MappingProxyType(
    {
        _ROUNDED: "a column of the type DECIMAL(38, 0) keeps every digit, in files too",
        _ENDLESS_SECONDS: "a column of the type TIMESTAMP holds infinity in files too",
        _CUT: "in files intervals have whole milliseconds, less than 50 days of them, and no part below zero;"
        " a BIGINT of microseconds holds the others",
        _SHIFTED: 'a file holds times in UTC: "x AT TIME ZONE INTERVAL 0 HOUR" converts the column x',
    }
)
"""The words of the error about a value, each with its hint."""
_HUGE = frozenset({"int128", "uint128"})
_SPAN = frozenset({"interval"})
_SECONDS = frozenset({"timestamp_s"})
_ZONED = frozenset({"timetz"})
_FLOATS = frozenset({"float32", "float64"})


def exact(query: str, schema: TableSchema, names: Sequence[str]) -> str:
    """Return a query for the same rows that ends with an error at a value which a file would change."""
    checked = {column.name: sql for column in schema.columns if (sql := _check_storable(column)) is not None}
    if not checked:
        return query
    select = ", ".join(f"{checked[name]} AS {quote(name)}" if name in checked else quote(name) for name in names)
    return f"SELECT {select} FROM ({query})"


def fits_in_file(schema: TableSchema) -> str | None:
    """Return the SQL condition that a Parquet file keeps every value of a row; None when it always does.

    >>> fits_in_file(TableSchema((Column(1, "id", "int64"),))) is None
    True
    >>> fits_in_file(TableSchema((Column(1, "n", "int128"),)))
    '(TRY_CAST(TRY_CAST("n" AS DOUBLE) AS HUGEINT) IS NOT DISTINCT FROM "n")'
    """
    return " AND ".join(f"({sql})" for column in schema.columns for sql, _ in _conditions(column)) or None


def negative_zero(schema: TableSchema) -> str | None:
    """Return the condition that a row holds a zero below zero which DuckDB may write as another; None if none can.

    DuckDB 1.5 keeps one of both zeros in the dictionary of a column, and puts that one alone into its bloom filter.
    """
    found = [sql for column in schema.columns if (sql := _has_zero(column, quote(column.name), 0)) is not None]
    return None if IS_2 or not found else " OR ".join(found)


def _has_zero(column: Column, value: str, depth: int) -> str | None:
    if column.type in _FLOATS:
        # a comparison with = would be looked up in bloom filters of older files, which lack the other zero
        return f"coalesce({value} BETWEEN 0 AND 0 AND signbit({value}), false)"
    if column.type == "variant":
        return f"coalesce(contains({value}::VARCHAR, '-0.0'), false)"
    if not _holds(column, _FLOATS | {"variant"}):
        return None
    if column.type == "struct":
        fields = (_has_zero(child, f"({value}).{quote(child.name)}", depth) for child in column.children)
        return f"({' OR '.join(sql for sql in fields if sql is not None)})"
    sides = [value] if column.type == "list" else [f"map_keys({value})", f"map_values({value})"]
    name, parts = f"x{depth}", []
    for child, side in zip(column.children, sides, strict=True):
        inner = _has_zero(child, name, depth + 1)
        if inner is not None:
            parts.append(f"coalesce(list_bool_or(list_transform({side}, lambda {name}: {inner})), false)")
    return f"({' OR '.join(parts)})"


def huge_columns(schema: TableSchema) -> list[Column]:
    """Return the columns that hold whole numbers of 128 bits, alone or inside of others."""
    return [column for column in schema.columns if _holds(column, _HUGE)]


def _holds(column: Column, types: frozenset[str]) -> bool:
    return any(node.type in types for node in column.walk())


def _check_storable(column: Column) -> str | None:
    """Return the SQL of a column that is an error where a file would change it; None when none can be changed."""
    name, checked = quote(column.name), None
    for condition, refusal in _conditions(column):
        message = literal(f'a value of the column "{column.name}" {refusal}')
        checked = f"CASE WHEN {condition} THEN {checked or name} ELSE error({message}) END"
    return checked


def _conditions(column: Column) -> list[tuple[str, str]]:
    """Return the conditions under which a file holds a value, each with the words for one that it does not hold."""
    name = quote(column.name)
    conditions: list[tuple[str, str]] = []
    if _holds(column, _HUGE):
        there = f"TRY_CAST({name} AS {_to_stored(column).duckdb_type()})"
        conditions.append((f"TRY_CAST({there} AS {column.duckdb_type()}) IS NOT DISTINCT FROM {name}", _ROUNDED))
    if _holds(column, _SECONDS):
        conditions.append((_fits(column, name, 0, _SECONDS), _ENDLESS_SECONDS))
    if _holds(column, _SPAN):
        conditions.append((_fits(column, name, 0, _SPAN), _CUT))
    if _holds(column, _ZONED):
        conditions.append((_fits(column, name, 0, _ZONED), _SHIFTED))
    return conditions


def _to_stored(column: Column) -> Column:
    kind = "float64" if column.type in _HUGE else column.type
    return replace(column, type=kind, children=tuple(map(_to_stored, column.children)))


def _fits(column: Column, value: str, depth: int, types: frozenset[str]) -> str:
    """Return an expression that is true when a file holds all values of these types that are in a value."""
    if column.type in types:
        return _fits_alone(column.type, value)
    if not _holds(column, types):
        return "true"
    if column.type == "struct":
        return " AND ".join(_fits(child, f"({value}).{quote(child.name)}", depth, types) for child in column.children)
    if column.type == "map":
        sides = zip(column.children, (f"map_keys({value})", f"map_values({value})"), strict=True)
        return " AND ".join(_each(child, side, depth, types) for child, side in sides)
    return _each(column.children[0], value, depth, types)


def _fits_alone(type_: str, value: str) -> str:
    if type_ in _SECONDS:
        return f"coalesce(isfinite(TRY_CAST({value} AS TIMESTAMP)), {value} IS NULL)"
    if type_ in _ZONED:  # DuckDB writes 24:00:00+00 as 00:00:00+00
        time = f"({value})::TIME"
        return f"coalesce({time}::TIMETZ = {value} AND {time} < TIME '24:00:00', true)"
    micros = f"(hour({value}) * 3600000000 + minute({value}) * 60000000 + microsecond({value}))"
    parts = (
        f"year({value}) * 12 + month({value}) >= 0",
        f"day({value}) >= 0",
        f"{micros} BETWEEN 0 AND 4294967295999",
        f"{micros} % 1000 = 0",
    )
    return f"coalesce({' AND '.join(parts)}, true)"


def _each(column: Column, values: str, depth: int, types: frozenset[str]) -> str:
    name = f"x{depth}"
    fits = _fits(column, name, depth + 1, types)
    return f"coalesce(list_bool_and(list_transform({values}, lambda {name}: {fits})), true)"
