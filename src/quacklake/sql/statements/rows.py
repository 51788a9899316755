"""UPDATE, DELETE and TRUNCATE, and helpers for all changes of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quacklake.engines.duckdb.engine import places_to_target
from quacklake.engines.duckdb.sql import ROW_COLUMNS
from quacklake.errors import InputError, SqlError
from quacklake.format.bounds import ANYTHING
from quacklake.format.names import fold, quote
from quacklake.format.objects import TableInfo
from quacklake.format.schema import Column
from quacklake.format.snapshots import Operation
from quacklake.operations import dml, inserting
from quacklake.operations.conform import default_value
from quacklake.sql.attached import Target, missing
from quacklake.sql.binder import Binder, Bound, Scan, StandIns
from quacklake.sql.result import Result
from quacklake.sql.statements import queries
from quacklake.sql.words import Cursor, refuse_parameters
from quacklake.transaction import Transaction

if TYPE_CHECKING:
    from quacklake.sql.session import Session

PLACES = "_ql_file_id, _ql_version, _ql_position"
"""The columns that hold the position of a row."""


def counted(count: int) -> Result:
    """Return the result of a statement that changes rows."""
    return Result(pa.table({"Count": pa.array([count], pa.int64())}), types=("BIGINT",), rowcount=count)


def find_table(target: Target, tx: Transaction) -> TableInfo:
    """Return the table that a statement changes. Raises ``NotFoundError`` with the most similar names."""
    found = tx.get_table(target.schema, target.name)
    if found is not None:
        return found
    if tx.objects.get_view(target.schema, target.name) is not None:
        raise SqlError(f'"{target.name}" is a view: only tables can be changed')
    raise missing(target, tx)


def prefix_of(cursor: Cursor) -> str:
    """Return the common tables before a statement, with the space after them."""
    found = cursor.common_tables()
    return f"{found} " if found else ""


# -- update ------------------------------------------------------------------------------------------------------------


def note_read(tx: Transaction, bound: Bound, scan: Scan) -> None:
    """Note that the change depends on the rows that the statement has read."""
    again = any(other is not scan and other.table.id == scan.table.id and not other.past for other in bound.scans)
    tx.pending(scan.table).add_read(ANYTHING if again else scan.predicate)


def update(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run UPDATE name [alias] SET column = value, … [FROM …] [WHERE …] [RETURNING …]."""
    prefix = prefix_of(cursor)
    cursor.expect("UPDATE")
    first = cursor.at
    target = session.names.target(cursor.names())
    if target is None:
        return queries.native_rows(session, Cursor(cursor.text), params)
    named = cursor.slice(first, cursor.at)
    alias = alias_of(cursor, "SET")
    cursor.expect("SET")
    assigned = assignments(cursor)
    others = cursor.until("WHERE", "RETURNING") if cursor.accept("FROM") else ""
    where = cursor.until("RETURNING") if cursor.accept("WHERE") else ""
    returning = returning_of(cursor)
    cursor.end()
    own = own_name(target, alias)
    changed_table = named + (f" AS {quote(alias)}" if alias else "")
    source = changed_table + (f", {others}" if others else "")
    condition = f" WHERE {where}" if where else ""
    returned: list[Result] = []

    def work(tx: Transaction) -> int:
        tx.asks(Operation.UPDATE)
        table = find_table(target, tx)
        values = new_values(table, assigned)
        select = [
            f"{cast_to(values[column.id], column) if column.id in values else f'{own}.{quote(column.name)}'}"
            f" AS _ql_c{column.id}"  # so that no expression refers to another one by the name of its column
            for column in table.schema.columns
        ]
        names = ", ".join(f"_ql_c{column.id} AS {quote(column.name)}" for column in table.schema.columns)
        places = ", ".join(f"{own}.{name}" for name in ROW_COLUMNS)
        bound = Binder(session, params).bind(
            f"{prefix}SELECT {', '.join(select)}, {places} FROM {source}{condition}", target=True
        )
        changed = session.fresh_name()
        once = f" QUALIFY row_number() OVER (PARTITION BY {PLACES}) = 1" if others else ""
        session.connection.execute(
            f"CREATE TEMP TABLE {changed} AS SELECT {names}, {', '.join(ROW_COLUMNS)} FROM ({bound.sql}){once}",
            bound.values,
        )
        if returning:
            returned[:] = [_returned(session, changed, target, changed_table, returning)]
        assert bound.target is not None
        assert bound.target.plan is not None
        note_read(tx, bound, bound.target)
        inserting.check_not_null(
            session.connection, changed, [column for column in table.schema.columns if column.id in values]
        )
        context = target.attached.context
        return inserting.replace_rows(context, tx, session.connection, table, bound.target.plan, changed)

    count = session.write(target.attached, work)
    return returned[0] if returning else counted(count)


def _returned(session: Session, rows: str, target: Target, named: str, returning: str) -> Result:
    """Evaluate RETURNING before anything is changed, so that an error in it changes nothing."""
    shown = session.fresh_name()
    hidden = ", ".join(ROW_COLUMNS)
    session.connection.execute(f"CREATE TEMP VIEW {shown} AS SELECT * EXCLUDE ({hidden}) FROM temp.main.{rows}")
    result = session.query(f"SELECT {returning} FROM {named}", stand_ins=stand_in(target, shown))
    result.keep()
    return result


def returning_of(cursor: Cursor) -> str:
    """Return the text after RETURNING, or an empty text. Raises ``SqlError`` for a parameter in it, as DuckDB does."""
    if not cursor.accept("RETURNING"):
        return ""
    refuse_parameters(cursor.words[cursor.at :])
    return cursor.rest()


def own_name(target: Target, alias: str | None) -> str:
    """Return the qualifier of the target's columns, since another table may have the same last name."""
    if alias is not None:
        return quote(alias)
    return ".".join(quote(name) for name in (target.attached.alias, target.schema, target.name))


def stand_in(target: Target, name: str) -> StandIns:
    """Return a mapping that puts a temporary relation in place of a table."""
    return {(fold(target.attached.alias), fold(target.schema), fold(target.name)): name}


def alias_of(cursor: Cursor, *keywords: str) -> str | None:
    """Return the alias that comes next, unless it is one of these keywords."""
    if cursor.accept("AS"):
        return cursor.name()
    word = cursor.peek()
    if word is not None and word.kind in ("word", "name") and word.upper not in keywords:
        return cursor.name()
    return None


def assignments(cursor: Cursor) -> list[tuple[str, str]]:
    """Parse ``column = value, (a, b) = (x, y)`` into pairs of a column and the text of its value."""
    found: list[tuple[str, str]] = []
    while True:
        if cursor.sees("("):
            names = [type(cursor)(item).name() for item in cursor.items()]
            cursor.expect("=")
            cursor.accept("ROW")
            following = cursor.peek(1)
            if following is not None and following.upper in ("SELECT", "FROM", "VALUES", "WITH", "TABLE"):
                raise cursor.fail("Binder Error: a subquery cannot give several columns of SET")
            values = cursor.items()
            if len(values) != len(names):
                raise cursor.fail("the number of columns and of values differ")
            found += zip(names, values, strict=True)
        else:
            names = cursor.names()
            if len(names) > 1:
                raise cursor.fail("Qualified column names in SET are not supported")
            cursor.expect("=")
            found.append((names[0], _assigned(cursor)))
        if not cursor.accept(","):
            return found


def _assigned(cursor: Cursor) -> str:
    """Return the text of a value. The FROM of IS DISTINCT FROM does not end it."""
    first = cursor.at
    while True:
        cursor.until(",", "FROM", "WHERE", "RETURNING", "WHEN")
        if not (cursor.sees("FROM") and cursor.at > first and cursor.words[cursor.at - 1].upper == "DISTINCT"):
            return cursor.slice(first, cursor.at)
        cursor.take()


def new_values(table: TableInfo, assigned: Sequence[tuple[str, str]]) -> dict[int, str]:
    """Return the SQL of new values by column id. Raises ``SqlError`` for a column that is set twice."""
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
    """Return the SQL that casts a value to the type of a column."""
    return f"CAST(({sql}) AS {column.duckdb_type()})"


# -- delete ------------------------------------------------------------------------------------------------------------


def delete(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run DELETE FROM name [alias] [USING …] [WHERE …] [RETURNING …]."""
    prefix = prefix_of(cursor)
    cursor.expect("DELETE", "FROM")
    first = cursor.at
    target = session.names.target(cursor.names())
    if target is None:
        return queries.native_rows(session, Cursor(cursor.text), params)
    named = cursor.slice(first, cursor.at)
    alias = alias_of(cursor, "USING", "WHERE", "RETURNING")
    others = cursor.until("WHERE", "RETURNING") if cursor.accept("USING") else ""
    where = cursor.until("RETURNING") if cursor.accept("WHERE") else ""
    returning = returning_of(cursor)
    cursor.end()
    if not (others or where or returning):
        return _delete_all(session, target)
    own = own_name(target, alias)
    changed_table = named + (f" AS {quote(alias)}" if alias else "")
    source = changed_table + (f", {others}" if others else "")
    condition = f" WHERE {where}" if where else ""
    returned: list[Result] = []

    def work(tx: Transaction) -> int:
        tx.asks(Operation.DELETE)
        table = find_table(target, tx)
        places = ", ".join(f"{own}.{name}" for name in ROW_COLUMNS)
        shown = [f"{own}.{quote(column.name)}" for column in table.schema.columns] if returning else []
        query = f"{prefix}SELECT DISTINCT {', '.join([*shown, places])} FROM {source}{condition}"
        bound = Binder(session, params).bind(query, target=True)
        if returning:
            kept = session.fresh_name()
            session.connection.execute(f"CREATE TEMP TABLE {kept} AS {bound.sql}", bound.values)
            rows = session.rows(f"SELECT {PLACES} FROM {kept}")
            returned[:] = [_returned(session, kept, target, changed_table, returning)]
        else:
            rows = session.rows(f"SELECT {PLACES} FROM ({bound.sql})", bound.values)
        assert bound.target is not None
        assert bound.target.plan is not None
        note_read(tx, bound, bound.target)
        found = places_to_target(rows)
        tx.pending(table).delete(bound.target.plan, found)
        return found.count

    count = session.write(target.attached, work)
    return returned[0] if returning else counted(count)


def truncate(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run TRUNCATE [TABLE] name."""
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
        context = target.attached.context
        known = tx.plan(table).count()
        count = context.engine.count(tx.plan(table), None) if known is None else known
        dml.delete(context, tx, table, None)
        return count

    return counted(session.write(target.attached, work))
