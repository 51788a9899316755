"""Parts of tables and feeds that Spark tasks read by themselves, with DuckDB.

A slice has everything that its task needs, including the keys of its own encrypted files, but no access to the catalog.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from quacklake.engines.duckdb import DuckDBEngine
from quacklake.format.schema import Column
from quacklake.operations.keyed_changes import FEED_NAMES
from quacklake.scan import ScanPlan
from quacklake.scan.feed import FeedPlan, state_slices
from quacklake.scan.plan import column_key
from quacklake.spark.read.scan import ROW_COLUMNS
from quacklake.spark.runtime.local import carried, inlined_columns, shown_columns, shown_rows, to_frame
from quacklake.spark.runtime.session import has_time
from quacklake.spark.runtime.types import read_type
from quacklake.storage import Store

_BATCH_ROWS = 50_000
_TIMES = pa.schema([("id", pa.int64()), ("time", pa.int64())])


@dataclass(frozen=True, repr=False)
class Slice:
    """Rows for one task.

    ``names`` are the columns as the plan names them. With ``shown``, rows are in the form that users see, and ``time``
    says whether their session has the type TIME; otherwise they are in transport form, under names with their ids.
    With ``places`` a scan has ``ROW_COLUMNS``; with ``changes`` a feed has the kind of each change. ``where`` is for
    scans only.
    """

    store: Store
    plan: ScanPlan | FeedPlan
    columns: tuple[Column, ...]
    names: tuple[str, ...]
    changes: bool = False
    times: pa.Table = field(default_factory=_TIMES.empty_table)
    where: str | None = None
    shown: bool = False
    time: bool = False
    places: bool = False

    def __repr__(self) -> str:
        return f"<Slice of {self.plan!r}>"


# -- on executors ------------------------------------------------------------------------------------------------------


def read_slice(part: Slice) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a slice."""
    engine = DuckDBEngine(part.store, threads=1)
    keys = [column_key(column) for column in part.columns]
    try:
        for batch in _scanned(engine, part):
            rows = pa.Table.from_batches([batch])
            own = rows.select(range(len(part.columns))).rename_columns(keys)
            if part.shown:
                table = shown_rows(own, part.columns, time=part.time)
                table = table.rename_columns([column.name for column in part.columns])
            else:
                table = carried(own, part.columns)
            for name in ROW_COLUMNS if part.places else ():
                table = table.append_column(name, rows.column(name))
            if part.changes:
                if isinstance(part.plan, ScanPlan):
                    kinds: pa.ChunkedArray | pa.Array = pa.array(["insert"] * rows.num_rows, pa.string())
                    versions: pa.ChunkedArray | pa.Array = pa.array([part.plan.snapshot_id] * rows.num_rows, pa.int64())
                else:
                    kinds, versions = rows.column("change_type").cast(pa.string()), rows.column("snapshot_id")
                places = pc.index_in(versions, value_set=part.times.column("id").combine_chunks())
                times = part.times.column("time").take(places).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
                for name, values in zip(FEED_NAMES, (kinds, versions, times), strict=True):
                    table = table.append_column(name, values)
            yield from table.combine_chunks().to_batches()
    finally:
        engine.close()


def _scanned(engine: DuckDBEngine, part: Slice) -> pa.RecordBatchReader:
    if isinstance(part.plan, ScanPlan):
        return engine.scan(
            part.plan, columns=part.names, where=part.where, places=part.places, batch_rows=_BATCH_ROWS
        ).reader
    feed = part.plan.schema.columns[3:]
    called = {column.name: name.name for column, name in zip(part.plan.rows.schema.columns, feed, strict=True)}
    columns = [*(called[name] for name in part.names), "change_type", "snapshot_id"]
    only = None if part.changes or not part.plan.updates else "change_type = 'insert'"
    return engine.feed(part.plan, deletes=part.changes, columns=columns, where=only, batch_rows=_BATCH_ROWS).reader


# -- on the driver -----------------------------------------------------------------------------------------------------


def carrier_fields(columns: Sequence[Column]) -> list[str]:
    """Return columns in transport form, in Spark SQL."""
    stored = zip(columns, inlined_columns(columns), strict=True)
    return [f"{column_key(column)} {read_type(carrier, time=False)}" for column, carrier in stored]


def sliced_frame(session: SparkSession, parts: Sequence[Slice], schema: str) -> DataFrame:
    """Return slices as a DataFrame. Each is a row of bytes in the plan, which goes to the one task that reads it."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for data in batch.column("part").to_pylist():
                yield from read_slice(pickle.loads(data))

    if not parts:
        return session.createDataFrame([], schema)
    packed = pa.table({"part": pa.array([pickle.dumps(part) for part in parts], pa.binary())})
    return to_frame(session, packed).mapInArrow(read, schema)


def sealed_frame(session: SparkSession, store: Store, plan: ScanPlan, rows: bool) -> DataFrame:
    """Return the rows of encrypted files, which only DuckDB can read. Spark's plans show no key.

    With ``rows`` they have ``ROW_COLUMNS`` after their own columns.
    """
    columns = plan.schema.columns
    parts = [Slice(store, part, columns, plan.schema.names, places=rows) for part in state_slices(plan)]
    beside = ROW_COLUMNS if rows else ()
    fields = [*carrier_fields(columns), *(f"{name} BIGINT" for name in beside)]
    raw = sliced_frame(session, parts, ", ".join(fields))
    return raw.selectExpr(*shown_columns(columns, time=has_time(session)), *beside)
