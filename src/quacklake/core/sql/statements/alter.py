"""ALTER TABLE and ALTER VIEW."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quacklake.core.duckdb_versions import first_row
from quacklake.core.format.evolution import DefaultExpression, find_column
from quacklake.core.format.names import format_path, quote
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.texts import parse_column
from quacklake.core.operations import evolution
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.expression import Expression
from quacklake.core.operations.options import LakeOptions
from quacklake.core.sql.attached import Target, missing
from quacklake.core.sql.binder import Binder
from quacklake.core.sql.result import Result
from quacklake.core.sql.statements import queries
from quacklake.core.sql.statements.tables import (
    LiteralText,
    check_reserved,
    default_of,
    schema_of_columns,
    with_literal,
)
from quacklake.core.sql.words import Cursor
from quacklake.core.transaction import Transaction
from quacklake.errors import InputError, NotFoundError, ReadOnlyError, SqlError

if TYPE_CHECKING:
    from quacklake.core.sql.session import Session


_DUCKDB_TEXT = ("interval", "timetz", "time_ns")
"""Types whose values only DuckDB can write as text."""
Change = Callable[[LakeContext, Transaction, TableInfo], Any]


def alter(session: Session, cursor: Cursor, params: Any) -> Result:
    """Run ALTER TABLE | VIEW [IF EXISTS] name …."""
    cursor.expect("ALTER")
    kind = cursor.take().upper
    if kind not in ("TABLE", "VIEW"):
        return queries.native_ddl(session, Cursor(cursor.text), params)
    if_exists = cursor.accept("IF", "EXISTS")
    target = session.names.target(cursor.names())
    if target is None:
        return queries.native_ddl(session, Cursor(cursor.text), params)
    if kind == "TABLE" and any(cursor.sees(*w) for word in ("SET", "RESET") for w in ((word, "("), (word, "OPTIONS"))):
        return _options(session, cursor, target, params, if_exists=if_exists)
    if kind == "VIEW":
        cursor.expect("RENAME", "TO")
        name = cursor.name()
    else:
        change = _change(session, cursor)
    cursor.end()

    def work(tx: Transaction) -> None:
        table = tx.get_table(target.schema, target.name) if kind == "TABLE" else None
        view = tx.objects.get_view(target.schema, target.name) if kind == "VIEW" else None
        if table is not None:
            change(target.attached.context, tx, table)
        elif view is not None:
            tx.objects.rename_view(view, name)
        elif not if_exists:
            raise missing(target, tx, kind.title())

    session.write(target.attached, work)
    return Result()


def _options(session: Session, cursor: Cursor, target: Target, params: Any, *, if_exists: bool) -> Result:
    """Run SET (option = value, …) or RESET (option, …) on the options of one table."""
    setting = cursor.accept("SET") or not cursor.accept("RESET")
    cursor.accept("OPTIONS")
    items = [Cursor(item) for item in cursor.items()]
    cursor.end()
    if target.attached.lake is None or target.attached.read_only:
        raise ReadOnlyError(f'"{target.attached.alias}" is attached in read-only mode')
    tx = session.view(target.attached)
    table = tx.get_table(target.schema, target.name)
    if table is None:
        if if_exists:
            return Result()
        raise missing(target, tx)
    named = f"{quote(table.schema_name)}.{quote(table.name)}"
    for item in items:
        name = item.name()
        if not setting:
            item.end()
            LakeOptions(target.attached.lake).unset(name, table=named)
            continue
        item.expect("=")
        value = Binder(session, params).evaluate_text(item.rest())
        LakeOptions(target.attached.lake).set(name, value, table=named)
    return Result()


def _change(session: Session, cursor: Cursor) -> Change:
    """Parse the action of an ALTER TABLE."""
    if cursor.accept("RENAME", "TO"):
        name = cursor.name()
        return lambda _, tx, table: tx.rename_table(table, name)
    if cursor.accept("RENAME"):
        cursor.accept("COLUMN")
        path = format_path(tuple(cursor.names()))
        cursor.expect("TO")
        name = cursor.name()

        def rename(context: LakeContext, tx: Transaction, table: TableInfo) -> None:
            if "." not in path:
                check_reserved(context, [name], table)
            evolution.rename_column(context, tx, table, path, name)

        return rename
    if cursor.accept("ADD"):
        return _add(session, cursor)
    if cursor.accept("DROP"):
        cursor.accept("COLUMN")
        if_exists = cursor.accept("IF", "EXISTS")
        names = tuple(cursor.names())
        cursor.accept("CASCADE")
        cursor.accept("RESTRICT")

        def drop(context: LakeContext, tx: Transaction, table: TableInfo) -> None:
            if not if_exists or _has(table, names):
                evolution.drop_column(context, tx, table, format_path(names))

        return drop
    if cursor.accept("ALTER"):
        cursor.accept("COLUMN")
        return _column(session, cursor, tuple(cursor.names()))
    setting = cursor.accept("SET")
    if not setting and not cursor.accept("RESET"):
        raise cursor.unexpected()
    if cursor.accept("PARTITIONED", "BY") or cursor.accept("PARTITION", "BY"):
        if not setting:
            return lambda _, tx, table: evolution.reset_partition(tx, table)
        keys = cursor.items()
        return lambda _, tx, table: evolution.partition(tx, table, keys)
    cursor.expect("SORTED", "BY")
    if not setting:
        return lambda _, tx, table: evolution.reset_sort(tx, table)
    order = cursor.items()
    return lambda context, tx, table: evolution.sort(context, tx, table, order)


def _add(session: Session, cursor: Cursor) -> Change:
    if cursor.sees("CONSTRAINT") or cursor.sees("PRIMARY", "KEY"):
        raise SqlError("Not implemented Error: constraints cannot be added to a lake's table")
    cursor.accept("COLUMN")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    names = tuple(cursor.names())
    definition = cursor.rest()
    schema, keys = schema_of_columns(session, f'"c" {definition}')
    column = schema.columns[0]
    if keys or not column.nullable:
        raise SqlError("Not implemented Error: Adding columns with constraints not yet supported")
    default: Any = column.default
    if default is not None and column.default_kind == "expression":
        default = Expression(default)
    elif default is not None and column.type == "blob":
        default = default.encode()
    type_ = column.duckdb_type()
    literal = default if column.type in _DUCKDB_TEXT and not isinstance(default, Expression) else None

    def change(context: LakeContext, tx: Transaction, table: TableInfo) -> None:
        if if_not_exists and _has(table, names):
            return
        check_reserved(context, names if len(names) == 1 else (), table)
        if literal is not None:
            after = evolution.add_column(context, tx, table, format_path(names), type_)
            schema = with_literal(after.schema, names, LiteralText(literal), initial=True)
            tx.alter_table(after, replace(after, schema=schema))
            return
        evolution.add_column(context, tx, table, format_path(names), type_, default)

    return change


def _has(table: TableInfo, names: tuple[str, ...]) -> bool:
    try:
        find_column(table.schema, names)
    except (InputError, NotFoundError):
        return False
    return True


def _column(session: Session, cursor: Cursor, names: tuple[str, ...]) -> Change:
    path = format_path(names)
    if cursor.accept("SET", "NOT", "NULL"):
        return lambda context, tx, table: evolution.set_not_null(context, tx, table, path)
    if cursor.accept("DROP", "NOT", "NULL"):
        return lambda context, tx, table: evolution.drop_not_null(context, tx, table, path)
    if cursor.accept("DROP", "DEFAULT"):
        return lambda context, tx, table: evolution.drop_default(context, tx, table, path)
    if cursor.accept("SET", "DEFAULT"):
        text = cursor.rest()

        def set_default(context: LakeContext, tx: Transaction, table: TableInfo) -> None:
            value = default_of(session, text, find_column(table.schema, names))
            if isinstance(value, LiteralText):
                schema = with_literal(table.schema, names, value)
                tx.alter_table(table, replace(table, schema=schema))
                return
            given = Expression(value.sql) if isinstance(value, DefaultExpression) else value
            evolution.set_default(context, tx, table, path, given)

        return set_default
    cursor.accept("SET", "DATA")
    cursor.accept("SET")
    cursor.expect("TYPE")
    text = cursor.until("USING")
    if not cursor.done:
        raise SqlError("Not implemented Error: ALTER TYPE with USING is not supported in a lake")
    row = first_row(session.planner(), f"SELECT typeof(CAST(NULL AS {text}))")
    type_ = str(row[0]) if row is not None else text
    parse_column("c", type_)
    return lambda context, tx, table: evolution.alter_column(context, tx, table, path, type_)
