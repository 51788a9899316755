"""``quacklake append``: the rows of a file become rows of a table."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from quacklake.cli.commands.command import Command
from quacklake.cli.context import Context
from quacklake.cli.progress import progress
from quacklake.cli.sources import FORMATS, FileSource, open_source
from quacklake.errors import NotFoundError
from quacklake.lake import Lake, LakeTransaction
from quacklake.lake.reference import TableRef

__all__ = ["APPEND"]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="table or schema.table")
    parser.add_argument("file", metavar="FILE", type=Path, help="a Parquet, CSV or JSON file")
    parser.add_argument("--format", choices=FORMATS, help="what the file is, when its name does not say so")
    parser.add_argument("--create", action="store_true", help="make the table, its schema and the lake when missing")
    parser.add_argument("--message", metavar="TEXT", help="commit message of the snapshot")
    parser.add_argument("--author", metavar="NAME", help="author of the snapshot")


def _run(context: Context) -> None:
    arguments = context.arguments
    source = open_source(arguments.file, arguments.format)
    with context.open(write=True, create=arguments.create) as lake:
        exists = _exists(lake, arguments.table, create=arguments.create)
        with lake.transaction(message=arguments.message, author=arguments.author) as tx:
            rows = _add(tx, arguments.table, source, exists=exists)
        assert tx.snapshot is not None
        context.output.result(
            f"appended {rows:,} row{'' if rows == 1 else 's'} to {arguments.table} in snapshot {tx.snapshot.id}",
            {"table": arguments.table, "rows": rows, "snapshot": tx.snapshot.id, "created": not exists},
        )


def _exists(lake: Lake, name: str, *, create: bool) -> bool:
    try:
        _ = lake.table(name).info
    except NotFoundError as error:
        if create:
            return False
        error.hint = f"{error.hint or ''} pass --create to make it".strip()
        raise
    return True


def _add(tx: LakeTransaction, name: str, source: FileSource, *, exists: bool) -> int:
    """Stream the rows into the table; returns how many there were."""
    rows = 0
    with source, progress("appending rows", source.total) as advance:
        reader = source.read(tx.table(name).info.schema if exists else None)

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in reader:
                yield batch
                rows += batch.num_rows
                advance(batch.num_rows)

        stream = pa.RecordBatchReader.from_batches(reader.schema, counted())
        if exists:
            tx.table(name).append(stream)
        else:
            tx.create_schema(TableRef.parse(name).schema, if_not_exists=True)
            tx.create_table(name, stream)
    return rows


APPEND = Command("append", "Append the rows of a Parquet, CSV or JSON file to a table", _run, _configure)
