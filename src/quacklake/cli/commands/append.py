"""``quacklake append`` and ``merge``: write the rows of files into a table."""

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

    from quacklake.lake.lake import Lake, LakeTransaction
    from quacklake.operations.input_csv import CsvOptions
    from quacklake.operations.input_files import InputFiles

File = Annotated[
    str, typer.Argument(metavar="FILE", help="a Parquet, CSV or JSON file, or - for standard input", show_default=False)
]
Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="Parquet, CSV or JSON files, folders of them, patterns such as 'in/*.csv', or - for standard input",
        show_default=False,
    ),
]
Evolve = Annotated[
    bool, typer.Option("--evolve", help="Add columns that the table lacks, and widen types where rows need it.")
]
_CSV = "How a CSV file is written"
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="CHARACTER",
        help="What is between two fields, '\\t' for a tab; the first lines show it unless given.",
        rich_help_panel=_CSV,
    ),
]
Quote = Annotated[
    str, typer.Option("--quote", metavar="CHARACTER", help="What texts are quoted with.", rich_help_panel=_CSV)
]
Escape = Annotated[
    str | None,
    typer.Option(
        "--escape",
        metavar="CHARACTER",
        help="What stands before a quote inside a quoted text; the quote itself unless given.",
        rich_help_panel=_CSV,
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first line has the names; the types of the lines show it unless given.",
        rich_help_panel=_CSV,
        show_default=False,
    ),
]
SkipLines = Annotated[
    int, typer.Option("--skip-lines", metavar="N", help="Lines before the header or the rows.", rich_help_panel=_CSV)
]


def append(
    context: Context,
    table: TableName,
    files: Paths,
    format: FileFormat = None,
    create: Annotated[
        bool, typer.Option("--create", help="Make the table, its schema and the lake when they are missing.")
    ] = False,
    evolve: Evolve = False,
    delimiter: Delimiter = None,
    quote: Quote = '"',
    escape: Escape = None,
    header: Header = None,
    skip_lines: SkipLines = 0,
    message: Message = None,
    author: Author = None,
) -> None:
    """All rows come in one snapshot, or none of them. A line that does not fit is an error.

    A folder stands for the files below it, save those whose names begin with . or _. Columns that the files lack and
    that are in the names of their folders, such as year=2024/, come from there.
    """
    from quacklake.cli.sources import opened

    csv = csv_options(delimiter, quote, escape, header, skip_lines)
    with opened(files, format, csv) as source, context.open(write=True, create=create) as lake:
        exists = exists_or_create(lake, table, create=create)
        with lake.transaction(message=message, author=author) as tx:
            count = _add(tx, table, source, exists=exists, evolve=evolve)
        assert tx.snapshot is not None
        names = source.found.paths
        of = f" of {len(names):,} files" if len(names) > 1 else ""
        context.output.result(
            f"appended {plural(count, 'row')}{of} to {table} in snapshot {tx.snapshot.id}",
            {"table": table, "rows": count, "files": len(names), "snapshot": tx.snapshot.id, "created": not exists},
        )


def csv_options(delimiter: str | None, quote: str, escape: str | None, header: bool | None, skip: int) -> CsvOptions:
    """Return the options for CSV files."""
    from quacklake.operations.input_csv import CsvOptions

    return CsvOptions("\t" if delimiter == "\\t" else delimiter, quote, escape, header, skip)


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
    delimiter: Delimiter = None,
    quote: Quote = '"',
    escape: Escape = None,
    header: Header = None,
    skip_lines: SkipLines = 0,
    message: Message = None,
    author: Author = None,
) -> None:
    """All changes come in one snapshot, or none of them. Two rows of the file with one key are an error."""
    from quacklake.cli.sources import opened

    csv = csv_options(delimiter, quote, escape, header, skip_lines)
    with opened([file], format, csv) as source, context.open(write=True) as lake:
        with lake.transaction(message=message, author=author) as tx:
            target = tx.table(table)
            reader = source.read(target.info.schema)
            done = _counted(
                reader, "merging rows", source.total, lambda rows: target.merge(rows, names_of(on), evolve=evolve)
            )[1]
        assert tx.snapshot is not None
        words = f"updated {plural(done.updated, 'row')} of {table} and inserted {done.inserted:,}"
        context.output.result(
            f"{words} in snapshot {tx.snapshot.id}",
            {"table": table, "updated": done.updated, "inserted": done.inserted, "snapshot": tx.snapshot.id},
        )


def exists_or_create(lake: Lake, name: str, *, create: bool) -> bool:
    """Return True when a table exists. Raise ``NotFoundError`` when it does not exist and is not to be created."""
    try:
        _ = lake.table(name).info
    except NotFoundError as error:
        if create:
            return False
        error.hint = f"{error.hint or ''} pass --create to make it".strip()
        raise
    return True


def _add(tx: LakeTransaction, name: str, source: InputFiles, *, exists: bool, evolve: bool) -> int:
    """Stream the rows into the table, and return their number."""
    from quacklake.operations.reference import TableRef

    def create(rows: pa.RecordBatchReader) -> None:
        tx.create_schema(TableRef.parse(name).schema, if_not_exists=True)
        tx.create_table(name, rows)

    if not exists:
        return _counted(source.read(), "appending rows", source.total, create)[0]
    target = tx.table(name)
    reader = source.read(target.info.schema)
    return _counted(reader, "appending rows", source.total, lambda rows: target.append(rows, evolve=evolve))[0]


def _counted(
    reader: pa.RecordBatchReader, label: str, total: int | None, use: Callable[[pa.RecordBatchReader], Any]
) -> tuple[int, Any]:
    """Pass the rows to a function, and return their number and the result of the function."""
    import pyarrow as pa

    from quacklake.cli.progress import progress

    rows = 0
    with progress(label, total) as advance:

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in reader:
                yield batch
                rows += batch.num_rows
                advance(batch.num_rows)

        result = use(pa.RecordBatchReader.from_batches(reader.schema, counted()))
    return rows, result
