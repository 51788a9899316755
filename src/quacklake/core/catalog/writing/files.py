"""Writing files, inlined rows and deletes, and the running totals of tables."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex

from quacklake.core import forks
from quacklake.core.catalog.reading.inlined import InlinedQueries
from quacklake.core.catalog.reading.reader import FileQueries
from quacklake.core.catalog.statements import InlinedTable, WriteStatements, among, delete_table, parts
from quacklake.core.catalog.tables import NamedType
from quacklake.core.format.extras import parse_fields
from quacklake.core.format.inline import data_table_name
from quacklake.core.format.mappings import MAP_BY_NAME, MappingRow, NameMapping, flatten_mapping
from quacklake.core.format.objects import DataFile, DeleteFile, TableInfo
from quacklake.core.format.schema import TableSchema, stored_alike
from quacklake.core.format.stats import ColumnStats, TableColumnStats, stored_bound, stored_exact
from quacklake.errors import CommitConflict

if TYPE_CHECKING:
    from quacklake.core.catalog.writing.writer import Writer


#: Columns of files in the order of the fields of ``DataFile`` and ``DeleteFile``.
DATA_FILE = (
    "data_file_id table_id begin_snapshot end_snapshot path path_is_relative record_count file_size_bytes footer_size"
    " row_id_start partition_id encryption_key mapping_id partial_max row_group_count"
)
DELETE_FILE = (
    "delete_file_id table_id data_file_id begin_snapshot end_snapshot path path_is_relative format delete_count"
    " file_size_bytes footer_size encryption_key partial_max row_group_count"
)
SCHEDULED = "data_file_id path path_is_relative schedule_start"
"""Columns of a file that waits for its removal."""
_data_file_values = attrgetter(*DataFile.__slots__)
_delete_file_values = attrgetter(*DeleteFile.__slots__)
_mapping_values = attrgetter(*MappingRow.__slots__)


class FileUpdates(FileQueries):
    """Writes the files of a commit."""

    _sql: Writer

    def add_data_files(self, files: Sequence[DataFile]) -> None:
        """Insert data files."""
        rows = [(*_data_file_values(file), None, "parquet") for file in files]
        self._sql.insert("data_file", f"{DATA_FILE} file_order file_format", rows)

    def add_name_mappings(self, mappings: Sequence[tuple[int, NameMapping]]) -> None:
        """Insert name mappings of files from elsewhere: (table, mapping) each."""
        heads = [(mapping.id, table_id, MAP_BY_NAME) for table_id, mapping in mappings]
        self._sql.insert("column_mapping", "mapping_id table_id type", heads)
        rows = [_mapping_values(row) for _, mapping in mappings for row in flatten_mapping(mapping)]
        self._sql.insert("name_mapping", " ".join(MappingRow.__slots__), rows)

    def add_file_stats(self, stats: Sequence[tuple[int, int, ColumnStats]]) -> None:
        """Insert column statistics of files: (data file, table, statistics)."""
        owner = "data_file_id table_id column_id"
        values = "column_size_bytes value_count null_count min_value max_value contains_nan extra_stats"
        self._sql.insert(
            "file_column_stats",
            f"{owner} {values} min_is_exact max_is_exact",
            [
                (
                    *(file_id, table_id, c.column_id, c.size_bytes, c.value_count, c.null_count),
                    *(stored_bound(c.min), stored_bound(c.max), c.contains_nan, c.extra),
                    *(stored_exact(c.min, c.min_exact), stored_exact(c.max, c.max_exact)),
                )
                for file_id, table_id, c in stats
            ],
        )
        self._sql.insert(
            "file_variant_stats",
            f"{owner} variant_path shredded_type {values}",
            [
                (
                    *(file_id, table_id, column.column_id, f.path, f.type, f.size_bytes, f.value_count, f.null_count),
                    *(stored_bound(f.min), stored_bound(f.max), f.contains_nan, None),
                )
                for file_id, table_id, column in stats
                if column.extra is not None
                for f in parse_fields(column.extra)
            ],
        )

    def add_partition_values(self, values: Sequence[tuple[int, int, int, str | None]]) -> None:
        """Insert partition values of files: (data file, table, key index, text)."""
        self._sql.insert("file_partition_value", "data_file_id table_id partition_key_index partition_value", values)

    def add_delete_files(self, files: Sequence[DeleteFile]) -> None:
        """Insert delete files."""
        self._sql.insert("delete_file", DELETE_FILE, [_delete_file_values(file) for file in files])

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
        t = self.meta["data_file"]
        statement = sa.select(t.c.data_file_id, t.c.path, t.c.path_is_relative, t.c.mapping_id).where(
            t.c.table_id == table.id, among(t.c.data_file_id, ids), t.c.end_snapshot.is_(None)
        )
        rows = self._sql.run("removed_data_files", statement).all()
        if len(rows) != len(ids):
            raise CommitConflict("a data file to be replaced was removed by another commit")
        names = ("data_file", "file_column_stats", "file_variant_stats", "file_partition_value", "delete_file")
        for name in names:
            gone = self.meta[name]
            mine = (gone.c.table_id == table.id, among(gone.c.data_file_id, ids))
            self._sql.run(f"remove_{name}", sa.delete(gone).where(*mine))
        # the cleanup of stock clients reads the schedule alone
        named = self._find_named([row[1] for row in rows])
        gone_files = [tuple(row[:3]) for row in rows if row[3] is None and _file_name(row[1]) not in named]
        self._schedule(table, gone_files, time)

    def retire_delete_files(self, table: TableInfo, ids: Sequence[int], time: dt.datetime | None) -> None:
        """Take delete files out of the lake, history included, and leave their removal to the cleanup of old files."""
        if not ids:
            return
        t = self.meta["delete_file"]
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
        if table.path_is_relative and table.schema_path_is_relative:
            rows = [(id_, table.location + path, True, time) for id_, path, is_relative in files if is_relative]
            self._sql.insert("files_scheduled_for_deletion", SCHEDULED, rows)

    def _find_named(self, paths: Sequence[str]) -> set[str]:
        """Return the names of data files, without their folders, that a row of the catalog may still mean."""
        names: set[str] = set()
        for wanted in _by_length(paths):
            tail = self.backend.tail(self.meta["data_file"].c.path, len(wanted[0]))
            statement = sa.select(tail).where(tail.in_(wanted)).distinct()
            names.update(row[0] for row in self._sql.run("still_named", statement))
        return names

    def unschedule_named(self, paths: Sequence[str]) -> None:
        """Take files that a table has again out of the schedule of files to be removed."""
        t = self.meta["files_scheduled_for_deletion"]
        for wanted in _by_length(paths):
            tail = self.backend.tail(t.c.path, len(wanted[0]))
            self._sql.run("unschedule_named", sa.delete(t).where(tail.in_(wanted)))

    def revive(self, table_id: int, dropped_at: int, data_files: int, delete_files: int) -> None:
        """Let the files of a dropped table live again; fewer than were expected are a conflict.

        Their end is taken back, since no snapshot since has the table. A second row for the same path would be worse:
        the cleanup of one would remove the file of the other.
        """
        for name, expected in (("data_file", data_files), ("delete_file", delete_files)):
            t = self.meta[name]
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
        yield from map(list, parts(sorted(same)))


def read_totals(writer: WriteStatements, table_ids: Sequence[int]) -> dict[int, Totals]:
    """Return the running totals of tables; a table without rows so far is absent."""
    t, c = writer.meta["table_stats"], writer.meta["table_column_stats"]

    def build() -> Any:
        names = ("column_id", "contains_null", "contains_nan", "min_value", "max_value", "extra_stats")
        exact = (writer.meta.column("table_column_stats", name) for name in ("min_is_exact", "max_is_exact"))
        totals = (t.c.table_id, t.c.record_count, t.c.next_row_id, t.c.file_size_bytes)
        mine = t.c.table_id.in_(sa.bindparam("ids", expanding=True))
        joined = t.outerjoin(c, c.c.table_id == t.c.table_id)
        return sa.select(*totals, *(c.c[name] for name in names), *exact).select_from(joined).where(mine)

    tables: dict[int, TableTotals] = {}
    unsized: set[int] = set()
    columns: dict[int, dict[int, TableColumnStats]] = {}
    for row in writer.run("totals", writer.cached("totals", build), {"ids": list(table_ids)}):
        # 1.1 may leave the number of rows unknown; it is at most the number of row ids
        if row[3] is None:
            unsized.add(row[0])
        tables[row[0]] = TableTotals(row[2] if row[1] is None else row[1], row[2], row[3] or 0)
        known = columns.setdefault(row[0], {})
        if row[4] is not None:
            known[row[4]] = TableColumnStats(*row[4:])
    for id_ in unsized:
        f = writer.meta["data_file"]
        size = sa.select(sa.func.sum(f.c.file_size_bytes)).where(f.c.table_id == id_)
        tables[id_] = replace(tables[id_], file_size_bytes=int(writer.run("size_of", size).scalar() or 0))
    return {id_: Totals(total, columns[id_]) for id_, total in tables.items()}


def write_totals(writer: WriteStatements, totals: Mapping[int, Totals], known: Mapping[int, Totals]) -> None:
    """Insert or update running totals; what does not change is not touched."""
    names: tuple[str, ...] = ("record_count", "next_row_id", "file_size_bytes")
    table, columns = writer.meta["table_stats"], writer.meta["table_column_stats"]
    rows: dict[int, tuple[Any, ...]] = {id_: (id_, *_numbers(total.table)) for id_, total in totals.items()}
    new = [row for id_, row in rows.items() if id_ not in known]
    changed = [row for id_, row in rows.items() if id_ in known and known[id_].table != totals[id_].table]
    if new:
        writer.insert_many("insert_totals", table, ("table_id", *names), new)
    if changed:
        writer.update_many("put_totals", table, ("table_id",), names, changed)
    exact = "min_is_exact" in columns.c
    names = ("contains_null", "contains_nan", "min_value", "max_value", "extra_stats")
    names += ("min_is_exact", "max_is_exact") if exact else ()
    kept = len(names) + 1
    new, changed = [], []
    for id_, total in totals.items():
        before = known[id_].columns if id_ in known else {}
        for column_id, stats in total.columns.items():
            old = before.get(column_id)
            if old is None:
                new.append((id_, *_encode_statistics(stats, exact)))
            elif old is not stats and old[:kept] != stats[:kept]:
                changed.append((id_, *_encode_statistics(stats, exact)))
    if new:
        writer.insert_many("insert_column_totals", columns, ("table_id", "column_id", *names), new)
    if changed:
        writer.update_many("put_column_totals", columns, ("table_id", "column_id"), names, changed)


def _encode_statistics(stats: TableColumnStats, exact: bool) -> tuple[Any, ...]:
    """Return statistics as the catalog has them, in the order of its columns."""
    id_, has_null, has_nan, low, high, extra, low_exact, high_exact = stats
    values = (id_, has_null, has_nan, stored_bound(low), stored_bound(high), extra)
    return (*values, stored_exact(low, low_exact), stored_exact(high, high_exact)) if exact else values


_MAX_TABLES = 256


@dataclass(frozen=True, slots=True)
class TableTotals:
    """A table's running totals; ``next_row_id`` is exact, the others are upper bounds."""

    record_count: int = 0
    next_row_id: int = 0
    file_size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of one table and of its columns, by column id."""

    table: TableTotals
    columns: Mapping[int, TableColumnStats]


_numbers = attrgetter("record_count", "next_row_id", "file_size_bytes")


class TotalsCache:
    """Totals as they are at one snapshot, remembered between commits. Safe to share between threads.

    When nobody else has committed in between, what this process wrote last is what the database holds.
    """

    def __init__(self) -> None:
        self._snapshot = -1
        self._tables: dict[int, Totals] = {}
        self._lock = threading.Lock()
        forks.watch(self, forks.new_lock)

    def known(self, snapshot_id: int, table_ids: Sequence[int]) -> dict[int, Totals] | None:
        """Return the totals of these tables at a snapshot, or None when they must be read."""
        with self._lock:
            if self._snapshot != snapshot_id or any(id_ not in self._tables for id_ in table_ids):
                return None
            return {id_: self._tables[id_] for id_ in table_ids}

    def remember(self, base_id: int, snapshot_id: int, totals: Mapping[int, Totals]) -> None:
        """Remember what a commit on top of ``base_id`` wrote; the totals of other tables still hold."""
        with self._lock:
            if snapshot_id <= self._snapshot:
                return  # a later commit of this process came first
            if self._snapshot != base_id or len(self._tables) > _MAX_TABLES:
                self._tables.clear()
            self._tables.update(totals)
            self._snapshot = snapshot_id


class InlinedUpdates(InlinedQueries):
    """Writes the inlined rows and deletes of a commit."""

    _sql: Writer

    def version_for(self, table: TableInfo) -> int | None:
        """Return the version of the inlined table that takes a table's new rows, or None when none has its columns."""
        key = ("inlined_exists", table.id, table.schema_version)
        version: int | None = self._sql._cache.get(key)
        if version is None:
            newest = max(self.tables(table.id), default=None)
            if newest is not None and newest >= table.schema_version:
                version = self._sql._cache[key] = newest
            elif newest is not None and stored_alike(self.schema_of(table.id, newest), table.schema):
                # nothing but defaults and constraints has changed since; not cached, because another client may
                # create the table of this version, and drop the older
                version = newest
        return version

    def drop_emptied_tables(self, table_id: int) -> None:
        """Drop the inlined tables of older versions that have no rows any more.

        Only where that is part of the transaction, and a reader that began before it goes on seeing them. The newest
        table stays, which writers may be about to use.
        """
        if self.meta.shared or self.backend.name not in ("sqlite", "duckdb"):
            return
        versions = sorted(self.tables(table_id))
        for version in versions[:-1]:
            table = sa.Table(data_table_name(table_id, version), sa.MetaData(), schema=self.meta.metadata.schema)
            if self._sql.run("emptied", sa.select(sa.literal(1)).select_from(table).limit(1)).first() is None:
                t = self.meta["inlined_data_tables"]
                mine = sa.and_(t.c.table_id == table_id, t.c.schema_version == version)
                self._sql.run("forget_inlined_table", sa.delete(t).where(mine))
                self._sql.run("drop_inlined_table", sa.schema.DropTable(table))

    def need_table(self, table_id: int, version: int) -> None:
        """Raise ``CommitConflict`` when the inlined table of a version is gone: others have moved all its rows."""
        if version not in self.tables(table_id):
            raise CommitConflict("the inlined rows to be changed were moved by another commit")

    def add_table(self, table_id: int, schema_version: int, schema: TableSchema) -> None:
        """Make the inlined table of a new schema version, which counts once ``register_tables`` names it."""
        self.expect_new_table(table_id, schema_version)
        inlined = self.table(table_id, schema_version, schema)
        if inlined.packed:
            return
        if self.backend.name == "mysql":
            # a table outlives its transaction there, and a failed commit may have left one with other columns
            self._sql.run("drop_inlined_table", sa.schema.DropTable(inlined.table, if_exists=True))
        # with the column types as stock DuckLake declares them
        columns = [sa.Column(name, NamedType(sql), quote=True) for name, sql in inlined.ddl]
        declared = sa.Table(inlined.table.name, sa.MetaData(), *columns, schema=inlined.table.schema)
        self._sql.run("create_inlined_table", sa.schema.CreateTable(declared))
        if self.backend.name != "duckdb":
            index = sa.Index(f"quacklake_{inlined.table.name}", inlined.table.c.row_id)
            self._sql.run("index_inlined_table", CreateIndex(index))

    def register_tables(self, table_ids: Sequence[int], schema_version: int) -> None:
        """Let everybody know of the new inlined tables of a schema version."""
        rows = [(id_, data_table_name(id_, schema_version), schema_version) for id_ in table_ids]
        self._sql.insert("inlined_data_tables", "table_id table_name schema_version", rows)

    def add_rows(
        self, inlined: InlinedTable, rows: Sequence[Sequence[Any]], row_ids: Sequence[int], snapshot: int
    ) -> None:
        """Insert inlined rows; ``rows`` are encoded values in schema order."""
        columns, stored = inlined.stored(rows)
        keys = ("row_id", "begin_snapshot", *columns)
        values = [(row_id, snapshot, *row) for row_id, row in zip(row_ids, stored, strict=True)]
        self._sql.insert_many("insert_inlined_rows", inlined.table, keys, values)

    def end_rows(self, inlined: InlinedTable, row_ids: Sequence[int], snapshot: int, base: int) -> None:
        """End inlined rows of the snapshot ``base``.

        Raise ``CommitConflict`` when another commit has deleted, moved or updated one: an updated row keeps its id.
        """
        table = inlined.table
        statement = (
            sa.update(table)
            .where(table.c.row_id.in_(list(row_ids)), table.c.end_snapshot.is_(None), table.c.begin_snapshot <= base)
            .values(end_snapshot=snapshot)
        )
        if self._sql.update("end_inlined_rows", statement) != len(row_ids):
            raise CommitConflict("an inlined row to be deleted was changed by another commit")

    def remove_rows(
        self, inlined: InlinedTable, since: int, through: int, count: int, base: int, flushed: Sequence[int] | None
    ) -> None:
        """Remove the rows that came after snapshot ``since`` up to ``through``, which files hold now.

        Only those with the row ids ``flushed``, if these are given. Raise ``CommitConflict`` when there are not the
        ``count`` rows that were there at snapshot ``base``.
        """
        table = inlined.table
        mine = sa.and_(table.c.begin_snapshot > since, table.c.begin_snapshot <= through)
        changed = sa.func.sum(sa.case((table.c.end_snapshot > base, 1), else_=0))
        statement = sa.select(sa.func.count(), sa.func.coalesce(changed, 0)).select_from(table).where(mine)
        counts = self._sql.run("flushed_rows", statement).one()
        if int(counts[0]) != count or int(counts[1]):
            raise CommitConflict("an inlined row to be flushed was changed by another commit")
        if flushed is None:
            self._sql.run("remove_inlined_rows", sa.delete(table).where(mine))
            return
        for some in parts(flushed):
            self._sql.run("remove_inlined_rows", sa.delete(table).where(mine, among(table.c.row_id, some)))

    def add_deletes(self, table_id: int, deletes: Sequence[tuple[int, int]], snapshot: int) -> None:
        """Insert inlined deletes: (data file, position) each."""
        table = delete_table(table_id, self.meta)
        rows = [(file, position, snapshot) for file, position in deletes]
        self._sql.insert_many("insert_inlined_deletes", table, ("file_id", "row_id", "begin_snapshot"), rows)

    def remove_deletes(self, table_id: int, file_ids: Sequence[int]) -> None:
        """Remove the inlined deletes of data files; delete files hold them now."""
        if file_ids:
            table = delete_table(table_id, self.meta)
            self._sql.run("remove_inlined_deletes", sa.delete(table).where(table.c.file_id.in_(list(file_ids))))

    def need_delete_table(self, table_id: int) -> None:
        """Make the table of a table's inlined deletes unless it is there."""
        if not self.meta.shared and not self.has_deletes(table_id):
            table = delete_table(table_id, self.meta)
            self._sql.run("create_inlined_deletes", sa.schema.CreateTable(table))

    def deletes_since(self, table_id: int, file_ids: Sequence[int], version: int) -> bool:
        """Return whether another commit after ``version`` inlined a delete on one of these files."""
        if not self.has_deletes(table_id):
            return False
        table = delete_table(table_id, self.meta)
        statement = (
            sa.select(table.c.file_id)
            .where(table.c.file_id.in_(list(file_ids)), table.c.begin_snapshot > version)
            .limit(1)
        )
        return self._sql.run("inlined_deletes_since", statement).first() is not None
