"""Find out what happened to the tables of a view since its position, from the catalog alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quacklake.core.catalog import Reader
from quacklake.core.format.names import fold
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.snapshots import ChangeKind, Snapshot, parse_changes
from quacklake.core.materialized.definition import MaterializedView
from quacklake.core.materialized.registry import table_of
from quacklake.core.operations.context import LakeContext
from quacklake.errors import NotFoundError

_INSERTS = {ChangeKind.INSERTED_INTO_TABLE, ChangeKind.INLINED_INSERT}
_DELETES = {ChangeKind.DELETED_FROM_TABLE, ChangeKind.INLINED_DELETE}
_MOVES = {
    ChangeKind.MERGE_ADJACENT,
    ChangeKind.REWRITE_DELETE,
    ChangeKind.COMPACTED_TABLE,
    ChangeKind.INLINE_FLUSH,
}


@dataclass(frozen=True)
class BaseChange:
    """A table that a view reads, as it is now, and what happened to its rows since the view's position."""

    table: TableInfo
    known_as: tuple[str, str]
    """The schema and name by which the query knows it."""
    inserted: bool = False
    deleted: bool = False
    touched: tuple[int, int] | None = None
    """The first and the last snapshot since then that did anything to it."""

    @property
    def changed(self) -> bool:
        """True when rows may have changed."""
        return self.inserted or self.deleted


@dataclass(frozen=True)
class Survey:
    """The work of a refresh. ``reason`` says why changes cannot be followed: then only a full refresh is right."""

    snapshot: Snapshot
    bases: tuple[BaseChange, ...]
    since: int | None
    """The first snapshot whose changes the view lacks."""
    reason: str | None = None

    @property
    def changed(self) -> bool:
        """True when the view may differ from the answer of its query."""
        return self.reason is not None or any(base.changed for base in self.bases)


class StaleError(Exception):
    """The query of a view can no longer run, or gives other columns."""


def survey(context: LakeContext, view: MaterializedView, snapshot: Snapshot) -> Survey:
    """Return what has happened up to a snapshot. Raise ``StaleError`` when a table is gone."""
    found: list[BaseChange] = []
    reason = None
    for base in view.definition.bases:
        known = (base.schema, base.name)
        table = table_of(context, snapshot, base.uuid, *known)
        if table is None:
            table = context.tables.table(snapshot, *known)
            if table is None:
                raise StaleError(f'the table "{base.schema}.{base.name}" does not exist any more')
            reason = f'the table "{base.schema}.{base.name}" was created again'
        found.append(BaseChange(table, known))
    at = view.position
    if at is None:
        return Survey(snapshot, tuple(found), None, "the position of the view is unknown here")
    if at.snapshot > snapshot.id:
        reason = reason or f"snapshot {at.snapshot}, the position of the view, is not in the history of the lake"
    if reason is not None:
        return Survey(snapshot, tuple(found), None, reason)
    first = min(at.snapshot, at.committed)
    with context.catalog.read() as reader:
        made = reader.snapshots.changes_between(first, snapshot.id)
        if len(made) != snapshot.id - first + 1:
            reader.snapshots.check_there()
            return Survey(snapshot, tuple(found), None, "snapshots since its last refresh have expired")
        kinds = _kinds(made, {view.table.id, *(base.table.id for base in found)})
        own = [each for id_, each in kinds.get(view.table.id, {}).items() if id_ > at.committed]
        if any(each & (_INSERTS | _DELETES) and not each & _MOVES for each in own):
            return Survey(snapshot, tuple(found), None, "its rows were changed by another client")
        followed = []
        for known_base in found:
            since = {id_: each for id_, each in kinds.get(known_base.table.id, {}).items() if id_ > at.snapshot}
            mine = list(since.values())
            why = _explain_gap(reader, at.snapshot, known_base.table, mine)
            if why is not None:
                return Survey(snapshot, tuple(found), None, why)
            inserted = any(each & _INSERTS for each in mine)
            deleted = any(each & _DELETES for each in mine)  # perhaps only moved: the feed tells
            touched = (min(since), max(since)) if since else None
            followed.append(BaseChange(known_base.table, known_base.known_as, inserted, deleted, touched))
    return Survey(snapshot, tuple(followed), at.snapshot + 1)


def _kinds(made: Mapping[int, str | None], ids: set[int]) -> dict[int, dict[int, set[ChangeKind]]]:
    """Return by table and snapshot what was done to some tables."""
    found: dict[int, dict[int, set[ChangeKind]]] = {}
    for snapshot, text in made.items():
        if text is None or not any(f":{id_}" in text for id_ in ids):
            continue
        for change in parse_changes(text):
            if change.id in ids:
                found.setdefault(change.id, {}).setdefault(snapshot, set()).add(change.kind)
    return found


def _explain_gap(reader: Reader, since: int, table: TableInfo, made: list[set[ChangeKind]]) -> str | None:
    """Return why the changes of a table are not all in its feed, or None."""
    if any(ChangeKind.DROPPED_TABLE in each for each in made):
        return f'the table "{table.qualified_name}" was dropped and restored'
    if not any(ChangeKind.ALTERED_TABLE in each for each in made):
        return None
    try:
        before = reader.tables.by_id(reader.snapshots.at_version(since), table.id)
    except NotFoundError:
        before = None
    if before is None:
        return f'the table "{table.qualified_name}" was altered'
    old = {fold(column.name): column for column in before.schema.columns}
    for column in table.schema.columns:
        known = old.get(fold(column.name))
        if known is not None and (known.id, known.duckdb_type()) != (column.id, column.duckdb_type()):
            return f'the column "{column.name}" of "{table.qualified_name}" was altered'
    return None
