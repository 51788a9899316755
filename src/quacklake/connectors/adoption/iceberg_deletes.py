"""The deletes of an Iceberg table as positions in its data files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quacklake.connectors.adoption.places import plain, read
from quacklake.connectors.staging import ARROW_FIELD_ID
from quacklake.errors import CorruptFileError, UnsupportedFeatureError
from quacklake.extend.adopting import decode_vectors
from quacklake.extend.duckdbs import arrow_table, connect
from quacklake.extend.stores import Store


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data or delete file: its place, when it was added, and the partition that it is in, if its table has any."""

    url: str
    sequence: int
    partition: str | None


@dataclass
class PositionDeletes:
    """Delete files that name positions. They are read when the first data file asks."""

    store: Store
    files: list[DataFile] = field(default_factory=list)
    _known: dict[str, list[tuple[int, pa.Array]]] | None = None

    def add(self, file: DataFile) -> None:
        """Add a delete file; several vectors may be in one."""
        if file not in self.files:
            self.files.append(file)

    def concern(self, file: DataFile) -> bool:
        """Return whether a data file may have deletes."""
        return any(each.sequence >= file.sequence and each.partition == file.partition for each in self.files)

    def of(self, file: DataFile, rows: int) -> Iterator[pa.Array]:
        """Yield the deleted positions of a data file with that many rows."""
        if self._known is None:
            self._known = self._read()
        for sequence, positions in self._known.get(file.url, ()):
            if sequence >= file.sequence:
                if len(positions) and pc.max(positions).as_py() >= rows:
                    raise CorruptFileError(f"deletes of {file.url} have positions beyond its {rows} rows")
                yield positions

    def _read(self) -> dict[str, list[tuple[int, pa.Array]]]:
        known: dict[str, list[tuple[int, pa.Array]]] = {}
        for file in self.files:
            data = read(self.store, file.url)
            vectors = data[:4] != b"PAR1"
            found = decode_vectors(data) if vectors else _positions(data, file.url)
            for path, positions in found:
                known.setdefault(plain(path), []).append((file.sequence, positions))
        return known


@dataclass
class EqualityDeletes:
    """Delete files that name values: rows of older data files that have them are found by reading these columns."""

    store: Store
    files: list[tuple[DataFile, tuple[int, ...]]] = field(default_factory=list)
    _tables: dict[str, pa.Table] = field(default_factory=dict)

    def add(self, file: DataFile, ids: tuple[int, ...]) -> None:
        """Add a delete file that compares the columns with these field ids."""
        self.files.append((file, ids))

    def concern(self, file: DataFile) -> bool:
        """Return whether a data file may have rows with such values."""
        return bool(self._for(file))

    def of(self, file: DataFile) -> Iterator[pa.Array]:
        """Yield the positions of the rows of a data file that have a deleted value."""
        groups: dict[tuple[int, ...], list[pa.Table]] = {}
        for deletes, ids in self._for(file):
            if deletes.url not in self._tables:
                self._tables[deletes.url] = _columns(self.store, deletes.url, ids, None)
            groups.setdefault(ids, []).append(self._tables[deletes.url])
        for ids, tables in groups.items():
            gone = pa.concat_tables(tables, promote_options="permissive")
            rows = _columns(self.store, file.url, ids, gone.schema)
            rows = rows.append_column("pos", pa.array(range(rows.num_rows), pa.int64()))
            same = " AND ".join(f"r.c{id_:d} IS NOT DISTINCT FROM g.c{id_:d}" for id_ in ids)
            with connect() as connection:
                connection.register("ql_rows", rows)
                connection.register("ql_gone", gone)
                found = arrow_table(connection, f"SELECT pos FROM ql_rows r SEMI JOIN ql_gone g ON {same}")
            yield found.column("pos").combine_chunks()

    def _for(self, file: DataFile) -> list[tuple[DataFile, tuple[int, ...]]]:
        return [
            (deletes, ids)
            for deletes, ids in self.files
            if deletes.sequence > file.sequence and deletes.partition in (None, file.partition)
        ]


def _positions(data: bytes, url: str) -> Iterator[tuple[str, pa.Array]]:
    """Yield the data files that a delete file names, each with the positions."""
    try:
        rows = pq.read_table(pa.BufferReader(data), columns=["file_path", "pos"])
    except (pa.ArrowException, OSError, KeyError) as error:
        raise CorruptFileError(f"the file {url} of an Iceberg table cannot be read: {error}") from error
    found = rows.group_by("file_path").aggregate([("pos", "list")])
    for path, positions in zip(found.column("file_path").to_pylist(), found.column("pos_list"), strict=True):
        yield path, positions.values.cast(pa.int64())


def _columns(store: Store, url: str, ids: tuple[int, ...], like: pa.Schema | None) -> pa.Table:
    """Return the columns of a file with these field ids, named ``c<id>``; a missing one is NULL, if ``like`` has it."""
    with store.open_input(store.resolve(url, False)) as source:
        try:
            file = pq.ParquetFile(source)
            names = {
                int(field.metadata[ARROW_FIELD_ID]): field.name
                for field in file.schema_arrow
                if field.metadata and ARROW_FIELD_ID in field.metadata
            }
            rows = file.read(columns=[names[id_] for id_ in ids if id_ in names])
        except (pa.ArrowException, OSError) as error:
            raise CorruptFileError(f"the file {url} of an Iceberg table cannot be read: {error}") from error
        count = file.metadata.num_rows
    columns = {}
    for id_ in ids:
        if id_ in names:
            columns[f"c{id_}"] = rows.column(names[id_])
        elif like is not None and names:
            columns[f"c{id_}"] = pa.nulls(count, like.field(f"c{id_}").type)
        else:
            raise UnsupportedFeatureError(
                f"{url} has no column with the field id {id_}, by which rows are deleted",
                hint="append the rows instead",
            )
    return pa.table(columns)
