"""Past positions of materialized views: as the snapshots of their refreshes say, and as a rollback restores them."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from quacklake.core.catalog import Reader, own_tables
from quacklake.core.format.objects import NOTHING_YET
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.materialized import registry
from quacklake.core.materialized.definition import MaterializedView, Position
from quacklake.core.materialized.survey import StaleError, survey
from quacklake.core.operations.context import LakeContext
from quacklake.core.transaction import Transaction

_LEAP = 1_000
"""The step from the last refresh to a rollback: one that refreshes at the same time is a conflict, which is retried."""


def stood_at(reader: Reader, id_: str, version: int) -> tuple[int, int] | None:
    """Return the snapshot at which a view stood at a past one, and that of its last refresh before; None: unknown."""
    for info in reader.snapshots.newest_first(version + 1):
        stands = _stands(info.extra)
        if stands.get("id") == id_:
            return stands["snapshot"], info.id
    return None


def _stands(extra: str | None) -> dict[str, Any]:
    try:
        found = json.loads(extra or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) and "materialized_view" in found else {}


def roll_back_views(context: LakeContext, tx: Transaction, version: int) -> None:
    """Let the transaction that rolls a lake back restore the positions of its views, too.

    Where a position is not known, the next refresh finds that others have changed the rows of the view, and is full.
    """
    with context.catalog.read() as reader:
        past = reader.snapshots.at_version(version)
    for view in registry.views(context, past):
        at = _position(context, view, past)
        if at is None:
            continue
        with context.catalog.read() as reader:
            known = own_tables.find_stream(reader, view.stream)
        epoch = NOTHING_YET if known is None else known.epoch
        starts = registry.QUERY if known is None else None
        tx.mark(view.stream, epoch + _LEAP, view.definition.id, at.to_json(), gaps=True, starts=starts)
    there = set(registry.definitions(context, past))
    for view in registry.views(context, tx.base):
        if view.table.id not in there:
            tx.forget(view.stream)


def _position(context: LakeContext, view: MaterializedView, past: Snapshot) -> Position | None:
    """Return the position of a view at a past snapshot; None when it is unknown, or others had changed its rows."""
    with context.catalog.read() as reader:
        stood = stood_at(reader, view.definition.id, past.id)
    if stood is None:
        return None
    reason = f"the lake was rolled back to snapshot {past.id}"
    at = Position(stood[0], 0, stood[1], "rollback", dt.datetime.now(dt.UTC), reason)
    try:
        found = survey(context, MaterializedView(view.table, view.definition, at), past)
    except StaleError:
        return at
    return None if found.reason is not None else at
