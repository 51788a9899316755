"""Merge staged rows into a Delta table by a key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError

from quacklake.connectors.delta.tables import arrow_schema
from quacklake.connectors.evolution import conformed
from quacklake.connectors.upserts import last_rows
from quacklake.extend.names import quote
from quacklake.extend.stores import Store


def merge(
    table: DeltaTable, store: Store, paths: Sequence[str], key: Sequence[str], properties: CommitProperties
) -> None:
    """Update the rows of a table that staged files have, and insert the others, in one commit."""
    schema = _staged_schema(table, store, paths)
    failures: list[Exception] = []

    def rows() -> Iterator[pa.RecordBatch]:
        try:
            for path in paths:
                with store.open_input(path) as source:
                    for batch in pq.ParquetFile(source).iter_batches():
                        yield conformed(batch, schema)
        except Exception as error:  # the library would tell of it in its own words
            failures.append(error)
            raise

    source = pa.RecordBatchReader.from_batches(schema, last_rows(rows(), schema, key))
    same = " AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in key)
    merger = table.merge(source, same, source_alias="s", target_alias="t", commit_properties=properties)
    try:
        merger.when_matched_update_all().when_not_matched_insert_all().execute()
    except DeltaError:
        if failures:
            raise failures[0] from None
        raise


def _staged_schema(table: DeltaTable, store: Store, paths: Sequence[str]) -> pa.Schema:
    """Return the columns of staged files, which may be fewer than those of the table."""
    names: dict[str, None] = {}
    for path in paths:
        with store.open_input(path) as source:
            names |= dict.fromkeys(pq.read_schema(source).names)
    schema = arrow_schema(table)
    return pa.schema([schema.field(name) for name in names]) if names else schema
