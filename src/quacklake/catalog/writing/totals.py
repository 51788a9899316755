"""The running totals of tables: reading and writing them, and remembering them between commits.

Every commit needs them and every commit changes them. When nobody else has committed in between, what this process
wrote last is what the database holds, and need not be read again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from quacklake import forks
from quacklake.catalog.writing.writer import Writer
from quacklake.format.stats import TableColumnStats, stored_bound, stored_exact


def read_totals(writer: Writer, table_ids: Sequence[int]) -> dict[int, Totals]:
    """Return the running totals of tables; a table without rows so far is absent."""
    t, c = writer._t["table_stats"], writer._t["table_column_stats"]

    def build() -> Any:
        return (
            sa.select(
                t.c.table_id,
                t.c.record_count,
                t.c.next_row_id,
                t.c.file_size_bytes,
                c.c.column_id,
                c.c.contains_null,
                c.c.contains_nan,
                c.c.min_value,
                c.c.max_value,
                c.c.extra_stats,
                writer._t.column("table_column_stats", "min_is_exact"),
                writer._t.column("table_column_stats", "max_is_exact"),
            )
            .select_from(t.outerjoin(c, c.c.table_id == t.c.table_id))
            .where(t.c.table_id.in_(sa.bindparam("ids", expanding=True)))
        )

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
        tables[id_] = replace(tables[id_], file_size_bytes=_size_of(writer, id_))
    return {id_: Totals(total, columns[id_]) for id_, total in tables.items()}


def _size_of(writer: Writer, table_id: int) -> int:
    f = writer._t["data_file"]
    statement = sa.select(sa.func.sum(f.c.file_size_bytes)).where(f.c.table_id == table_id)
    return int(writer.run("size_of", statement).scalar() or 0)


def write_totals(writer: Writer, totals: Mapping[int, Totals], known: Mapping[int, Totals]) -> None:
    """Insert or update running totals; what does not change is not touched."""
    t, c = writer._t["table_stats"], writer._t["table_column_stats"]
    names = ("record_count", "next_row_id", "file_size_bytes")
    rows = [(id_, *_numbers(totals[id_])) for id_ in totals if id_ not in known]
    if rows:
        writer.insert_many("insert_totals", t, ("table_id", *names), rows)
    changed = [id_ for id_ in totals if id_ in known and known[id_].table != totals[id_].table]
    if changed:
        rows = [(id_, *_numbers(totals[id_])) for id_ in changed]
        writer.update_many("put_totals", t, ("table_id",), names, rows)
    _write_column_totals(writer, c, totals, known)


def _write_column_totals(
    writer: Writer, table: sa.Table, totals: Mapping[int, Totals], known: Mapping[int, Totals]
) -> None:
    names: tuple[str, ...] = ("contains_null", "contains_nan", "min_value", "max_value", "extra_stats")
    exact = "min_is_exact" in table.c
    if exact:
        names += ("min_is_exact", "max_is_exact")
    new: list[tuple[Any, ...]] = []
    changed: list[tuple[Any, ...]] = []
    for id_, total in totals.items():
        before = known[id_].columns if id_ in known else {}
        for column_id, stats in total.columns.items():
            values = _bounds(stats, exact=exact)
            if column_id not in before:
                new.append((id_, column_id, *values))
            elif _bounds(before[column_id], exact=exact) != values:
                changed.append((id_, column_id, *values))
    if new:
        writer.insert_many("insert_column_totals", table, ("table_id", "column_id", *names), new)
    if changed:
        writer.update_many("put_column_totals", table, ("table_id", "column_id"), names, changed)


def _numbers(totals: Totals) -> tuple[int, int, int]:
    return totals.table.record_count, totals.table.next_row_id, totals.table.file_size_bytes


def _bounds(stats: TableColumnStats, *, exact: bool) -> tuple[Any, ...]:
    low, high = stored_bound(stats.min), stored_bound(stats.max)
    values = (stats.contains_null, stats.contains_nan, low, high, stats.extra)
    return (*values, stored_exact(low, stats.min_exact), stored_exact(high, stats.max_exact)) if exact else values


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


class TotalsCache:
    """Totals as they are at one snapshot. Safe to share between threads."""

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
