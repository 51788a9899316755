"""Writing data files, delete files, their statistics and partition values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import sqlalchemy as sa

from quacklake.catalog.reading.files import FileQueries
from quacklake.catalog.reading.inlined import InlinedQueries
from quacklake.catalog.statements import WriteStatements, among
from quacklake.errors import CommitConflict
from quacklake.format.extras import parse_fields
from quacklake.format.mappings import MAP_BY_NAME, NameMapping, flatten_mapping
from quacklake.format.objects import DataFile, DeleteFile, TableInfo
from quacklake.format.stats import ColumnStats, stored_bound, stored_exact

_SOME = 500
"""Names that one statement asks for."""


class FileUpdates(FileQueries):
    """Writes the files of a commit."""

    _sql: WriteStatements

    def __init__(self, sql: WriteStatements, inlined: InlinedQueries) -> None:
        super().__init__(sql, inlined)

    def add_data_files(self, files: Sequence[DataFile]) -> None:
        """Insert data files."""
        self._sql.insert(
            "data_file",
            [
                {
                    "data_file_id": file.id,
                    "table_id": file.table_id,
                    "begin_snapshot": file.begin_snapshot,
                    "end_snapshot": file.end_snapshot,
                    "file_order": None,
                    "path": file.path,
                    "path_is_relative": file.path_is_relative,
                    "file_format": "parquet",
                    "record_count": file.record_count,
                    "file_size_bytes": file.file_size_bytes,
                    "footer_size": file.footer_size,
                    "row_id_start": file.row_id_start,
                    "partition_id": file.partition_id,
                    "encryption_key": file.encryption_key,
                    "mapping_id": file.mapping_id,
                    "partial_max": file.partial_max,
                    "row_group_count": file.row_groups,
                }
                for file in files
            ],
        )

    def add_name_mappings(self, mappings: Sequence[tuple[int, NameMapping]]) -> None:
        """Insert name mappings of files from elsewhere: (table, mapping) each."""
        heads = [{"mapping_id": each.id, "table_id": table_id, "type": MAP_BY_NAME} for table_id, each in mappings]
        self._sql.insert("column_mapping", heads)
        self._sql.insert("name_mapping", [asdict(row) for _, mapping in mappings for row in flatten_mapping(mapping)])

    def add_file_stats(self, stats: Sequence[tuple[int, int, ColumnStats]]) -> None:
        """Insert column statistics of files: (data file, table, statistics)."""
        self._sql.insert(
            "file_column_stats",
            [
                {
                    "data_file_id": file_id,
                    "table_id": table_id,
                    "column_id": column.column_id,
                    "column_size_bytes": column.size_bytes,
                    "value_count": column.value_count,
                    "null_count": column.null_count,
                    "min_value": stored_bound(column.min),
                    "max_value": stored_bound(column.max),
                    "contains_nan": column.contains_nan,
                    "extra_stats": column.extra,
                    "min_is_exact": stored_exact(column.min, column.min_exact),
                    "max_is_exact": stored_exact(column.max, column.max_exact),
                }
                for file_id, table_id, column in stats
            ],
        )
        self._sql.insert(
            "file_variant_stats",
            [
                {
                    "data_file_id": file_id,
                    "table_id": table_id,
                    "column_id": column.column_id,
                    "variant_path": field.path,
                    "shredded_type": field.type,
                    "column_size_bytes": field.size_bytes,
                    "value_count": field.value_count,
                    "null_count": field.null_count,
                    "min_value": stored_bound(field.min),
                    "max_value": stored_bound(field.max),
                    "contains_nan": field.contains_nan,
                    "extra_stats": None,
                }
                for file_id, table_id, column in stats
                if column.extra is not None
                for field in parse_fields(column.extra)
            ],
        )

    def add_partition_values(self, values: Sequence[tuple[int, int, int, str | None]]) -> None:
        """Insert partition values of files: (data file, table, key index, text)."""
        names = ("data_file_id", "table_id", "partition_key_index", "partition_value")
        self._sql.insert("file_partition_value", [dict(zip(names, row, strict=True)) for row in values])

    def add_delete_files(self, files: Sequence[DeleteFile]) -> None:
        """Insert delete files."""
        self._sql.insert(
            "delete_file",
            [
                {
                    "delete_file_id": file.id,
                    "table_id": file.table_id,
                    "begin_snapshot": file.begin_snapshot,
                    "end_snapshot": file.end_snapshot,
                    "data_file_id": file.data_file_id,
                    "path": file.path,
                    "path_is_relative": file.path_is_relative,
                    "format": file.format,
                    "delete_count": file.delete_count,
                    "file_size_bytes": file.file_size_bytes,
                    "footer_size": file.footer_size,
                    "encryption_key": file.encryption_key,
                    "partial_max": file.partial_max,
                    "row_group_count": file.row_groups,
                }
                for file in files
            ],
        )

    def end_data_files(self, ids: Sequence[int], snapshot: int) -> None:
        """End data files and the delete files that go with them."""
        if self._sql.end("data_file", "data_file_id", ids, snapshot) != len(ids):
            raise CommitConflict("a data file to be removed was removed by another commit")
        self._sql.end("delete_file", "data_file_id", ids, snapshot)

    def remove_data_files(self, table: TableInfo, ids: Sequence[int], time: dt.datetime | None) -> None:
        """Take data files out of the lake, history included. Those from elsewhere stay where they are for good.

        Raise ``CommitConflict`` when one is gone already.
        """
        if not ids:
            return
        t = self._t["data_file"]
        statement = sa.select(t.c.data_file_id, t.c.path, t.c.path_is_relative, t.c.mapping_id).where(
            t.c.table_id == table.id, among(t.c.data_file_id, ids), t.c.end_snapshot.is_(None)
        )
        rows = self._sql.run("removed_data_files", statement).all()
        if len(rows) != len(ids):
            raise CommitConflict("a data file to be replaced was removed by another commit")
        names = ("data_file", "file_column_stats", "file_variant_stats", "file_partition_value", "delete_file")
        for name in names:
            gone = self._t[name]
            mine = (gone.c.table_id == table.id, among(gone.c.data_file_id, ids))
            self._sql.run(f"remove_{name}", sa.delete(gone).where(*mine))
        # the cleanup of stock clients reads the schedule alone
        named = self._named([row[1] for row in rows])
        gone_files = [tuple(row[:3]) for row in rows if row[3] is None and _file_name(row[1]) not in named]
        self._schedule(table, gone_files, time)

    def retire_delete_files(self, table: TableInfo, ids: Sequence[int], time: dt.datetime | None) -> None:
        """Take delete files out of the lake, history included, and leave their removal to the cleanup of old files."""
        if not ids:
            return
        t = self._t["delete_file"]
        chosen = (t.c.delete_file_id.in_(list(ids)), t.c.end_snapshot.is_(None))
        statement = sa.select(t.c.delete_file_id, t.c.path, t.c.path_is_relative).where(*chosen)
        rows = self._sql.run("retired_delete_files", statement).all()
        if len(rows) != len(ids):
            raise CommitConflict("a delete file to be replaced was replaced by another commit")
        self._sql.run("retire_delete_files", sa.delete(t).where(*chosen))
        self._schedule(table, [tuple(row) for row in rows], time)

    def _schedule(self, table: TableInfo, files: Sequence[tuple[int, str, bool]], time: dt.datetime | None) -> None:
        """Leave the removal of files (id, path, whether that is relative) to the cleanup of old files.

        What is not below the data path is not the lake's to remove: the cleanup of stock clients would.
        """
        if not (table.path_is_relative and table.schema_path_is_relative):
            return
        self._sql.insert(
            "files_scheduled_for_deletion",
            [
                {"data_file_id": id_, "path": table.location + path, "path_is_relative": True, "schedule_start": time}
                for id_, path, is_relative in files
                if is_relative
            ],
        )

    def _named(self, paths: Sequence[str]) -> set[str]:
        """Return the names of data files, without their folders, that a row of the catalog may still mean."""
        names: set[str] = set()
        for wanted in _by_length(paths):
            tail = self._database.tail(self._t["data_file"].c.path, len(wanted[0]))
            statement = sa.select(tail).where(tail.in_(wanted)).distinct()
            names.update(row[0] for row in self._sql.run("still_named", statement))
        return names

    def unschedule_named(self, paths: Sequence[str]) -> None:
        """Take files that a table has again out of the schedule of files to be removed."""
        t = self._t["files_scheduled_for_deletion"]
        for wanted in _by_length(paths):
            tail = self._database.tail(t.c.path, len(wanted[0]))
            self._sql.run("unschedule_named", sa.delete(t).where(tail.in_(wanted)))

    def revive(self, table_id: int, dropped_at: int, data_files: int, delete_files: int) -> None:
        """Let the files of a dropped table live again; fewer than were expected are a conflict.

        Their end is taken back: between the drop and now no snapshot has the table, so none reads them. A second row
        for the same path would be worse, for the cleanup of one would remove the file of the other.
        """
        for name, expected in (("data_file", data_files), ("delete_file", delete_files)):
            t = self._t[name]
            mine = (t.c.table_id == table_id, t.c.end_snapshot == dropped_at)
            if self._sql.update(f"revive_{name}s", sa.update(t).where(*mine).values(end_snapshot=None)) != expected:
                raise CommitConflict("files of the dropped table to restore were removed by another commit")


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def _by_length(paths: Sequence[str]) -> Iterator[list[str]]:
    """Yield the names of files without their folders, some of the same length at a time."""
    names: dict[int, set[str]] = {}
    for path in paths:
        name = _file_name(path)
        names.setdefault(len(name), set()).add(name)
    for same in names.values():
        ordered = sorted(same)
        yield from (ordered[start : start + _SOME] for start in range(0, len(ordered), _SOME))
