"""Reading what the catalog knows of a table, in one transaction, for all snapshots that are served."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from quacklake.core.catalog import InlinedRows, Reader
from quacklake.core.catalog.reading.lifetimes import TableLives, newest_snapshots
from quacklake.core.format.mappings import NameMapping
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import Past
from quacklake.core.format.snapshots import Snapshot
from quacklake.errors import LimitError, UnsupportedFeatureError
from quacklake.extend.stores import Store
from quacklake.service.iceberg.lives import Chunk, DataFile, DeleteFile, chunks
from quacklake.service.iceberg.settings import IcebergSettings

__all__ = ["Source", "read_source"]


@dataclass(frozen=True)
class Source:
    """A table with everything that its served snapshots see."""

    table: TableInfo
    snapshots: Sequence[tuple[int, dt.datetime | None]]
    past: Past
    last_column_id: int
    next_row_id: int
    chunks: tuple[Chunk, ...]
    statistics: pa.Table
    inlined: Sequence[InlinedRows]
    mappings: Mapping[int, NameMapping]

    @property
    def newest(self) -> int:
        """The newest snapshot."""
        return self.snapshots[-1][0]

    def points(self) -> Iterator[int]:
        """Yield the snapshots that changed the table, and some that did not."""
        for chunk in self.chunks:
            yield from chunk.points
            yield from chunk.delete_points
        for part in self.inlined:
            for name in ("begin_snapshot", "end_snapshot"):
                yield from (each for each in part.rows.column(name).unique().to_pylist() if each is not None)
        yield from (since for since, _ in self.past)


def read_source(
    reader: Reader, store: Store, snapshot: Snapshot, table: TableInfo, settings: IcebergSettings
) -> Source:
    """Return what the catalog knows of a table.

    Raise ``PathError`` for a file outside of the lake, ``UnsupportedFeatureError`` for an encrypted one, ``LimitError``
    for a table with too many files.
    """
    listed = newest_snapshots(reader, settings.snapshots)
    lives = TableLives(reader, table, listed[0][0], listed[-1][0])
    birth = lives.birth()
    listed = [each for each in listed if each[0] >= birth]
    data, deletes = lives.data_files(), lives.delete_files()
    if data.num_rows > settings.max_files:
        raise LimitError(
            f"the table {table.qualified_name} had {data.num_rows:,} files in the snapshots that are served",
            hint="merge its files and expire snapshots, or raise max_files of the Iceberg catalog",
        )
    encrypted = data.num_rows - data.column("encryption_key").null_count
    if encrypted:
        raise UnsupportedFeatureError(
            f"the files of {table.qualified_name} are encrypted in a way that readers of Iceberg do not know"
        )
    files = _data_files(data, _paths(data, table, store))
    past = reader.tables.past_columns(snapshot, table)
    if not past or past[-1][1] != table.schema:
        past = (*past, (snapshot.id, table.schema))
    scalars = {column.id for _, schema in past for column in schema.columns if not column.nested}
    mapped = sorted({file.mapping_id for file in files if file.mapping_id is not None})
    return Source(
        table=table,
        snapshots=listed,
        past=past,
        last_column_id=reader.tables.last_column_id(table.id),
        next_row_id=lives.next_row_id(),
        chunks=tuple(
            chunks(
                files,
                _delete_files(deletes, _paths(deletes, table, store)),
                _inlined_deletes(lives.inlined_deletes()),
                [each[0] for each in listed],
            )
        ),
        statistics=lives.statistics(sorted(scalars)),
        inlined=_bounded(lives.inlined_rows(), table, settings),
        mappings={mapping.id: mapping for mapping in reader.files.name_mappings(mapped)} if mapped else {},
    )


def _bounded(parts: list[InlinedRows], table: TableInfo, settings: IcebergSettings) -> list[InlinedRows]:
    rows = sum(part.rows.num_rows for part in parts)
    if rows > settings.max_inlined_rows:
        raise LimitError(
            f"the catalog holds {rows:,} rows of {table.qualified_name} itself",
            hint="flush_inlined_data() moves them to files",
        )
    return parts


def _paths(files: pa.Table, table: TableInfo, store: Store) -> list[str]:
    """Return where files are, below the data root or in a folder that the lake may read; links are followed."""
    relative = table.path_is_relative and table.schema_path_is_relative
    base = table.location if relative else store.resolve(table.location, False)
    texts, own = files.column("path").to_pylist(), files.column("path_is_relative").to_pylist()
    paths = [store.resolve(text, bool(flag), base) for text, flag in zip(texts, own, strict=True)]
    store.readable_urls(paths)
    return paths


def _data_files(files: pa.Table, paths: Sequence[str]) -> list[DataFile]:
    names = "data_file_id record_count file_size_bytes begin_snapshot end_snapshot row_id_start partial_max mapping_id"
    rows = zip(paths, *(files.column(name).to_pylist() for name in names.split()), strict=True)
    return [DataFile(id_, path, *facts) for path, id_, *facts in rows]


def _delete_files(files: pa.Table, paths: Sequence[str]) -> dict[int, list[DeleteFile]]:
    if files.num_rows > files.column("encryption_key").null_count:
        raise UnsupportedFeatureError("the deletes of the table are encrypted")
    names = "data_file_id delete_file_id format begin_snapshot end_snapshot partial_max"
    found: dict[int, list[DeleteFile]] = {}
    for path, owner, id_, *facts in zip(
        paths, *(files.column(name).to_pylist() for name in names.split()), strict=True
    ):
        found.setdefault(owner, []).append(DeleteFile(id_, path, *facts))
    return found


def _inlined_deletes(deletes: pa.Table) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    columns = (deletes.column(name).to_pylist() for name in ("file_id", "row_id", "begin_snapshot"))
    for owner, position, begin in zip(*columns, strict=True):
        found.setdefault(owner, []).append((position, begin))
    return found
