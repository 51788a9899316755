"""Export to Delta tables: each appears with all of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from quacklake.connectors.delta.schemas import delta_schema
from quacklake.connectors.delta.sink import DeltaSink
from quacklake.connectors.delta.tables import plain
from quacklake.errors import InputError
from quacklake.extend.schemas import Column
from quacklake.lake.transfers import LeftOut
from quacklake.transfer.new_folders import ExportFolder, described
from quacklake.transfer.targets import ExportedTable, View, uuids

_TEXTS = ("int128", "interval", "json", "time", "time_ns", "timetz", "uint128", "uuid")
_WIDER = {
    "uint8": pa.int16(), "uint16": pa.int32(), "uint32": pa.int64(), "uint64": pa.decimal128(20, 0),
}  # fmt: skip
_ALWAYS = {"uniform_iceberg": "false"}
"""Metadata of Iceberg has absolute paths, and the folder gets its name at the end."""


class DeltaTarget:
    """A folder of Delta tables, or with ``single`` the folder of one, which gets its name when it is complete."""

    def __init__(
        self, folder: ExportFolder, partition_by: Sequence[str], options: Mapping[str, Any], *, single: bool
    ) -> None:
        if unknown := sorted(set(options) - {"compression", "target_file_size"}):
            raise InputError(f"an export to Delta has no option {unknown[0]!r}", hint="compression or target_file_size")
        self._options, self._keys, self._single = dict(options), list(partition_by), single
        self._folder = folder
        self.place = f"delta:{folder.shown}"
        self._sizes: dict[str, int] = {}

    def check(self, table: ExportedTable) -> None:
        """Raise ``InputError`` for a name that no folder can have, or times that Delta rounds."""
        table.folders()
        delta_schema(delta_columns(table.columns.to_arrow(), table.columns.columns))
        for column in table.columns.columns:
            if any(leaf.type == "timestamp_ns" for leaf in column.leaves()):
                raise InputError(
                    f'Delta has no nanoseconds for the column "{column.name}" of {table.qualified_name}',
                    hint="leave the table out with exclude",
                )

    def begin(self, snapshot_id: int, tables: Sequence[ExportedTable]) -> list[ExportedTable]:
        """Return the tables that have a log, which is written last."""
        self._folder.begin(described("delta", snapshot_id, self._keys, uuids(tables)))
        done = [table for table in tables if self._folder.has(*self._inside(table), "_delta_log")]
        for table in tables:
            if table not in done:
                self._folder.clear(*self._inside(table))
        return done

    def write(self, table: ExportedTable, rows: pa.RecordBatchReader) -> None:
        """Write a table, with the types that Delta has."""
        schema = delta_columns(rows.schema, table.columns.columns)
        place = {"location": self._folder.location(*self._inside(table)), **self._folder.storage}
        sink = DeltaSink({"partition_by": self._keys, **place, **_ALWAYS, **self._options})
        try:
            sink.initialize(schema)
            for batch in rows:
                sink.write_batch(converted(batch, schema))
            prepared = sink.prepare_commit(0)
            sink.finalize_commit(prepared)
        finally:
            sink.close()
        self._sizes[table.qualified_name] = prepared.bytes_written

    def views(self, views: Sequence[View]) -> tuple[list[str], list[LeftOut]]:
        """Return all as left out."""
        return [], [LeftOut(f"view {schema}.{name}", "Delta has tables only") for schema, name, *_ in views]

    def left_out(self, table: ExportedTable) -> list[LeftOut]:
        """Return the columns with other types."""
        return changed_types(table, delta_columns(table.columns.to_arrow(), table.columns.columns))

    def finish(self) -> dict[str, int]:
        """Show the folder."""
        self._folder.publish()
        return self._sizes

    def abort(self) -> None:
        """Remove what was written."""
        self._folder.remove()

    def _inside(self, table: ExportedTable) -> tuple[str, ...]:
        return () if self._single else table.folders()


def delta_columns(schema: pa.Schema, columns: Sequence[Column]) -> pa.Schema:
    """Return columns with types that every Delta table can have, and that hold all values."""
    fields = []
    for found, column in zip(schema, columns, strict=True):
        kind = pa.string() if column.type in _TEXTS else _WIDER.get(column.type, found.type)
        fields.append(pa.field(found.name, kind, column.nullable))
    return plain(pa.schema(fields))


def converted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with other types. Raise ``InputError`` for a value that does not fit."""
    try:
        columns = [array.cast(field.type) for array, field in zip(batch.columns, schema, strict=True)]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"a value cannot be written: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def changed_types(table: ExportedTable, schema: pa.Schema) -> list[LeftOut]:
    """Return the columns that have a type of another kind in a schema."""
    return [
        LeftOut(f"{table.qualified_name}.{column.name}", f"the type {column.duckdb_type()}, which became {field.type}")
        for column, field in zip(table.columns.columns, schema, strict=True)
        if column.type in _TEXTS or column.type in _WIDER
    ]
