"""Data files of a Delta table: where they are staged, and the statistics that its log keeps of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quacklake.connectors.object_store import open_store
from quacklake.connectors.staging import FileStage, hive_split

_MAX_BOUND = 64


def delta_stage(
    location: str,
    storage: Mapping[str, str],
    schema: pa.Schema,
    *,
    upsert: bool,
    partition_by: Sequence[str],
    target_bytes: int,
    compression: str,
) -> FileStage:
    """Return the stage of a sink, in any process: the arguments are plain data.

    Rows of an upsert are set aside, because only the merge makes files of the table.
    """
    return FileStage(
        open_store(location, storage),
        folder=stage_folder(upsert=upsert),
        split=hive_split(partition_by) if partition_by and not upsert else None,
        target_bytes=target_bytes,
        compression=compression,
        statistics=None if upsert else statistics,
        schema=schema,
        aside="_quacklake/",
    )


def stage_folder(*, upsert: bool) -> str:
    """Return the folder of staged files: rows to merge are no files of the table."""
    return "_quacklake/" if upsert else ""


def statistics(schema: pa.Schema, footer: pq.FileMetaData, rows: pa.Table | None = None) -> str:
    """Return the statistics of a file in the form of Delta's log, from the footer of the file.

    A bound that could be wrong is left out: those of texts that are long, and of columns with NaN or infinite values,
    which JSON does not have. Arrow's footers ignore NaN, so ``rows`` are looked at where Arrow has written them; to
    Spark NaN is the greatest value.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
    for field in schema:
        if pa.types.is_nested(field.type):
            continue
        known = [group.column(places[field.name]).statistics for group in groups]
        if not all(each is not None and each.has_null_count for each in known):
            continue
        nulls[field.name] = sum(each.null_count for each in known)
        if not _has_bounds(field.type) or nulls[field.name] == footer.num_rows:
            continue
        if rows is not None and _has_no_bound(rows.column(field.name)):
            continue
        bounds = _bounds(known)
        if bounds is None or not all(isfinite(value) for value in bounds if isinstance(value, float)):
            continue
        low, high = (_to_bound(pa.scalar(value, field.type)) for value in bounds)
        if len(str(low)) <= _MAX_BOUND and len(str(high)) <= _MAX_BOUND:
            least[field.name], most[field.name] = low, high
    found = {"numRecords": footer.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    return json.dumps(found, default=str)


def _bounds(known: Sequence[pq.Statistics]) -> tuple[Any, Any] | None:
    """Return the least and the greatest value of a column, None where the footer does not say."""
    valued = [each for each in known if each.num_values]
    if not valued or not all(each.has_min_max for each in valued):
        return None
    return min(each.min for each in valued), max(each.max for each in valued)


def _has_bounds(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_date, pa.types.is_timestamp)
    return any(test(kind) for test in tests)


def _has_no_bound(column: pa.ChunkedArray) -> bool:
    """Return whether a column has NaN or infinite values."""
    return bool(pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py())


def _to_bound(value: pa.Scalar) -> Any:
    if pa.types.is_timestamp(value.type):
        text = value.cast(pa.timestamp("us")).as_py().isoformat(timespec="microseconds")
        return f"{text}Z" if value.type.tz else text
    return value.as_py()
