"""Files that Spark's own writer cannot write, written by DuckDB on the executors.

Spark has no field ids for what is inside lists and maps, so that its files need a name mapping; and files with one
cannot have row ids inside. Where rows keep their ids in tables with such columns, each task gives its rows to DuckDB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from quacklake.engines.duckdb import DuckDBEngine, FileWriter, WriteOptions
from quacklake.engines.duckdb.failures import writing
from quacklake.engines.spark import each_task
from quacklake.errors import UnsupportedFeatureError
from quacklake.format.names import quote
from quacklake.format.objects import FIELD_ROW_ID, FIELD_SNAPSHOT_ID, RESERVED_FIELDS, TableInfo
from quacklake.format.schema import Column
from quacklake.lake.settings import Shared
from quacklake.storage import Store
from quacklake.transaction import NewDataFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["written_in_python"]

_NEVER = ("variant", "geometry", "time_ns")
"""Types that do not travel from Spark to DuckDB."""


@dataclass(frozen=True, slots=True)
class _Task:
    """What one task does: its rows become files of the table."""

    store: Store
    table: TableInfo
    options: WriteOptions
    kept: Mapping[int, str]
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> list[NewDataFile]:
        rows = iter(batches)
        first = next(rows)

        def stream() -> Iterable[pa.RecordBatch]:
            yield first
            yield from rows

        engine = DuckDBEngine(self.store, threads=1)
        with closing(engine), engine.connection() as connection:
            with writing():
                connection.register("ql_source", pa.RecordBatchReader.from_batches(first.schema, stream()))
            return FileWriter(self.store).write(
                connection,
                self._query(),
                self.table,
                self.options,
                lambda _: None,
                lambda: 0,
                row_ids=FIELD_ROW_ID in self.kept,
                snapshot_ids=FIELD_SNAPSHOT_ID in self.kept,
                folder=self.folder,
            )

    def _query(self) -> str:
        select = [f"{_value(column)} AS {quote(column.name)}" for column in self.table.schema.columns]
        kept = ((id_, self.kept[id_]) for id_ in (FIELD_ROW_ID, FIELD_SNAPSHOT_ID) if id_ in self.kept)
        select += [f"{quote(name)} AS {quote(RESERVED_FIELDS[id_])}" for id_, name in kept]
        return f"SELECT {', '.join(select)} FROM ql_source"


def _value(column: Column) -> str:
    """A column as Spark shows it, in the type of the table."""
    if column.type == "timestamp_ns":
        return f"make_timestamp_ns({quote(column.name)})"
    return f"CAST({quote(column.name)} AS {column.duckdb_type()})"


def written_in_python(
    shared: Shared, frame: DataFrame, table: TableInfo, kept: Mapping[int, str], folder: str
) -> list[NewDataFile]:
    """The rows of a frame, in the forms that Spark shows, as files of a table.

    Raises ``UnsupportedFeatureError`` for a type that does not travel to DuckDB. A task that fails leaves files that
    nobody names.
    """
    for column in table.schema.columns:
        deep = [
            leaf for leaf in column.leaves() if leaf.type in _NEVER or (leaf.type == "timestamp_ns" and column.nested)
        ]
        if deep:
            raise UnsupportedFeatureError(
                f"Spark cannot write rows with their row ids beside lists and maps and a column of type {deep[0].type}",
                hint="change such rows with lake.table(…)",
            )
    task = _Task(shared.store, table, shared.write_options(table), dict(kept), folder)
    return [file for files in each_task(frame, task) for file in files]
