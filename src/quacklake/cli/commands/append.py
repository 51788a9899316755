"""``quacklake append``, ``merge`` and ``add-files``: write the rows of files into a table."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from quacklake.cli.commands.rows import count_rows
from quacklake.cli.context import Context
from quacklake.cli.options import Author, FileFormat, Message, TableName, argument, names_of, option
from quacklake.cli.output import plural
from quacklake.errors import InputError, NotFoundError

if TYPE_CHECKING:
    import pyarrow as pa

    from quacklake.lake.lake import Lake, LakeTransaction
    from quacklake.operations.input_csv import CsvOptions
    from quacklake.operations.input_files import InputFiles

STANDARD_INPUT = "-"


def _csv(names: str, help: str, metavar: str | None = None, **more: Any) -> Any:
    return option(names, help, metavar, rich_help_panel="CSV files", **more)


_PATHS = "Parquet, CSV, JSON or Arrow files, folders, patterns such as 'in/*.csv', or - for standard input."
File = Annotated[str, argument("FILE", "A Parquet, CSV, JSON or Arrow file, or - for standard input.")]
Create = Annotated[bool, option("--create", "Create the table, its schema and the lake if they do not exist.")]
Evolve = Annotated[bool, option("--evolve", "Add missing columns to the table, and widen types where necessary.")]
Delimiter = Annotated[
    str | None, _csv("--delimiter", "The field delimiter, '\\t' for a tab; by default detected.", "CHARACTER")
]
Quote = Annotated[str, _csv("--quote", "The quote character.", "CHARACTER")]
Escape = Annotated[
    str | None,
    _csv("--escape", "The character before a quote in quoted text; by default the quote character.", "CHARACTER"),
]
Header = Annotated[
    bool | None,
    _csv("--header/--no-header", "Whether the first line has column names; by default detected.", show_default=False),
]
SkipLines = Annotated[int, _csv("--skip-lines", "The number of lines to skip at the beginning.", "N")]


def append(
    context: Context,
    table: TableName,
    files: Annotated[list[str], argument("FILE", _PATHS)],
    format: FileFormat = None,
    create: Create = False,
    evolve: Evolve = False,
    delimiter: Delimiter = None,
    quote: Quote = '"',
    escape: Escape = None,
    header: Header = None,
    skip_lines: SkipLines = 0,
    message: Message = None,
    author: Author = None,
) -> None:
    """All rows are added in one snapshot, or none. A line that does not fit the table is an error.

    A folder stands for all files in it, except those whose names begin with . or _. Columns that the files lack are
    read from the names of their folders, such as year=2024/.
    """
    csv = csv_options(delimiter, quote, escape, header, skip_lines)
    with opened(files, format, csv) as source, context.open(write=True, create=create) as lake:
        exists = _exists_or_create(lake, table, create=create)
        with lake.transaction(message=message, author=author) as tx:

            def write(rows: pa.RecordBatchReader) -> None:
                if exists:
                    tx.table(table).append(rows, evolve=evolve)
                else:
                    _create_table(tx, table, rows)

            reader = source.read(tx.table(table).info.schema) if exists else source.read()
            count, _ = count_rows(reader, "appending rows", source.total, write)
        _print_added(context, "appended", tx, table, count, len(source.found.paths), created=not exists)


def merge(
    context: Context,
    table: TableName,
    file: File,
    on: Annotated[
        str | None, option("--on", "The key columns, separated by commas; by default the primary key.", "NAMES")
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
    """All changes are made in one snapshot, or none. Two rows of the file with the same key are an error."""
    csv = csv_options(delimiter, quote, escape, header, skip_lines)
    with opened([file], format, csv) as source, context.open(write=True) as lake:
        with lake.transaction(message=message, author=author) as tx:
            target = tx.table(table)
            reader = source.read(target.info.schema)
            _, done = count_rows(
                reader, "merging rows", source.total, lambda rows: target.merge(rows, names_of(on), evolve=evolve)
            )
        assert tx.snapshot is not None
        words = f"updated {plural(done.updated, 'row')} of {table} and inserted {done.inserted:,}"
        context.output.result(
            f"{words} in snapshot {tx.snapshot.id}",
            {"table": table, "updated": done.updated, "inserted": done.inserted, "snapshot": tx.snapshot.id},
        )


def add_files(
    context: Context,
    table: TableName,
    paths: Annotated[
        list[str], argument("PATH", "Parquet files, folders of them, or patterns such as 'in/*.parquet'.")
    ],
    create: Create = False,
    allow_missing: Annotated[
        bool, option("--allow-missing", "Fill columns that a file lacks with their default or NULL.")
    ] = False,
    ignore_extra_columns: Annotated[
        bool, option("--ignore-extra-columns", "Ignore columns that the table does not have.")
    ] = False,
    no_hive_partitioning: Annotated[
        bool, option("--no-hive-partitioning", "Do not read columns from folder names such as year=2024/.")
    ] = False,
    message: Message = None,
    author: Author = None,
) -> None:
    """Files outside the data path must be in a folder of the setting foreign_paths.

    A folder stands for all Parquet files in it, except those whose names begin with . or _.
    """
    from quacklake.operations.input_files import open_files

    hive = False if no_hive_partitioning else None
    with context.open(write=True, create=create) as lake:
        exists = _exists_or_create(lake, table, create=create)
        source = open_files(paths, "parquet", store=lake._context.store)
        files = [path if "://" in path else str(Path(path).absolute()) for path in source.found.paths]
        with lake.transaction(message=message, author=author) as tx:
            if not exists:
                _create_table(tx, table, (source if hive is None else source.without_folders()).read().schema)
            rows = tx.table(table).add_files(
                files, allow_missing=allow_missing, ignore_extra_columns=ignore_extra_columns, hive_partitioning=hive
            )
        _print_added(context, "added", tx, table, rows, len(files), created=not exists)


def csv_options(delimiter: str | None, quote: str, escape: str | None, header: bool | None, skip: int) -> CsvOptions:
    """Return the options of a CSV file as they were typed."""
    from quacklake.operations.input_csv import CsvOptions

    return CsvOptions("\t" if delimiter == "\\t" else delimiter, quote, escape, header, skip)


def _exists_or_create(lake: Lake, name: str, *, create: bool) -> bool:
    """Return True when a table exists. Raise ``NotFoundError`` when it does not exist and is not to be created."""
    try:
        _ = lake.table(name).info
    except NotFoundError as error:
        if create:
            return False
        error.hint = f"{error.hint or ''} pass --create to create it".strip()
        raise
    return True


def _create_table(tx: LakeTransaction, name: str, rows: pa.RecordBatchReader | pa.Schema) -> None:
    from quacklake.operations.reference import TableRef

    tx.create_schema(TableRef.parse(name).schema, if_not_exists=True)
    tx.create_table(name, rows)


def _print_added(
    context: Context, verb: str, tx: LakeTransaction, table: str, rows: int, files: int, *, created: bool
) -> None:
    assert tx.snapshot is not None
    of = f" of {files:,} files" if files > 1 else ""
    context.output.result(
        f"{verb} {plural(rows, 'row')}{of} to {table} in snapshot {tx.snapshot.id}",
        {"table": table, "rows": rows, "files": files, "snapshot": tx.snapshot.id, "created": created},
    )


@contextmanager
def opened(names: Sequence[str], format: str | None = None, csv: CsvOptions | None = None) -> Iterator[InputFiles]:
    """Open the rows of files, or of standard input for ``-``."""
    from quacklake.operations.input_files import open_files

    if STANDARD_INPUT not in names:
        yield open_files(names, format, csv=csv)
        return
    if len(names) > 1:
        raise InputError("cannot read standard input together with files", hint="run one command for each")
    # type detection and reading both need the rows from the start
    with tempfile.NamedTemporaryFile(prefix="quacklake-") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        path = Path(file.name)
        files = open_files(path, format or _guess(path), csv=csv)
        yield replace(files, found=replace(files.found, name="standard input"))


def _guess(path: Path) -> str:
    """Guess the format of a file from its first bytes."""
    with path.open("rb") as file:
        begin = file.read(1000).lstrip()
    if begin.startswith(b"PAR1"):
        return "parquet"
    return "arrow" if begin.startswith(b"ARROW1") else "json" if begin[:1] in (b"[", b"{") else "csv"
