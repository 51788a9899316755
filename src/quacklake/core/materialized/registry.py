"""Find the materialized views of a lake, and keep their positions."""

from __future__ import annotations

from dataclasses import replace

from quacklake.core.catalog import Reader, own_tables
from quacklake.core.format.names import fold
from quacklake.core.format.objects import MATERIALIZED_VIEW, NOTHING_YET, TableInfo, view_stream
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.materialized.definition import Definition, MaterializedView, Position
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.reference import TableRef
from quacklake.errors import InputError, NotFoundError, nearest

QUERY = "materialized view"
"""The query that the streams of positions are those of."""


def definitions(context: LakeContext, snapshot: Snapshot) -> dict[int, Definition]:
    """Return the definitions of the views at a snapshot, by the ids of their tables."""
    known = context.tables.tagged(snapshot, MATERIALIZED_VIEW)
    return {id_: Definition.from_json(text) for id_, text in known.items()}


def views(context: LakeContext, snapshot: Snapshot) -> list[MaterializedView]:
    """Return the materialized views at a snapshot, by name."""
    known = definitions(context, snapshot)
    if not known:
        return []
    tables = [context.tables.by_id(snapshot, id_) for id_ in known]
    with context.catalog.read() as reader:
        found = [
            MaterializedView(table, known[table.id], position(reader, known[table.id].id))
            for table in tables
            if table is not None
        ]
    return sorted(found, key=lambda view: (fold(view.table.schema_name), fold(view.table.name)))


def find(context: LakeContext, snapshot: Snapshot, ref: TableRef) -> MaterializedView | None:
    """Return a view by name, or None."""
    known = context.tables.tagged(snapshot, MATERIALIZED_VIEW)
    table = context.tables.table(snapshot, ref.schema, ref.name) if known else None
    if table is None or table.id not in known:
        return None
    definition = Definition.from_json(known[table.id])
    with context.catalog.read() as reader:
        return MaterializedView(table, definition, position(reader, definition.id))


def get(context: LakeContext, snapshot: Snapshot, ref: TableRef) -> MaterializedView:
    """Return a view by name. Raise ``NotFoundError`` with the nearest names."""
    found = find(context, snapshot, ref)
    if found is None:
        known = [view.name for view in views(context, snapshot)]
        hint = nearest(f"{ref.schema}.{ref.name}", known) or "SHOW MATERIALIZED VIEWS lists them"
        raise NotFoundError(f'there is no materialized view "{ref.schema}.{ref.name}"', hint=hint)
    return found


def position(reader: Reader, id_: str) -> Position | None:
    """Return where a view stands; None when that is not known here, as in a fork."""
    mark = own_tables.find_stream(reader, view_stream(id_))
    if mark is None or mark.position is None or mark.epoch == NOTHING_YET:
        return None
    try:
        return Position.from_json(mark.position, mark.epoch, mark.snapshot_id or 0)
    except InputError:
        return None


def mark_stale(context: LakeContext, view: MaterializedView, reason: str | None) -> None:
    """Note why a view cannot be refreshed, unless it has been meanwhile."""
    at = view.position
    if at is None or at.stale == reason:
        return
    with context.catalog.commit() as writer:
        writer.snapshots.check_there()
        mark = own_tables.find_stream(writer, view.stream)
        if mark is not None and mark.epoch == at.epoch:
            own_tables.put_stream(writer, replace(mark, position=replace(at, stale=reason).to_json()), new=False)


def table_of(context: LakeContext, snapshot: Snapshot, uuid: str, schema: str, name: str) -> TableInfo | None:
    """Return the table with a uuid, whatever it is called now, or None. The known name is tried first."""
    table = context.tables.table(snapshot, schema, name)
    if table is not None and table.uuid == uuid:
        return table
    return next((each for each in context.tables.tables(snapshot) if each.uuid == uuid), None)
