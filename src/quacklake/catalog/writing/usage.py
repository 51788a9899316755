"""The usage of a catalog of a shared lake, read inside the commit that may raise it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from quacklake.catalog.writing.writer import Writer


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a catalog before a commit; None for what was not requested.

    ``bytes`` is never too low. ``paced`` is the time of the oldest of the last commits.
    """

    snapshots: int | None = None
    tables: int | None = None
    bytes: int | None = None
    paced: dt.datetime | None = None


def usage(writer: Writer, *, snapshots: bool, tables: bool, size: bool, commits: int | None) -> Usage:
    """Return the usage that is asked for, in one statement.

    ``commits`` is how many of the last commits to look back at.
    """
    wanted = (snapshots, tables, size, commits is not None)
    statement = writer.cached(("usage", *wanted), lambda: _statement(writer, *wanted))
    row = writer.run("usage", statement, None if commits is None else {"before": commits - 1}).one()
    values = iter(row)
    snapshot_count, table_count, sum_of_bytes = (int(next(values) or 0) if asked else None for asked in wanted[:3])
    return Usage(snapshot_count, table_count, sum_of_bytes, next(values) if wanted[3] else None)


def _statement(writer: Writer, snapshots: bool, tables: bool, size: bool, commits: bool) -> sa.Select[Any]:
    s, t, sums = writer._t["snapshot"], writer._t["table"], writer._t["table_stats"]
    parts: list[Any] = []
    if snapshots:
        parts.append(sa.select(sa.func.count()).select_from(s))
    if tables:
        parts.append(sa.select(sa.func.count()).select_from(t).where(t.c.end_snapshot.is_(None)))
    if size:
        live = sums.join(t, sa.and_(t.c.table_id == sums.c.table_id, t.c.end_snapshot.is_(None)))
        parts.append(sa.select(sa.func.sum(sums.c.file_size_bytes)).select_from(live))
    if commits:
        time = writer.snapshots.columns()[1]
        last = sa.select(time).where(s.c.snapshot_id > 0).order_by(s.c.snapshot_id.desc())
        parts.append(last.limit(1).offset(sa.bindparam("before", type_=sa.BigInteger())))
    return sa.select(*(part.scalar_subquery() for part in parts))


def live_bytes(writer: Writer) -> int:
    """Return the bytes of the data files that are there now, those of the commit itself among them."""
    f = writer._t["data_file"]
    statement = sa.select(sa.func.sum(f.c.file_size_bytes)).where(f.c.end_snapshot.is_(None))
    return int(writer.run("live_bytes", statement).scalar() or 0)
