"""Reading the files of a table over a range of snapshots: what was there at any of them, and for how long."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from quacklake.core.catalog.reading.inlined import InlinedRows
from quacklake.core.catalog.reading.reader import Reader
from quacklake.core.catalog.statements import arrow_table
from quacklake.core.catalog.tables import readable_time
from quacklake.core.format.objects import TableInfo

__all__ = ["DATA_FILES", "DELETE_FILES", "STATISTICS", "TableLives", "newest_snapshots", "snapshot_range"]

DATA_FILES = {
    "data_file_id": pa.int64(),
    "path": pa.string(),
    "path_is_relative": pa.bool_(),
    "record_count": pa.int64(),
    "file_size_bytes": pa.int64(),
    "row_id_start": pa.int64(),
    "begin_snapshot": pa.int64(),
    "end_snapshot": pa.int64(),
    "partial_max": pa.int64(),
    "mapping_id": pa.int64(),
    "encryption_key": pa.string(),
}
"""The columns of ``TableLives.data_files``."""

DELETE_FILES = {
    "delete_file_id": pa.int64(),
    "data_file_id": pa.int64(),
    "path": pa.string(),
    "path_is_relative": pa.bool_(),
    "format": pa.string(),
    "begin_snapshot": pa.int64(),
    "end_snapshot": pa.int64(),
    "partial_max": pa.int64(),
    "encryption_key": pa.string(),
}
"""The columns of ``TableLives.delete_files``."""

STATISTICS = {
    "data_file_id": pa.int64(),
    "column_id": pa.int64(),
    "value_count": pa.int64(),
    "null_count": pa.int64(),
    "min_value": pa.string(),
    "max_value": pa.string(),
    "contains_nan": pa.bool_(),
}
"""The columns of ``TableLives.statistics``."""


def snapshot_range(reader: Reader) -> tuple[int, int, int]:
    """Return how many snapshots are kept, the oldest and the newest."""
    t = reader.meta["snapshot"]
    statement = sa.select(sa.func.count(), sa.func.min(t.c.snapshot_id), sa.func.max(t.c.snapshot_id))
    count, oldest, newest = reader.run("snapshot_range", statement).one()
    return int(count), int(oldest or 0), int(newest or 0)


def newest_snapshots(reader: Reader, limit: int) -> list[tuple[int, dt.datetime | None]]:
    """Return the newest snapshots, at most ``limit``, with their times, oldest first."""
    t = reader.meta["snapshot"]
    time = readable_time(t.c.snapshot_time, reader.backend.name, "snapshot_time")
    statement = sa.select(t.c.snapshot_id, time).order_by(t.c.snapshot_id.desc()).limit(limit)
    return [(row[0], row[1]) for row in reader.run("newest_snapshots", statement)][::-1]


class TableLives:
    """Reads what a table had at any snapshot from ``since`` to ``until``, with begins and ends."""

    def __init__(self, reader: Reader, table: TableInfo, since: int, until: int) -> None:
        self._sql = reader
        self._table = table
        self._since = since
        self._until = until

    def birth(self) -> int:
        """Return the snapshot that made the table, or the oldest that is known of it."""
        t = self._sql.meta["table"]
        statement = sa.select(sa.func.min(t.c.begin_snapshot)).where(t.c.table_id == self._table.id)
        return int(self._sql.run("birth", statement).scalar_one())

    def next_row_id(self) -> int:
        """Return a number above the id of every row."""
        t = self._sql.meta["table_stats"]
        statement = sa.select(sa.func.max(t.c.next_row_id)).where(t.c.table_id == self._table.id)
        return int(self._sql.run("next_row_id", statement).scalar() or 0)

    def data_files(self) -> pa.Table:
        """Return the data files, by id."""
        return self._files("data_file", "data_file_id", DATA_FILES)

    def delete_files(self) -> pa.Table:
        """Return the delete files, by id."""
        return self._files("delete_file", "delete_file_id", DELETE_FILES)

    def _files(self, name: str, key: str, types: dict[str, pa.DataType]) -> pa.Table:
        t = self._sql.meta[name]
        columns = [self._sql.meta.column(name, column).label(column) for column in types]
        statement = sa.select(*columns).where(t.c.table_id == self._table.id, self._was_alive(t)).order_by(t.c[key])
        return arrow_table(self._sql.run(f"{name}_lives", statement), types)

    def _was_alive(self, table: sa.Table) -> sa.ColumnElement[bool]:
        ended = sa.or_(table.c.end_snapshot.is_(None), table.c.end_snapshot > self._since)
        return sa.and_(table.c.begin_snapshot <= self._until, ended)

    def statistics(self, columns: Sequence[int]) -> pa.Table:
        """Return the statistics of some columns in the data files, by file and column."""
        s, f = self._sql.meta["file_column_stats"], self._sql.meta["data_file"]
        mine = sa.and_(f.c.data_file_id == s.c.data_file_id, f.c.table_id == self._table.id, self._was_alive(f))
        chosen: list[sa.ColumnElement[Any]] = [s.c[name] for name in STATISTICS]
        statement = (
            sa.select(*chosen)
            .join(f, mine)
            .where(s.c.table_id == self._table.id, s.c.column_id.in_(list(columns)))
            .order_by(s.c.data_file_id, s.c.column_id)
        )
        return arrow_table(self._sql.run("statistics_lives", statement), STATISTICS)

    def inlined_rows(self) -> list[InlinedRows]:
        """Return the inlined rows, ended ones too."""
        return self._sql.inlined.rows_during(self._table, self._since, self._until)

    def inlined_deletes(self) -> pa.Table:
        """Return the inlined deletes: ``file_id``, ``row_id`` (the position) and ``begin_snapshot``."""
        return self._sql.inlined.deletes_until(self._table.id, self._until)
