"""``quacklake append`` and ``merge``: the rows of a file become rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from quacklake.cli.context import Context
from quacklake.cli.options import Author, FileFormat, Message, TableName, names_of
from quacklake.cli.output import plural
from quacklake.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from quacklake.cli.sources import FileSource
    from quacklake.format.schema import TableSchema
    from quacklake.lake import Lake, LakeTransaction

__all__ = ["append", "merge"]

File = Annotated[
    str, typer.Argument(metavar="FILE", help="a Parquet, CSV or JSON file, or - for standard input", show_default=False)
]
Evolve = Annotated[
    bool, typer.Option("--evolve", help="Add columns that the table lacks, and widen types where rows need it.")
]


def append(
    context: Context,
    table: TableName,
    file: File,
    format: FileFormat = None,
    create: Annotated[
        bool, typer.Option("--create", help="Make the table, its schema and the lake when they are missing.")
    ] = False,
    evolve: Evolve = False,
    message: Message = None,
    author: Author = None,
) -> None:
    """All rows come in one snapshot, or none of them."""
    from quacklake.cli.sources import opened

    with opened(file, format) as source, context.open(write=True, create=create) as lake:
        exists = _exists(lake, table, create=create)
        with lake.transaction(message=message, author=author) as tx:
            rows = _add(tx, table, source, exists=exists, evolve=evolve)
        assert tx.snapshot is not None
        context.output.result(
            f"appended {plural(rows, 'row')} to {table} in snapshot {tx.snapshot.id}",
            {"table": table, "rows": rows, "snapshot": tx.snapshot.id, "created": not exists},
        )


def merge(
    context: Context,
    table: TableName,
    file: File,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="NAMES", help="The key columns, with commas; else the table's primary key."),
    ] = None,
    format: FileFormat = None,
    evolve: Evolve = False,
    message: Message = None,
    author: Author = None,
) -> None:
    """All changes come in one snapshot, or none of them. Two rows of the file with one key are an error."""
    from quacklake.cli.sources import opened

    with opened(file, format) as source, context.open(write=True) as lake:
        with lake.transaction(message=message, author=author) as tx:
            target = tx.table(table)
            done = _stream(
                source, target.info.schema, "merging rows", lambda rows: target.merge(rows, names_of(on), evolve=evolve)
            )[1]
        assert tx.snapshot is not None
        words = f"updated {plural(done.updated, 'row')} of {table} and inserted {done.inserted:,}"
        context.output.result(
            f"{words} in snapshot {tx.snapshot.id}",
            {"table": table, "updated": done.updated, "inserted": done.inserted, "snapshot": tx.snapshot.id},
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


def _add(tx: LakeTransaction, name: str, source: FileSource, *, exists: bool, evolve: bool) -> int:
    """Stream the rows into the table; returns how many there were."""
    from quacklake.lake.reference import TableRef

    def create(rows: pa.RecordBatchReader) -> None:
        tx.create_schema(TableRef.parse(name).schema, if_not_exists=True)
        tx.create_table(name, rows)

    if not exists:
        return _stream(source, None, "appending rows", create)[0]
    target = tx.table(name)
    return _stream(source, target.info.schema, "appending rows", lambda rows: target.append(rows, evolve=evolve))[0]


def _stream(
    source: FileSource, wanted: TableSchema | None, label: str, use: Callable[[pa.RecordBatchReader], Any]
) -> tuple[int, Any]:
    """Give the rows to something, counted; returns how many there were and what came of them."""
    import pyarrow as pa

    from quacklake.cli.progress import progress

    rows = 0
    with progress(label, source.total) as advance:
        reader = source.read(wanted)

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in reader:
                yield batch
                rows += batch.num_rows
                advance(batch.num_rows)

        result = use(pa.RecordBatchReader.from_batches(reader.schema, counted()))
    return rows, result
