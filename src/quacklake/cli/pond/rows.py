"""``pond cat``, ``sql``, ``detect-overlaps`` and ``set-temporal-bounds``."""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal

from quacklake.cli.options import AllRows, ShownRows, argument, option
from quacklake.cli.pond.context import NodeName, PondContext, State

if TYPE_CHECKING:
    import pyarrow as pa

    from quacklake.pond import FS, Pond

First = Annotated[
    str | None, option("--time-start", "Only rows from this time on: ISO, or milliseconds since 1970.", "TIME")
]
Last = Annotated[str | None, option("--time-end", "Only rows up to this time.", "TIME")]


def cat(
    context: PondContext,
    path: NodeName,
    sql: Annotated[
        str | None, option("--sql --query", "A query over the rows, which it calls series or source.", "QUERY")
    ] = None,
    time_start: First = None,
    time_end: Last = None,
    display: Annotated[
        Literal["raw", "table"] | None,
        option("--display", "raw bytes, or a table; by default what suits the node. Rows are raw as Parquet."),
    ] = None,
    limit: ShownRows = None,
    all_rows: AllRows = False,
    at: State = None,
) -> None:
    """All versions of a series are one table. Files of bytes are written as they are; damaged ones are not shown."""
    from quacklake.pond.times import parse_bound

    count = context.row_limit(limit, all_rows)
    first, last = parse_bound(time_start, "--time-start"), parse_bound(time_end, "--time-end")
    with context.pond(write=True) as pond:
        fs = pond.fs(at)
        found = fs.get(path)
        if not found.entry_type.has_rows:
            if sql is not None or display == "table" or first or last:
                from quacklake.pond.queries import no_rows

                raise no_rows(found)
            _write_bytes(fs, path)
            return
        from quacklake.pond.queries import rows

        with rows(pond, path, sql, first=first, last=last, at=at) as reader:
            if display == "raw":
                _write_parquet(reader)
            else:
                _print(context, reader, count)


def _print(context: PondContext, reader: pa.RecordBatchReader, limit: int | None) -> None:
    if not context.output.for_people:
        context.output.rows(reader)
        return
    first = next((batch for batch in reader if batch.num_rows), None)
    if first is None:
        context.output.say("No data found after filtering")
        return
    import pyarrow as pa

    context.output.say("=== SQL Query Results ===")
    total = context.output.first_rows(pa.RecordBatchReader.from_batches(reader.schema, chain([first], reader)), limit)
    context.output.say(f"Summary: {total} total rows")


def _write_bytes(fs: FS, path: str) -> None:
    from quacklake.pond.large_files import blocks

    sys.stdout.flush()
    with fs.open(path) as file:
        for block in blocks(file):
            if hasattr(sys.stdout, "buffer"):
                sys.stdout.buffer.write(block)
            else:
                sys.stdout.write(block.decode(errors="backslashreplace"))


def _write_parquet(reader: pa.RecordBatchReader) -> None:
    import shutil
    import tempfile
    from pathlib import Path

    from quacklake.cli.commands.rows import write_rows

    with tempfile.TemporaryDirectory(prefix="pond-") as folder:
        path = Path(folder, "rows.parquet")
        write_rows(reader, path, "parquet", None)
        sys.stdout.flush()
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)


def sql(
    context: PondContext,
    query: Annotated[str, argument("QUERY", "One query.")],
    limit: ShownRows = None,
    all_rows: AllRows = False,
    at: State = None,
) -> None:
    """The tree is the table nodes, the log of commands is txns, and every table and series has its path as its name, in
    double quotes: SELECT * FROM "/sensors/dock.series". A query changes nothing.
    """
    count = context.row_limit(limit, all_rows)
    from quacklake.pond.queries import everything

    with context.pond(write=True) as pond, everything(pond, at, query) as relations:
        context.output.first_rows(relations.query(query), count)


def detect_overlaps(
    context: PondContext, pattern: Annotated[str, argument("PATTERN", "A path or a pattern.")] = "**/*"
) -> None:
    """Two versions overlap when the times of their rows do."""
    import pyarrow as pa

    from quacklake.pond.series import overlaps

    with context.pond() as pond:
        found = [overlap for each in pond.fs().glob(pattern) for overlap in overlaps(each)]
    fields: dict[str, Any] = {
        "path": pa.string(),
        "first_version": pa.int64(),
        "second_version": pa.int64(),
        "begin": pa.timestamp("us", "UTC"),
        "end": pa.timestamp("us", "UTC"),
    }
    columns = {name: pa.array([getattr(each, name) for each in found], type_) for name, type_ in fields.items()}
    if context.output.for_people and not found:
        context.output.say("no versions overlap")
    else:
        context.output.rows(pa.table(columns))


def set_temporal_bounds(
    context: PondContext,
    path: NodeName,
    min_time: Annotated[str | None, option("--min-time", "The first time to show.", "TIME")] = None,
    max_time: Annotated[str | None, option("--max-time", "The last time to show.", "TIME")] = None,
) -> None:
    """The rows outside stay in the series. Without options, all of its rows are shown again."""
    from quacklake.pond.series import set_temporal_bounds as set_bounds
    from quacklake.pond.times import parse_bound

    first, last = parse_bound(min_time, "--min-time"), parse_bound(max_time, "--max-time")

    def work(_: Pond, fs: FS) -> str:
        return set_bounds(fs, path, first, last).path

    changed = context.change(work)
    words = [f"{name} {moment.isoformat()}" for name, moment in (("from", first), ("to", last)) if moment is not None]
    facts = {"path": changed, "min_time": first and first.isoformat(), "max_time": last and last.isoformat()}
    context.output.result(f"{changed} shows {' '.join(words) or 'all of its rows'}", facts)


def widen(
    context: PondContext,
    path: Annotated[str, argument("PATH", "The series or table.")],
    column: Annotated[str, argument("COLUMN", "The column.")],
    type: Annotated[str, argument("TYPE", "Its new type, such as DOUBLE, DECIMAL(38,6) or VARCHAR.")],
) -> None:
    """Its values stay the same: a type that cannot hold one of them is refused, and nothing is changed then."""
    from quacklake.pond.widening import widen_column

    def work(_: Pond, fs: FS) -> str:
        return widen_column(fs, path, column, type).path

    changed = context.change(work)
    context.output.result(f"{column} of {changed} is {type} now", {"path": changed, "column": column, "type": type})
