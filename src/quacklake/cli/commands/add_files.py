"""``quacklake add-files``: existing Parquet files become files of a table."""

from __future__ import annotations

from typing import Annotated

import typer

from quacklake.cli.context import Context
from quacklake.cli.options import Author, Message, TableName
from quacklake.cli.output import plural

__all__ = ["add_files"]


def add_files(
    context: Context,
    table: TableName,
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH", help="a Parquet file, or a pattern such as 'in/*.parquet'")
    ],
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Columns that a file lacks are NULL or their default.")
    ] = False,
    ignore_extra_columns: Annotated[
        bool, typer.Option("--ignore-extra-columns", help="Leave out columns that the table has not.")
    ] = False,
    no_hive_partitioning: Annotated[
        bool, typer.Option("--no-hive-partitioning", help="The names of folders mean nothing.")
    ] = False,
    message: Message = None,
    author: Author = None,
) -> None:
    """Files outside the data path must be in one of the folders of the setting foreign_paths."""
    with context.open(write=True) as lake:
        with lake.transaction(message=message, author=author) as tx:
            rows = tx.table(table).add_files(
                paths,
                allow_missing=allow_missing,
                ignore_extra_columns=ignore_extra_columns,
                hive_partitioning=False if no_hive_partitioning else None,
            )
        assert tx.snapshot is not None
        context.output.result(
            f"added {plural(rows, 'row')} to {table} in snapshot {tx.snapshot.id}",
            {"table": table, "rows": rows, "snapshot": tx.snapshot.id},
        )
