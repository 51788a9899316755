"""``quacklake export``: write rows of a table into a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from quacklake.cli.context import Context
from quacklake.cli.options import At, Columns, TableName, Where, names_of
from quacklake.cli.output import plural
from quacklake.cli.progress import progress
from quacklake.errors import AlreadyExistsError, InputError

if TYPE_CHECKING:
    import pyarrow as pa

_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".arrow": "arrow",
    ".feather": "arrow",
}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_COPY = {
    "parquet": "FORMAT parquet",
    "csv": "FORMAT csv, HEADER",
    "json": "FORMAT json, ARRAY true",
    "jsonl": "FORMAT json",
}


def export(
    context: Context,
    table: TableName,
    file: Annotated[str, typer.Argument(metavar="FILE", help="where to: its name says the format", show_default=False)],
    format: Annotated[
        Literal["parquet", "csv", "json", "jsonl", "arrow"] | None,
        typer.Option(
            "--format", metavar="FORMAT", help="parquet, csv, json, jsonl or arrow, when its name does not say."
        ),
    ] = None,
    where: Where = None,
    columns: Columns = None,
    at: At = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """The file appears when it is whole. Text is compressed when the name ends in .gz or .zst.

    To write to a program instead of a file, use `quacklake scan --output csv`.
    """
    path = Path(file)
    kind = format or _format(path)
    if path.exists() and not force:
        raise AlreadyExistsError(f"{path} exists already", hint="pass --force to replace it")
    if not path.absolute().parent.is_dir():
        raise InputError(f"there is no folder {path.absolute().parent}")
    with context.open() as lake:
        frame = context.view(lake, at).table(table).scan(names_of(columns), where)
        total = frame.count() if sys.stderr.isatty() else None
        with _whole(path) as part, progress("exporting rows", total) as advance:
            counter = _Counted(frame.to_reader(), advance)
            _write(counter.reader, part, kind, _COMPRESSIONS.get(path.suffix.lower()))
    size = path.stat().st_size
    context.output.result(
        f"exported {plural(counter.rows, 'row')} of {table} to {path}",
        {"table": table, "rows": counter.rows, "file": str(path), "format": kind, "file_bytes": size},
    )


def _format(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in _COMPRESSIONS]
    found = _SUFFIXES.get(suffixes[-1] if suffixes else "")
    if found is None:
        raise InputError(
            f"the name of {path} does not say which format is wanted", hint="pass --format parquet, csv, json or arrow"
        )
    return found


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Yield a temporary name for a file until it is complete."""
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


class _Counted:
    """A stream that counts its rows."""

    def __init__(self, reader: pa.RecordBatchReader, advance: object) -> None:
        import pyarrow as pa

        self.rows = 0

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                yield batch
                self.rows += batch.num_rows
                advance(batch.num_rows)  # type: ignore[operator]

        self.reader = pa.RecordBatchReader.from_batches(reader.schema, batches())


def _write(reader: pa.RecordBatchReader, path: Path, kind: str, compression: str | None) -> None:
    import pyarrow as pa

    from quacklake.duckdb_versions import connect
    from quacklake.format.names import literal

    if kind == "arrow":
        with pa.ipc.new_file(str(path), reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
        return
    options = _COPY[kind] + (f", COMPRESSION {compression}" if compression and kind != "parquet" else "")
    with connect(config={"autoinstall_known_extensions": False}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", reader)
        connection.execute(f"COPY (FROM rows) TO {literal(str(path))} ({options})")
