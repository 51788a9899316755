"""``quacklake add-files``: existing Parquet files become files of a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quacklake.cli.commands.append import exists_or_create
from quacklake.cli.context import Context
from quacklake.cli.options import Author, Message, TableName
from quacklake.cli.output import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quacklake.lake import Lake, LakeTransaction

__all__ = ["add_files"]


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
    hive = False if no_hive_partitioning else None
    with context.open(write=True, create=create) as lake:
        exists = exists_or_create(lake, table, create=create)
        files = _files(lake, paths)
        with lake.transaction(message=message, author=author) as tx:
            if not exists:
                _create(lake, tx, table, files, hive is None)
            rows = tx.table(table).add_files(
                files, allow_missing=allow_missing, ignore_extra_columns=ignore_extra_columns, hive_partitioning=hive
            )
        assert tx.snapshot is not None
        of = f" of {len(files):,} files" if len(files) > 1 else ""
        context.output.result(
            f"added {plural(rows, 'row')}{of} to {table} in snapshot {tx.snapshot.id}",
            {"table": table, "rows": rows, "files": len(files), "snapshot": tx.snapshot.id, "created": not exists},
        )


def _files(lake: Lake, paths: Sequence[str]) -> list[str]:
    """The files that paths name, on this machine or in the store of the lake."""
    from quacklake.cli.inputs import files_of, is_hidden
    from quacklake.errors import InputError

    store = lake._shared.store
    if store.is_local:
        local = files_of([path.removeprefix("file://") for path in paths], suffixes=(".parquet", ".pq"))
        return [str(Path(path).absolute()) for path in local]
    found: dict[str, None] = {}
    for path in paths:
        files = store.find(path)
        if not files:
            folder = path.rstrip("/") + "/"
            below = store.find(f"{folder}**/*.parquet")
            files = [file for file in below if not is_hidden(file.partition(folder)[2])]
        if not files:
            raise InputError(f"there is no file or folder {path}", hint="check the path and the bucket")
        found.update(dict.fromkeys(files))
    return list(found)


def _create(lake: Lake, tx: LakeTransaction, name: str, files: Sequence[str], hive: bool) -> None:
    """Make the table with the columns of the first file, and those that the names of folders hold."""
    import pyarrow as pa

    from quacklake.cli.several import folder_types
    from quacklake.lake.reference import TableRef
    from quacklake.storage import read_footers

    store = lake._shared.store
    (footer,) = read_footers(store, [store.resolve(files[0], False)])
    schema = footer.schema.remove_metadata()
    known = {column.casefold() for column in schema.names}
    for column, type_ in folder_types(files).items() if hive else ():
        if column.casefold() not in known:
            schema = schema.append(pa.field(column, type_))
    tx.create_schema(TableRef.parse(name).schema, if_not_exists=True)
    tx.create_table(name, schema)
