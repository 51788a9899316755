"""Change the columns of a table inside a transaction, along with its uncommitted rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from quacklake.core.duckdb_versions import arrow_table
from quacklake.core.format import evolution, layout
from quacklake.core.format.bounds import ANYTHING, IsNull
from quacklake.core.format.evolution import DefaultExpression, find_column
from quacklake.core.format.layout import PartitionSpec, SortSpec, make_sort, make_spec
from quacklake.core.format.names import parse_path, quote
from quacklake.core.format.objects import MacroInfo, TableInfo
from quacklake.core.format.schema import Column, TableSchema, initial_value, reshaped, stored_alike
from quacklake.core.format.texts import parse_column
from quacklake.core.operations import conform
from quacklake.core.operations.conform import insert_few
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.expression import Expression
from quacklake.core.operations.reference import TableRef
from quacklake.core.operations.views import order_macros
from quacklake.core.transaction import Transaction, objects
from quacklake.errors import ConstraintError, InputError

ColumnType: TypeAlias = "str | Column"
"""The text of a DuckDB type, or a column of any name with the type."""


def add_column(
    context: LakeContext, tx: Transaction, table: TableInfo, path: str, type_: ColumnType, default: Any = None
) -> TableInfo:
    """Add a column, or a field of a struct; existing rows get the default."""
    *parent, name = parse_path(path)
    column = _column(name, type_)
    next_id = tx.next_column_id(table)
    value = _default(default)
    schema = evolution.add_column(table.schema, tuple(parent), column, next_column_id=next_id, default=value)
    return alter(context, tx, table, schema)


def drop_column(context: LakeContext, tx: Transaction, table: TableInfo, path: str) -> TableInfo:
    """Drop a column, or a field of a struct; older snapshots keep its values."""
    partitioned = frozenset(key.column_id for key in table.partition.keys) if table.partition else frozenset()
    ordered = layout.sort_columns(table.sort, table.schema)
    schema = evolution.drop_column(table.schema, parse_path(path), partitioned_by=partitioned, sorted_by=ordered)
    return alter(context, tx, table, schema)


def rename_column(context: LakeContext, tx: Transaction, table: TableInfo, path: str, name: str) -> TableInfo:
    """Rename a column or a field of a struct."""
    found = parse_path(path)
    schema = evolution.rename_column(table.schema, found, name)
    if table.sort is not None and len(found) == 1:
        order = layout.rename_column(table.sort, found[0], name)
        if order != table.sort:
            table = tx.alter_table(table, replace(table, sort=replace(order, id=tx.local_id())))
    return alter(context, tx, table, schema)


def alter_column(context: LakeContext, tx: Transaction, table: TableInfo, path: str, type_: ColumnType) -> TableInfo:
    """Widen the type of a column or field; a nested type may also gain or lose fields."""
    found = parse_path(path)
    target = _column(found[-1], type_)
    next_id = tx.next_column_id(table)
    return alter(context, tx, table, evolution.set_type(table.schema, found, target, next_column_id=next_id))


def set_default(context: LakeContext, tx: Transaction, table: TableInfo, path: str, value: Any) -> TableInfo:
    """Set the default of a column for new rows: a value or an expression."""
    found = parse_path(path)
    default = _default(value)
    schema = evolution.set_default(table.schema, found, default)
    if isinstance(default, DefaultExpression):
        _check_expression(context, find_column(schema, found))
    return alter(context, tx, table, schema)


def drop_default(context: LakeContext, tx: Transaction, table: TableInfo, path: str) -> TableInfo:
    """Remove the default of a column, so that it is NULL in new rows that do not give it."""
    return alter(context, tx, table, evolution.set_default(table.schema, parse_path(path), None))


def set_not_null(context: LakeContext, tx: Transaction, table: TableInfo, path: str) -> TableInfo:
    """Reject NULL in a column from now on. Raise ``ConstraintError`` when the column has one."""
    found = parse_path(path)
    schema = evolution.set_nullable(table.schema, found, False)
    column = find_column(schema, found)
    # Nested columns have no statistics, so their NULLs are not counted.
    predicate = ANYTHING if column.nested else IsNull(column.id)
    nulls = context.engine.count(tx.plan(table, predicate), f"{quote(column.name)} IS NULL")
    if nulls:
        raise ConstraintError(
            f'Cannot set NOT NULL: the column "{column.name}" has NULL values: {nulls} rows are NULL',
            hint="update or delete them",
        )
    tx.pending(table).add_read(predicate)
    return alter(context, tx, table, schema)


def drop_not_null(context: LakeContext, tx: Transaction, table: TableInfo, path: str) -> TableInfo:
    """Allow NULL in a column."""
    return alter(context, tx, table, evolution.set_nullable(table.schema, parse_path(path), True))


def evolve(context: LakeContext, tx: Transaction, table: TableInfo, rows: pa.Schema) -> TableInfo:
    """Add the columns of ``rows`` that the table lacks, and widen its types. Raise ``SchemaMismatchError``."""
    given = conform.given_schema(rows, table.qualified_name)
    schema = evolution.evolve_to(table.schema, given, tx.next_column_id(table))
    return alter(context, tx, table, schema)


def _column(name: str, type_: ColumnType) -> Column:
    return parse_column(name, type_) if isinstance(type_, str) else replace(type_, name=name)


def _default(value: Any) -> Any:
    return DefaultExpression(value.sql) if isinstance(value, Expression) else value


def _check_expression(context: LakeContext, column: Column) -> None:
    """Raise ``InputError`` for a default that is not a single expression or does not have the column's type."""
    value = conform.default_value(column)
    try:
        with context.engine.connection() as connection:
            arrow_table(connection, f"SELECT {value}")
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise InputError(f'{column.default!r} is not a valid default for the column "{column.name}": {first}') from None


def alter(context: LakeContext, tx: Transaction, table: TableInfo, schema: TableSchema) -> TableInfo:
    """Change the columns of a table and of its uncommitted rows."""
    if schema == table.schema:
        return table
    pending = next((found for found in tx.pendings() if found.table.id == table.id), None)
    after = tx.alter_table(table, replace(table, schema=schema))
    if pending is not None and pending.inserts and not stored_alike(table.schema, schema):
        inserts, pending.inserts, pending.local_ids = pending.inserts, [], []
        for insert in inserts:
            if insert.rows.num_rows:
                rows = _reshape(context, insert.rows, table.schema, after)
                insert_few(context, tx, after, rows, insert.row_ids)
    return after


def _reshape(context: LakeContext, rows: pa.Table, before: TableSchema, after: TableInfo) -> pa.Table:
    """Return uncommitted rows with the current columns of the table."""
    stored = {column.id: column for column in before.columns}
    select = [f"{_value(column, stored.get(column.id))} AS {quote(column.name)}" for column in after.schema.columns]
    rows = rows.rename_columns([f"c{column.id}" for column in before.columns])
    with context.engine.connection() as connection:
        connection.register("ql_source", rows)
        return arrow_table(connection, f"SELECT {', '.join(select)} FROM ql_source")


def _value(column: Column, stored: Column | None) -> str:
    if stored is None:
        value = initial_value(column)
    else:
        value = reshaped(f"CAST(c{stored.id} AS {stored.duckdb_type()})", stored, column)
    return f"{value}::VARCHAR" if column.travels_as_text else value


Keys = str | Sequence[str]


def create_table(
    context: LakeContext, tx: Transaction, ref: TableRef, schema: TableSchema, partition_by: Keys, sort_by: Keys
) -> TableInfo:
    """Create a table with its partitioning and sort order."""
    partitioned = _partition_spec(tx, schema, texts(partition_by)) if partition_by else None
    ordered = sort_spec(context, tx.local_id(), schema, texts(sort_by), tx.objects.macros) if sort_by else None
    table = tx.create_table(ref.schema, ref.name, schema)
    if partitioned is None and ordered is None:
        return table
    return tx.alter_table(table, replace(table, partition=partitioned, sort=ordered))


def partition(tx: Transaction, table: TableInfo, keys: Sequence[str]) -> TableInfo:
    """Partition new files by these keys; repeating the current keys changes nothing."""
    spec = _partition_spec(tx, table.schema, keys)
    if table.partition is not None and table.partition.keys == spec.keys:
        return table
    return tx.alter_table(table, replace(table, partition=spec))


def reset_partition(tx: Transaction, table: TableInfo) -> TableInfo:
    """Stop partitioning new files."""
    if table.partition is None or not table.partition.keys:
        return table
    # Stock clients express this as a partitioning without keys.
    return tx.alter_table(table, replace(table, partition=PartitionSpec(tx.local_id(), ())))


def sort(context: LakeContext, tx: Transaction, table: TableInfo, keys: Sequence[str]) -> TableInfo:
    """Sort the rows of each new file by these keys; repeating the current keys changes nothing."""
    spec = sort_spec(context, tx.local_id(), table.schema, keys, tx.objects.macros)
    if table.sort is not None and table.sort.keys == spec.keys:
        return table
    return tx.alter_table(table, replace(table, sort=spec))


def reset_sort(tx: Transaction, table: TableInfo) -> TableInfo:
    """Stop sorting; new files keep rows in the order in which they arrive."""
    return table if table.sort is None else tx.alter_table(table, replace(table, sort=None))


def _partition_spec(tx: Transaction, schema: TableSchema, keys: Sequence[str]) -> PartitionSpec:
    _check_keys(keys, "partition", "reset_partitioned_by")
    spec = make_spec(tx.local_id(), keys, schema)
    objects.check_partition(tx.catalog, spec)
    return spec


def sort_spec(
    context: LakeContext,
    id_: int,
    schema: TableSchema,
    keys: Sequence[str],
    find_macros: Callable[[], Sequence[MacroInfo]] = tuple,
) -> SortSpec:
    """Return the sort order of keys. Raise ``InputError`` when a key is invalid for these columns."""
    _check_keys(keys, "sort", "reset_sorted_by")
    macros = order_macros(keys, find_macros)
    return make_sort(id_, keys, schema, lambda text: context.engine.canonical_expression(text, schema, macros))


def texts(keys: Keys) -> Sequence[str]:
    """Return one or several keys as a sequence."""
    return [keys] if isinstance(keys, str) else keys


def _check_keys(keys: Sequence[Any], what: str, reset: str) -> None:
    if not keys:
        raise InputError(f"no {what} keys are given", hint=f"to have none, call {reset}()")
    wrong = next((key for key in keys if not isinstance(key, str)), None)
    if wrong is not None:
        raise InputError(f"a {what} key must be text, not {type(wrong).__name__}")
