"""``quacklake append``, ``merge`` and ``add-files``: write the rows of files into a table."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from quacklake.cli.commands.rows import count_rows
from quacklake.cli.context import Context
from quacklake.cli.options import SIGNATURE, Bundle, DryRun, FileFormat, TableName, also, argument, names_of, option
from quacklake.cli.output import plural
from quacklake.errors import InputError, NotFoundError

if TYPE_CHECKING:
    import pyarrow as pa

    from quacklake import AdoptReport, CsvOptions, Lake, LakeTransaction
    from quacklake.extend.inputs import InputFiles


STANDARD_INPUT = "-"


def _csv(names: str, help: str, metavar: str | None = None, **more: Any) -> Any:
    return option(names, help, metavar, rich_help_panel="CSV files", **more)


_PATHS = "Parquet, CSV, JSON, Arrow or Excel files, folders, patterns such as 'in/*.csv', or - for standard input."
File = Annotated[str, argument("FILE", "A Parquet, CSV, JSON, Arrow or Excel file, or - for standard input.")]
Create = Annotated[bool, option("--create", "Create the table, its schema and the lake if they do not exist.")]
NoIndex = Annotated[bool, option("--no-index", "Leave out the columns that are the index of a frame of pandas.")]
Evolve = Annotated[bool, option("--evolve", "Add missing columns to the table, and widen types where necessary.")]
_DELIMITER = "The field delimiter, '\\t' for a tab; by default detected."
_ESCAPE = "The character before a quote in quoted text; by default the quote character."
_HEADER = "Whether the first line has column names; by default detected."
_DECIMAL = "The decimal separator of numbers, such as a comma."
_THOUSANDS = "The separator of groups of three digits, such as a point."
_DATE = "The form of days, such as %d.%m.%Y; by default detected."
_TIMESTAMP = "The form of times, such as '%d.%m.%Y %H:%M'; by default detected."
_NULL = "A text that means NULL, such as n/a; may be repeated."
_SHORT = "Fill the fields that a row lacks at its end with NULL."
_SHEET = "The sheet of a workbook, by its name or its number from 1 on; by default the only one with rows."
_ENCODING = "The encoding of CSV and JSON, such as utf-16 or windows-1252; by default UTF-8, or what its mark says."
CSV: Bundle = {
    "delimiter": (Annotated[str | None, _csv("--delimiter", _DELIMITER, "CHARACTER")], None),
    "quote": (Annotated[str, _csv("--quote", "The quote character.", "CHARACTER")], '"'),
    "escape": (Annotated[str | None, _csv("--escape", _ESCAPE, "CHARACTER")], None),
    "header": (Annotated[bool | None, _csv("--header/--no-header", _HEADER, show_default=False)], None),
    "skip_lines": (Annotated[int, _csv("--skip-lines", "The number of lines to skip at the beginning.", "N")], 0),
    "encoding": (Annotated[str | None, _csv("--encoding", _ENCODING, "NAME")], None),
    "fill_short_rows": (Annotated[bool, _csv("--fill-short-rows", _SHORT)], False),
    "decimal": (Annotated[str | None, _csv("--decimal", _DECIMAL, "CHARACTER")], None),
    "thousands": (Annotated[str | None, _csv("--thousands", _THOUSANDS, "CHARACTER")], None),
    "date_format": (Annotated[str | None, _csv("--date-format", _DATE, "FORMAT")], None),
    "timestamp_format": (Annotated[str | None, _csv("--timestamp-format", _TIMESTAMP, "FORMAT")], None),
    "nulls": (Annotated[list[str] | None, _csv("--null", _NULL, "TEXT")], None),
    "sheet": (Annotated[str | None, option("--sheet", _SHEET, "NAME", rich_help_panel="Excel files")], None),
}


@also({**CSV, **SIGNATURE})
def append(
    context: Context,
    table: TableName,
    files: Annotated[list[str], argument("FILE", _PATHS)],
    format: FileFormat = None,
    create: Create = False,
    evolve: Evolve = False,
    no_index: NoIndex = False,
    **more: Any,
) -> None:
    """All rows are added in one snapshot, or none. A line that does not fit the table is an error.

    A folder stands for all files in it, except those whose names begin with . or _. Columns that the files lack are
    read from the names of their folders, such as year=2024/.
    """
    csv, signature = csv_options(more)
    with opened(files, format, csv) as source, context.open(write=True, create=create) as lake:
        exists = _exists_or_create(lake, table, create=create)
        with lake.transaction(**signature) as tx:

            def write(rows: pa.RecordBatchReader) -> None:
                if exists:
                    tx.table(table).append(rows, evolve=evolve)
                else:
                    _create_table(tx, table, rows)

            wanted = tx.table(table).info.schema if exists else None
            reader = source.read(wanted, index=not no_index)
            count, _ = count_rows(reader, "appending rows", source.total, write)
        _print_added(context, "appended", tx, table, count, len(source.found.paths), created=not exists)


@also({**CSV, **SIGNATURE})
def merge(
    context: Context,
    table: TableName,
    file: File,
    on: Annotated[
        str | None, option("--on", "The key columns, separated by commas; by default the primary key.", "NAMES")
    ] = None,
    format: FileFormat = None,
    evolve: Evolve = False,
    no_index: NoIndex = False,
    **more: Any,
) -> None:
    """All changes are made in one snapshot, or none. Two rows of the file with the same key are an error."""
    csv, signature = csv_options(more)
    with opened([file], format, csv) as source, context.open(write=True) as lake:
        with lake.transaction(**signature) as tx:
            target = tx.table(table)
            reader = source.read(target.info.schema, index=not no_index)
            _, done = count_rows(
                reader, "merging rows", source.total, lambda rows: target.merge(rows, names_of(on), evolve=evolve)
            )
        assert tx.snapshot is not None
        words = f"updated {plural(done.updated, 'row')} of {table} and inserted {done.inserted:,}"
        context.output.result(
            f"{words} in snapshot {tx.snapshot.id}",
            {"table": table, "updated": done.updated, "inserted": done.inserted, "snapshot": tx.snapshot.id},
        )


@also(SIGNATURE)
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
    no_index: NoIndex = False,
    **signature: Any,
) -> None:
    """Files outside the data path must be in a folder of the setting foreign_paths.

    A folder stands for all Parquet files in it, except those whose names begin with . or _.
    """
    from quacklake import open_files
    from quacklake.extend.stores import find_store

    hive = False if no_hive_partitioning else None
    with context.open(write=True, create=create) as lake:
        exists = _exists_or_create(lake, table, create=create)
        source = open_files(paths, "parquet", store=find_store(lake))
        files = [path if "://" in path else str(Path(path).absolute()) for path in source.found.paths]
        with lake.transaction(**signature) as tx:
            if not exists:
                chosen = source if hive is None else source.without_folders()
                _create_table(tx, table, chosen.read(index=not no_index, counted=False).schema)
            rows = tx.table(table).add_files(
                files,
                allow_missing=allow_missing,
                ignore_extra_columns=ignore_extra_columns,
                hive_partitioning=hive,
                index=not no_index,
            )
        _print_added(context, "added", tx, table, rows, len(files), created=not exists)


def csv_options(options: dict[str, Any]) -> tuple[CsvOptions, dict[str, Any]]:
    """Return the options of CSV files and workbooks, and the others."""
    from quacklake import CsvOptions

    given = {"skip" if name == "skip_lines" else name: options[name] for name in CSV}
    given["delimiter"] = "\t" if given["delimiter"] == "\\t" else given["delimiter"]
    given["nulls"] = given["nulls"] or ()
    return CsvOptions(**given), {name: value for name, value in options.items() if name not in CSV}


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
    from quacklake.extend.names import TableRef

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
    from quacklake import open_files

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
    if begin.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        return "excel"
    return "arrow" if begin.startswith(b"ARROW1") else "json" if begin[:1] in (b"[", b"{") else "csv"


_SOURCE = "The foreign table: delta:PATH, or iceberg:PATH with a metadata file or the folder of a table."


@also(SIGNATURE)
def adopt(
    context: Context,
    source: Annotated[str, argument("SOURCE", _SOURCE)],
    table: TableName,
    sync: Annotated[
        bool, option("--sync", "Follow the foreign table: register only what changed since the last time.")
    ] = False,
    create: Annotated[bool, option("--create", "Create the lake and the schema if they do not exist.")] = False,
    dry_run: DryRun = False,
    **signature: Any,
) -> None:
    """Nothing is copied, and the files stay their owner's. Their folder must be in the setting foreign_paths."""
    from quacklake.extend.names import TableRef

    with context.open(write=True, create=create and not dry_run) as lake:
        if create and not dry_run:
            lake.create_schema(TableRef.parse(table).schema, if_not_exists=True)
        before = lake.current_snapshot()
        report = lake.signed(**signature).adopt(source, table, sync=sync, dry_run=dry_run)
        snapshot = lake.current_snapshot()
        changed = snapshot if snapshot > before and not dry_run else None
    context.output.result(_words(report, table, changed), {**asdict(report), "snapshot": changed})


def _words(report: AdoptReport, table: str, snapshot: int | None) -> str:
    when = f" in snapshot {snapshot}" if snapshot is not None else ""
    if report.created:
        verb = "would adopt" if report.dry_run else "adopted"
        files = f"{plural(report.added_files, 'file')} with {plural(report.added_rows, 'row')}"
        return f"{verb} {files} of {report.source} at version {report.version} as {table}{when}"
    if not (report.added_files or report.removed_files or report.changed_files):
        return f"{table} has the rows of version {report.version} already"
    parts = {"added": report.added_files, "removed": report.removed_files, "changed": report.changed_files}
    counts = ", ".join(f"{plural(count, 'file')} {word}" for word, count in parts.items() if count)
    verb = "would bring" if report.dry_run else "brought"
    return f"{verb} {table} to version {report.version}{when}: {counts}"
