"""``quacklake alter``: change the columns, the layout and the options of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

from quacklake.cli.context import Context
from quacklake.cli.options import SIGNATURE, DryRun, TableName, Yes, also, argument
from quacklake.cli.options import option as option_
from quacklake.errors import InputError

if TYPE_CHECKING:
    from quacklake.lake.lake import LakeTransaction

Column = Annotated[str, argument("COLUMN", "The column, or a.b for the field b of the struct a.")]
Type = Annotated[str, argument("TYPE", "A type such as BIGINT or 'DECIMAL(10,2)'.")]
NewName = Annotated[str, argument("NAME", "The new name.")]
Keys = Annotated[list[str] | None, argument("KEY", "A column, or an expression of one.")]
Reset = Annotated[bool, option_("--reset", "Go back to the default.")]


@also(SIGNATURE)
def add_column(
    context: Context,
    table: TableName,
    column: Column,
    type: Type,
    default: Annotated[
        str | None, option_("--default", "The value that existing rows get; by default NULL.", "VALUE")
    ] = None,
    **signature: Any,
) -> None:
    """Files do not change: existing rows get the default when they are read."""
    value = None if default is None else _value(default, type)
    with _changing(context, signature, f"added {column} {type} to", table) as tx:
        tx.table(table).add_column(column, type, value)


def _value(text: str, type: str) -> Any:
    """Let DuckDB convert a text to a value of a type."""
    import duckdb

    from quacklake.extend.duckdbs import connect, first_row
    from quacklake.extend.schemas import to_column

    known = to_column("value", type).duckdb_type()
    try:
        with connect() as connection:
            row = first_row(connection, f"SELECT CAST(? AS {known})", [text])
    except duckdb.Error as error:
        raise InputError(f"the default {text!r} is not a value of the type {type}") from error
    return None if row is None else row[0]


class _DryRun(Exception):
    """Ends a transaction of a dry run."""


@also(SIGNATURE)
def drop_column(
    context: Context, table: TableName, column: Column, dry_run: DryRun = False, yes: Yes = False, **signature: Any
) -> None:
    """Its values stay readable at older snapshots, and `quacklake restore` brings it back."""
    if dry_run:
        with context.open(write=True) as lake, suppress(_DryRun), lake.transaction() as tx:
            tx.table(table).drop_column(column)
            raise _DryRun
        context.output.result(f"{column} would be dropped from {table}", {"table": table, "snapshot": None})
        return
    context.confirm(f"Drop {column} of {table}?", yes=yes)
    with _changing(context, signature, f"dropped {column} from", table) as tx:
        tx.table(table).drop_column(column)


@also(SIGNATURE)
def rename_column(context: Context, table: TableName, column: Column, name: NewName, **signature: Any) -> None:
    """Files do not change."""
    with _changing(context, signature, f"renamed {column} to {name} in", table) as tx:
        tx.table(table).rename_column(column, name)


@also(SIGNATURE)
def widen_column(context: Context, table: TableName, column: Column, type: Type, **signature: Any) -> None:
    """A change that could lose values is an error. Files do not change."""
    with _changing(context, signature, f"changed {column} to {type} in", table) as tx:
        tx.table(table).alter_column(column, type)


@also(SIGNATURE)
def rename(context: Context, table: TableName, name: NewName, **signature: Any) -> None:
    """The table stays in its schema."""
    with _changing(context, signature, f"renamed {table} to", name) as tx:
        tx.rename_table(table, name)


@also(SIGNATURE)
def partition(context: Context, table: TableName, keys: Keys = None, reset: Reset = False, **signature: Any) -> None:
    """A key is a column, or an expression such as 'year(ts)', 'month(ts)', 'day(ts)', 'hour(ts)' or 'bucket(16, id)'.

    Existing files do not change.
    """
    _check_keys(keys, reset)
    words = f"set the partitioning {', '.join(keys)} of" if keys else "removed the partitioning of"
    with _changing(context, signature, words, table) as tx:
        found = tx.table(table)
        found.set_partitioned_by(*keys) if keys else found.reset_partitioned_by()


@also(SIGNATURE)
def sort(context: Context, table: TableName, keys: Keys = None, reset: Reset = False, **signature: Any) -> None:
    """A key is a column or an expression, such as id, 'ts DESC NULLS LAST' or 'lower(name)'.

    Existing files do not change; `quacklake compact --order-by` sorts them.
    """
    _check_keys(keys, reset)
    words = f"set the sort order {', '.join(keys)} of" if keys else "removed the sort order of"
    with _changing(context, signature, words, table) as tx:
        found = tx.table(table)
        found.set_sorted_by(*keys) if keys else found.reset_sorted_by()


def _check_keys(keys: list[str] | None, reset: bool) -> None:
    if reset == bool(keys):
        raise InputError("pass either keys or --reset")


@also(SIGNATURE)
def comment(
    context: Context,
    table: TableName,
    text: Annotated[str, argument("TEXT", "The comment; '' removes it.")],
    column: Annotated[str | None, option_("--column", "Set the comment of this column.", "COLUMN")] = None,
    **signature: Any,
) -> None:
    """Every client sees the comment."""
    words = f"{'set' if text else 'removed'} the comment of" + ("" if column is None else f" {column} in")
    with _changing(context, signature, words, table) as tx:
        if column is None:
            tx.table(table).set_comment(text or None)
        else:
            tx.table(table).set_column_comment(column, text or None)


def option(
    context: Context,
    name: Annotated[str, argument("NAME", "The option, such as data_inlining_row_limit.")],
    value: Annotated[str | None, argument("VALUE", "The new value; without it, the command shows the value.")] = None,
    table: Annotated[str | None, option_("--table", "The option of this table.", "TABLE")] = None,
    schema: Annotated[str | None, option_("--schema", "The option of the tables in this schema.", "NAME")] = None,
    reset: Reset = False,
) -> None:
    """Without --table and --schema, it is the option of the whole lake.

    Options apply to every client from now on, and belong to no snapshot.
    """
    if reset and value is not None:
        raise InputError("pass either a value or --reset")
    with context.open(write=reset or value is not None) as lake:
        if reset:
            lake.options.unset(name, schema=schema, table=table)
        elif value is not None:
            lake.options.set(name, value, schema=schema, table=table)
        found = lake.options.get(name, schema=schema, table=table)
        place = table or (f"schema {schema}" if schema else "the lake")
        context.output.result(
            f"{name} is {json.dumps(found, default=str)} for {place}",
            {"option": name, "value": found, "table": table, "schema": schema},
        )


@contextmanager
def _changing(context: Context, signature: dict[str, Any], words: str, table: str) -> Iterator[LakeTransaction]:
    """Yield a transaction, and report in these words what it has changed."""
    with context.open(write=True) as lake:
        with lake.transaction(**signature) as tx:
            yield tx
        assert tx.snapshot is not None
        context.output.result(
            f"{words} {table} in snapshot {tx.snapshot.id}", {"table": table, "snapshot": tx.snapshot.id}
        )
