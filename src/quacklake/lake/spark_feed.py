"""The rows of a stream in Spark. Executors read them from files, and see neither the catalog nor a way to it.

Files whose rows were all inserted are read by Spark itself. What needs more, such as files of several snapshots or rows
that were updated, DuckDB reads on the executors, where ``quacklake`` must be installed for that.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from quacklake.engines.duckdb import DuckDBEngine
from quacklake.engines.spark.local import carried, inlined_columns, to_frame
from quacklake.engines.spark.session import has_time
from quacklake.format.schema import Column
from quacklake.format.spark import quote, read_type, shown
from quacklake.lake.stream_changes import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from quacklake.lake.stream_source import StreamPlan, StreamSource
from quacklake.scan import ScanPlan
from quacklake.scan.feed import FeedPlan
from quacklake.scan.feed_slices import plain_inserts, slices, state_slices
from quacklake.scan.plan import column_key
from quacklake.storage import Store

if TYPE_CHECKING:
    from quacklake.lake.spark import SparkLake

__all__ = ["Slice", "batch_frame", "raw_schema", "read_slice", "shown_frame", "slices_of"]

_BATCH_ROWS = 50_000
_HERE = 1 << 20
"""Up to how many bytes of files are read sooner here than Spark has started Python on the executors."""
_FEED_TYPES = f"{CHANGE_TYPE} STRING, {COMMIT_VERSION} BIGINT, {COMMIT_TIMESTAMP} TIMESTAMP"


@dataclass(frozen=True)
class Slice:
    """Rows for one task: all it needs, and the store."""

    store: Store
    plan: ScanPlan | FeedPlan
    columns: tuple[Column, ...]
    names: tuple[str, ...]
    changes: bool
    times: pa.Table


def slices_of(source: StreamSource, found: StreamPlan) -> list[Slice]:
    """What tasks read of a plan, each for itself."""
    plans: list[ScanPlan | FeedPlan] = [] if found.state is None else [*state_slices(found.state)]
    plans += slices(found.feed, deletes=source.changes)
    return [_slice(source, found, plan) for plan in plans]


def _slice(source: StreamSource, found: StreamPlan, plan: ScanPlan | FeedPlan) -> Slice:
    times = pa.table(
        {"id": pa.array(found.times.keys(), pa.int64()), "time": pa.array(found.times.values(), pa.int64())}
    )
    return Slice(source.shared.store, plan, source.columns, found.names, source.changes, times)


# -- on executors ------------------------------------------------------------------------------------------------------


def read_slice(part: Slice) -> Iterator[pa.RecordBatch]:
    """The rows of a slice, with the columns of :func:`raw_schema`."""
    engine = DuckDBEngine(part.store, threads=1)
    try:
        for batch in _scanned(engine, part):
            rows = pa.Table.from_batches([batch])
            own = rows.select(range(len(part.columns))).rename_columns([column_key(c) for c in part.columns])
            table = carried(own, part.columns)
            if part.changes:
                for name, values in _commits(part, rows):
                    table = table.append_column(name, values)
            yield from table.combine_chunks().to_batches()
    finally:
        engine.close()


def _scanned(engine: DuckDBEngine, part: Slice) -> pa.RecordBatchReader:
    if isinstance(part.plan, ScanPlan):
        return engine.scan(part.plan, columns=part.names, batch_rows=_BATCH_ROWS).reader
    feed = part.plan.schema.columns[3:]
    called = {column.name: name.name for column, name in zip(part.plan.rows.schema.columns, feed, strict=True)}
    columns = [*(called[name] for name in part.names), "change_type", "snapshot_id"]
    only = None if part.changes or not part.plan.updates else "change_type = 'insert'"
    return engine.feed(part.plan, deletes=part.changes, columns=columns, where=only, batch_rows=_BATCH_ROWS).reader


def _commits(part: Slice, rows: pa.Table) -> list[tuple[str, pa.ChunkedArray | pa.Array]]:
    if isinstance(part.plan, ScanPlan):
        kinds: pa.ChunkedArray | pa.Array = pa.array(["insert"] * rows.num_rows, pa.string())
        versions: pa.ChunkedArray | pa.Array = pa.array([part.plan.snapshot_id] * rows.num_rows, pa.int64())
    else:
        kinds, versions = rows.column("change_type").cast(pa.string()), rows.column("snapshot_id")
    places = pc.index_in(versions, value_set=part.times.column("id").combine_chunks())
    times = part.times.column("time").take(places).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    return [(CHANGE_TYPE, kinds), (COMMIT_VERSION, versions), (COMMIT_TIMESTAMP, times)]


# -- on the driver -----------------------------------------------------------------------------------------------------


def raw_schema(source: StreamSource) -> str:
    """The columns of slices, in the SQL of Spark: as they travel, under names that tell their ids."""
    stored = zip(source.columns, inlined_columns(source.columns), strict=True)
    own = [f"{column_key(column)} {read_type(carrier, time=False)}" for column, carrier in stored]
    return ", ".join([*own, *([_FEED_TYPES] if source.changes else [])])


def shown_frame(source: StreamSource, raw: DataFrame, *, time: bool) -> DataFrame:
    """Rows as they travel as users see them."""
    select = [
        f"{shown(column_key(column), stored, column, time=time)} AS {quote(column.name)}"
        for column, stored in zip(source.columns, inlined_columns(source.columns), strict=True)
    ]
    return raw.selectExpr(*select, *([CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP] if source.changes else []))


def batch_frame(spark: SparkLake, source: StreamSource, found: StreamPlan) -> DataFrame:
    """The rows of a plan as an ordinary DataFrame."""
    time = has_time(spark.session)
    if source.changes:
        return shown_frame(source, _mapped(spark, source, slices_of(source, found)), time=time)
    names = [column.name for column in source.columns]
    parts = []
    if found.state is not None:
        parts.append(spark._scan.frame(found.state).select(*map(quote, found.names)).toDF(*names))
    plain, rest = plain_inserts(found.feed)
    if plain.files.num_rows or (plain.inlined is not None and plain.inlined.num_rows):
        parts.append(spark._scan.frame(plain).select(*map(quote, found.names)).toDF(*names))
    others = [_slice(source, found, plan) for plan in slices(rest, deletes=False)]
    if others or not parts:
        parts.append(shown_frame(source, _mapped(spark, source, others), time=time))
    return reduce(DataFrame.union, parts)


def _mapped(spark: SparkLake, source: StreamSource, parts: Sequence[Slice]) -> DataFrame:
    """Slices as a frame: a few rows are read here, else each slice is a row of bytes, which a task of its own reads."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for data in batch.column("part").to_pylist():
                yield from read_slice(pickle.loads(data))

    schema = raw_schema(source)
    if sum(map(_weight, parts)) <= _HERE:
        found = [batch for part in parts for batch in read_slice(part)]
        if not found:
            return spark.session.createDataFrame([], schema)
        return to_frame(spark.session, pa.Table.from_batches(found))
    packed = pa.table({"part": pa.array([pickle.dumps(part) for part in parts], pa.binary())})
    return to_frame(spark.session, packed).repartition(len(parts)).mapInArrow(read, schema)


def _weight(part: Slice) -> int:
    """About how many bytes a slice is."""
    rows = part.plan if isinstance(part.plan, ScanPlan) else part.plan.rows
    inlined = [rows.inlined] if isinstance(part.plan, ScanPlan) else [part.plan.inserted, part.plan.deleted]
    return int(pc.sum(rows.files.column("file_size_bytes")).as_py() or 0) + sum(
        0 if table is None else table.nbytes for table in inlined
    )
