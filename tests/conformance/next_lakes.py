"""Lakes of the format version 1.1, written from what is known of it with plain sqlite3, duckdb and pyarrow.

Nothing here is Quacklake's: rows are inserted by position, as stock DuckLake does, so that the order of columns is tested
too. A lake of 1.1 in development lacks the parts that ``lacking`` names.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["NextLake", "puffin", "vector"]

_NOW = "2026-10-01 12:00:00.000000+00"

#: Every table of 1.1 with its columns; those that 1.1 has added are in braces.
_TABLES = """
metadata(key VARCHAR NOT NULL, value VARCHAR NOT NULL, scope VARCHAR, scope_id BIGINT)
snapshot(snapshot_id BIGINT PRIMARY KEY, snapshot_time TIMESTAMPTZ, schema_version BIGINT, next_catalog_id BIGINT, next_file_id BIGINT)
snapshot_changes(snapshot_id BIGINT PRIMARY KEY, changes_made VARCHAR, author VARCHAR, commit_message VARCHAR, commit_extra_info VARCHAR)
schema(schema_id BIGINT PRIMARY KEY, schema_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_name VARCHAR, path VARCHAR, path_is_relative BOOLEAN, {parent_schema_id BIGINT})
table(table_id BIGINT, table_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_id BIGINT, table_name VARCHAR, path VARCHAR, path_is_relative BOOLEAN)
view(view_id BIGINT, view_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_id BIGINT, view_name VARCHAR, dialect VARCHAR, sql VARCHAR, column_aliases VARCHAR)
tag(object_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, key VARCHAR, value VARCHAR)
column_tag(table_id BIGINT, column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, key VARCHAR, value VARCHAR)
data_file(data_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, file_order BIGINT, path VARCHAR, path_is_relative BOOLEAN, file_format VARCHAR, record_count BIGINT, file_size_bytes BIGINT, footer_size BIGINT, row_id_start BIGINT, partition_id BIGINT, encryption_key VARCHAR, mapping_id BIGINT, partial_max BIGINT, {row_group_count BIGINT})
file_column_stats(data_file_id BIGINT, table_id BIGINT, column_id BIGINT, column_size_bytes BIGINT, value_count BIGINT, null_count BIGINT, min_value VARCHAR, max_value VARCHAR, contains_nan BOOLEAN, extra_stats VARCHAR, {min_is_exact BOOLEAN}, {max_is_exact BOOLEAN})
file_variant_stats(data_file_id BIGINT, table_id BIGINT, column_id BIGINT, variant_path VARCHAR, shredded_type VARCHAR, column_size_bytes BIGINT, value_count BIGINT, null_count BIGINT, min_value VARCHAR, max_value VARCHAR, contains_nan BOOLEAN, extra_stats VARCHAR)
delete_file(delete_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, data_file_id BIGINT, path VARCHAR, path_is_relative BOOLEAN, format VARCHAR, delete_count BIGINT, file_size_bytes BIGINT, footer_size BIGINT, encryption_key VARCHAR, partial_max BIGINT, {row_group_count BIGINT})
column(column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, table_id BIGINT, column_order BIGINT, column_name VARCHAR, column_type VARCHAR, initial_default VARCHAR, default_value VARCHAR, nulls_allowed BOOLEAN, parent_column BIGINT, default_value_type VARCHAR, default_value_dialect VARCHAR)
table_stats(table_id BIGINT, record_count BIGINT, next_row_id BIGINT, file_size_bytes BIGINT)
table_column_stats(table_id BIGINT, column_id BIGINT, contains_null BOOLEAN, contains_nan BOOLEAN, min_value VARCHAR, max_value VARCHAR, extra_stats VARCHAR, {min_is_exact BOOLEAN}, {max_is_exact BOOLEAN})
partition_info(partition_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT)
partition_column(partition_id BIGINT, table_id BIGINT, partition_key_index BIGINT, column_id BIGINT, transform VARCHAR)
file_partition_value(data_file_id BIGINT, table_id BIGINT, partition_key_index BIGINT, partition_value VARCHAR)
files_scheduled_for_deletion(data_file_id BIGINT, path VARCHAR, path_is_relative BOOLEAN, schedule_start TIMESTAMPTZ)
inlined_data_tables(table_id BIGINT, table_name VARCHAR, schema_version BIGINT)
column_mapping(mapping_id BIGINT, table_id BIGINT, type VARCHAR)
name_mapping(mapping_id BIGINT, column_id BIGINT, source_name VARCHAR, target_field_id BIGINT, parent_column BIGINT, is_partition BOOLEAN)
schema_versions(begin_snapshot BIGINT, schema_version BIGINT, table_id BIGINT)
macro(schema_id BIGINT, macro_id BIGINT, macro_name VARCHAR, begin_snapshot BIGINT, end_snapshot BIGINT)
macro_impl(macro_id BIGINT, impl_id BIGINT, dialect VARCHAR, sql VARCHAR, type VARCHAR)
macro_parameters(macro_id BIGINT, impl_id BIGINT, column_id BIGINT, parameter_name VARCHAR, parameter_type VARCHAR, default_value VARCHAR, default_value_type VARCHAR)
sort_info(sort_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT)
sort_expression(sort_id BIGINT, table_id BIGINT, sort_key_index BIGINT, expression VARCHAR, dialect VARCHAR, sort_direction VARCHAR, null_order VARCHAR)
{view_column_tag(view_id BIGINT, column_name VARCHAR, begin_snapshot BIGINT, end_snapshot BIGINT, key VARCHAR, value VARCHAR)}
""".strip()
_UUID = "0190f8f0-0000-7000-8000-{:012d}"


@dataclass
class NextLake:
    """A lake of 1.1 in a file of SQLite or DuckDB; the caller chooses all ids except those of files."""

    folder: Path
    database: str = "sqlite"
    version: str = "1.1"
    lacking: frozenset[str] = frozenset()
    snapshots: int = 0
    objects: int = 1
    files: int = 0
    versions: int = 0
    row_ids: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.data = self.folder / "data"
        self.data.mkdir(parents=True)
        self.file = self.folder / "lake.db"
        self.url = f"{self.database}:///{self.file}"
        self.connection: Any = (
            sqlite3.connect(self.file) if self.database == "sqlite" else duckdb.connect(str(self.file))
        )
        for line in _TABLES.splitlines():
            self._create(line)
        for key, value in (("version", self.version), ("data_path", f"{self.data}/"), ("encrypted", "false")):
            self.insert("metadata", key, value, None, None)
        self.insert("schema", 0, _UUID.format(0), 0, None, "main", "main/", True, None)
        self._snapshot('created_schema:"main"')

    def _create(self, line: str) -> None:
        name, _, columns = line.strip("{}").partition("(")
        if line.startswith("{") and name in self.lacking:
            return
        kept = [part for part in columns.rstrip(")").split(", ") if not self._lacks(name, part)]
        self.connection.execute(f"CREATE TABLE ducklake_{name}({', '.join(kept).replace('{', '').replace('}', '')})")

    def _lacks(self, table: str, column: str) -> bool:
        return column.startswith("{") and f"{table}.{column.strip('{}').split()[0]}" in self.lacking

    def insert(self, table: str, *values: Any) -> None:
        """Add a row by the positions of its values; those that the lake has no columns for are left out."""
        line = next(line for line in _TABLES.splitlines() if line.strip("{").startswith(f"{table}("))
        columns = line.strip("{}").partition("(")[2].rstrip(")").split(", ")
        kept = [value for value, part in zip(values, columns, strict=True) if not self._lacks(table, part)]
        marks = ", ".join("?" * len(kept))
        self.connection.execute(f"INSERT INTO ducklake_{table} VALUES ({marks})", kept)

    def _snapshot(self, changes: str) -> None:
        counters = (self.versions, self.objects, self.files)
        self.insert("snapshot", self.snapshots, _NOW, *counters)
        self.insert("snapshot_changes", self.snapshots, changes, None, None, None)

    def commit(self, changes: str, *, alters: bool = False) -> int:
        """End the snapshot under way, whose number is ``self.snapshots + 1`` before and ``self.snapshots`` after."""
        self.snapshots += 1
        self.versions += alters
        self._snapshot(changes)
        return self.snapshots

    @property
    def now(self) -> int:
        """The number of the snapshot under way."""
        return self.snapshots + 1

    def schema(self, name: str, parent: int | None = None) -> int:
        """Add a schema; one inside another has its own folder below the data path."""
        id_, self.objects = self.objects, self.objects + 1
        uid = _UUID.format(id_)
        path = f"{name}/" if parent is None else f"{uid}/"
        self.insert("schema", id_, uid, self.now, None, name, path, True, parent)
        return id_

    def table(self, name: str, columns: Mapping[str, str], schema: int = 0) -> int:
        """Add a table with columns of scalar types, whose ids are 1, 2, …."""
        id_, self.objects = self.objects, self.objects + 1
        self.insert("table", id_, _UUID.format(id_), self.now, None, schema, name, f"{name}/", True)
        for number, (column, type_) in enumerate(columns.items(), 1):
            life = (number, self.now, None, id_, number)
            self.insert("column", *life, column, type_, None, "NULL", True, None, "literal", "duckdb")
        self.insert("schema_versions", self.now, self.versions + 1, id_)
        self.row_ids[id_] = 0
        return id_

    def data_file(self, table: int, path: str, rows: pa.Table, *, exact: Mapping[int, Any] | None = None) -> int:
        """Write a file below the folder of ``path`` and name it; ``exact`` has bounds and their flags by column."""
        id_, self.files = self.files, self.files + 1
        target = self.data / path
        target.parent.mkdir(parents=True, exist_ok=True)
        fields = [
            column.with_metadata({b"PARQUET:field_id": str(number).encode()})
            for number, column in enumerate(rows.schema, 1)
        ]
        pq.write_table(rows.cast(pa.schema(fields)), target, version="2.6")
        size, first = target.stat().st_size, self.row_ids[table]
        groups = pq.ParquetFile(target).metadata.num_row_groups
        footer = struct.unpack("<I", target.read_bytes()[-8:-4])[0]
        head = (id_, table, self.now, None, None, path.split("/", 2)[2], True, "parquet", rows.num_rows, size, footer)
        self.insert("data_file", *head, first, None, None, None, None, groups)
        for number, bounds in (exact or {}).items():
            low, high, low_exact, high_exact = bounds
            counts = (10, rows.num_rows, 0)
            self.insert("file_column_stats", id_, table, number, *counts, low, high, None, None, low_exact, high_exact)
        self.row_ids[table] = first + rows.num_rows
        return id_

    def totals(self, table: int, *, known: bool = True) -> None:
        """Tell how much a table holds, or in 1.1 that it is not known."""
        rows = self.row_ids[table]
        self.insert("table_stats", table, rows if known else None, rows, 1000 if known else None)

    def delete_file(self, table: int, file: int, folder: str, data: bytes, count: int, footer: int, *life: Any) -> None:
        """Name a Puffin file; ``life`` is its first snapshot and the newest that it has deletes of."""
        id_, self.files = self.files, self.files + 1
        name = f"ducklake-{_UUID.format(id_)}-delete.puffin"
        (self.data / folder / name).write_bytes(data)
        begin, newest = life
        head = (id_, table, begin, None, file, name, True, "puffin", count, len(data), footer)
        self.insert("delete_file", *head, None, newest, None)

    def inlined(
        self, table: int, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, prefix: str = "_ducklake_"
    ) -> None:
        """Add inlined rows; ``columns`` are declarations."""
        name = f"ducklake_inlined_data_{table}_{self.versions + 1}"
        life = [f"{prefix}{column} BIGINT" for column in ("row_id", "begin_snapshot", "end_snapshot")]
        self.connection.execute(f"CREATE TABLE {name}({', '.join([*life, *columns])})")
        self.insert("inlined_data_tables", table, name, self.versions + 1)
        for row in rows:
            values = [self.row_ids[table], self.now, None, *row]
            self.connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(values))})", values)
            self.row_ids[table] += 1

    def close(self) -> str:
        """Let go of the file; returns the URL of the lake."""
        self.connection.commit()
        self.connection.close()
        return self.url


def vector(positions: Sequence[int]) -> bytes:
    """A deletion vector, by the specification of Iceberg: one bitmap of one container of sorted positions."""
    values = b"".join(struct.pack("<H", position) for position in sorted(positions))
    header = struct.pack("<II", 12346, 1) + struct.pack("<HH", 0, len(positions) - 1) + struct.pack("<I", 16)
    body = b"\xd1\xd3\x39\x64" + struct.pack("<Q", 1) + struct.pack("<I", 0) + header + values
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def puffin(vectors: Mapping[int, Sequence[int]], data_file: str) -> tuple[bytes, int]:
    """A Puffin file with a vector for each snapshot, and the size of its footer."""
    data, blobs = b"PFA1", []
    for snapshot, positions in vectors.items():
        blob = vector(positions)
        told = {"referenced-data-file": data_file, "cardinality": str(len(positions))}
        blobs.append(
            {"type": "deletion-vector-v1", "fields": [], "snapshot-id": -1, "sequence-number": -1}
            | {"offset": len(data), "length": len(blob)}
            | {"properties": {**told, "ducklake-snapshot-id": str(snapshot)}}
        )
        data += blob
    payload = json.dumps({"blobs": blobs, "properties": {"created-by": "ducklake"}}).encode()
    footer = b"PFA1" + payload + struct.pack("<II", len(payload), 0) + b"PFA1"
    return data + footer, len(payload) + 16
