"""``quacklake add-files``: existing Parquet files become files of a table."""

from __future__ import annotations

import argparse

from quacklake.cli.commands.command import Command
from quacklake.cli.context import Context

__all__ = ["ADD_FILES"]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="table or schema.table")
    parser.add_argument("paths", metavar="PATH", nargs="+", help="a Parquet file, or a pattern such as 'in/*.parquet'")
    parser.add_argument("--allow-missing", action="store_true", help="columns that a file lacks are NULL or default")
    parser.add_argument("--ignore-extra-columns", action="store_true", help="leave out columns the table has not")
    parser.add_argument("--no-hive-partitioning", action="store_true", help="the names of folders mean nothing")
    parser.add_argument("--message", metavar="TEXT", help="commit message of the snapshot")
    parser.add_argument("--author", metavar="NAME", help="author of the snapshot")


def _run(context: Context) -> None:
    arguments = context.arguments
    with context.open(write=True) as lake:
        with lake.transaction(message=arguments.message, author=arguments.author) as tx:
            rows = tx.table(arguments.table).add_files(
                arguments.paths,
                allow_missing=arguments.allow_missing,
                ignore_extra_columns=arguments.ignore_extra_columns,
                hive_partitioning=False if arguments.no_hive_partitioning else None,
            )
        assert tx.snapshot is not None
        context.output.result(
            f"added {rows:,} row{'' if rows == 1 else 's'} to {arguments.table} in snapshot {tx.snapshot.id}",
            {"table": arguments.table, "rows": rows, "snapshot": tx.snapshot.id},
        )


ADD_FILES = Command("add-files", "Make existing Parquet files part of a table, without copying them", _run, _configure)
