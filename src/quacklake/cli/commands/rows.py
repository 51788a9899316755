"""``quacklake show``, ``head``, ``scan`` and ``changes``: the rows of a table, now or in the past."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from quacklake.cli.context import Context, version_of
from quacklake.cli.options import (
    AllRows,
    At,
    Columns,
    Limit,
    ShownRows,
    TableName,
    Where,
    complete_version,
    count_of,
    names_of,
    option,
)
from quacklake.cli.output import plural
from quacklake.cli.progress import progress
from quacklake.errors import AlreadyExistsError, InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from quacklake import ChangeScan, TableScan

_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".xlsx": "excel",
}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_COPY = {
    "parquet": "FORMAT parquet",
    "csv": "FORMAT csv, HEADER",
    "json": "FORMAT json, ARRAY true",
    "jsonl": "FORMAT json",
}
_ORDER = ("snapshot_id", "rowid", "change_type")
"""The last column sorts in descending order, so that the old version of an updated row comes first."""


def show(
    context: Context,
    table: TableName,
    where: Where = None,
    columns: Columns = None,
    limit: Limit = "20",
    all_rows: AllRows = False,
    at: At = None,
) -> None:
    """`quacklake head` does not count the rows, and `quacklake scan` can print all of them."""
    count = context.row_limit(limit, all_rows)
    with context.open() as lake:
        _print_frame(context, context.view(lake, at).table(table).scan(names_of(columns), where), count)


def head(
    context: Context, table: TableName, where: Where = None, columns: Columns = None, limit: Limit = "10", at: At = None
) -> None:
    """This is the fastest way to look into a table: it reads only the rows that it shows."""
    count = count_of(limit)
    with context.open() as lake:
        frame = context.view(lake, at).table(table).scan(names_of(columns), where, limit=count)
        context.output.rows(frame.to_reader(), shorten=True)


def scan(
    context: Context,
    table: TableName,
    where: Where = None,
    columns: Columns = None,
    limit: ShownRows = None,
    all_rows: AllRows = False,
    at: At = None,
) -> None:
    """All rows go to a pipe or a file, and with --output json, csv or arrow; a terminal shows the first ones.

    Rows are printed while they are read, in bounded memory.
    """
    count = context.terminal_limit(limit, all_rows)
    with context.open() as lake:
        frame = context.view(lake, at).table(table).scan(names_of(columns), where)
        if count is None:
            context.output.rows(frame.to_reader())
        else:
            _print_frame(context, frame, count, shorten=False)


def _print_frame(context: Context, frame: TableScan | ChangeScan, limit: int | None, *, shorten: bool = True) -> None:
    """Print the first rows of a frame, and the number of all rows."""
    total = frame.count() if context.output.for_people else None
    if limit is not None:
        frame = frame.limit(limit)
    context.output.rows(frame.to_reader(), total=total, shorten=shorten)
    if total is not None and limit is not None:
        context.output.mention_more(total - limit)


def changes(
    context: Context,
    table: TableName,
    since: Annotated[
        str,
        option(
            "--since",
            "The first snapshot: a snapshot number, a tag, or a time.",
            "VERSION",
            autocompletion=complete_version,
            show_default=False,
        ),
    ],
    until: Annotated[
        str | None,
        option("--until", "The last snapshot; by default the newest.", "VERSION", autocompletion=complete_version),
    ] = None,
    where: Where = None,
    columns: Columns = None,
    limit: Limit = "20",
    all_rows: AllRows = False,
) -> None:
    """The first and the last snapshot are included. An updated row appears twice: before and after the update."""
    count = context.row_limit(limit, all_rows)
    with context.open() as lake:
        frame = lake.table(table).changes(version_of(since), None if until is None else version_of(until))
        if where is not None:
            frame = frame.where(where)
        names = names_of(columns)
        if context.output.for_people:
            _print_in_order(context, frame, names, count)
        else:
            _print_frame(context, frame if names is None else frame.select(*names), count)


def _print_in_order(context: Context, frame: ChangeScan, names: list[str] | None, limit: int | None) -> None:
    """Print the first changes in the order of snapshots. A feed has the order in which its files are read."""
    from quacklake.extend.duckdbs import connect

    if names is not None:
        frame = frame.select(*dict.fromkeys([*names, *_ORDER]))
    with connect() as connection:
        rows = connection.from_arrow(frame.to_reader()).order(f"{', '.join(_ORDER)} DESC")
        found = (rows if limit is None else rows.limit(limit)).to_arrow_table()
    total = found.num_rows if limit is None or found.num_rows < limit else frame.count()
    context.output.rows(found if names is None else found.select(names), total=total, shorten=True)
    context.output.mention_more(total - found.num_rows)


def export_file(
    context: Context,
    table: str,
    file: str,
    format: str | None,
    where: str | None,
    columns: str | None,
    at: str | None,
    force: bool,
) -> None:
    """Write a table to a file, which appears only when it is complete."""
    from quacklake.extend.stores import replace_file

    path = Path(file)
    kind = format or _format(path)
    if path.exists() and not force:
        raise AlreadyExistsError(f"the file {path} exists already", hint="pass --force to replace it")
    if not path.absolute().parent.is_dir():
        raise InputError(f"the folder {path.absolute().parent} does not exist", hint="create it first")
    with context.open() as lake:
        frame = context.view(lake, at).table(table).scan(names_of(columns), where)
        total = frame.count() if sys.stderr.isatty() else None

        def write(reader: pa.RecordBatchReader) -> None:
            write_rows(reader, part, kind, _COMPRESSIONS.get(path.suffix.lower()))

        with replace_file(path) as part:
            rows, _ = count_rows(frame.to_reader(), "exporting rows", total, write)
    size = path.stat().st_size
    context.output.result(
        f"exported {plural(rows, 'row')} of {table} to {path}",
        {"table": table, "rows": rows, "file": str(path), "format": kind, "file_bytes": size},
    )


def count_rows(
    reader: pa.RecordBatchReader, label: str, total: int | None, use: Callable[[pa.RecordBatchReader], Any]
) -> tuple[int, Any]:
    """Pass the rows to a function while a bar counts them. Return their number and the result of the function."""
    import pyarrow as pa

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


def _format(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in _COMPRESSIONS]
    found = _SUFFIXES.get(suffixes[-1] if suffixes else "")
    if found is None:
        raise InputError(
            f"the name of the file {path} does not say its format",
            hint="pass --format parquet, csv, json, arrow or excel",
        )
    return found


def write_rows(reader: pa.RecordBatchReader, path: Path, kind: str, compression: str | None) -> None:
    """Write rows to a file of this format."""
    import pyarrow as pa

    from quacklake.extend.duckdbs import connect
    from quacklake.extend.names import literal

    if kind == "arrow":
        with pa.ipc.new_file(str(path), reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
        return
    if kind == "excel":
        from quacklake.cli.excel_writer import write_workbook

        write_workbook(reader, path)
        return
    options = _COPY[kind] + (f", COMPRESSION {compression}" if compression and kind != "parquet" else "")
    with connect(config={"autoinstall_known_extensions": False}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", reader)
        connection.execute(f"COPY (FROM rows) TO {literal(str(path))} ({options})")
