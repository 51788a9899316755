"""Leases: which process does a piece of work that only one at a time should do.

A lease is a row with a holder and an end, by the clock of the database.
"""

from __future__ import annotations

import sqlalchemy as sa

from quacklake.catalog.reading.reader import Reader
from quacklake.catalog.writing.writer import Writer


def take_lease(writer: Writer, lease_id: int, holder: str, milliseconds: int) -> int:
    """Make a lease one's own, or keep it longer; return how many milliseconds another still has it, or 0."""
    t = writer.meta.own["leases"]
    mine = t.c.lease_id == lease_id
    now = int(writer.run("clock", sa.select(writer.backend.now_ms())).scalar_one())
    row = writer.run("lease", sa.select(t.c.holder, t.c.expires_ms).where(mine)).first()
    if row is not None and row[0] != holder and row[1] > now:
        return int(row[1]) - now
    values = {"holder": holder, "expires_ms": now + milliseconds}
    if row is None:
        writer.run("insert_lease", sa.insert(t), {"lease_id": lease_id, **values})
    else:
        writer.run("update_lease", sa.update(t).where(mine).values(values))
    return 0


def end_lease(writer: Writer, lease_id: int, holder: str) -> None:
    """Give a lease back, if it is still this holder's."""
    t = writer.meta.own["leases"]
    writer.run("end_lease", sa.update(t).where(t.c.lease_id == lease_id, t.c.holder == holder).values(expires_ms=0))


def lease_left(reader: Reader, lease_id: int) -> int:
    """Return the milliseconds for which somebody still has a lease; 0 when nobody has."""
    t = reader.meta.own["leases"]
    if not reader.has_table(t.name):
        return 0  # another client created the lake
    left = sa.select(t.c.expires_ms - reader.backend.now_ms()).where(t.c.lease_id == lease_id)
    return max(int(reader.run("lease_left", left).scalar() or 0), 0)
