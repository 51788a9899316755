"""Read the footers of many files: a few in this process, many on the executors."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from quacklake.spark.runtime.local import to_frame
from quacklake.storage import Footer, Store, read_footer, read_footers

_HERE = 1000
"""The most footers that this process reads faster than Spark starts Python on the executors."""
_A_TASK = 250


def all_footers(session: SparkSession, store: Store, paths: Sequence[str]) -> list[Footer]:
    """Return ``read_footer`` of each path. Executors need ``quacklake``, and get access to the store only."""
    if len(paths) <= _HERE:
        return read_footers(store, paths)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [pickle.dumps(read_footer(store, path)) for path in batch.column("path").to_pylist()]
            yield pa.record_batch({"number": batch.column("number"), "footer": pa.array(found, pa.binary())})

    listed = pa.table({"number": pa.array(range(len(paths)), pa.int64()), "path": pa.array(paths, pa.string())})
    tasks = -(-len(paths) // _A_TASK)
    rows = to_frame(session, listed).repartition(tasks, "number").mapInArrow(read, "number BIGINT, footer BINARY")
    footers: dict[int, Footer] = {}
    for row in rows.toLocalIterator(prefetchPartitions=True):
        footers[row["number"]] = pickle.loads(row["footer"])
    return [footers[number] for number in range(len(paths))]
