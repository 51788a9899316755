"""Export series as Parquet files in folders by time, as Hive and all of its kin read them: ``year=2024/month=1``."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from quacklake.errors import AlreadyExistsError, InputError, NotFoundError, nearest
from quacklake.extend.duckdbs import connect
from quacklake.extend.names import fold, literal, quote
from quacklake.pond import reduces
from quacklake.pond.fs import NodePath
from quacklake.pond.nodes import TIMESTAMP_COLUMN
from quacklake.pond.pond import Pond
from quacklake.pond.queries import relations
from quacklake.pond.times import require_column

PARTS = ("year", "month", "day", "hour", "minute", "second")
"""The parts of time that can be folders."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A file of an export: the series it is of, what the wildcards stand for, its folders, rows and times."""

    path: str
    file: Path
    captures: tuple[str, ...]
    temporal: dict[str, int]
    rows: int
    start_time: dt.datetime | None
    end_time: dt.datetime | None


def parse_temporal(text: str) -> list[str]:
    """Return the parts of time that a text names: ``year,month``. Raise ``InputError``."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    for part in found:
        if part not in PARTS:
            raise InputError(f"{part!r} is not a part of time", hint=nearest(part, PARTS) or ", ".join(PARTS))
    if len(set(found)) < len(found):
        raise InputError("a part of time is named twice")
    return found


def export(
    pond: Pond,
    pattern: str,
    folder: Path,
    temporal: Sequence[str] = (),
    first: dt.datetime | None = None,
    last: dt.datetime | None = None,
    *,
    force: bool = False,
) -> list[Exported]:
    """Write the series and tables that a pattern names below a folder, each in a folder of its path.

    The folder of a series is written beside and moved into place when it is complete; with ``force``, in place of an
    earlier one. Times are in UTC. Raise ``AlreadyExistsError`` for a folder that is there.
    """
    fs = pond.fs()
    found = [each for each in fs.glob(pattern) if each.entry_type.has_rows]
    if not found:
        raise NotFoundError(f"no table or series is called {pattern}", hint="`pond list` shows what there is")
    places = [folder / each.path.strip("/").removesuffix(".series") for each in found]
    if len(set(places)) < len(places):
        raise InputError("two of the series would go into one folder", hint="export them into different folders")
    taken = next((place for place in places if place.exists()), None)
    if taken is not None and not force:
        raise AlreadyExistsError(f"{taken} exists already", hint="pass --force to replace it")
    written = []
    for each, place in zip(found, places, strict=True):
        reduces.refresh(pond, fs, each)
        part = place.with_name(f".{place.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            files = _write(pond, each, part, temporal, first, last)
            if place.exists():
                shutil.rmtree(place)
            part.replace(place)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        written += [_move_export(file, part, place) for file in files]
    return written


def _move_export(file: Exported, part: Path, place: Path) -> Exported:
    return Exported(
        file.path,
        place / file.file.relative_to(part),
        file.captures,
        file.temporal,
        file.rows,
        file.start_time,
        file.end_time,
    )


def _write(
    pond: Pond,
    found: NodePath,
    folder: Path,
    temporal: Sequence[str],
    first: dt.datetime | None,
    last: dt.datetime | None,
) -> list[Exported]:
    with relations(pond) as opened:
        source = opened.shown(found, first, last)
        names = opened.columns(source)
        time = str(found.node.attribute(TIMESTAMP_COLUMN) or "") or None
        if temporal or time:
            time = require_column(names, time, found.path)
        clash = next((name for name in names if fold(name) in temporal), None)
        if clash is not None:
            raise InputError(f"{found.path} has a column {clash!r} already", hint="rename it with column-rename")
        order = "" if time is None else f" ORDER BY {quote(time)}"
        # the parts of time are columns to the writer alone: it puts them into the names of folders
        utc = "" if time is None else f"timezone('UTC', {quote(time)})"
        parts = "".join(f", {part}({utc}) AS {quote(part)}" for part in temporal)
        reader = opened.tx.sql(f"SELECT *{parts} FROM {source}{order}").to_reader()
        _copy(reader, folder, temporal)
    with connect() as connection:
        return [_describe_export(connection, found, file, folder, time) for file in sorted(folder.rglob("*.parquet"))]


def _copy(reader: pa.RecordBatchReader, folder: Path, temporal: Sequence[str]) -> None:
    with connect() as connection:
        connection.execute("SET memory_limit = '1GB'")
        connection.execute(f"SET temp_directory = {literal(str(folder / '.spill'))}")
        connection.execute("SET timezone = 'UTC'")
        connection.register("rows", reader)
        if temporal:
            by = ", ".join(quote(part) for part in temporal)
            to, options = folder, f"PARTITION_BY ({by}), OVERWRITE_OR_IGNORE"
        else:
            to, options = folder / "data_0.parquet", "ROW_GROUP_SIZE 122880"
        connection.execute(f"COPY (FROM rows) TO {literal(str(to))} (FORMAT parquet, COMPRESSION zstd, {options})")
    shutil.rmtree(folder / ".spill", ignore_errors=True)


def _describe_export(
    connection: duckdb.DuckDBPyConnection, found: NodePath, file: Path, folder: Path, time: str | None
) -> Exported:
    times = "NULL, NULL" if time is None else f"epoch_us(min({quote(time)})), epoch_us(max({quote(time)}))"
    query = f"SELECT count(*), {times} FROM read_parquet({literal(str(file))}, hive_partitioning = false)"
    ((rows, start, end),) = connection.execute(query).fetchall()
    pairs = [part.split("=", 1) for part in file.relative_to(folder).parts[:-1]]
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    first, last = (None if since is None else epoch + dt.timedelta(microseconds=since) for since in (start, end))
    return Exported(found.path, file, found.captures, {name: int(value) for name, value in pairs}, rows, first, last)
