"""The operations on rows inside a transaction: append, delete, update, merge and overwrite."""

from __future__ import annotations

import uuid as uuid_module
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from quacklake.duckdb_versions import arrow_table
from quacklake.engines.duckdb.connections import writing
from quacklake.engines.duckdb.engine import check_filter
from quacklake.engines.duckdb.expressions import check_expression, constant
from quacklake.engines.duckdb.sql import ROW_COLUMNS
from quacklake.errors import ConstraintError, InputError, SchemaMismatchError
from quacklake.format.bounds import ANYTHING, Predicate, compare, decode, every
from quacklake.format.names import quote
from quacklake.format.objects import TableInfo
from quacklake.format.snapshots import Operation
from quacklake.format.stats import of_array
from quacklake.operations import conform, evolution
from quacklake.operations.context import LakeContext
from quacklake.operations.expression import Expression
from quacklake.operations.inlining import encoded_insert
from quacklake.operations.input_source import Input
from quacklake.operations.inserting import check_not_null, insert_query, replace_rows, write_rows
from quacklake.scan import to_predicate
from quacklake.transaction import Transaction

DUPLICATES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class MergeResult:
    """Result of a merge."""

    updated: int
    inserted: int


# -- append ------------------------------------------------------------------------------------------------------------


def append(
    context: LakeContext,
    tx: Transaction,
    table: TableInfo,
    data: Input,
    *,
    evolve: bool = False,
    asked: Operation = Operation.INSERT,
) -> int | None:
    """Add rows; return how many, or None if a stream does not say. ``evolve`` adds their columns to the table."""
    if data.empty:
        return 0
    tx.asks(asked)
    source = data.opened(table.schema)
    if evolve:
        table = evolution.evolve(context, tx, table, source.schema)
    matches = context.match(source.schema, table, partial=evolve)
    small = source.first(context.inline_limit(table))
    if small is not None:
        if small.num_rows:
            rows = conform.to_table(context.engine, small, matches)
            tx.pending(table).add_insert(encoded_insert(context, table, rows, [None] * rows.num_rows))
        return int(small.num_rows)
    select = ", ".join(conform.expressions(matches))
    with source.lend() as rows, context.engine.connection() as connection:
        with writing():
            connection.register("ql_source", rows)
        return write_rows(context, tx, connection, f"SELECT {select} FROM ql_source", table, size=source.size)


# -- delete ------------------------------------------------------------------------------------------------------------


def delete(
    context: LakeContext, tx: Transaction, table: TableInfo, where: str | None, *, asked: Operation = Operation.DELETE
) -> int | None:
    """Delete the rows that match a filter; return how many, or None if all are deleted and the count is not known."""
    tx.asks(asked)
    predicate = to_predicate(where, table.schema)
    plan = tx.plan(table, predicate)
    pending = tx.pending(table)
    pending.add_read(predicate)
    if where is None:
        count = plan.count()
        pending.delete_all(plan)
        return count
    with context.engine.connection() as connection:
        query = context.engine.bind(connection, plan, rows=True, where=where)
        target = context.engine.find(connection, query, where, table.schema)
    pending.delete(plan, target)
    return target.count


def delete_keys(context: LakeContext, tx: Transaction, table: TableInfo, rows: pa.Table, on: Sequence[str]) -> int:
    """Delete the rows with the same keys as ``rows``; return how many."""
    keys = [table.schema.find(name) for name in on]
    if not rows.num_rows:
        return 0
    with context.engine.connection() as connection:
        incoming = _temporary()
        select = ", ".join(f"CAST({quote(key.name)} AS {key.duckdb_type()}) AS {quote(key.name)}" for key in keys)
        try:
            with writing():
                connection.register("ql_source", rows)
                connection.execute(f"CREATE TABLE {incoming} AS SELECT DISTINCT {select} FROM ql_source")
            predicate = _key_range(connection, incoming, keys)
            plan = tx.plan(table, predicate)
            pending = tx.pending(table)
            pending.add_read(predicate)
            query = context.engine.bind(connection, plan, rows=True)
            same = " AND ".join(f"t.{quote(key.name)} = s.{quote(key.name)}" for key in keys)
            found = context.engine.find(
                connection, f"SELECT t.* FROM ({query}) t SEMI JOIN {incoming} s ON {same}", None, table.schema
            )
            pending.delete(plan, found)
            return found.count
        finally:
            connection.execute(f"DROP TABLE IF EXISTS {incoming}")


def overwrite(
    context: LakeContext, tx: Transaction, table: TableInfo, data: Input, where: str | None, *, evolve: bool = False
) -> int | None:
    """Replace the rows that match a filter (default: all), in one snapshot."""
    delete(context, tx, table, where, asked=Operation.OVERWRITE)
    return append(context, tx, table, data, evolve=evolve, asked=Operation.OVERWRITE)


# -- update ------------------------------------------------------------------------------------------------------------


def update(
    context: LakeContext, tx: Transaction, table: TableInfo, values: Mapping[str, Any], where: str | None
) -> int:
    """Set columns of the rows that match a filter; return how many rows changed. Row ids stay."""
    if not values:
        raise InputError("nothing to update", hint='pass {"column": value}')
    tx.asks(Operation.UPDATE)
    assigned = {table.schema.find(name).id: _assignment(value) for name, value in values.items()}
    if len(assigned) != len(values):
        raise InputError("a column is set twice")
    predicate = to_predicate(where, table.schema)
    plan = tx.plan(table, predicate)
    pending = tx.pending(table)
    pending.add_read(predicate)
    if where is not None:
        check_filter(where)
    with context.engine.connection() as connection:
        query = context.engine.bind(connection, plan, rows=True, where=where)
        with writing():
            relation = connection.sql(query)
            relation = relation if where is None else relation.filter(where)
            select = [
                assigned.get(column.id, duckdb.SQLExpression(quote(column.name)))
                .cast(duckdb.sqltype(column.duckdb_type()))
                .alias(column.name)
                for column in table.schema.columns
            ]
            places = [duckdb.ColumnExpression(name) for name in ROW_COLUMNS]
            relation.select(*select, *places).create(changed := _temporary())
        try:
            check_not_null(connection, changed, [column for column in table.schema.columns if column.id in assigned])
            return replace_rows(context, tx, connection, table, plan, changed)
        finally:
            connection.execute(f"DROP TABLE {changed}")


def _assignment(value: Any) -> duckdb.Expression:
    if not isinstance(value, Expression):
        return constant(value)
    check_expression(value.sql)
    return duckdb.SQLExpression(value.sql)


def _temporary() -> str:
    return f"ql_changed_{uuid_module.uuid4().hex}"


# -- merge -------------------------------------------------------------------------------------------------------------


def merge(
    context: LakeContext,
    tx: Transaction,
    table: TableInfo,
    data: Input,
    on: Sequence[str],
    *,
    evolve: bool = False,
    asked: Operation = Operation.MERGE,
) -> MergeResult:
    """Update the rows whose keys occur in the source, and insert its other rows. Updated rows keep their row ids.

    Raises ``ConstraintError`` with the keys when the source has a key twice.
    """
    tx.asks(asked)
    source = data.opened(table.schema)
    if evolve:
        table = evolution.evolve(context, tx, table, source.schema)
    keys = [table.schema.find(name) for name in on]
    if not keys:
        raise InputError("merge needs at least one key column", hint='pass on="id"')
    matches = conform.match(source.schema, table.schema, table.qualified_name, partial=True)
    given = {found.column.id for found in matches if found.source is not None}
    lacking = [key.name for key in keys if key.id not in given]
    if lacking:
        raise SchemaMismatchError(
            f"the rows lack the key column {lacking[0]!r}", hint=f"they have {', '.join(source.schema.names)}"
        )
    with context.engine.connection() as connection:
        incoming, changed = _temporary(), _temporary()
        select = ", ".join(conform.expressions(matches))
        with source.lend() as rows, writing():
            connection.register("ql_source", rows)
            connection.execute(f"CREATE TABLE {incoming} AS SELECT {select} FROM ql_source")
        try:
            _check_keys(connection, incoming, keys)
            predicate = _key_range(connection, incoming, keys)
            plan = tx.plan(table, predicate)
            tx.pending(table).add_read(predicate)
            query = context.engine.bind(connection, plan, rows=True)
            columns = ", ".join(
                f"{'s' if column.id in given else 't'}.{quote(column.name)} AS {quote(column.name)}"
                for column in table.schema.columns
            )
            condition = " AND ".join(f"t.{quote(key.name)} = s.{quote(key.name)}" for key in keys)
            with writing():
                connection.execute(
                    f"CREATE TABLE {changed} AS SELECT {columns}, {', '.join(f't.{name}' for name in ROW_COLUMNS)}"
                    f" FROM ({query}) t JOIN {incoming} s ON {condition}"
                )
            same = " AND ".join(f"c.{quote(key.name)} = s.{quote(key.name)}" for key in keys)
            fresh = f"SELECT s.* FROM {incoming} s ANTI JOIN {changed} c ON {same}"
            inserted = insert_query(context, tx, connection, fresh, table)
            updated = replace_rows(context, tx, connection, table, plan, changed)
            return MergeResult(updated, inserted)
        finally:
            connection.execute(f"DROP TABLE IF EXISTS {incoming}; DROP TABLE IF EXISTS {changed}")


def append_new(
    context: LakeContext, tx: Transaction, table: TableInfo, data: Input, on: Sequence[str], *, evolve: bool = False
) -> int:
    """Add the rows whose keys are not in the table, the first of several with one key; return how many."""
    if data.empty:
        return 0
    tx.asks(Operation.INSERT)
    source = data.opened(table.schema)
    if evolve:
        table = evolution.evolve(context, tx, table, source.schema)
    keys = [table.schema.find(name) for name in on]
    names = ", ".join(quote(key.name) for key in keys)
    matches = context.match(source.schema, table, partial=evolve)
    with context.engine.connection() as connection:
        incoming = _temporary()
        with source.lend() as rows, writing():
            connection.register("ql_source", rows)
            connection.execute(
                f"CREATE TABLE {incoming} AS SELECT {', '.join(conform.expressions(matches))} FROM ql_source"
            )
        try:
            predicate = _key_range(connection, incoming, keys)
            plan = tx.plan(table, predicate)
            tx.pending(table).add_read(predicate)
            query = context.engine.bind(connection, plan)
            same = " AND ".join(f"s.{quote(key.name)} = t.{quote(key.name)}" for key in keys)
            first = f"SELECT DISTINCT ON ({names}) * FROM {incoming} ORDER BY rowid"
            with writing():
                return insert_query(
                    context, tx, connection, f"SELECT s.* FROM ({first}) s ANTI JOIN ({query}) t ON {same}", table
                )
        finally:
            connection.execute(f"DROP TABLE IF EXISTS {incoming}")


def _check_keys(connection: duckdb.DuckDBPyConnection, rows: str, keys: Sequence[Any]) -> None:
    names = ", ".join(quote(key.name) for key in keys)
    complete = " AND ".join(f"{quote(key.name)} IS NOT NULL" for key in keys)
    found = connection.execute(
        f"SELECT {names}, count(*) FROM {rows} WHERE {complete} GROUP BY {names} HAVING count(*) > 1"
        f" ORDER BY {names} LIMIT {DUPLICATES_SHOWN + 1:d}"
    ).fetchall()
    if found:
        raise duplicate_keys([key.name for key in keys], [row[:-1] for row in found])


def duplicate_keys(names: Sequence[str], found: Sequence[tuple[Any, ...]]) -> ConstraintError:
    """Return the error about duplicate keys; it shows the first ``DUPLICATES_SHOWN``."""
    shown = ", ".join(str(row[0] if len(names) == 1 else row) for row in found[:DUPLICATES_SHOWN])
    more = " and more" if len(found) > DUPLICATES_SHOWN else ""
    return ConstraintError(
        f"the rows have duplicate keys ({', '.join(names)}): {shown}{more}", hint="keep one row for each key"
    )


def _key_range(connection: duckdb.DuckDBPyConnection, rows: str, keys: Sequence[Any]) -> Predicate:
    """Return a predicate for the key range of the source, from the smallest to the largest."""
    parts: list[Predicate] = []
    for key in keys:
        if key.nested:
            continue
        name = quote(key.name)
        bounds = arrow_table(connection, f"SELECT min({name}) AS low, max({name}) AS high FROM {rows}")
        for column, operator in (("low", ">="), ("high", "<=")):
            found = of_array(bounds.column(column), key)[0]
            parts.append(compare(key, operator, decode(found.min if operator == ">=" else found.max, key.type)))
    return every(parts) if parts else ANYTHING
