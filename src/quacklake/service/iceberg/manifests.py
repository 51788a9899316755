"""The entries of manifests: data files with their statistics, and the vectors or positions of their deleted rows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from quacklake.core.format.types import NESTED
from quacklake.extend.schemas import TableSchema
from quacklake.service.iceberg.avro import ADDED, DELETED, EXISTING
from quacklake.service.iceberg.bounds import bound
from quacklake.service.iceberg.lives import Chunk, DataFile
from quacklake.service.iceberg.puffin import Vector

__all__ = ["Placed", "Statistics", "counts", "data_entry", "file_entries", "position_entry", "vector_entry"]

_FLOATS = ("float32", "float64")


@dataclass(frozen=True, slots=True)
class Placed:
    """The file that readers open for a data file: itself or its copy."""

    url: str
    size: int


class Statistics:
    """The statistics of the data files of a table, by file; ``rows`` is in the order of files."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._ids: list[int] = rows.column("data_file_id").to_pylist()

    def of(self, chunk: Chunk) -> pa.Table:
        """Return the statistics of the files of a chunk, whose ids follow each other."""
        first, last = bisect_left(self._ids, chunk.files[0].id), bisect_right(self._ids, chunk.files[-1].id)
        return self._rows.slice(first, last - first)


def file_entries(
    chunk: Chunk, point: int, schema: TableSchema, statistics: pa.Table, placed: Mapping[int, Placed], version: int
) -> list[dict[str, Any]]:
    """Return the entries of a chunk as the snapshot ``point``, which changed it, left it."""
    known = _by_file(statistics, schema)
    entries = []
    for file in chunk.files:
        if not (file.lives(point) or file.end == point):
            continue
        status = DELETED if file.end == point else ADDED if file.begin == point else EXISTING
        snapshot = point if status != EXISTING else file.begin
        stats = _metrics(known.get(file.id, ()), file.records)
        entries.append(data_entry(status, snapshot, file, placed[file.id], stats, version))
    return entries


def data_entry(
    status: int, snapshot: int, file: DataFile, placed: Placed, metrics: Mapping[str, Any], version: int
) -> dict[str, Any]:
    """Return the entry of a data file, which has the number of its first snapshot for ever."""
    contents = {
        **_EMPTY,
        "content": 0,
        "file_path": placed.url,
        "file_format": "PARQUET",
        "record_count": file.records,
        "file_size_in_bytes": placed.size,
        # rows without a first id have theirs in the file; readers look for them only where there is some number
        "first_row_id": file.row_id_start or 0,
        **metrics,
    }
    return _entry(status, snapshot, file.begin, contents)


def vector_entry(point: int, data: DataFile, placed: Placed, puffin: Placed, vector: Vector) -> dict[str, Any]:
    """Return the entry of the deletion vector of a data file."""
    contents = {
        **_EMPTY,
        "content": 1,
        "file_path": puffin.url,
        "file_format": "PUFFIN",
        "record_count": vector.rows,
        "file_size_in_bytes": puffin.size,
        "referenced_data_file": placed.url,
        "content_offset": vector.offset,
        "content_size_in_bytes": vector.length,
    }
    return _entry(ADDED, point, max(point, data.begin), contents)


_FILE_PATH = 2147483546


def position_entry(point: int, files: Placed, rows: int, urls: Sequence[str]) -> dict[str, Any]:
    """Return the entry of a file with the deleted positions of data files."""
    contents = {
        **_EMPTY,
        "content": 1,
        "file_path": files.url,
        "file_format": "PARQUET",
        "record_count": rows,
        "file_size_in_bytes": files.size,
        "lower_bounds": [(_FILE_PATH, min(urls).encode())],
        "upper_bounds": [(_FILE_PATH, max(urls).encode())],
        "referenced_data_file": urls[0] if len(urls) == 1 else None,
    }
    return _entry(ADDED, point, point, contents)


_UNSET = (
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
    "key_metadata",
    "split_offsets",
    "equality_ids",
    "sort_order_id",
    "first_row_id",
    "referenced_data_file",
    "content_offset",
    "content_size_in_bytes",
)
_EMPTY: Mapping[str, Any] = {"partition": {}, **dict.fromkeys(_UNSET)}


def _entry(status: int, snapshot: int, sequence: int, contents: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "status": status,
        "snapshot_id": snapshot,
        "sequence_number": sequence,
        "file_sequence_number": sequence,
        "data_file": contents,
    }


def counts(entries: Iterable[Mapping[str, Any]]) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return how many files and rows of a manifest are added, existing and deleted."""
    files, rows = [0, 0, 0], [0, 0, 0]
    place = {ADDED: 0, EXISTING: 1, DELETED: 2}
    for entry in entries:
        at = place[entry["status"]]
        files[at] += 1
        rows[at] += entry["data_file"]["record_count"]
    return (files[0], files[1], files[2]), (rows[0], rows[1], rows[2])


#: Of a column: its id, type, counts of values and NULLs, least and greatest value, and whether there is NaN.
_Stats = tuple[int, str, int | None, int | None, str | None, str | None, bool | None]


def _by_file(statistics: pa.Table, schema: TableSchema) -> dict[int, list[_Stats]]:
    """Return the statistics of the scalar columns at the top, by file."""
    types = {column.id: column.type for column in schema.columns if column.type not in NESTED}
    names = "data_file_id column_id value_count null_count min_value max_value contains_nan"
    found: dict[int, list[_Stats]] = {}
    for file, column, *facts in zip(*(statistics.column(name).to_pylist() for name in names.split()), strict=True):
        type_ = types.get(column)
        if type_ is not None:
            found.setdefault(file, []).append((column, type_, *facts))
    return found


def _metrics(stats: Sequence[_Stats], records: int) -> dict[str, Any]:
    """Return the counts and bounds of the columns of a file, as far as they are certain.

    Iceberg's count of values has the NULLs in it, the lake's has not. Where the lake says that there are no values, it
    may just not have counted. NaN is above every number in some readers, and not in the lake's bounds.
    """
    values, nulls, nans, lower, upper = [], [], [], [], []
    for column, type_, value_count, null_count, least, greatest, nan in stats:
        if value_count and null_count is not None and 0 <= null_count < records:
            values.append((column, records))
            nulls.append((column, null_count))
        low = bound(least, type_, upper=False)
        if low is not None:
            lower.append((column, low))
        if type_ in _FLOATS:
            if nan is not False:
                continue
            nans.append((column, 0))
        high = bound(greatest, type_, upper=True)
        if high is not None:
            upper.append((column, high))
    return {
        "value_counts": values or None,
        "null_value_counts": nulls or None,
        "nan_value_counts": nans or None,
        "lower_bounds": lower or None,
        "upper_bounds": upper or None,
    }
