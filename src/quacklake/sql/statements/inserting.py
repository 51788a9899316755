"""INSERT, and inserting the rows of any query into a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quacklake.duckdb_versions import arrow_reader
from quacklake.engines.duckdb.expressions import order_keys
from quacklake.errors import SqlError
from quacklake.format.names import quote
from quacklake.format.objects import TableInfo
from quacklake.format.schema import Column
from quacklake.format.snapshots import Operation
from quacklake.operations import dml, inserting
from quacklake.operations.conform import default_value
from quacklake.operations.frames import Source
from quacklake.sql import tree
from quacklake.sql.attached import Attached, Target
from quacklake.sql.binder import Binder
from quacklake.sql.result import Result
from quacklake.sql.statements import queries
from quacklake.sql.statements.on_conflict import Conflict, parse_conflict
from quacklake.sql.statements.rows import counted, find_table, prefix_of, returning_of, stand_in
from quacklake.sql.tree import Node
from quacklake.sql.words import Cursor
from quacklake.transaction import Transaction

if TYPE_CHECKING:
    from quacklake.sql.session import Session

_BATCH_ROWS = 122_880


@dataclass(frozen=True, slots=True)
class Insert:
    """An INSERT statement. ``named`` is the table as it is written."""

    target: Target
    columns: tuple[str, ...] | None
    by_name: bool
    query: str | None
    returning: str
    named: str = ""
    alias: str | None = None
    conflict: Conflict | None = None


def insert(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run INSERT [OR REPLACE | OR IGNORE] INTO name [(columns)] [BY NAME] query | VALUES … | DEFAULT VALUES.

    ON CONFLICT … and RETURNING … may follow.
    """
    prefix = prefix_of(cursor)
    cursor.expect("INSERT")
    replacing, ignoring = cursor.accept("OR", "REPLACE"), cursor.accept("OR", "IGNORE")
    cursor.expect("INTO")
    first = cursor.at
    target = session.names.target(cursor.names())
    named = cursor.slice(first, cursor.at)
    if target is None:
        return queries.native_rows(session, Cursor(cursor.text), params)
    alias = cursor.name() if cursor.accept("AS") else None
    columns = None
    if cursor.sees("(") and not _is_query(cursor):
        columns = tuple(Cursor(item).name() for item in cursor.items())
    by_name = cursor.accept("BY", "NAME")
    cursor.accept("BY", "POSITION")
    query: str | None = None
    if not cursor.accept("DEFAULT", "VALUES"):
        query = prefix + _query(cursor)
    conflict = parse_conflict(cursor, replacing=replacing, ignoring=ignoring)
    returning = returning_of(cursor)
    cursor.end()
    statement = Insert(target, columns, by_name, query, returning, named, alias, conflict)
    if conflict is None:
        return _insert(session, statement, params)
    from quacklake.sql.statements.upserting import upsert  # imports this module itself

    return upsert(session, statement, conflict, params)


def _query(cursor: Cursor) -> str:
    """Return the text up to RETURNING or ON CONFLICT; any other ON belongs to a join."""
    first = cursor.at
    while True:
        cursor.until("RETURNING", "ON")
        if not cursor.sees("ON") or cursor.sees("ON", "CONFLICT"):
            return cursor.slice(first, cursor.at)
        cursor.take()


def _is_query(cursor: Cursor) -> bool:
    """Return True when parentheses hold a query rather than column names."""
    following = cursor.peek(1)
    return following is not None and following.upper in ("SELECT", "FROM", "VALUES", "WITH", "(", "TABLE")


def _insert(session: Session, statement: Insert, params: Any) -> Result:
    returned: list[Result] = []

    def work(tx: Transaction) -> int:
        table = find_table(statement.target, tx)
        sql, values, _ = proposed(session, statement, table, params)
        if not statement.returning:
            return append_bound(session, tx, statement.target.attached, table, sql, values)
        rows = session.fresh_name()
        session.connection.execute(f"CREATE TEMP TABLE {rows} AS {sql}", values)
        returned[:] = [_returning(session, statement, rows)]
        return append_bound(session, tx, statement.target.attached, table, f"FROM {rows}", None)

    count = session.write(statement.target.attached, work)
    return returned[0] if statement.returning else counted(count)


def proposed(session: Session, statement: Insert, table: TableInfo, params: Any) -> tuple[str, Any, list[Column]]:
    """Return the rows to insert as a bound query of the table's columns, its values, and the columns that are given."""
    chosen = _chosen(table, statement.columns)
    if statement.query is None:
        return _all_defaults(table), None, []
    bound = Binder(session, params).bind(
        statement.query, change=lambda node: _fit_values(session, node, table, chosen, statement.by_name)
    )
    given = session.connection.execute(f"DESCRIBE {bound.sql}", bound.values).fetchall()
    places = _pairs(table, chosen, [str(row[0]) for row in given], statement)
    columns = [column for column in table.schema.columns if column.id in places]
    return conforming(table, places, bound.sql), bound.values, columns


def _returning(session: Session, statement: Insert, name: str) -> Result:
    alias = "" if statement.alias is None else f" AS {quote(statement.alias)}"
    query = f"SELECT {statement.returning} FROM {statement.named}{alias}"
    result = session.query(query, stand_ins=stand_in(statement.target, name))
    result.keep()  # read all rows first, so that an error in them changes nothing
    return result


def _chosen(table: TableInfo, columns: Sequence[str] | None) -> list[Column]:
    if columns is None:
        return list(table.schema.columns)
    found = [table.schema.find(name) for name in columns]
    if len({column.id for column in found}) != len(found):
        raise SqlError(f"Binder Error: a column is named twice in INSERT INTO {table.name}")
    return found


def _pairs(table: TableInfo, chosen: Sequence[Column], given: Sequence[str], statement: Insert) -> dict[int, int]:
    """Map the id of each column to the position of its value in the query."""
    if statement.by_name:
        if statement.columns is not None:
            raise SqlError("Binder Error: INSERT BY NAME takes no list of columns")
        return {table.schema.find(name).id: place for place, name in enumerate(given)}
    if len(given) != len(chosen):
        what = (
            f"table {table.name} has {len(chosen)} columns"
            if statement.columns is None
            else (f"{len(chosen)} columns are named")
        )
        raise SqlError(f"Binder Error: {what} but {len(given)} values were supplied")
    return {column.id: place for place, column in enumerate(chosen)}


def _all_defaults(table: TableInfo) -> str:
    return f"SELECT {', '.join(_value(default_value(column), column) for column in table.schema.columns)}"


def conforming(table: TableInfo, places: dict[int, int], query: str) -> str:
    """Wrap the query so that it returns exactly the columns and types of the table."""
    width = max(places.values(), default=-1) + 1
    select = ", ".join(
        _value(f"src.c{places[column.id]}" if column.id in places else default_value(column), column)
        for column in table.schema.columns
    )
    return f"SELECT {select} FROM ({query}) AS src({', '.join(f'c{place}' for place in range(width))})"


def _value(sql: str, column: Column) -> str:
    return f"CAST({sql} AS {column.duckdb_type()}) AS {quote(column.name)}"


def _fit_values(session: Session, parsed: Node, table: TableInfo, chosen: Sequence[Column], by_name: bool) -> None:
    """Cast values to the types of their columns, and replace DEFAULT by the defaults of the columns."""
    source = parsed["node"].get("from_table") or {}
    if source.get("type") != "EXPRESSION_LIST" or by_name:
        return
    types = [tree.type_node(session.connection, column.duckdb_type()) for column in chosen]
    defaults: dict[int, Node] = {}
    for row in source["values"]:
        if len(row) != len(chosen):
            continue
        for place, column in enumerate(chosen):
            value = row[place]
            if value.get("class") == "DEFAULT":
                if place not in defaults:
                    defaults[place] = tree.expression_of(session.connection, default_value(column))
                value = defaults[place]
            row[place] = tree.cast(value, types[place])


def append_bound(
    session: Session,
    tx: Transaction,
    attached: Attached,
    table: TableInfo,
    sql: str,
    values: Any,
    asked: Operation = Operation.INSERT,
) -> int:
    """Insert the rows of a query that has the table's columns and types. Return their number."""
    tx.asks(asked)
    if any(column.travels_as_text for column in table.schema.columns):
        return _append_kept(session, tx, attached, table, sql, values)
    attached.context.store.make_parent(f"{table.location}x")  # as stock DuckLake does, even for rows in the catalog
    options = attached.context.write_options(table)
    for macro in options.macros:  # before the first row is read
        session.connection.execute(macro.statement)
    reader = arrow_reader(session.connection, sql, values, batch_rows=_BATCH_ROWS)
    counts = [0]

    def counting() -> Any:
        for batch in reader:
            counts[0] += batch.num_rows
            yield batch

    source = Source(reader.schema, stream=pa.RecordBatchReader.from_batches(reader.schema, counting()))
    if table.sort is not None and options.sort:
        _sort_small(session, attached, table, source)
    dml.append(attached.context, tx, table, source, asked=asked)
    return counts[0]


def _sort_small(session: Session, attached: Attached, table: TableInfo, source: Source) -> None:
    """Sort rows for the catalog by the table's sort order, as stock DuckLake does. The writer sorts those of files."""
    few = source.first(attached.context.inline_limit(table))
    order = order_keys(table.sort, attached.context.write_options(table).macros)
    if few is not None and few.num_rows and order:
        name = session.fresh_name()
        session.connection.register(name, few)
        source.table = session.rows(f"SELECT * FROM {name} ORDER BY {', '.join(order)}").cast(few.schema)


def _append_kept(session: Session, tx: Transaction, attached: Attached, table: TableInfo, sql: str, values: Any) -> int:
    """Insert rows with types that Arrow does not carry. They never leave DuckDB."""
    name = session.fresh_name()
    session.connection.execute(f"CREATE TEMP TABLE {name} AS {sql}", values)
    inserting.check_not_null(session.connection, name, list(table.schema.columns))
    return inserting.insert_query(attached.context, tx, session.connection, f"SELECT * FROM {name}", table)
