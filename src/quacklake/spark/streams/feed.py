"""Read the rows of a stream with Spark. Executors read them from files, without access to the catalog.

Spark itself reads files whose rows were all inserted. DuckDB reads the others on the executors, such as files of
several snapshots or rows that were updated. For that, ``quacklake`` must be installed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from quacklake.scan import ScanPlan
from quacklake.scan.feed import FeedPlan, plain_inserts, slices, state_slices
from quacklake.spark.read.feed_names import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, FEED_NAMES
from quacklake.spark.read.slices import Slice, carrier_fields, read_slice, shown_columns, sliced_frame
from quacklake.spark.runtime.local import to_frame
from quacklake.spark.runtime.session import has_time
from quacklake.spark.runtime.types import quote
from quacklake.spark.streams.source import StreamPlan, StreamSource

if TYPE_CHECKING:
    from quacklake.spark.engine import SparkEngine

_HERE = 1 << 20
"""The most bytes of files that this process reads faster than Spark starts Python on the executors."""
FEED_TYPES = f"{CHANGE_TYPE} STRING, {COMMIT_VERSION} BIGINT, {COMMIT_TIMESTAMP} TIMESTAMP_LTZ"


def slices_of(source: StreamSource, found: StreamPlan) -> list[Slice]:
    """Return the slices of a plan, one for each task."""
    plans: list[ScanPlan | FeedPlan] = [] if found.state is None else [*state_slices(found.state)]
    plans += slices(found.feed, deletes=source.changes)
    return [_slice(source, found, plan) for plan in plans]


def _slice(source: StreamSource, found: StreamPlan, plan: ScanPlan | FeedPlan) -> Slice:
    times = pa.table(
        {"id": pa.array(found.times.keys(), pa.int64()), "time": pa.array(found.times.values(), pa.int64())}
    )
    return Slice(source.context.store, plan, source.columns, found.names, source.changes, times)


def raw_schema(source: StreamSource) -> str:
    """Return the columns of slices in Spark SQL, in transport form, under names that contain their ids."""
    return ", ".join([*carrier_fields(source.columns), *([FEED_TYPES] if source.changes else [])])


def shown_frame(source: StreamSource, raw: DataFrame, *, time: bool) -> DataFrame:
    """Convert rows from transport form to the form that users see."""
    return raw.selectExpr(*shown_columns(source.columns, time=time), *(FEED_NAMES if source.changes else ()))


def batch_frame(engine: SparkEngine, source: StreamSource, found: StreamPlan) -> DataFrame:
    """Return the rows of a plan as an ordinary DataFrame."""
    time = has_time(engine.session)
    if source.changes:
        return shown_frame(source, _mapped(engine, source, slices_of(source, found)), time=time)
    names = [column.name for column in source.columns]
    parts = []
    if found.state is not None:
        parts.append(engine.scan.frame(found.state).select(*map(quote, found.names)).toDF(*names))
    plain, rest = plain_inserts(found.feed)
    if plain.files.num_rows or (plain.inlined is not None and plain.inlined.num_rows):
        parts.append(engine.scan.frame(plain).select(*map(quote, found.names)).toDF(*names))
    others = [_slice(source, found, plan) for plan in slices(rest, deletes=False)]
    if others or not parts:
        parts.append(shown_frame(source, _mapped(engine, source, others), time=time))
    return reduce(DataFrame.union, parts)


def _mapped(engine: SparkEngine, source: StreamSource, parts: Sequence[Slice]) -> DataFrame:
    """Return slices as a DataFrame. A few rows are read here; otherwise each slice is a row of bytes for a task."""
    schema = raw_schema(source)
    if sum(map(_weight, parts)) <= _HERE:
        found = [batch for part in parts for batch in read_slice(part)]
        if not found:
            return engine.session.createDataFrame([], schema)
        return to_frame(engine.session, pa.Table.from_batches(found))
    return sliced_frame(engine.session, parts, schema)


def _weight(part: Slice) -> int:
    """Estimate the bytes of a slice."""
    rows = part.plan if isinstance(part.plan, ScanPlan) else part.plan.rows
    inlined = [rows.inlined] if isinstance(part.plan, ScanPlan) else [part.plan.inserted, part.plan.deleted]
    return int(pc.sum(rows.files.column("file_size_bytes")).as_py() or 0) + sum(
        0 if table is None else table.nbytes for table in inlined
    )
