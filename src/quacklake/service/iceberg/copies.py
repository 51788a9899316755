"""Looking into files, and writing rows anew: what is deleted of a file, whether readers can take it, and copies."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quacklake.core.format.mappings import NameMapping
from quacklake.core.format.objects import FIELD_ROW_ID, NAME_POS, NAME_ROW_ID, NAME_SNAPSHOT_ID
from quacklake.core.format.types import can_widen
from quacklake.core.storage.parquet import read_footer
from quacklake.core.storage.vectors import dated_positions
from quacklake.errors import CorruptFileError, UnsupportedFeatureError
from quacklake.extend.duckdbs import Connection
from quacklake.extend.history import TableHistory
from quacklake.extend.names import literal, quote
from quacklake.extend.schemas import Column, TableSchema
from quacklake.extend.stores import Store
from quacklake.service.iceberg.lives import DataFile, Deleted
from quacklake.service.iceberg.types import copied_type

__all__ = ["FileReader", "RowCopier"]

_REMEMBERED = 4096
_POSITIONS = pa.nulls(0, pa.int64())  # pa.array would load pandas


class FileReader:
    """Reads what the catalog does not tell of files, which never change. Safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._bare: dict[tuple[int, str], str | None] = {}
        self._lock = threading.Lock()

    def deleted(self, file: DataFile, deletes: Deleted) -> pa.Array:
        """Return the deleted positions of a data file, ascending. Raise ``CorruptFileError`` for impossible ones."""
        parts = [pa.array(deletes.positions, pa.int64())]
        if deletes.file is not None:
            parts.append(self._read_dated(deletes.file.path, deletes.file.format, file.records, deletes.until))
        if deletes.rows_until is not None:
            parts.append(self._later_rows(file, deletes.rows_until))
        positions = pc.unique(pa.concat_arrays(parts)).sort()
        if len(positions) and not (positions[0].as_py() >= 0 and positions[-1].as_py() < file.records):
            raise CorruptFileError(f"there are deletes beyond the {file.records} rows of {self._store.url(file.path)}")
        return positions

    def _read_dated(self, path: str, format_: str, records: int, until: int | None) -> pa.Array:
        if format_ == "puffin":
            rows = dated_positions(self._store, path, records)
            positions, dates = rows.column("pos"), rows.column("snapshot_id")
        elif format_ == "parquet":
            rows = self._table(path)
            positions = rows.column(NAME_POS)
            dates = rows.column(NAME_SNAPSHOT_ID) if NAME_SNAPSHOT_ID in rows.column_names else None
        else:
            raise UnsupportedFeatureError(f"the table has deletes in the format {format_}")
        if until is not None and dates is not None:
            positions = positions.filter(pc.fill_null(pc.less_equal(dates, until), True))
        return pa.chunked_array(positions).combine_chunks().cast(pa.int64())

    def _table(self, path: str) -> pa.Table:
        try:
            return pq.read_table(pa.BufferReader(self._store.read(path)))
        except pa.ArrowException as error:
            raise CorruptFileError(f"the delete file {self._store.url(path)} cannot be read: {error}") from error

    def _later_rows(self, file: DataFile, until: int) -> pa.Array:
        """Return the positions of the rows of a file of several snapshots that came after one of them."""
        with self._store.open_input(file.path) as source:
            try:
                dates = pq.ParquetFile(source).read([NAME_SNAPSHOT_ID]).column(NAME_SNAPSHOT_ID).combine_chunks()
            except (pa.ArrowException, KeyError) as error:
                raise CorruptFileError(
                    f"{self._store.url(file.path)} does not tell the snapshots of its rows"
                ) from error
        return pc.indices_nonzero(pc.greater(dates, until)).cast(pa.int64()) if len(dates) else _POSITIONS

    def unfit(self, file: DataFile, mapping: NameMapping, schema: TableSchema) -> str | None:
        """Return why readers cannot take a file from elsewhere as it is, by the names of its columns; None if they can.

        They look up names only in files without any field id, and take field ids for those of the table.
        """
        key = (file.id, repr(schema.columns))
        with self._lock:
            if key in self._bare:
                return self._bare[key]
        found = _unfit(self._store, file, mapping, schema)
        with self._lock:
            if len(self._bare) >= _REMEMBERED:
                self._bare.clear()
            self._bare[key] = found
        return found


def _unfit(store: Store, file: DataFile, mapping: NameMapping, schema: TableSchema) -> str | None:
    if any(column.is_partition for column in mapping.columns):
        return "columns of it are in the names of folders"
    if any(column.nested for column in schema.columns):
        return "it has nested columns without field ids"
    columns = read_footer(store, file.path).columns
    if any(column.field_id is not None for column in columns):
        return "its field ids are those of another table"
    types = {column.path: column.lake_type or column.type.lake_type for column in columns}
    if types.keys() - {column.source_name for column in mapping.columns}:
        return "it has columns that the table has not"  # whose names may mean something in other files
    for column in schema.columns:
        mapped = mapping.by_target.get(column.id)
        if mapped is None:
            continue
        stored = types.get(mapped.source_name)
        if stored is None or not (stored == column.type or _widens(stored, column.type)):
            return f'its column "{mapped.source_name}" is stored as {stored or "something else"}'
    return None


def _widens(stored: str, wanted: str) -> bool:
    return not stored.startswith(("u", "decimal")) and wanted != stored and can_widen(stored, wanted)


class RowCopier:
    """Writes rows of a table as a Parquet file that every reader of Iceberg takes, with field ids and row ids."""

    def __init__(self, history: TableHistory) -> None:
        self._history = history

    def copy_file(self, file: DataFile, schema: TableSchema) -> pa.Buffer:
        """Return a copy of a data file with all of its rows, deleted ones too, each at its position."""
        with self._history.open_rows(schema, file=file.id) as (connection, query):
            return self._copy(connection, query, schema, "_ql_position", file.records)

    def copy_inlined(self, schema: TableSchema, rows: pa.Table) -> pa.Buffer:
        """Return inlined rows as a file, in the order of their row ids."""
        with self._history.open_rows(schema, rows=rows) as (connection, query):
            return self._copy(connection, query, schema, "_ql_row_id", rows.num_rows)

    def _copy(self, connection: Connection, query: str, schema: TableSchema, order: str, expected: int) -> pa.Buffer:
        columns = schema.columns
        select = ", ".join(f"CAST({quote(each.name)} AS {copied_type(each)}) AS {quote(each.name)}" for each in columns)
        ids = ", ".join([*map(_field_id, columns), f"{literal(NAME_ROW_ID)}: {FIELD_ROW_ID:d}"])
        with tempfile.TemporaryDirectory(prefix="quacklake-") as folder:
            target = Path(folder, "copy.parquet")
            rows = f"SELECT {select}, _ql_row_id AS {quote(NAME_ROW_ID)} FROM ({query}) ORDER BY {order}"
            clauses = f"FORMAT parquet, FIELD_IDS {{{ids}}}, COMPRESSION snappy"
            connection.execute(f"COPY ({rows}) TO {literal(str(target))} ({clauses})")
            content = pa.py_buffer(target.read_bytes())
        written = pq.ParquetFile(pa.BufferReader(content)).metadata.num_rows
        if written != expected:
            raise CorruptFileError(f"a copy of rows of {self._history.name} has {written} rows")
        return content


def _field_id(column: Column) -> str:
    name = literal(column.name)
    if not column.children:
        return f"{name}: {column.id:d}"
    children = ", ".join([f"__duckdb_field_id: {column.id:d}", *map(_field_id, column.children)])
    return f"{name}: {{{children}}}"
