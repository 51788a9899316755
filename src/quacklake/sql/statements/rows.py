"""INSERT, UPDATE, DELETE and TRUNCATE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quacklake.engines.duckdb.engine import places_to_target
from quacklake.engines.duckdb.sql import ROW_COLUMNS
from quacklake.errors import InputError, SqlError
from quacklake.format.names import fold, quote
from quacklake.format.objects import TableInfo
from quacklake.format.predicate import ANYTHING
from quacklake.format.schema import Column
from quacklake.format.sorting import order_by
from quacklake.lake import operations
from quacklake.lake.conform import default_value
from quacklake.lake.frames import Source
from quacklake.lake.result import Result
from quacklake.sql import tree
from quacklake.sql.attached import Attached, Target
from quacklake.sql.binder import Binder, Bound, Scan
from quacklake.sql.names import missing
from quacklake.sql.statements import queries
from quacklake.sql.tree import Node
from quacklake.sql.words import Cursor
from quacklake.transaction import Transaction

if TYPE_CHECKING:
    from quacklake.sql.session import Session

__all__ = ["append_bound", "conforming", "counted", "delete", "find_table", "insert", "note_read", "truncate", "update"]

_BATCH_ROWS = 122_880
_PLACES = "_ql_file_id, _ql_version, _ql_position"


def counted(count: int) -> Result:
    """The answer of a statement that changes rows."""
    return Result(pa.table({"Count": pa.array([count], pa.int64())}), types=("BIGINT",), rowcount=count)


def find_table(target: Target, tx: Transaction) -> TableInfo:
    """The table that a statement changes. Raises ``NotFoundError`` with the nearest names."""
    found = tx.get_table(target.schema, target.name)
    if found is not None:
        return found
    if tx.objects.get_view(target.schema, target.name) is not None:
        raise SqlError(f'"{target.name}" is a view: only tables can be changed')
    raise missing(target, tx)


def prefix_of(cursor: Cursor, keyword: str) -> str:
    """The common tables before a statement, with the blank behind them."""
    if not cursor.sees("WITH"):
        return ""
    return f"{cursor.until(keyword)} "


# -- insert ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Insert:
    target: Target
    columns: tuple[str, ...] | None
    by_name: bool
    query: str | None
    returning: str


def insert(session: Session, cursor: Cursor, params: Any) -> Result:
    """INSERT INTO name [(columns)] [BY NAME] query | VALUES … | DEFAULT VALUES [RETURNING …]."""
    prefix = prefix_of(cursor, "INSERT")
    cursor.expect("INSERT")
    conflict = cursor.accept("OR", "REPLACE") or cursor.accept("OR", "IGNORE")
    cursor.expect("INTO")
    target = session.names.target(cursor.names())
    if target is None:
        return queries.native_rows(session, Cursor(cursor.text), params)
    if cursor.accept("AS"):
        cursor.name()
    columns = None
    if cursor.sees("(") and not _is_query(cursor):
        columns = tuple(Cursor(item).name() for item in cursor.items())
    by_name = cursor.accept("BY", "NAME")
    cursor.accept("BY", "POSITION")
    query: str | None = None
    if not cursor.accept("DEFAULT", "VALUES"):
        query = prefix + cursor.until("RETURNING", "ON") if not conflict else ""
    while query is not None and cursor.sees("ON") and not cursor.sees("ON", "CONFLICT"):
        cursor.take()
        query = prefix + cursor.slice(_query_start(cursor, query, prefix), cursor.at)
        query += f" {cursor.until('RETURNING', 'ON')}"
    if conflict or cursor.sees("ON", "CONFLICT"):
        raise SqlError(
            "Binder Error: There are no UNIQUE/PRIMARY KEY constraints that ON CONFLICT could refer to in a lake",
            hint="MERGE INTO does what ON CONFLICT does",
        )
    returning = cursor.rest() if cursor.accept("RETURNING") else ""
    cursor.end()
    return _insert(session, _Insert(target, columns, by_name, query, returning), params)


def _query_start(cursor: Cursor, query: str, prefix: str) -> int:
    length = len(Cursor(query[len(prefix) :]).words)
    return cursor.at - 1 - length


def _is_query(cursor: Cursor) -> bool:
    """True when parentheses hold a query, not the names of columns."""
    following = cursor.peek(1)
    return following is not None and following.upper in ("SELECT", "FROM", "VALUES", "WITH", "(", "TABLE")


def _insert(session: Session, statement: _Insert, params: Any) -> Result:
    returned: list[str] = []

    def work(tx: Transaction) -> int:
        table = find_table(statement.target, tx)
        chosen = _chosen(table, statement.columns)
        if statement.query is None:
            sql, values = _all_defaults(table), None
        else:
            binder = Binder(session, params)
            bound = binder.bind(
                statement.query, change=lambda node: _fit_values(session, node, table, chosen, statement.by_name)
            )
            given = session.connection.execute(f"DESCRIBE {bound.sql}", bound.values).fetchall()
            names = [str(row[0]) for row in given]
            sql, values = conforming(table, _pairs(table, chosen, names, statement), bound.sql), bound.values
        if not statement.returning:
            return append_bound(session, tx, statement.target.attached, table, sql, values)
        returned[:] = [session.fresh_name()]
        session.connection.execute(f"CREATE TEMP TABLE {returned[0]} AS {sql}", values)
        return append_bound(session, tx, statement.target.attached, table, f"FROM {returned[0]}", None)

    count = session.write(statement.target.attached, work)
    return _returning(session, statement, returned[0], params) if statement.returning else counted(count)


def _returning(session: Session, statement: _Insert, name: str, params: Any) -> Result:
    alias = quote(statement.target.name)
    return session.query(f"SELECT {statement.returning} FROM temp.main.{name} AS {alias}", params)


def _chosen(table: TableInfo, columns: Sequence[str] | None) -> list[Column]:
    if columns is None:
        return list(table.schema.columns)
    found = [table.schema.find(name) for name in columns]
    if len({column.id for column in found}) != len(found):
        raise SqlError(f"Binder Error: a column is named twice in INSERT INTO {table.name}")
    return found


def _pairs(table: TableInfo, chosen: Sequence[Column], given: Sequence[str], statement: _Insert) -> dict[int, int]:
    """Which value goes into which column: id -> place in the query."""
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
    """The query as rows of exactly the table's columns and types."""
    width = max(places.values(), default=-1) + 1
    select = ", ".join(
        _value(f"src.c{places[column.id]}" if column.id in places else default_value(column), column)
        for column in table.schema.columns
    )
    return f"SELECT {select} FROM ({query}) AS src({', '.join(f'c{place}' for place in range(width))})"


def _value(sql: str, column: Column) -> str:
    return f"CAST({sql} AS {column.duckdb_type()}) AS {quote(column.name)}"


def _fit_values(session: Session, parsed: Node, table: TableInfo, chosen: Sequence[Column], by_name: bool) -> None:
    """Let values be of the columns' types from the beginning, and DEFAULT be the columns' defaults."""
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


def append_bound(session: Session, tx: Transaction, attached: Attached, table: TableInfo, sql: str, values: Any) -> int:
    """Add the rows of a query that has the table's columns and types; returns how many."""
    if any(column.travels_as_text for column in table.schema.columns):
        return _append_kept(session, tx, attached, table, sql, values)
    attached.shared.store.make_parent(f"{table.location}x")  # as stock does, even for rows in the catalog
    reader = session.connection.execute(sql, values).to_arrow_reader(_BATCH_ROWS)
    counts = [0]

    def counting() -> Any:
        for batch in reader:
            counts[0] += batch.num_rows
            yield batch

    source = Source(reader.schema, stream=pa.RecordBatchReader.from_batches(reader.schema, counting()))
    if table.sort is not None and attached.shared.write_options(table).sort:
        _sort_small(session, attached, table, source)
    operations.append(attached.shared, tx, table, source)
    return counts[0]


def _sort_small(session: Session, attached: Attached, table: TableInfo, source: Source) -> None:
    """Rows for the catalog come in the order of the table too, as in stock; those of files the writer sorts."""
    few = source.first(attached.shared.inline_limit(table))
    order = order_by(table.sort)
    if few is not None and few.num_rows and order:
        name = session.fresh_name()
        session.connection.register(name, few)
        source.table = session.rows(f"SELECT * FROM {name} ORDER BY {', '.join(order)}").cast(few.schema)


def _append_kept(session: Session, tx: Transaction, attached: Attached, table: TableInfo, sql: str, values: Any) -> int:
    """The same for types that Arrow does not carry: the rows never leave DuckDB."""
    name = session.fresh_name()
    session.connection.execute(f"CREATE TEMP TABLE {name} AS {sql}", values)
    operations.check_not_null(session.connection, name, list(table.schema.columns))
    return operations.insert_query(attached.shared, tx, session.connection, f"SELECT * FROM {name}", table)


# -- update ------------------------------------------------------------------------------------------------------------


def note_read(tx: Transaction, bound: Bound, scan: Scan) -> None:
    """Note that the change depends on the rows of the table that the statement has looked at."""
    again = any(other is not scan and other.table.id == scan.table.id and not other.past for other in bound.scans)
    tx.pending(scan.table).add_read(ANYTHING if again else scan.predicate)


def update(session: Session, cursor: Cursor, params: Any) -> Result:
    """UPDATE name [alias] SET column = value, … [FROM …] [WHERE …] [RETURNING …]."""
    prefix = prefix_of(cursor, "UPDATE")
    cursor.expect("UPDATE")
    first = cursor.at
    target = session.names.target(cursor.names())
    if target is None:
        return queries.native_rows(session, Cursor(cursor.text), params)
    named = cursor.slice(first, cursor.at)
    alias = _alias(cursor, "SET")
    cursor.expect("SET")
    assigned = assignments(cursor)
    others = cursor.until("WHERE", "RETURNING") if cursor.accept("FROM") else ""
    where = cursor.until("RETURNING") if cursor.accept("WHERE") else ""
    returning = cursor.rest() if cursor.accept("RETURNING") else ""
    cursor.end()
    own = quote(alias or target.name)
    source = named + (f" AS {quote(alias)}" if alias else "") + (f", {others}" if others else "")
    condition = f" WHERE {where}" if where else ""
    kept: list[str] = []

    def work(tx: Transaction) -> int:
        table = find_table(target, tx)
        values = new_values(table, assigned)
        select = [
            f"{cast_to(values[column.id], column) if column.id in values else f'{own}.{quote(column.name)}'}"
            f" AS {quote(column.name)}"
            for column in table.schema.columns
        ]
        places = ", ".join(f"{own}.{name}" for name in ROW_COLUMNS)
        bound = Binder(session, params).bind(
            f"{prefix}SELECT {', '.join(select)}, {places} FROM {source}{condition}", target=True
        )
        changed = session.fresh_name()
        once = f" QUALIFY row_number() OVER (PARTITION BY {_PLACES}) = 1" if others else ""
        session.connection.execute(f"CREATE TEMP TABLE {changed} AS SELECT * FROM ({bound.sql}){once}", bound.values)
        kept[:] = [changed]
        assert bound.target is not None
        assert bound.target.plan is not None
        note_read(tx, bound, bound.target)
        operations.check_not_null(
            session.connection, changed, [column for column in table.schema.columns if column.id in values]
        )
        shared = target.attached.shared
        return operations.replace_rows(shared, tx, session.connection, table, bound.target.plan, changed)

    count = session.write(target.attached, work)
    return _returned(session, kept[0], own, returning, params) if returning else counted(count)


def _returned(session: Session, rows: str, alias: str, returning: str, params: Any) -> Result:
    hidden = ", ".join(ROW_COLUMNS)
    return session.query(
        f"SELECT {returning} FROM (SELECT * EXCLUDE ({hidden}) FROM temp.main.{rows}) AS {alias}", params
    )


def _alias(cursor: Cursor, *keywords: str) -> str | None:
    if cursor.accept("AS"):
        return cursor.name()
    word = cursor.peek()
    if word is not None and word.kind in ("word", "name") and word.upper not in keywords:
        return cursor.name()
    return None


def assignments(cursor: Cursor) -> list[tuple[str, str]]:
    """``column = value, (a, b) = (x, y)``: pairs of columns and the text of their values."""
    found: list[tuple[str, str]] = []
    while True:
        if cursor.sees("("):
            names = [Cursor(item).name() for item in cursor.items()]
            cursor.expect("=")
            cursor.accept("ROW")
            values = cursor.items()
            if len(values) != len(names):
                raise cursor.fail("the number of columns and of values differ")
            found += zip(names, values, strict=True)
        else:
            names = cursor.names()
            if len(names) > 1:
                raise cursor.fail("Qualified column names in SET are not supported")
            cursor.expect("=")
            found.append((names[0], cursor.until(",", "FROM", "WHERE", "RETURNING", "WHEN")))
        if not cursor.accept(","):
            return found


def new_values(table: TableInfo, assigned: Sequence[tuple[str, str]]) -> dict[int, str]:
    """The SQL of new values by column id. Raises ``SqlError`` for a column that is set twice."""
    found: dict[int, str] = {}
    for name, value in assigned:
        column = table.schema.find(name)
        if column.id in found:
            raise SqlError(f'Binder Error: the column "{name}" is set twice')
        found[column.id] = default_value(column) if fold(value) == "default" else value
    if not found:
        raise InputError("nothing to update")
    return found


def cast_to(sql: str, column: Column) -> str:
    """A value as one of a column's type."""
    return f"CAST(({sql}) AS {column.duckdb_type()})"


# -- delete ------------------------------------------------------------------------------------------------------------


def delete(session: Session, cursor: Cursor, params: Any) -> Result:
    """DELETE FROM name [alias] [USING …] [WHERE …] [RETURNING …]."""
    prefix = prefix_of(cursor, "DELETE")
    cursor.expect("DELETE", "FROM")
    first = cursor.at
    target = session.names.target(cursor.names())
    if target is None:
        return queries.native_rows(session, Cursor(cursor.text), params)
    named = cursor.slice(first, cursor.at)
    alias = _alias(cursor, "USING", "WHERE", "RETURNING")
    others = cursor.until("WHERE", "RETURNING") if cursor.accept("USING") else ""
    where = cursor.until("RETURNING") if cursor.accept("WHERE") else ""
    returning = cursor.rest() if cursor.accept("RETURNING") else ""
    cursor.end()
    if not (others or where or returning):
        return _delete_all(session, target)
    own = quote(alias or target.name)
    source = named + (f" AS {quote(alias)}" if alias else "") + (f", {others}" if others else "")
    condition = f" WHERE {where}" if where else ""
    kept: list[str] = []

    def work(tx: Transaction) -> int:
        table = find_table(target, tx)
        places = ", ".join(f"{own}.{name}" for name in ROW_COLUMNS)
        columns = f"{own}.*, " if returning else ""
        query = f"{prefix}SELECT DISTINCT {columns}{places} FROM {source}{condition}"
        if returning:
            names = ", ".join(f"{own}.{quote(column.name)}" for column in table.schema.columns)
            query = f"{prefix}SELECT DISTINCT {names}, {places} FROM {source}{condition}"
        bound = Binder(session, params).bind(query, target=True)
        if returning:
            kept[:] = [session.fresh_name()]
            session.connection.execute(f"CREATE TEMP TABLE {kept[0]} AS {bound.sql}", bound.values)
            rows = session.rows(f"SELECT {_PLACES} FROM {kept[0]}")
        else:
            rows = session.rows(f"SELECT {_PLACES} FROM ({bound.sql})", bound.values)
        assert bound.target is not None
        assert bound.target.plan is not None
        note_read(tx, bound, bound.target)
        found = places_to_target(rows)
        tx.pending(table).delete(bound.target.plan, found)
        return found.count

    count = session.write(target.attached, work)
    return _returned(session, kept[0], own, returning, params) if returning else counted(count)


def truncate(session: Session, cursor: Cursor, params: Any) -> Result:
    """TRUNCATE [TABLE] name."""
    cursor.expect("TRUNCATE")
    cursor.accept("TABLE")
    target = session.names.target(cursor.names())
    if target is None:
        return queries.native_rows(session, Cursor(cursor.text), params)
    cursor.end()
    return _delete_all(session, target)


def _delete_all(session: Session, target: Target) -> Result:
    def work(tx: Transaction) -> int:
        table = find_table(target, tx)
        shared = target.attached.shared
        known = tx.plan(table).count()
        count = shared.engine.count(tx.plan(table), None) if known is None else known
        operations.delete(shared, tx, table, None)
        return count

    return counted(session.write(target.attached, work))
