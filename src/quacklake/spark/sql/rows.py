"""INSERT, DELETE and UPDATE in Spark: executors find and write the rows, the lake commits them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from sqlglot import exp

from quacklake.core.format.layout import IDENTITY
from quacklake.core.operations import dml
from quacklake.errors import SqlError
from quacklake.extend.names import TableRef, fold
from quacklake.extend.partitions import overwrite_partitions
from quacklake.extend.predicates import ANYTHING, Predicate
from quacklake.extend.schemas import TableInfo
from quacklake.extend.writes import Operation, Transaction
from quacklake.spark.changes.clauses import ChangeClause, change
from quacklake.spark.changes.clauses import delete as delete_rows
from quacklake.spark.changes.staged_changes import ChangeMetrics, counted
from quacklake.spark.runtime.session import has_time, overwrites_dynamically
from quacklake.spark.runtime.types import quote
from quacklake.spark.runtime.words import SparkCursor
from quacklake.spark.sql.parsing import parse
from quacklake.spark.sql.pruning import conditions, predicate_of
from quacklake.spark.sql.queries import TARGET, Rewriter, run_query, zone_of
from quacklake.spark.sql.statement import SqlText, Statement
from quacklake.spark.write.rows import SparkRows, default_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BEGINS = ("SELECT", "VALUES", "FROM", "TABLE", "WITH", "MAP", "REDUCE")
_SET = "_ql_set_"


def insert(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run INSERT INTO | OVERWRITE [TABLE] name [PARTITION (…)] [(columns) | BY NAME] | REPLACE WHERE filter query."""
    prefix = cursor.prefix()
    first = cursor.at
    cursor.expect("INSERT")
    overwriting = cursor.accept("OVERWRITE")
    if not overwriting:
        cursor.expect("INTO")
    cursor.accept("TABLE")
    table = statement.table(cursor.names())
    if table is None:
        cursor.until(*_BEGINS)
        head = cursor.slice(first, cursor.at)
        return run_query(statement, prefix + cursor.rest(), f"{head} ")
    keys = _partition(cursor) if cursor.accept("PARTITION") else {}
    if cursor.accept("IF", "NOT", "EXISTS"):
        raise cursor.fail("IF NOT EXISTS is not for the partitions of a lake")
    where = None
    by_name, columns = cursor.accept("BY", "NAME"), None
    if not by_name and cursor.accept("REPLACE", "WHERE"):
        where = cursor.until(*_BEGINS)
    elif not by_name and cursor.sees("(") and not _is_query(cursor):
        columns = [SparkCursor(item).name() for item in cursor.items()]
    rows = run_query(statement, prefix + cursor.rest())
    fixed = {name: value for name, value in keys.items() if value is not None}
    dynamic = overwriting and _is_dynamic(statement, table, fixed)
    if overwriting and fixed and not dynamic:
        where = " AND ".join(
            f"{quote(name)} IS NULL" if fold(value) == "null" else f"{quote(name)} = {value}"
            for name, value in fixed.items()
        )
    named = rows if by_name else _rename_columns(rows, table, keys, columns)
    for name, value in fixed.items():
        with statement.translating():
            named = named.withColumn(name, f.expr(value))
    partial = columns is not None or by_name
    emptied = overwriting and where is None
    return _write(statement, named, table, where, dynamic=dynamic, emptied=emptied, partial=partial)


def _partition(cursor: SparkCursor) -> dict[str, str | None]:
    """Parse the keys of PARTITION (a = 1, b), including those without a value."""
    found: dict[str, str | None] = {}
    for item in cursor.items():
        inner = SparkCursor(item)
        name = inner.name()
        found[name] = inner.rest() if inner.accept("=") else None
        inner.end()
    return found


def _is_query(cursor: SparkCursor) -> bool:
    following = cursor.peek(1)
    return following is not None and following.upper in (*_BEGINS, "(")


def _is_dynamic(statement: Statement, table: TableInfo, fixed: Mapping[str, str]) -> bool:
    """Return True when only partitions with new rows are replaced, as the session says, unless all keys are given."""
    keys = () if table.partition is None else table.partition.keys
    said = {fold(name) for name in fixed}
    given = all(key.parsed == IDENTITY and fold(table.schema.by_id(key.column_id).name) in said for key in keys)
    return not given and overwrites_dynamically(statement.engine.session)


def _rename_columns(
    rows: DataFrame, table: TableInfo, keys: Mapping[str, str | None], columns: Sequence[str] | None
) -> DataFrame:
    """Rename the columns of rows to the columns that they are for, by order."""
    said = {fold(name) for name in keys}
    wanted = columns
    if wanted is None:
        wanted = [name for name in table.schema.names if fold(name) not in said]
        wanted += [name for name, value in keys.items() if value is None]
    if len(wanted) != len(rows.columns):
        raise SqlError(
            f"{table.qualified_name} takes {len(wanted)} columns ({', '.join(wanted)}),"
            f" but {len(rows.columns)} are given",
            hint="name the columns that are given, or write BY NAME",
        )
    return rows.toDF(*wanted)


def _write(
    statement: Statement,
    rows: DataFrame,
    table: TableInfo,
    where: str | None,
    *,
    dynamic: bool,
    emptied: bool,
    partial: bool,
) -> DataFrame:
    """Insert rows, and replace the partitions that they are in, all rows, or those that match a filter."""
    engine = statement.engine
    done: list[tuple[int, int]] = []

    def work(tx: Transaction, given: SparkRows) -> None:
        info = tx.find_table(table.schema_name, table.name)
        gone = 0
        if dynamic:
            count = overwrite_partitions(engine.context, tx, info, lambda: counted(tx, info, given))
            done[:] = [(count, 0)]
            return
        if emptied:
            dml.delete(engine.context, tx, info, None, asked=Operation.OVERWRITE, counted=False)
        elif where is not None:
            gone = _change_rows(statement.within(tx), tx, info, info.name, _Change(where)).deleted
        done[:] = [(counted(tx, info, given), gone)]

    engine.write(rows, work, partial=partial)
    inserted, gone = done[0]
    return statement.numbers(num_affected_rows=inserted + gone, num_inserted_rows=inserted)


@dataclass(frozen=True, slots=True)
class _Change:
    """The texts of DELETE, or of UPDATE with ``values`` by column."""

    where: str | None
    values: Mapping[str, str] | None = None


def delete(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run DELETE FROM name [alias] [WHERE condition]."""
    _refuse_prefix(cursor)
    cursor.expect("DELETE", "FROM")
    table = statement.table(cursor.names())
    if table is None:
        return statement.run(SqlText(cursor.text), cursor.text)
    alias = cursor.alias("WHERE") or table.name
    where = _condition(cursor)
    if where is None:
        done = statement.engine.handle.run(
            lambda tx: delete_rows(statement.engine, tx, TableRef(table.schema_name, table.name), None)
        )
    else:
        done = _run_change(statement, table, alias, _Change(where))
    return statement.numbers(num_affected_rows=done.deleted)


def update(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run UPDATE name [alias] SET column = value, … [WHERE condition]."""
    _refuse_prefix(cursor)
    cursor.expect("UPDATE")
    table = statement.table(cursor.names())
    if table is None:
        return statement.run(SqlText(cursor.text), cursor.text)
    alias = cursor.alias("SET") or table.name
    cursor.expect("SET")
    assigned = assignments(cursor, alias)
    done = _run_change(statement, table, alias, _Change(_condition(cursor), assigned))
    return statement.numbers(num_affected_rows=done.updated)


def _condition(cursor: SparkCursor) -> str | None:
    where = cursor.accept("WHERE")
    if where == cursor.done:
        raise cursor.unexpected()
    return cursor.rest() if where else None


def _refuse_prefix(cursor: SparkCursor) -> None:
    if cursor.sees("WITH"):
        raise cursor.fail("Spark has no common tables before DELETE and UPDATE: put them into a subquery")


def assignments(cursor: SparkCursor, alias: str) -> dict[str, str]:
    """Parse ``column = value, …`` into texts of values by column."""
    found: dict[str, str] = {}
    while True:
        names = cursor.names()
        if len(names) > 1 and fold(names[0]) == fold(alias):
            names = names[1:]
        if len(names) > 1:
            raise cursor.fail("fields of a struct cannot be set by themselves: set the whole struct")
        if not cursor.accept("=") and not cursor.accept("=="):
            raise cursor.unexpected()
        if fold(names[0]) in map(fold, found):
            raise cursor.fail(f'the column "{names[0]}" is set twice')
        found[names[0]] = cursor.until(",", "WHERE", "WHEN")
        if not cursor.accept(","):
            return found


def _run_change(statement: Statement, table: TableInfo, alias: str, change: _Change) -> ChangeMetrics:
    def work(tx: Transaction) -> ChangeMetrics:
        info = tx.find_table(table.schema_name, table.name)
        return _change_rows(statement.within(tx), tx, info, alias, change)

    return statement.engine.handle.run(work)


def _change_rows(statement: Statement, tx: Transaction, table: TableInfo, alias: str, given: _Change) -> ChangeMetrics:
    """Delete rows of a table, or set their columns, within a transaction. Spark itself parses the texts."""
    time, where = has_time(statement.engine.session), given.where
    values = {table.schema.find(name): value for name, value in (given.values or {}).items()}
    sets = [
        f"({default_of(column, time=time) if fold(value) == 'default' else value}) AS {_SET}{column.id}"
        for column, value in values.items()
    ]
    for text in (*values.values(), *([] if where is None else [where])):
        parse(Rewriter.plain(text))  # so that an error shows its position in this text
    query = f"SELECT {', '.join(['*', *sets])} FROM {TARGET} AS {quote(alias)}"
    query += "" if where is None else f" WHERE {where}"
    tree = parse(Rewriter.plain(query))
    target = next(each for each in tree.find_all(exp.Table) if each.name == TARGET)
    predicate = predicate_of(conditions(target), table.schema, zone_of(statement))

    def choose(rows: DataFrame) -> tuple[DataFrame, ChangeClause, Predicate]:
        rewriter = Rewriter(statement, target=(rows, table))
        found = statement.run(rewriter.text(query))
        again = any(info.id == table.id and where_ is tx for info, where_ in rewriter.read)
        chosen = None if given.values is None else {column.id: f.col(f"{_SET}{column.id}") for column in values}
        return found, ChangeClause(f.lit(True), chosen), ANYTHING if again else predicate

    return change(statement.engine, tx, table, predicate, choose, deletes=given.values is None)
