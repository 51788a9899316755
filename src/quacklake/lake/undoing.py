"""Undo changes: restore a table, bring back a dropped object, roll back a lake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from quacklake.core.catalog import objects
from quacklake.core.catalog.objects import Tags
from quacklake.core.format.names import fold
from quacklake.core.format.objects import MacroInfo, SchemaInfo, TableInfo, ViewInfo
from quacklake.core.format.snapshots import Operation, Snapshot, parse_changes
from quacklake.core.operations.handles import Handle, LakeHandle
from quacklake.core.operations.reference import TableRef, renamed
from quacklake.core.operations.versions import Version, find_snapshot
from quacklake.core.progress import Progress, silent
from quacklake.core.transaction import Transaction
from quacklake.errors import InputError
from quacklake.lake.restoring import RestoredTable, Undo, UndoReport


@dataclass(frozen=True, slots=True)
class _PastLake:
    """The contents of a lake at a snapshot; ``touched`` are the tables changed since, None when unknown."""

    snapshot: Snapshot
    schemas: list[SchemaInfo]
    tables: dict[int, TableInfo]
    views: dict[int, tuple[ViewInfo, Tags]]
    macros: dict[int, MacroInfo]
    touched: set[int] | None


def roll_back(undo: Undo, version: int, progress: Progress) -> UndoReport:
    """Restore everything to a snapshot. Drops come first, so that their names are free."""
    past = _read(undo, version)
    changed: list[str] = []
    dropped = _drop_newer(undo, past, changed)
    _restore_schemas(undo, past, changed)
    restored, undropped = _restore_tables(undo, past, progress)
    _restore_objects(undo, past, changed)
    return UndoReport(
        "rollback", version, None, tuple(restored), tuple(dropped), tuple(undropped), objects=tuple(changed)
    )


def _read(undo: Undo, version: int) -> _PastLake:
    # Use one read, so that nothing can expire in between.
    with undo.tx.catalog.read() as reader:
        snapshot = reader.snapshots.at_version(version)
        last = undo.tx.base.id
        changes = reader.snapshots.changes_between(version + 1, last)
        touched: set[int] | None = None
        if len(changes) == last - version:  # no snapshot has expired
            touched = {
                change.id for text in changes.values() for change in parse_changes(text) if change.id is not None
            }
        views = objects.views(reader, snapshot)
        return _PastLake(
            snapshot,
            reader.tables.schemas(snapshot),
            {table.id: table for table in reader.tables.all(snapshot)},
            {view.id: (view, objects.tags(reader, snapshot, view.id)) for view in views},
            {macro.id: macro for macro in objects.macros(reader, snapshot)},
            touched,
        )


def _drop_newer(undo: Undo, past: _PastLake, changed: list[str]) -> list[str]:
    tx = undo.tx
    dropped = [table for table in tx.tables() if table.id not in past.tables]
    for view in tx.objects.views():
        if view.id not in past.views:
            tx.objects.drop(view)
            changed.append(f"view {view.qualified_name} dropped")
    for macro in tx.objects.macros():
        if macro.id not in past.macros:
            tx.objects.drop(macro)
            changed.append(f"macro {macro.qualified_name} dropped")
    for table in dropped:
        tx.drop_table(table)
    return [table.qualified_name for table in dropped]


def _restore_schemas(undo: Undo, past: _PastLake, changed: list[str]) -> None:
    tx = undo.tx
    old = {fold(schema.name) for schema in past.schemas}
    now = {fold(schema.name) for schema in tx.schemas()}
    for schema in tx.schemas():
        if fold(schema.name) not in old:
            tx.drop_schema(schema.name)
            changed.append(f"schema {schema.name} dropped")
    for schema in past.schemas:
        if fold(schema.name) not in now:
            tx.create_schema(schema.name)
            changed.append(f"schema {schema.name} made again")


def _restore_tables(undo: Undo, past: _PastLake, progress: Progress) -> tuple[list[RestoredTable], list[str]]:
    restored: list[RestoredTable] = []
    undropped: list[str] = []
    now = {table.id: table for table in undo.tx.tables()}
    for done, (id_, old) in enumerate(past.tables.items()):
        progress(f"restoring {old.qualified_name}", done, len(past.tables))
        table = now.get(id_)
        if table is None:
            undo.undrop_id(id_, past.snapshot)
            undropped.append(old.qualified_name)
            continue
        same = replace(table, schema_version=old.schema_version) == old
        if past.touched is None or id_ in past.touched or not same:
            found = undo.restore(table, past.snapshot.id, rename=True)
            restored += [found] if found.changed else []
    return restored, undropped


def _restore_objects(undo: Undo, past: _PastLake, changed: list[str]) -> None:
    tx = undo.tx
    views = {view.id: view for view in tx.objects.views()}
    macros = {macro.id for macro in tx.objects.macros()}
    for old, tags in past.views.values():
        view = views.get(old.id)
        if view is None:
            undo.make_view(old, tags)
            changed.append(f"view {old.qualified_name} made again")
            continue
        if view.name != old.name:
            changed.append(f"view {view.qualified_name} renamed to {old.name}")
            view = tx.objects.rename_view(view, old.name)
        present = tx.objects.tags(view)
        tx.objects.set_tags(view, {key: tags.own.get(key) for key in {*present.own, *tags.own}})
        for column in {*present.named, *tags.named}:
            now, then = present.named.get(column, {}), tags.named.get(column, {})
            tx.objects.set_tags(view, {key: then.get(key) for key in {*now, *then}}, column_name=column)
    for macro in past.macros.values():
        if macro.id not in macros:
            undo.make_macro(macro)
            changed.append(f"macro {macro.qualified_name} made again")


def _snapshot_id(handle: Handle, to: Version) -> int:
    with handle.context.catalog.read() as reader:
        return find_snapshot(reader, to).id


def _undo(handle: Handle, work: Callable[[Undo], UndoReport], asked: Operation, *, dry_run: bool = False) -> UndoReport:
    """Run an operation and add the new snapshot to its report."""
    if dry_run and not handle.view().read_only:
        raise InputError("a dry run is not possible inside a transaction")
    made: list[Transaction] = []

    def attempt(tx: Transaction) -> UndoReport:
        tx.check_writable()
        tx.asks(asked)
        made.append(tx)
        return work(Undo(handle.context, tx, write=not dry_run))

    if dry_run and isinstance(handle, LakeHandle):
        tx = handle.begin()
        try:
            return replace(attempt(tx), dry_run=True)
        finally:
            tx.rollback()
    report = handle.run(attempt)
    committed = made[-1].committed
    return report if committed is None else replace(report, snapshot=committed.id)


def restore_table(
    handle: Handle, find: Callable[[Transaction], TableInfo], to: Version, *, dry_run: bool = False
) -> UndoReport:
    """Restore a table to a version, in a new snapshot; see ``Table.restore``."""

    def work(undo: Undo) -> UndoReport:
        version = _snapshot_id(handle, to)
        done = undo.restore(find(undo.tx), version)
        return UndoReport("restore", version, restored=(done,) if done.changed else ())

    return _undo(handle, work, Operation.RESTORE, dry_run=dry_run)


def undrop(handle: Handle, name: str, as_: str | None = None) -> UndoReport:
    """Bring back the most recently dropped table, view or macro of a name; see ``Lake.undrop``."""
    ref = TableRef.parse(name)
    other_name = None if as_ is None else renamed(ref, as_, "table").name

    def work(undo: Undo) -> UndoReport:
        found, version = undo.undrop(ref, other_name)
        return UndoReport("undrop", version, undropped=(found,))

    return _undo(handle, work, Operation.UNDROP)


def roll_back_lake(handle: Handle, to: Version, *, dry_run: bool = False, progress: Progress = silent) -> UndoReport:
    """Restore a whole lake to a version, in a new snapshot; see ``Lake.rollback``."""

    def work(undo: Undo) -> UndoReport:
        version = _snapshot_id(handle, to)
        report = roll_back(undo, version, progress)
        if undo.write:
            from quacklake.core.materialized.past import roll_back_views

            roll_back_views(handle.context, undo.tx, version)
        return report

    return _undo(handle, work, Operation.ROLLBACK, dry_run=dry_run)
