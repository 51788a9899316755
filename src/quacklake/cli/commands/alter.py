"""``quacklake alter``: change the columns, the layout and the options of a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quacklake.cli.context import Context
from quacklake.cli.options import Author, DryRun, Message, TableName, Yes
from quacklake.errors import InputError

if TYPE_CHECKING:
    from quacklake.lake.lake import LakeTransaction
    from quacklake.lake.table import Table

Signature = tuple[str | None, str | None]
"""The commit message and the author of a snapshot."""

Column = Annotated[
    str, typer.Argument(metavar="COLUMN", help="a column, or a.b for a field of the struct a", show_default=False)
]
Type = Annotated[
    str, typer.Argument(metavar="TYPE", help="a type such as BIGINT or 'DECIMAL(10,2)'", show_default=False)
]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="the new name", show_default=False)]
Keys = Annotated[list[str] | None, typer.Argument(metavar="KEY", help="a column, or an expression of one")]
Reset = Annotated[bool, typer.Option("--reset", help="Go back to the default.")]


def add_column(
    context: Context,
    table: TableName,
    column: Column,
    type: Type,
    default: Annotated[
        str | None, typer.Option("--default", metavar="VALUE", help="What existing rows have in it; NULL unless given.")
    ] = None,
    message: Message = None,
    author: Author = None,
) -> None:
    """Files stay as they are: rows that exist get the default when they are read."""
    value = None if default is None else _value(default, type)
    _alter(
        context,
        (message, author),
        table,
        f"added {column} {type} to",
        lambda found: found.add_column(column, type, value),
    )


def _value(text: str, type: str) -> Any:
    """Let DuckDB convert a text to a value of a type."""
    import duckdb

    from quacklake.duckdb_versions import connect, first_row
    from quacklake.format.texts import parse_column

    known = parse_column("value", type).duckdb_type()
    try:
        with connect() as connection:
            row = first_row(connection, f"SELECT CAST(? AS {known})", [text])
    except duckdb.Error as error:
        raise InputError(f"{text!r} is no {type}") from error
    return None if row is None else row[0]


class _DryRun(Exception):
    """Ends a transaction of a dry run."""


def drop_column(
    context: Context,
    table: TableName,
    column: Column,
    dry_run: DryRun = False,
    yes: Yes = False,
    message: Message = None,
    author: Author = None,
) -> None:
    """Its values stay readable at older snapshots: `quacklake restore` brings it back."""
    if dry_run:
        with context.open(write=True) as lake, suppress(_DryRun), lake.transaction() as tx:
            tx.table(table).drop_column(column)
            raise _DryRun
        context.output.result(f"{column} would be dropped from {table}", {"table": table, "snapshot": None})
        return
    context.confirm(f"Drop {column} of {table}?", yes=yes)
    _alter(context, (message, author), table, f"dropped {column} from", lambda found: found.drop_column(column))


def rename_column(
    context: Context, table: TableName, column: Column, name: NewName, message: Message = None, author: Author = None
) -> None:
    """Files stay as they are."""
    _alter(
        context,
        (message, author),
        table,
        f"renamed {column} to {name} in",
        lambda found: found.rename_column(column, name),
    )


def widen_column(
    context: Context, table: TableName, column: Column, type: Type, message: Message = None, author: Author = None
) -> None:
    """A change that could lose a value is refused."""
    _alter(
        context, (message, author), table, f"{column} is now {type} in", lambda found: found.alter_column(column, type)
    )


def rename(context: Context, table: TableName, name: NewName, message: Message = None, author: Author = None) -> None:
    """It stays in its schema."""
    _change(context, (message, author), name, f"renamed {table} to", lambda tx: tx.rename_table(table, name))


def partition(
    context: Context,
    table: TableName,
    keys: Keys = None,
    reset: Reset = False,
    message: Message = None,
    author: Author = None,
) -> None:
    """A key is a column, or year, month, day or hour of one, such as 'month(ts)', or 'bucket(16, id)'.

    Files that exist stay as they are.
    """
    chosen = _keys(keys, reset)
    if chosen is None:
        _alter(
            context, (message, author), table, "no partitions any more in", lambda found: found.reset_partitioned_by()
        )
    else:
        words = f"partitioned by {', '.join(chosen)} from now on:"
        _alter(context, (message, author), table, words, lambda found: found.set_partitioned_by(*chosen))


def sort(
    context: Context,
    table: TableName,
    keys: Keys = None,
    reset: Reset = False,
    message: Message = None,
    author: Author = None,
) -> None:
    """A key is such as id, 'ts DESC NULLS LAST' or 'lower(name)'; `quacklake compact --order-by` sorts old files."""
    chosen = _keys(keys, reset)
    if chosen is None:
        _alter(context, (message, author), table, "no order any more in", lambda found: found.reset_sorted_by())
    else:
        words = f"sorted by {', '.join(chosen)} from now on:"
        _alter(context, (message, author), table, words, lambda found: found.set_sorted_by(*chosen))


def _keys(keys: list[str] | None, reset: bool) -> list[str] | None:
    if reset == bool(keys):
        raise InputError("name keys, or pass --reset to have none")
    return None if reset else list(keys or ())


def comment(
    context: Context,
    table: TableName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="what it is; '' takes it back", show_default=False)],
    column: Annotated[str | None, typer.Option("--column", metavar="COLUMN", help="Say it of a column.")] = None,
    message: Message = None,
    author: Author = None,
) -> None:
    """Every client sees it."""
    words = text or None
    if column is None:
        _alter(context, (message, author), table, "commented on", lambda found: found.set_comment(words))
    else:
        _alter(
            context,
            (message, author),
            table,
            f"commented on {column} of",
            lambda found: found.set_column_comment(column, words),
        )


def option(
    context: Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="an option, such as data_inlining_row_limit", show_default=False)
    ],
    value: Annotated[str | None, typer.Argument(metavar="VALUE", help="its value; without it, what it is")] = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="TABLE", help="Of this table instead of the whole lake.")
    ] = None,
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="NAME", help="Of the tables of this schema.")
    ] = None,
    reset: Reset = False,
) -> None:
    """Options hold for every client from now on, and are not part of any snapshot."""
    if reset and value is not None:
        raise InputError("--reset takes no value")
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


def _alter(context: Context, signature: Signature, table: str, words: str, change: Callable[[Table], Any]) -> None:
    """Change a table, and report the change in these words."""
    _change(context, signature, table, words, lambda tx: change(tx.table(table)))


def _change(
    context: Context, signature: Signature, table: str, words: str, change: Callable[[LakeTransaction], Any]
) -> None:
    message, author = signature
    with context.open(write=True) as lake:
        with lake.transaction(message=message, author=author) as tx:
            change(tx)
        assert tx.snapshot is not None
        context.output.result(
            f"{words} {table}, in snapshot {tx.snapshot.id}", {"table": table, "snapshot": tx.snapshot.id}
        )
