"""Reading how tables are doing: small files, deleted rows, inlined rows, what waits for removal."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from quacklake.catalog.inlined import inlined_lives
from quacklake.catalog.reading.files import FileReader
from quacklake.format.snapshots import Snapshot

__all__ = ["HealthReader", "TableHealth"]

_UNION = 100
"""Most inlined tables that one statement asks for."""


@dataclass(frozen=True, slots=True)
class TableHealth:
    """What says whether a table wants care.

    ``small_files`` are smaller than asked for, ``worn_files`` have lost more of their rows than asked for;
    ``inlined_rows`` counts deleted ones too, ``inlined_since`` is the snapshot of the oldest.
    """

    table_id: int
    files: int = 0
    bytes: int = 0
    small_files: int = 0
    worn_files: int = 0
    inlined_rows: int = 0
    inlined_since: int | None = None


class HealthReader(FileReader):
    """The state of tables, in numbers."""

    def health(
        self, snapshot: Snapshot, *, small: int, small_of: Mapping[int, int], worn: float
    ) -> dict[int, TableHealth]:
        """The tables that have rows: files below ``small`` bytes (``small_of`` for some tables), ``worn`` a share."""
        found = {row[0]: TableHealth(*row) for row in self.run("health", self._health(snapshot, small, small_of, worn))}
        for table_id, rows, since in self._inlined_health(snapshot):
            known = found.get(table_id) or TableHealth(table_id)
            oldest = since if known.inlined_since is None else min(known.inlined_since, since)
            found[table_id] = replace(known, inlined_rows=known.inlined_rows + rows, inlined_since=oldest)
        return found

    def _health(
        self, snapshot: Snapshot, small: int, small_of: Mapping[int, int], worn: float
    ) -> sa.Select[tuple[Any, ...]]:
        f, d = self._t["data_file"], self._t["delete_file"]
        limit: Any = sa.case(dict(small_of), value=f.c.table_id, else_=small) if small_of else small
        mine = sa.and_(d.c.table_id == f.c.table_id, d.c.data_file_id == f.c.data_file_id)
        deletes = sa.and_(mine, self._visible(d, snapshot.id))
        is_worn = sa.and_(d.c.delete_count > 0, d.c.delete_count >= worn * f.c.record_count)
        return (
            sa.select(
                f.c.table_id,
                sa.func.count(),
                sa.cast(sa.func.sum(f.c.file_size_bytes), sa.BigInteger),
                _number_of(f.c.file_size_bytes < limit),
                _number_of(is_worn),
            )
            .select_from(f.outerjoin(d, deletes))
            .where(self._visible(f, snapshot.id))
            .group_by(f.c.table_id)
        )

    def _inlined_health(self, snapshot: Snapshot) -> Sequence[tuple[int, int, int]]:
        t, owner = self._t["inlined_data_tables"], self._t["table"]
        alive = t.join(owner, sa.and_(owner.c.table_id == t.c.table_id, self._visible(owner, snapshot.id)))
        known = self.run("inlined_names", sa.select(t.c.table_id, t.c.schema_version).select_from(alive)).all()
        found: list[tuple[int, int, int]] = []
        for start in range(0, len(known), _UNION):
            counts = []
            for table_id, version in known[start : start + _UNION]:
                table = inlined_lives(table_id, version, self._t)
                oldest = sa.func.min(table.c.begin_snapshot)
                counts.append(sa.select(sa.literal(table_id), sa.func.count(), oldest).select_from(table))
            rows = self.run("inlined_health", sa.union_all(*counts))
            found += [(row[0], row[1], row[2]) for row in rows if row[1]]
        return found

    def scheduled_files(self, before: dt.datetime) -> int:
        """How many files have waited for their removal since a time."""
        t = self._t["files_scheduled_for_deletion"]
        waiting = sa.select(sa.func.count()).select_from(t).where(t.c.schedule_start <= before)
        return int(self.run("scheduled_files", waiting).scalar_one())


def _number_of(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[Any]:
    return sa.cast(sa.func.sum(sa.case((condition, 1), else_=0)), sa.BigInteger)
