"""Writing delete files: positions as Parquet, or as deletion vectors."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quacklake.core.catalog import DatedDeletes
from quacklake.core.engines.duckdb.connections import EncryptedFiles, new_key
from quacklake.core.format.names import delete_file_name
from quacklake.core.format.objects import (
    FIELD_FILE_PATH,
    FIELD_POS,
    FIELD_SNAPSHOT_ID,
    NAME_FILE_PATH,
    NAME_POS,
    NAME_SNAPSHOT_ID,
    TableInfo,
)
from quacklake.core.format.vectors import encode, encode_file, footer_size, referenced_file
from quacklake.core.storage import Store
from quacklake.core.storage.parquet import glance
from quacklake.core.storage.vectors import dated_positions
from quacklake.core.transaction import NewDeleteFile, PastDeleteFile, TouchedFile
from quacklake.errors import CommitConflict, CorruptFileError

_FIELD = b"PARQUET:field_id"
_FIELDS = {NAME_FILE_PATH: FIELD_FILE_PATH, NAME_POS: FIELD_POS, NAME_SNAPSHOT_ID: FIELD_SNAPSHOT_ID}
_DATED_ROWS = pa.schema([(NAME_POS, pa.int64()), (NAME_SNAPSHOT_ID, pa.int64())])

#: Differences of positions, which are in order, take much less space than the positions, and less time.
_COMPACT: dict[str, Any] = {
    "compression": "snappy",
    "use_dictionary": [NAME_FILE_PATH, NAME_SNAPSHOT_ID],
    "column_encoding": {NAME_POS: "DELTA_BINARY_PACKED"},
    "store_schema": False,
}

#: A new file below the data root, told before it is written.
Announce = Callable[[str], None]


class Vectors(enum.Enum):
    """The deletes that are written as deletion vectors: none, those of one snapshot, or those of several too."""

    NONE = enum.auto()
    ONE = enum.auto()
    MANY = enum.auto()


class _Written(TypedDict, total=False):
    path: str
    delete_count: int
    file_size_bytes: int
    footer_size: int
    format: str
    encryption_key: str | None
    row_groups: int | None


class DeleteFileWriter:
    """Writes delete files for one store; those of an encrypted lake with a fresh key for each."""

    def __init__(self, store: Store, *, encrypted: bool = False) -> None:
        self.store = store
        self.encrypted = encrypted
        self._secret_files = EncryptedFiles(store)

    def write_deletes(
        self,
        table: TableInfo,
        data_file_id: int,
        file: TouchedFile,
        positions: pa.Array,
        announce: Announce,
        snapshot: int,
        begin_snapshot: int | None = None,
        *,
        vectors: Vectors = Vectors.NONE,
    ) -> NewDeleteFile:
        """Write the delete file of a data file: newly deleted positions, in order, and those of the delete file it had.

        If it had one, which began at ``begin_snapshot``, every position has its snapshot, the new ones that after
        ``snapshot``. For ``vectors`` see ``Vectors``: stock DuckLake 1.0 cannot read those of several snapshots.
        """
        rows = self.dated_deletes(file, positions, snapshot, begin_snapshot)
        return self.write_dated(table, data_file_id, file, rows, announce, snapshot, begin_snapshot, vectors=vectors)

    def dated_deletes(
        self, file: TouchedFile, positions: pa.Array, snapshot: int, begin_snapshot: int | None
    ) -> pa.Table:
        """Return new positions, in order, and those of the delete file of a data file, each once with its snapshot.

        The new ones have the snapshot after ``snapshot``.
        """
        dates = pa.repeat(pa.scalar(snapshot + 1, pa.int64()), len(positions))
        rows = pa.table([positions.cast(pa.int64()), dates], schema=_DATED_ROWS)
        if file.delete_path is None:
            return rows
        return _by_position(pa.concat_tables([self._dated_rows(file, snapshot, begin_snapshot), rows]))

    def write_dated(
        self,
        table: TableInfo,
        data_file_id: int,
        file: TouchedFile,
        rows: pa.Table,
        announce: Announce,
        snapshot: int,
        begin_snapshot: int | None = None,
        *,
        vectors: Vectors = Vectors.NONE,
    ) -> NewDeleteFile:
        """Write the ``dated_deletes`` of a data file, as ``write_deletes`` does."""
        url = self.store.url(file.path)
        if file.delete_path is None:
            rows = rows.select([NAME_POS])
            return NewDeleteFile(data_file_id, **self._write(table, announce, rows, url, vectors, single=True))
        return NewDeleteFile(
            data_file_id,
            replaces=file.delete_file_id,
            begin_snapshot=begin_snapshot,
            snapshot=snapshot + 1,
            **self._write(table, announce, rows, url, vectors),
        )

    def write_past_deletes(
        self,
        table: TableInfo,
        data_file_id: int,
        file: TouchedFile,
        announce: Announce,
        snapshot: int,
        dated: DatedDeletes,
        *,
        vectors: Vectors = Vectors.NONE,
    ) -> PastDeleteFile:
        """Write all that was deleted of a data file up to a snapshot: what its delete file and the catalog say."""
        if not dated.rows:  # a flush has moved them since the file was planned
            raise CommitConflict("the deletes of a file were moved by another commit", hint="run the operation again")
        rows = pa.table(list(zip(*dated.rows, strict=True)), schema=_DATED_ROWS)
        if file.delete_path is not None:
            rows = pa.concat_tables([self._dated_rows(file, snapshot, dated.file_begin), rows])
        rows = _by_position(rows)
        first, last = pc.min_max(rows.column(1)).as_py().values()
        begin = first if dated.file_begin is None else min(first, dated.file_begin)
        written = self._write(table, announce, rows, self.store.url(file.path), vectors, single=last == begin)
        return PastDeleteFile(
            data_file_id,
            replaces=file.delete_file_id,
            begin_snapshot=begin,
            partial_max=last if last != begin else None,
            **written,
        )

    def deleted_positions(self, file: TouchedFile, snapshot: int) -> pa.ChunkedArray:
        """Return the positions in the delete file of a data file that are deleted at a snapshot."""
        return self._dated_rows(file, snapshot, snapshot).column(NAME_POS)

    def redate_deletes(self, table: TableInfo, file: NewDeleteFile, announce: Announce, snapshot: int) -> NewDeleteFile:
        """Write a delete file again with another snapshot for its new positions."""
        path = table.location + file.path
        if file.format == "puffin":
            rows = dated_positions(self.store, path, None).rename_columns(_DATED_ROWS.names)
            data_file, vectors = referenced_file(self.store.read(path)), Vectors.MANY
        else:
            rows = self._delete_rows(path, file.encryption_key)
            data_file, vectors = rows.column(NAME_FILE_PATH)[0].as_py(), Vectors.NONE
        dates = rows.column(NAME_SNAPSHOT_ID)
        dates = pc.if_else(pc.equal(dates, file.snapshot), pa.scalar(snapshot, pa.int64()), dates)
        rows = pa.table([rows.column(NAME_POS), dates], schema=_DATED_ROWS)
        return replace(file, snapshot=snapshot, **self._write(table, announce, rows, data_file, vectors))

    def _dated_rows(self, file: TouchedFile, snapshot: int, begin_snapshot: int | None) -> pa.Table:
        """Return the positions in the delete file of a data file that are deleted at a snapshot, each with its own."""
        assert file.delete_path is not None
        if file.delete_format == "puffin":
            positions = dated_positions(self.store, file.delete_path, file.record_count)
            dates = pc.fill_null(positions.column("snapshot_id"), begin_snapshot)
            rows = pa.table([positions.column("pos"), dates], schema=_DATED_ROWS)
        else:
            rows = self._delete_rows(file.delete_path, file.delete_key, dated=True)
        if NAME_SNAPSHOT_ID not in rows.column_names:
            begin = pa.repeat(pa.scalar(begin_snapshot, pa.int64()), rows.num_rows)
            rows = rows.append_column(NAME_SNAPSHOT_ID, begin)
        rows = rows.select([NAME_POS, NAME_SNAPSHOT_ID]).cast(_DATED_ROWS)
        return rows.filter(pc.field(NAME_SNAPSHOT_ID) <= snapshot)

    def _delete_rows(self, path: str, key: str | None, *, dated: bool = False) -> pa.Table:
        """Return the rows of a delete file; with ``dated`` possibly without the path of the data file, in each row."""
        if key is not None:
            return self._secret_files.read(path, key)
        try:
            file = pq.ParquetFile(pa.BufferReader(self.store.read(path)))
            names = [name for name in file.schema_arrow.names if not dated or name != NAME_FILE_PATH]
            return file.read(names)
        except pa.ArrowException as error:
            raise CorruptFileError(f"the delete file {self.store.url(path)} cannot be read: {error}") from error

    def _write(
        self,
        table: TableInfo,
        announce: Announce,
        rows: pa.Table,
        data_file: str,
        vectors: Vectors,
        *,
        single: bool = False,
    ) -> _Written:
        """Write deleted positions of a data file, with their snapshots where these are several (not ``single``)."""
        if not self.encrypted and (vectors is Vectors.MANY or (single and vectors is Vectors.ONE)):
            name = delete_file_name("puffin")
            announce(table.location + name)
            data, footer = self._vectors(rows, data_file, single=single)
            with self.store.open_output(table.location + name) as sink:
                sink.write(data)
            size, count = len(data), rows.num_rows
            return _Written(path=name, delete_count=count, file_size_bytes=size, footer_size=footer, format="puffin")
        name, key = delete_file_name(), new_key() if self.encrypted else None
        path = table.location + name
        announce(path)
        if key is not None:
            rows = rows.add_column(0, NAME_FILE_PATH, pa.repeat(data_file, rows.num_rows))
            self._secret_files.write(rows, [_FIELDS[each] for each in rows.column_names], path, key)
        else:
            first = pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
            rows = rows.add_column(0, NAME_FILE_PATH, pa.DictionaryArray.from_arrays(first, pa.array([data_file])))
            fields = [field.with_metadata({_FIELD: str(_FIELDS[field.name])}) for field in rows.schema]
            rows = rows.cast(pa.schema(fields))
            with self.store.open_output(path) as sink, pq.ParquetWriter(sink, rows.schema, **_COMPACT) as out:
                out.write_table(rows)
        seen = glance(self.store, path)
        return _Written(
            path=name,
            delete_count=rows.num_rows,
            file_size_bytes=seen.size_bytes,
            footer_size=seen.footer_size,
            encryption_key=key,
            row_groups=seen.row_groups,
        )

    def _vectors(self, rows: pa.Table, data_file: str, *, single: bool) -> tuple[bytes, int]:
        """Return a vector for each snapshot, with all positions deleted until then, and the size of the footer."""
        if single:
            return encode(rows.column(NAME_POS)), 0
        dates = rows.column(NAME_SNAPSHOT_ID)
        vectors = [
            (date, rows.filter(pc.less_equal(dates, date)).column(NAME_POS))
            for date in sorted(pc.unique(dates).to_pylist())
        ]
        data = encode_file(vectors, data_file=data_file)
        return data, footer_size(data)


def _by_position(rows: pa.Table) -> pa.Table:
    """Return deleted positions in order, each once, with the earliest of its snapshots."""
    ordered = rows.sort_by([(NAME_POS, "ascending"), (NAME_SNAPSHOT_ID, "ascending")])
    positions = ordered.column(NAME_POS).combine_chunks()
    first = pc.not_equal(positions.slice(1), positions.slice(0, max(0, len(positions) - 1)))
    return ordered if pc.all(first).as_py() else ordered.filter(pa.concat_arrays([pa.array([True]), first]))
