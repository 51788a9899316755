"""The files of a table as a compaction finds them in the catalog, and the choice of those to put together."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.compute as pc

from quacklake.core.catalog import Catalog, Reader
from quacklake.core.format.layout import directory
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import TableSchema, stored_alike
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.scan import ScanPlan, plan_scan
from quacklake.core.storage import Store

#: The partitioning of a file and the texts of its partition values.
Layout = tuple[int | None, tuple[tuple[int, str | None], ...]]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A live data file. ``deleted`` counts its deleted rows; ``begin`` is the snapshot that added it.

    ``version`` identifies the columns that its rows are read with; None when they are unknown, so the file stays alone.
    """

    id: int
    size: int
    records: int
    begin: int
    layout: Layout = (None, ())
    deleted: int = 0
    version: int | None = 0

    @property
    def live_size(self) -> int:
        """The approximate size of the live rows in bytes."""
        return self.size * (self.records - self.deleted) // self.records if self.records else 0


@dataclass(frozen=True, slots=True)
class Group:
    files: tuple[SourceFile, ...]

    @property
    def ids(self) -> list[int]:
        return [file.id for file in self.files]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def merge_groups(
    files: Iterable[SourceFile],
    target: int,
    *,
    max_files: int,
    min_size: int | None = None,
    max_size: int | None = None,
    max_groups: int | None = None,
) -> list[Group]:
    """Return groups of small files to merge into one each: one partition, equal columns, no deletes, in file order.

    ``target`` is the size of a full file. Files of ``min_size`` to below ``max_size`` (default ``target``) take part.
    """
    limit = target if max_size is None else min(max_size, target)
    chosen = [
        file for file in files if not file.deleted and file.version is not None and (min_size or 0) <= file.size < limit
    ]
    found = []
    for members in _classes(chosen, lambda file: (file.version, file.layout)):
        found += [group for group in _cut(members, target, max_files, lambda file: file.size) if len(group.files) > 1]
    return found if max_groups is None else found[:max_groups]


def rewrite_groups(
    files: Iterable[SourceFile], threshold: float, target: int, *, max_files: int, small: int = 0
) -> list[Group]:
    """Group files that lost ``threshold`` of their rows, or any below ``small`` bytes, by partition and live size."""
    chosen = [
        file for file in files if file.deleted and (file.deleted >= threshold * file.records or file.size < small)
    ]
    classes = _classes(chosen, lambda file: file.layout)
    return [group for members in classes for group in _cut(members, target, max_files, lambda file: file.live_size)]


def optimize_groups(files: Iterable[SourceFile], partition_id: int | None) -> list[Group]:
    """Return one group for each partition, or a single group if some files do not use ``partition_id``."""
    found = list(files)
    strangers = any(file.layout[0] != partition_id for file in found)
    return [Group(tuple(members)) for members in _classes(found, lambda file: None if strangers else file.layout)]


def batches(groups: Iterable[Group], *, max_files: int, max_bytes: int) -> list[list[Group]]:
    """Split groups into commits of at least one group and otherwise at most this many files and bytes."""
    found: list[list[Group]] = []
    files = size = 0
    for group in groups:
        files, size = files + len(group.files), size + group.size
        if not found or files > max_files or size > max_bytes:
            found.append([])
            files, size = len(group.files), group.size
        found[-1].append(group)
    return found


def _classes(files: Iterable[SourceFile], key: Callable[[SourceFile], Any]) -> list[list[SourceFile]]:
    """Return the files by key, each list in the order in which its files were added."""
    classes: dict[Any, list[SourceFile]] = {}
    for file in sorted(files, key=lambda file: (file.begin, file.id)):
        classes.setdefault(key(file), []).append(file)
    return list(classes.values())


def _cut(files: Sequence[SourceFile], target: int, max_files: int, size: Callable[[SourceFile], int]) -> list[Group]:
    groups: list[list[SourceFile]] = []
    total = 0
    for file in files:
        if not groups or total >= target or len(groups[-1]) == max_files:
            groups.append([])
            total = 0
        groups[-1].append(file)
        total += size(file)
    return [Group(tuple(group)) for group in groups]


@dataclass(frozen=True, eq=False)
class TableFiles:
    """The live files of a table at a snapshot.

    ``schemas`` has the columns of each version that a file may have (``SourceFile.version``). The columns of the oldest
    remaining snapshot exist since ``since``; nobody sees older ones.
    """

    base: Snapshot
    table: TableInfo
    plan: ScanPlan
    files: Mapping[int, SourceFile]
    schemas: Mapping[int, TableSchema]
    since: int = 0

    def part_as_written(self, ids: Iterable[int], version: int) -> ScanPlan:
        """Return the scan plan of files whose rows all have the columns of one version, read with these columns."""
        plan = self.plan.of_files(ids)
        # Fields inside columns may have changed since; the reader then takes the fields from each file.
        shaped_at = self.base.id if plan.reshaped else plan.shaped_at
        return replace(plan, schema=self.schemas[version], shaped_at=shaped_at)

    def folder(self, plan: ScanPlan, layout: Layout, *, hive: bool) -> str:
        """Return the folder, below the table's, for new files of a partition: the folder of its existing files."""
        location = self.table.location
        own = plan.files.filter(pc.is_null(plan.files.column("mapping_id")))
        for path in own.column("path").to_pylist():
            if path.startswith(location):
                inside = str(path.removeprefix(location))
                return inside[: inside.rfind("/") + 1]
        spec = self.table.partition
        if spec is None or spec.id != layout[0]:
            return ""
        return directory(spec, self.table.schema, dict(layout[1]), hive=hive)


def read_files(catalog: Catalog, store: Store, base: Snapshot, table: TableInfo) -> TableFiles:
    """Return the files of a table at a snapshot, with one statement per version of its columns and a few more."""
    with catalog.read() as reader:
        plan = plan_scan(reader, catalog, store, base, table, with_inlined=False)
        names = ("data_file_id", "begin_snapshot", "partial_max", "partition_id", "record_count", "file_size_bytes")
        rows = list(zip(*(plan.files.column(name).to_pylist() for name in (*names, "delete_count")), strict=True))
        partitioned = [row[0] for row in rows if row[3] is not None]
        values = reader.files.partition_values(table.id, partitioned) if partitioned else {}
        versions = _Versions(reader, table)
        blocked = reader.files.once_deleted(table.id)
        files = {
            id_: SourceFile(
                id=id_,
                size=size,
                records=records,
                begin=begin,
                layout=(partition, tuple(sorted(values.get(id_, {}).items()))),
                deleted=(deletes or 0) + plan.deleted_counts.get(id_, 0),
                version=None if id_ in blocked else versions.of(begin, begin if last is None else last),
            )
            for id_, begin, last, partition, records, size, deletes in rows
        }
    return TableFiles(base, table, plan, files, versions.schemas, versions.since)


class _Versions:
    """Finds the columns that a file's rows are read with, since the oldest snapshot; versions alike count as one."""

    def __init__(self, reader: Reader, table: TableInfo) -> None:
        self.schemas: dict[int, TableSchema] = {}
        self._reader = reader
        self._table = table
        self._history = reader.tables.schema_history(table.id)
        self._known: dict[int, int] = {}
        oldest = reader.snapshots.oldest()
        self._oldest = 0 if oldest is None else oldest.id
        index = self._index(self._oldest)
        self.since = self._history[index][0] if index >= 0 else 0

    def of(self, begin: int, newest: int) -> int | None:
        """Return the version of a file with rows of snapshots ``begin`` to ``newest``; None if their columns differ."""
        begin, newest = max(begin, self._oldest), max(newest, self._oldest)
        first = self._at(begin)
        return first if newest == begin or first == self._at(newest) else None

    def _index(self, snapshot: int) -> int:
        return bisect.bisect_right(self._history, (snapshot, 1 << 62)) - 1

    def _at(self, snapshot: int) -> int | None:
        index = self._index(snapshot)
        if index < 0:
            return None
        version = self._history[index][1]
        if version not in self._known:
            schema = self._reader.tables.columns_at(self._table.id, version)
            alike = next((known for known, found in self.schemas.items() if stored_alike(found, schema)), None)
            if alike is None:
                self.schemas[version] = schema
            self._known[version] = version if alike is None else alike
        return self._known[version]
