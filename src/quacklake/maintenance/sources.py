"""The files of a table as a compaction finds them in the catalog."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.catalog import Catalog, Reader
from quacklake.format.layout import directory
from quacklake.format.objects import TableInfo
from quacklake.format.schema import TableSchema, stored_alike
from quacklake.format.snapshots import Snapshot
from quacklake.maintenance.planning import Layout, SourceFile
from quacklake.scan import ScanPlan, plan_scan
from quacklake.storage import Store


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

    def part(self, ids: Iterable[int]) -> ScanPlan:
        """Return the scan plan of some of the files."""
        chosen = pa.array(sorted(ids), pa.int64())
        files, deletes = self.plan.files, self.plan.deletes
        return replace(
            self.plan,
            files=files.filter(pc.is_in(files.column("data_file_id"), value_set=chosen)),
            deletes=deletes.filter(pc.is_in(deletes.column("file_id"), value_set=chosen)),
        )

    def part_as_written(self, ids: Iterable[int], version: int) -> ScanPlan:
        """Return the scan plan of files whose rows all have the columns of one version, read with these columns."""
        plan = self.part(ids)
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
        plan = plan_scan(
            reader,
            store,
            base,
            table,
            database=catalog.encoding,
            encrypted=catalog.encrypted,
            with_inlined=False,
        )
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
    """Finds the columns that the rows of a file are read with. Versions that store rows alike count as one.

    No row is read before the oldest remaining snapshot, so earlier columns do not count.
    """

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
