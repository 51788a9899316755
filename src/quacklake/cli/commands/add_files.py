"""``quacklake add-files``: add existing Parquet files to a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quacklake.cli.commands.append import exists_or_create
from quacklake.cli.context import Context
from quacklake.cli.options import Author, Message, TableName
from quacklake.cli.output import plural

if TYPE_CHECKING:
    from quacklake.lake.lake import LakeTransaction
    from quacklake.operations.input_files import InputFiles


def add_files(
    context: Context,
    table: TableName,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Parquet files, folders of them, or patterns such as 'in/*.parquet'",
            show_default=False,
        ),
    ],
    create: Annotated[
        bool, typer.Option("--create", help="Make the table, its schema and the lake when they are missing.")
    ] = False,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Columns that a file lacks are NULL or their default.")
    ] = False,
    ignore_extra_columns: Annotated[
        bool, typer.Option("--ignore-extra-columns", help="Leave out columns that the table has not.")
    ] = False,
    no_hive_partitioning: Annotated[
        bool,
        typer.Option("--no-hive-partitioning", help="Do not read columns from the names of folders like year=2024/."),
    ] = False,
    message: Message = None,
    author: Author = None,
) -> None:
    """Files outside the data path must be in one of the folders of the setting foreign_paths.

    A folder stands for the Parquet files below it, save those whose names begin with . or _.
    """
    from quacklake.operations.input_files import open_files

    hive = False if no_hive_partitioning else None
    with context.open(write=True, create=create) as lake:
        exists = exists_or_create(lake, table, create=create)
        source = open_files(paths, "parquet", store=lake._context.store)
        files = [path if "://" in path else str(Path(path).absolute()) for path in source.found.paths]
        with lake.transaction(message=message, author=author) as tx:
            if not exists:
                _create(tx, table, source if hive is None else source.without_folders())
            rows = tx.table(table).add_files(
                files, allow_missing=allow_missing, ignore_extra_columns=ignore_extra_columns, hive_partitioning=hive
            )
        assert tx.snapshot is not None
        of = f" of {len(files):,} files" if len(files) > 1 else ""
        context.output.result(
            f"added {plural(rows, 'row')}{of} to {table} in snapshot {tx.snapshot.id}",
            {"table": table, "rows": rows, "files": len(files), "snapshot": tx.snapshot.id, "created": not exists},
        )


def _create(tx: LakeTransaction, name: str, files: InputFiles) -> None:
    """Create the table with the columns of the files, and those in the names of folders."""
    from quacklake.operations.reference import TableRef

    tx.create_schema(TableRef.parse(name).schema, if_not_exists=True)
    tx.create_table(name, files.read().schema)
