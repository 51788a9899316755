"""Making rows fit a table: columns by name, types by checked conversion, nothing guessed and nothing dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import sqlglot

from quacklake.engines.duckdb import DuckDBEngine
from quacklake.engines.duckdb.failures import writing
from quacklake.engines.duckdb.mapped import literal
from quacklake.errors import ConstraintError, InputError, SchemaMismatchError, nearest
from quacklake.format.names import fold, quote
from quacklake.format.schema import Column, TableSchema, from_arrow
from quacklake.format.types import can_store

__all__ = ["Match", "expressions", "match", "to_table"]

_CHECKED = ("json", "uuid")


@dataclass(frozen=True, slots=True)
class Match:
    """A table's column and the input column that feeds it; None means the column's default."""

    column: Column
    source: str | None


def match(rows: pa.Schema, schema: TableSchema, table: str, *, partial: bool = False) -> list[Match]:
    """Pair a table's columns with the input's. Raises ``SchemaMismatchError`` that tells every difference.

    With ``partial`` columns may be missing in the input; otherwise only those with a default may.
    """
    try:
        given = from_arrow(rows)
    except InputError as error:
        raise SchemaMismatchError(f"the rows do not fit {table}: {error.message}", hint=error.hint) from None
    names = {fold(name): name for name in rows.names}
    known = {fold(name) for name in schema.names}
    extra = [name for name in rows.names if fold(name) not in known]
    missing = [c.name for c in schema.columns if fold(c.name) not in names and c.default is None and not partial]
    problems = []
    if extra:
        problems.append(f"unknown column{'s' if len(extra) > 1 else ''} {_list(extra)}")
    if missing:
        problems.append(f"missing column{'s' if len(missing) > 1 else ''} {_list(missing)}")
    for column in schema.columns:
        source = names.get(fold(column.name))
        if source is not None and not _is_null(rows.field(source).type):
            problem = _type_problem(given.find(source), column, column.name)
            if problem:
                problems.append(problem)
    if problems:
        hint = nearest(extra[0], schema.names) if extra else f"the table has {_list(schema.names)}"
        raise SchemaMismatchError(f"the rows do not fit {table}: {'; '.join(problems)}", hint=hint)
    return [Match(column, names.get(fold(column.name))) for column in schema.columns]


def _list(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _is_null(type_: pa.DataType) -> bool:
    return bool(pa.types.is_null(type_))


def _type_problem(given: Column, wanted: Column, path: str) -> str | None:
    """Why values of one column cannot be stored in another, or None."""
    if given.nested or wanted.nested:
        if given.type != wanted.type:
            return f'"{path}" is {given.duckdb_type()}, the table has {wanted.duckdb_type()}'
        if wanted.type != "struct":
            pairs = zip(given.children, wanted.children, strict=True)
            return next((p for one, two in pairs if (p := _type_problem(one, two, f"{path}.{two.name}"))), None)
        inside = {fold(child.name): child for child in given.children}
        if set(inside) != {fold(child.name) for child in wanted.children}:
            return f'"{path}" is {given.duckdb_type()}, the table has {wanted.duckdb_type()}'
        children = ((inside[fold(child.name)], child) for child in wanted.children)
        return next((p for one, two in children if (p := _type_problem(one, two, f"{path}.{two.name}"))), None)
    if can_store(given.type, wanted.type):
        return None
    return f'"{path}" is {given.type}, the table has {wanted.type}'


def expressions(matches: Sequence[Match]) -> list[str]:
    """The select list that turns the input into the table's columns, in order."""
    return [f"{_checked(_value(found), found.column)} AS {quote(found.column.name)}" for found in matches]


def _value(found: Match) -> str:
    type_ = found.column.duckdb_type()
    if found.source is not None:
        return f"CAST({quote(found.source)} AS {type_})"
    return default_value(found.column)


def default_value(column: Column) -> str:
    """The SQL of what a new row has in a column that is not given."""
    if column.default is None:
        return f"NULL::{column.duckdb_type()}"
    if column.default_kind == "expression":
        # parsed, so that text from the catalog can only ever be one expression
        tree = sqlglot.parse_one(f"SELECT {column.default}", dialect="duckdb")
        return f"CAST(({tree.expressions[0].sql(dialect='duckdb')}) AS {column.duckdb_type()})"
    return f"CAST({literal(column.default)} AS {column.duckdb_type()})"


def _checked(value: str, column: Column) -> str:
    if column.nullable:
        return value
    message = literal(f'NULL in the NOT NULL column "{column.name}"')
    return f"CASE WHEN {value} IS NULL THEN error({message}) ELSE {value} END"


def to_table(engine: DuckDBEngine, rows: pa.Table, matches: Sequence[Match]) -> pa.Table:
    """A small table with exactly the columns and types of the lake's table."""
    quick = _quick(rows, matches)
    if quick is not None:
        return quick
    with engine.connection() as connection, writing():
        connection.register("ql_source", rows)
        return connection.execute(f"SELECT {', '.join(expressions(matches))} FROM ql_source").to_arrow_table()


def _quick(rows: pa.Table, matches: Sequence[Match]) -> pa.Table | None:
    """The same without an engine, for rows that need nothing but Arrow casts."""
    arrays: list[pa.ChunkedArray] = []
    names: list[str] = []
    for found in matches:
        column = found.column
        if found.source is None or column.nested or column.type in _CHECKED:
            return None
        array = rows.column(found.source)
        wanted = column.arrow_type()
        if array.type != wanted:
            try:
                array = array.cast(wanted)
            except pa.ArrowNotImplementedError:
                return None
            except pa.ArrowInvalid as error:
                raise ConstraintError(f'a value does not fit the column "{column.name}": {error}') from None
        if not column.nullable and array.null_count:
            raise ConstraintError(f'NULL in the NOT NULL column "{column.name}"')
        arrays.append(array)
        names.append(column.name)
    return pa.Table.from_arrays(arrays, names=names)
