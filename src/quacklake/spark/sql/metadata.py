"""Metadata of a table as relations beside it: ``t.snapshots``, ``t.history``, ``t.files``, ``t.changes``; CALL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from quacklake.core.operations.options import lake_history, table_history
from quacklake.core.sql.lake_functions import FUNCTIONS
from quacklake.errors import SqlError, UnsupportedFeatureError, nearest
from quacklake.extend.names import fold, quote
from quacklake.extend.names import literal as lake_literal
from quacklake.extend.schemas import TableInfo
from quacklake.extend.writes import Transaction
from quacklake.spark.maintenance import spark_maintenance
from quacklake.spark.runtime.words import SparkCursor
from quacklake.spark.sql.statement import Statement
from quacklake.spark.streams.pipeline import batch_frame
from quacklake.spark.streams.source import EARLIEST, open_source

_FEEDS = ("table_changes", "table_insertions", "table_deletions")
_TELLING = (
    "snapshots",
    "table_info",
    "list_files",
    "current_snapshot",
    "last_committed_snapshot",
    "options",
    "settings",
)


def described(statement: Statement, names: Sequence[str], tx: Transaction) -> DataFrame | None:
    """Return the metadata of a table by a name such as ``t.files``, or None for any other name."""
    table = owner(statement, names, tx)
    return None if table is None else TABLES[fold(names[-1])](statement, table, tx)


def owner(statement: Statement, names: Sequence[str], tx: Transaction) -> TableInfo | None:
    """Return the table whose metadata a name such as ``t.files`` means, or None for any other name."""
    if len(names) < 2 or fold(names[-1]) not in TABLES:
        return None
    found = statement.find(names[:-1], tx)
    return found if isinstance(found, TableInfo) else None


def _until(rows: pa.Table, tx: Transaction) -> pa.Table:
    return rows.filter(pc.less_equal(rows.column("snapshot_id"), tx.base.id))


def _snapshots(statement: Statement, table: TableInfo, tx: Transaction) -> DataFrame:
    """Return the snapshots at which a table can be read."""
    rows = _until(lake_history(statement.engine.context), tx)
    made = table_history(statement.engine.context, table)
    created = made.filter(pc.match_substring(made.column("changes"), "created_table"))
    first = pc.max(created.column("snapshot_id")).as_py() or 0
    return statement.rows(rows.filter(pc.greater_equal(rows.column("snapshot_id"), first)))


def _files(statement: Statement, table: TableInfo, tx: Transaction) -> DataFrame:
    """Return the data files of a table with their delete files, without keys."""
    alias = lake_literal(statement.attached.alias)
    name, schema = lake_literal(table.name), lake_literal(table.schema_name)
    call = f"ducklake_list_files({alias}, {name}, schema => {schema}, snapshot_version => {tx.base.id:d})"
    rows = statement.session.sql(f"SELECT * FROM {call}").to_arrow()
    return statement.rows(rows.drop_columns([name for name in rows.column_names if name.endswith("_key")]))


def _changes(statement: Statement, table: TableInfo, tx: Transaction) -> DataFrame:
    """Return the changes of the rows of a table, from its oldest remaining state."""
    source = open_source(statement.engine.context, table, changes=True)
    start = source.start(EARLIEST)
    plan = source.plan(start, {"table": table.id, "after": max(tx.base.id, start["after"])})
    return batch_frame(statement.engine, source, plan)


TABLES: Mapping[str, Callable[[Statement, TableInfo, Transaction], DataFrame]] = {
    "snapshots": _snapshots,
    "history": lambda statement, table, tx: statement.rows(_until(table_history(statement.engine.context, table), tx)),
    "files": _files,
    "changes": _changes,
}


def is_function(names: Sequence[str]) -> bool:
    return fold(names[-1]).removeprefix("ducklake_") in FUNCTIONS


def called(statement: Statement, names: Sequence[str], items: Sequence[str]) -> DataFrame:
    name = fold(names[-1]).removeprefix("ducklake_")
    if name in _FEEDS:
        raise UnsupportedFeatureError(
            f"{names[-1]} cannot be called in Spark", hint="the table NAME.changes has the changes of the table NAME"
        )
    if name not in _TELLING:
        raise SqlError(f"{names[-1]} changes the lake, so that it cannot stand in a query", hint=f"CALL {names[-1]}(…)")
    text, values = arguments(statement, items)
    return statement.lake_sql(f"SELECT * FROM {'.'.join(map(quote, names))}({text})", values)


def arguments(statement: Statement, items: Sequence[str]) -> tuple[str, list[Any]]:
    """Return the arguments of a call in the SQL of the lake, and their values."""
    texts, values = [], []
    for number, (name, value) in enumerate(map(argument, items), 1):
        texts.append(f"{quote(name)} => ${number}" if name else f"${number}")
        values.append(statement.constant(value))
    return ", ".join(texts), values


def argument(item: str) -> tuple[str, str]:
    """Return the name of an argument, if it has one, and the text of its value."""
    cursor = SparkCursor(item)
    following = cursor.peek(1)
    if following is not None and following.text in ("=>", "="):
        name = cursor.name()
        cursor.take()
        return name, cursor.rest()
    return "", item


#: Procedures that Spark runs on the files of tables.
_ON_SPARK = ("flush_inlined_data", "merge_adjacent_files", "rewrite_data_files", "optimize")
_OPTIMIZE = ("table_name", "order_by", "zorder")


def call(statement: Statement, cursor: SparkCursor) -> DataFrame:
    """Run CALL [lake.][system.]procedure(argument, name => argument, …)."""
    cursor.expect("CALL")
    names = cursor.names()
    items = cursor.items()
    cursor.end()
    name = fold(names[-1]).removeprefix("ducklake_")
    if name not in FUNCTIONS:
        raise SqlError(f'a lake has no procedure "{names[-1]}"', hint=nearest(name, FUNCTIONS))
    if name == "set_commit_message":
        raise UnsupportedFeatureError(
            "every Spark statement is its own commit, so a message cannot wait for the next one",
            hint='sign the lake first: quacklake.spark(lake.signed("message", "author"))',
        )
    if name in _ON_SPARK:
        statement.session.keeper = spark_maintenance(statement.engine)
    if name == "optimize":
        items = [_name_argument(item, key) for item, key in zip_longest(items, _OPTIMIZE[: len(items)])]
    text, values = arguments(statement, items)
    return statement.lake_sql(f"CALL {quote(name)}({text})", values)


def _name_argument(item: str, parameter: str | None) -> str:
    """Return an argument with the name of its parameter, which Spark may leave out."""
    return f"{parameter} => {item}" if parameter and not argument(item)[0] else item
