"""Changed rows as sources give them: with the kind of change and its commit, or with one letter."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

KIND, VERSION, TIME = "_change_type", "_commit_version", "_commit_timestamp"
FEED = {KIND: pa.string(), VERSION: pa.int64(), TIME: pa.timestamp("us", "UTC")}
OPS = {"insert": "I", "update_postimage": "U", "delete": "D"}
"""The letters of changes; a row as it was before has none."""


def feed_schema(schema: pa.Schema, changelog: str) -> pa.Schema:
    """Return the columns of a table and of its changes: ``rows`` has them all, ``op`` the letter alone."""
    added = FEED if changelog == "rows" else {"_op": pa.string()}
    return pa.schema([*schema, *(pa.field(name, kind) for name, kind in added.items())])


def with_commit(batch: pa.RecordBatch, version: int, time: datetime, kind: str | None = None) -> pa.RecordBatch:
    """Return rows with their commit, and with their kind unless they have it."""
    if kind is not None:
        batch = batch.append_column(KIND, pa.repeat(pa.scalar(kind), batch.num_rows))
    batch = batch.append_column(VERSION, pa.repeat(pa.scalar(version, FEED[VERSION]), batch.num_rows))
    return batch.append_column(TIME, pa.repeat(pa.scalar(time, FEED[TIME]), batch.num_rows))


def shown(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return changes in the columns of a schema of :func:`feed_schema`."""
    if "_op" in schema.names:
        places = pc.index_in(batch.column(KIND), value_set=pa.array(OPS))
        batch = batch.append_column("_op", pc.take(pa.array(OPS.values()), places)).filter(pc.is_valid(places))
    return batch.select(schema.names).cast(schema)
