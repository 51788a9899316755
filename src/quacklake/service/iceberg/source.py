"""The history of a table in chunks of files, for all snapshots that are served."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from quacklake.errors import UnsupportedFeatureError
from quacklake.extend.history import TableHistory
from quacklake.lake import Lake
from quacklake.service.iceberg.lives import Chunk, DataFile, DeleteFile, chunks
from quacklake.service.iceberg.settings import IcebergSettings

__all__ = ["Source", "read_source"]


@dataclass(frozen=True)
class Source:
    """A table with everything that its served snapshots see."""

    history: TableHistory
    chunks: tuple[Chunk, ...]

    @cached_property
    def points(self) -> Sequence[int]:
        """The snapshots that changed the table, and some that did not."""
        return [*self._points()]

    def _points(self) -> Iterator[int]:
        for chunk in self.chunks:
            yield from chunk.points
            yield from chunk.delete_points
        yield from self.history.catalog_points
        yield from (since for since, _ in self.history.schemas)


def read_source(lake: Lake, table: str, settings: IcebergSettings) -> Source:
    """Return what the catalog knows of a table.

    Raise ``PathError`` for a file outside of the lake, ``UnsupportedFeatureError`` for an encrypted one, ``LimitError``
    for a table with too many files.
    """
    history = TableHistory.read(
        lake,
        table,
        snapshots=settings.snapshots,
        max_files=settings.max_files,
        max_catalog_rows=settings.max_inlined_rows,
    )
    for files, what in ((history.files, "files"), (history.delete_files, "deletes")):
        if files.num_rows > files.column("encryption_key").null_count:
            raise UnsupportedFeatureError(
                f"the {what} of {history.name} are encrypted in a way that readers of Iceberg do not know"
            )
    parts = chunks(
        _data_files(history.files),
        _delete_files(history.delete_files),
        _inlined_deletes(history.deleted),
        [each[0] for each in history.snapshots],
    )
    return Source(history, tuple(parts))


def _data_files(files: pa.Table) -> list[DataFile]:
    names = "path record_count file_size_bytes begin_snapshot end_snapshot row_id_start partial_max mapping_id"
    ids, *facts = (files.column(name).to_pylist() for name in ("data_file_id", *names.split()))
    return [DataFile(id_, *rest) for id_, *rest in zip(ids, *facts, strict=True)]


def _delete_files(files: pa.Table) -> dict[int, list[DeleteFile]]:
    names = "data_file_id delete_file_id path format begin_snapshot end_snapshot partial_max"
    found: dict[int, list[DeleteFile]] = {}
    for owner, *facts in zip(*(files.column(name).to_pylist() for name in names.split()), strict=True):
        found.setdefault(owner, []).append(DeleteFile(*facts))
    return found


def _inlined_deletes(deletes: pa.Table) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    columns = (deletes.column(name).to_pylist() for name in ("file_id", "row_id", "begin_snapshot"))
    for owner, position, begin in zip(*columns, strict=True):
        found.setdefault(owner, []).append((position, begin))
    return found
