"""Reading the state of tables: small files, deleted rows, inlined rows, files that wait for removal."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from quacklake.catalog.reading.reader import Reader
from quacklake.catalog.statements import visible
from quacklake.format.snapshots import Snapshot

_STEP = 8
"""So many times larger are the files of one class of sizes than those of the next."""
_CLASSES = 4
_UNION = 100
"""Most inlined tables that one statement asks for."""


@dataclass(frozen=True, slots=True)
class TableHealth:
    """Numbers that say whether a table needs maintenance.

    ``small`` counts the files without deletes that are smaller than ``small_size``, by their size: each class goes up
    to an eighth of the one before. ``chipped`` counts those with deletes in the same way. ``worn_files`` have lost more
    than the given share of their rows. ``inlined_rows`` counts deleted ones too, ``inlined_since`` is the snapshot of
    the oldest.
    """

    table_id: int
    files: int = 0
    bytes: int = 0
    worn_files: int = 0
    small_size: int = 0
    small: tuple[int, ...] = ()
    chipped: tuple[int, ...] = ()
    inlined_rows: int = 0
    inlined_since: int | None = None

    def class_size(self, number: int) -> int:
        """Return the size that files of a class do not reach."""
        return int(self.small_size // _STEP**number)


def table_health(
    reader: Reader, snapshot: Snapshot, *, small: int, small_of: Mapping[int, int], worn: float
) -> dict[int, TableHealth]:
    """Return the health of tables that have rows.

    Files below ``small`` bytes (``small_of`` for some tables) are small; files that lost the share ``worn`` are worn.
    """
    tables = {}
    statement = _select_health(reader, snapshot, small, small_of, worn)
    for id_, files, size, worn_files, *counts in reader.run("health", statement):
        clean, chipped = _by_class(counts[:_CLASSES]), _by_class(counts[_CLASSES:])
        tables[id_] = TableHealth(id_, files, size, worn_files, small_of.get(id_, small), clean, chipped)
    for table_id, rows, since in _inlined_health(reader, snapshot):
        known = tables.get(table_id) or TableHealth(table_id)
        oldest = since if known.inlined_since is None else min(known.inlined_since, since)
        tables[table_id] = replace(known, inlined_rows=known.inlined_rows + rows, inlined_since=oldest)
    return tables


def _select_health(
    reader: Reader, snapshot: Snapshot, small: int, small_of: Mapping[int, int], worn: float
) -> sa.Select[tuple[Any, ...]]:
    f, d = reader._t["data_file"], reader._t["delete_file"]
    limit: Any = sa.case(dict(small_of), value=f.c.table_id, else_=small) if small_of else small
    mine = sa.and_(d.c.table_id == f.c.table_id, d.c.data_file_id == f.c.data_file_id)
    deletes = sa.and_(mine, visible(d, snapshot.id))
    clean, chipped = d.c.delete_file_id.is_(None), d.c.delete_count > 0
    is_worn = sa.and_(chipped, d.c.delete_count >= worn * f.c.record_count)
    small_files = [f.c.file_size_bytes * _STEP**number < limit for number in range(_CLASSES)]
    return (
        sa.select(
            f.c.table_id,
            sa.func.count(),
            sa.cast(sa.func.sum(f.c.file_size_bytes), sa.BigInteger),
            _number_of(is_worn),
            *(_number_of(sa.and_(clean, is_small)) for is_small in small_files),
            *(_number_of(sa.and_(chipped, is_small)) for is_small in small_files),
        )
        .select_from(f.outerjoin(d, deletes))
        .where(visible(f, snapshot.id))
        .group_by(f.c.table_id)
    )


def _inlined_health(reader: Reader, snapshot: Snapshot) -> Sequence[tuple[int, int, int]]:
    t, owner = reader._t["inlined_data_tables"], reader._t["table"]
    alive = t.join(owner, sa.and_(owner.c.table_id == t.c.table_id, visible(owner, snapshot.id)))
    known = reader.run("inlined_names", sa.select(t.c.table_id, t.c.schema_version).select_from(alive)).all()
    counted: list[tuple[int, int, int]] = []
    for start in range(0, len(known), _UNION):
        counts = []
        for table_id, version in known[start : start + _UNION]:
            table = reader.inlined.lives(table_id, version)
            oldest = sa.func.min(table.c.begin_snapshot)
            counts.append(sa.select(sa.literal(table_id), sa.func.count(), oldest).select_from(table))
        rows = reader.run("inlined_health", sa.union_all(*counts))
        counted += [(row[0], row[1], row[2]) for row in rows if row[1]]
    return counted


def scheduled_files(reader: Reader, before: dt.datetime) -> int:
    """Return how many files have waited for their removal since a time."""
    t = reader._t["files_scheduled_for_deletion"]
    waiting = sa.select(sa.func.count()).select_from(t).where(t.c.schedule_start <= before)
    return int(reader.run("scheduled_files", waiting).scalar_one())


def _by_class(counts: Sequence[int]) -> tuple[int, ...]:
    """Return how many files each class has, where each count has those of the later ones in it."""
    return tuple(count - smaller for count, smaller in zip(counts, [*counts[1:], 0], strict=True))


def _number_of(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[Any]:
    return sa.cast(sa.func.sum(sa.case((condition, 1), else_=0)), sa.BigInteger)
