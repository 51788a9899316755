"""The operations on rows inside a transaction: append, delete, update, merge and overwrite."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.duckdb_versions import arrow_table
from quacklake.core.engines.duckdb.connections import writing
from quacklake.core.engines.duckdb.engine import check_filter
from quacklake.core.engines.duckdb.finding import matching
from quacklake.core.engines.duckdb.sql import compared_names, needs_guard
from quacklake.core.format.bounds import ANYTHING, Predicate, compare, decode, every
from quacklake.core.format.names import fold, quote
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.format.snapshots import Operation
from quacklake.core.format.stats import of_array
from quacklake.core.operations import conform, evolution, row_changes
from quacklake.core.operations.conform import RowWriter, insert_few
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.row_changes import PLACES, Scope
from quacklake.core.operations.signed_zeros import has_negative_zero, split_at_negative_zero
from quacklake.core.operations.sources import Input, Source
from quacklake.core.operations.statements import DUPLICATES_SHOWN, Clause, Merge, MergeResult, Update, duplicate_keys
from quacklake.core.scan import Filter, ScanPlan, as_filter, to_predicate
from quacklake.core.transaction import Transaction
from quacklake.errors import InputError, SchemaMismatchError


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
    conform.check_index(source.index, table.schema, table.qualified_name)
    matches = context.match(source.schema, table, partial=evolve)
    small = source.first(context.inline_limit(table))
    if small is not None:
        if small.num_rows:
            rows = small if matches.fit(small) else conform.to_table(context.engine, small, matches)
            insert_few(context, tx, table, rows, [None] * rows.num_rows)
        return int(small.num_rows)
    select = ", ".join(conform.expressions(matches))
    with source.lend() as rows, context.engine.connection() as connection:
        writer, query = RowWriter(context, tx, table, connection), f"SELECT {select} FROM ql_source"
        if isinstance(rows, pa.Table):
            with writing():
                connection.register("ql_source", rows)
            # values of other types may become numbers inside of a variant
            unclear = any(leaf.type == "variant" for leaf in table.schema.leaves())
            zeros = None if unclear else any(map(has_negative_zero, rows.columns))
            return writer.write_query(query, size=source.size, negative_zeros=zeros)
        count = 0
        for part, negative_zeros in split_at_negative_zero(rows):
            with writing():
                connection.register("ql_source", part)
            count += writer.write_query(query, negative_zeros=negative_zeros)
        return count


def delete(
    context: LakeContext,
    tx: Transaction,
    table: TableInfo,
    where: Filter | None,
    *,
    asked: Operation = Operation.DELETE,
    counted: bool = True,
) -> int:
    """Delete the rows that match a filter; return how many.

    With ``counted`` false, all rows are deleted without being counted where only their files can tell how many there
    are, and the result is 0 then.
    """
    tx.asks(asked)
    where = as_filter(where)
    predicate = to_predicate(where, table.schema)
    plan = tx.plan(table, predicate)
    pending = tx.pending(table)
    pending.add_read(predicate)
    if where is None and plan.restriction is not None:
        where = "true"  # the rows that are visible
    if where is None:
        count = plan.count()
        if count is None:  # delete files may hold deletes of later snapshots
            count = context.engine.count(plan, None) if counted else 0
        pending.delete_all(plan)
        return count
    target = matching(context.engine, plan, where)
    pending.delete(plan, target)
    return target.count


def _places(context: LakeContext, plan: ScanPlan, where: pc.Expression) -> pa.Table:
    """Return the positions of the rows that match an Arrow expression."""
    return context.engine.scan(plan, columns=(), where=where, places=True).reader.read_all()


def overwrite(
    context: LakeContext, tx: Transaction, table: TableInfo, data: Input, where: Filter | None, *, evolve: bool = False
) -> int | None:
    """Replace the rows that match a filter (default: all), in one snapshot."""
    delete(context, tx, table, where, asked=Operation.OVERWRITE, counted=False)
    return append(context, tx, table, data, evolve=evolve, asked=Operation.OVERWRITE)


def update(
    context: LakeContext, tx: Transaction, table: TableInfo, values: Mapping[str, Any], where: Filter | None
) -> int:
    """Set columns of the rows that match a filter; return how many rows changed. Row ids stay."""
    if not values:
        raise InputError("nothing to update", hint='pass {"column": value}')
    tx.asks(Operation.UPDATE)
    if len({table.schema.find(name).id for name in values}) != len(values):
        raise InputError("a column is set twice")
    where = as_filter(where)
    predicate = to_predicate(where, table.schema)
    plan = tx.plan(table, predicate)
    if isinstance(where, str):
        check_filter(where)
    with context.engine.connection() as connection:
        query = context.engine.bind(connection, plan, rows=True, where=where)
        if where is not None and not isinstance(where, str):
            connection.register("ql_places", _places(context, plan, where))
            same = " AND ".join(f"t.{name} IS NOT DISTINCT FROM p.{name}" for name in PLACES.split(", "))
            query, where = f"SELECT t.* FROM ({query}) t SEMI JOIN ql_places p ON {same}", None
        scope = Scope(context, tx, table, connection, f"({query}) AS _ql_t", "_ql_t", plan=plan, predicate=predicate)
        with writing():
            return row_changes.update(scope, Update(tuple(values), tuple(values.values()), where))


_UPSERT = (Clause("both", "update"), Clause("source", "insert"))


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
    """Update the rows whose keys occur in the source, and insert its others. Raise ``ConstraintError``."""
    statement = Merge(tuple(on), _UPSERT, evolve=evolve)
    return run_merge(context, tx, table, data, statement, keys=Keys.ONCE, asked=asked)


def append_new(
    context: LakeContext, tx: Transaction, table: TableInfo, data: Input, on: Sequence[str], *, evolve: bool = False
) -> int:
    """Add the rows whose keys are not in the table, the first of several with one key; return how many."""
    if data.empty:
        return 0
    statement = Merge(tuple(on), _UPSERT[1:], evolve=evolve)
    return run_merge(
        context, tx, table, data, statement, keys=Keys.FIRST, asked=Operation.INSERT, partial=evolve
    ).inserted


def delete_keys(context: LakeContext, tx: Transaction, table: TableInfo, rows: pa.Table, on: Sequence[str]) -> int:
    """Delete the rows with the same keys as ``rows``; return how many."""
    if not rows.num_rows:
        return 0
    statement = Merge(tuple(on), (Clause("both", "delete"),), once=True)
    source = Source(rows.schema, rows)
    return run_merge(context, tx, table, source, statement, asked=None).deleted


class Keys(enum.Enum):
    """The treatment of several rows of a source that have one key."""

    ANY = enum.auto()
    ONCE = enum.auto()  # an error
    FIRST = enum.auto()  # the first one counts


def run_merge(
    context: LakeContext,
    tx: Transaction,
    table: TableInfo,
    data: Input,
    statement: Merge,
    *,
    keys: Keys = Keys.ANY,
    asked: Operation | None = Operation.MERGE,
    partial: bool = True,
) -> MergeResult:
    """Merge rows into a table. With ``partial``, the rows may lack columns of the table.

    Keys are compared as the table stores them. Raise ``SchemaMismatchError`` for keys, and for columns that a clause
    takes as they are, that do not fit the table.
    """
    if asked is not None:
        tx.asks(asked)
    source = data.opened(table.schema)
    if statement.evolve:
        table = evolution.evolve(context, tx, table, source.schema)
    on = [table.schema.find(name) for name in statement.on] if isinstance(statement.on, tuple) else []
    if all(clause.takes_all for clause in statement.clauses):
        conform.check_index(source.index, table.schema, table.qualified_name)
    given = conform.given_schema(source.schema, table.qualified_name)
    lacking = next((key.name for key in on if given.get(key.name) is None), None)
    if lacking is not None:
        raise SchemaMismatchError(
            f"the rows lack the key column {lacking!r}", hint=f"they have {', '.join(source.schema.names)}"
        )
    with context.engine.connection() as connection, writing():
        scope = Scope(context, tx, table, connection)
        scope.conformed, scope.given = all(clause.takes_all for clause in statement.clauses), given.names
        with source.lend() as rows:
            connection.register("ql_source", rows)
            query = _incoming(table, given, statement, on, partial=partial)
            name = scope.numbered(query, first=[key.name for key in on] if keys is Keys.FIRST else ())
        scope.source = f"temp.main.{name} AS source"
        if keys is Keys.ONCE:
            _check_keys(connection, name, on)
        if on and not statement.has("target"):
            scope.predicate = _key_range(connection, name, on)
        scope.plan = tx.plan(table, scope.predicate)
        texts = (statement.on, *(clause.condition for clause in statement.clauses))
        guarded = any(needs_guard(str(text)) for text in texts)
        columns = table.schema.columns
        compared = {fold(key.name) for key in on}.union(*(compared_names(str(text), columns) for text in texts))
        query = context.engine.bind(connection, scope.plan, rows=True, guarded=guarded, compared=compared)
        scope.target = f"({query}) AS target"
        return row_changes.merge(scope, statement, unique=keys is not Keys.ANY)


def _incoming(table: TableInfo, given: TableSchema, statement: Merge, on: Sequence[Column], *, partial: bool) -> str:
    """Return the query of the source. Keys get the table's types, and so do all columns if they are used unchanged."""
    whole = all(clause.takes_all for clause in statement.clauses)
    fitting = given
    if not any(clause.takes_all for clause in statement.clauses):
        fitting, partial = TableSchema(tuple(given.find(key.name) for key in on)), True
    matches = conform.match_given(fitting, table.schema, table.qualified_name, partial=partial)
    chosen = [found for found in matches if found.source is not None and (whole or found.column in on)]
    taken = [found.source for found in chosen]
    select = conform.expressions(chosen, checked=whole)
    select += [quote(name) for name in given.names if name not in taken]
    return f"SELECT {', '.join(select)} FROM ql_source"


def _check_keys(connection: duckdb.DuckDBPyConnection, rows: str, keys: Sequence[Any]) -> None:
    names = ", ".join(quote(key.name) for key in keys)
    complete = " AND ".join(f"{quote(key.name)} IS NOT NULL" for key in keys)
    found = connection.execute(
        f"SELECT {names}, count(*) FROM {rows} WHERE {complete} GROUP BY {names} HAVING count(*) > 1"
        f" ORDER BY {names} LIMIT {DUPLICATES_SHOWN + 1:d}"
    ).fetchall()
    if found:
        raise duplicate_keys([key.name for key in keys], [row[:-1] for row in found])


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
