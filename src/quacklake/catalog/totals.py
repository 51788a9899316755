"""The running totals of tables, remembered between commits.

Every commit needs them and every commit changes them. When nobody else has committed in between, what this process
wrote last is what the database holds, and need not be read again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quacklake import forks
from quacklake.format.stats import TableColumnStats

__all__ = ["TableTotals", "Totals", "TotalsCache"]

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
        """The totals of these tables at a snapshot, or None when they must be read."""
        with self._lock:
            if self._snapshot != snapshot_id or any(id_ not in self._tables for id_ in table_ids):
                return None
            return {id_: self._tables[id_] for id_ in table_ids}

    def remember(self, base_id: int, snapshot_id: int, totals: Mapping[int, Totals]) -> None:
        """After a commit on top of ``base_id``: what it wrote; the totals of other tables still hold."""
        with self._lock:
            if snapshot_id <= self._snapshot:
                return  # a later commit of this process was quicker to tell
            if self._snapshot != base_id or len(self._tables) > _MAX_TABLES:
                self._tables.clear()
            self._tables.update(totals)
            self._snapshot = snapshot_id
