"""Rows of DataFusion as Parquet files of a table, a row group in memory at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from quacklake.extend import files

ROW_GROUP = 122_880
"""The rows that are collected before they are written."""
OPEN_FILES = 32
"""The most partitions that are written at once; beyond, the one that waited longest ends its file."""


@dataclass
class _Writer:
    stack: ExitStack
    sink: pa.NativeFile
    parquet: pq.ParquetWriter


def write_rows(staging: files.Staging, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """Write a stream of batches to staged files, about ``target_file_size`` bytes each, apart by partition."""
    staging.fit(schema.empty_table())  # refuses columns that do not fit before any row is computed
    writers: OrderedDict[tuple[str | None, ...], _Writer] = OrderedDict()
    with ExitStack() as failing:  # an error ends every open file with itself, so that none is kept
        for rows in _collect_row_groups(batches):
            for partition, part in staging.split(staging.fit(rows)):
                writer = writers.pop(partition, None) or _open(staging, partition, failing)
                writers[partition] = writer
                writer.parquet.write_table(part)
                if writer.sink.tell() >= staging.target_file_size:
                    writers.pop(partition).stack.close()
                elif len(writers) > OPEN_FILES:
                    writers.popitem(last=False)[1].stack.close()
        for writer in writers.values():
            writer.stack.close()


def _open(staging: files.Staging, partition: tuple[str | None, ...], failing: ExitStack) -> _Writer:
    stack = failing.enter_context(ExitStack())
    sink = stack.enter_context(staging.open(partition))
    parquet = stack.enter_context(pq.ParquetWriter(sink, staging.arrow_schema, compression="zstd", store_schema=False))
    return _Writer(stack, sink, parquet)


def _collect_row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of batches as tables of the size of a row group."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= ROW_GROUP:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if rows:
        yield pa.Table.from_batches(waiting)
