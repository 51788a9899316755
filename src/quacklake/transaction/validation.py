"""The conflict rules: whether a change set may still be committed after what others committed since."""

from __future__ import annotations

import pyarrow.compute as pc

from quacklake.catalog import Writer
from quacklake.errors import CommitConflict
from quacklake.format.bounds import ANYTHING, Bounds, columns_of, may_match
from quacklake.format.conflicts import Check, compare, explain
from quacklake.format.objects import TableInfo
from quacklake.format.snapshots import Snapshot
from quacklake.format.stats import of_array
from quacklake.scan.plan import column_key
from quacklake.scan.planner import decode_inlined
from quacklake.transaction.changeset import ChangeSet, TableChange

_AGAIN = "run the operation again on the new state"


def check_conflicts(writer: Writer, changes: ChangeSet, latest: Snapshot, database: str) -> None:
    """Raise ``CommitConflict`` when a commit after the change set's base excludes it."""
    base = changes.base
    if latest.id == base.id:
        return
    if latest.id < base.id:
        raise CommitConflict("the lake is older than the transaction's snapshot", hint="was it restored from a backup?")
    for table in changes.tables:
        _check_added(writer, table, base)
    if _blind(changes) and latest.schema_version == base.schema_version:
        return  # an insert conflicts only with changes of the schema
    by_id = {table.table.id: table for table in changes.tables}
    for table_id, needed in _needed_checks(writer, changes, by_id, latest).items():
        if Check.SAME_FILE in needed:
            _check_files(writer, by_id[table_id], base)
        if Check.READ in needed:
            _check_reads(writer, by_id[table_id], base, latest, database)


def _check_added(writer: Writer, table: TableChange, base: Snapshot) -> None:
    """Raise when a file from elsewhere would be added twice."""
    mine = {file.path for file in table.data_files if file.mapping_id is not None}
    if mine and not mine.isdisjoint(writer.files.added_since(table.table.id, base.id)):
        raise overtaken(table.table, "a file was added")


def _blind(changes: ChangeSet) -> bool:
    """Return whether nothing but rows is added, and nothing was read for it."""
    return not changes.alters_schema and all(
        not table.touched and not table.ended_rows and table.reads is None and not table.compaction
        for table in changes.tables
    )


def _needed_checks(
    writer: Writer, changes: ChangeSet, by_id: dict[int, TableChange], latest: Snapshot
) -> dict[int, set[Check]]:
    """Return what must be looked at per table; raise at once for what always conflicts."""
    mine = changes.changes()
    needed: dict[int, set[Check]] = {}
    since = writer.snapshots.changes_since(changes.base.id)
    if len(since) != latest.id - changes.base.id:
        raise CommitConflict(
            "snapshots since the transaction began have expired: what they changed is unknown", hint=_AGAIN
        )
    for _, others in since:
        for other in others:
            for change in mine:
                table = by_id.get(change.id) if change.id is not None else None
                reads = table is not None and table.reads is not None
                check = compare(change, other, reads=reads, schema_ids=changes.schema_ids)
                if check is Check.CONFLICT:
                    raise CommitConflict(explain(change, other), hint=_AGAIN)
                if table is not None and check is not Check.OK:
                    needed.setdefault(table.table.id, set()).add(check)
    return needed


def _check_files(writer: Writer, table: TableChange, base: Snapshot) -> None:
    """Raise unless every touched file is still live with the deletes it had; inlined rows are checked when they end."""
    files = list(table.touched)
    if not files:
        return
    live = writer.files.live(table.table.id, files, base.id)
    for id_ in files:
        if id_ not in live or live[id_] != table.touched[id_]:
            raise overtaken(table.table, "a file of it was changed")
    if writer.inlined.deletes_since(table.table.id, files, base.id):
        raise overtaken(table.table, "rows of the same file were deleted")


def _check_reads(writer: Writer, table: TableChange, base: Snapshot, latest: Snapshot, database: str) -> None:
    """Raise when others inserted rows that this change depends on having read."""
    reads = table.reads
    if reads is None:
        return
    files = writer.files.matching(latest, table.table, reads)
    # a merged file begins with the oldest of its rows
    newest = pc.coalesce(files.column("partial_max"), files.column("begin_snapshot"))
    if pc.any(pc.greater(newest, base.id)).as_py():
        raise overtaken(table.table, "rows it depends on were inserted")
    rows = decode_inlined(writer.inlined.rows(latest, table.table, since=base.id), table.table.schema, database)
    if rows is None:
        return
    wanted = columns_of(reads)
    bounds = {
        column.id: Bounds.of(of_array(rows.column(column_key(column)), column)[0], column.type)
        for column in table.table.schema.columns
        if column.id in wanted
    }
    if reads == ANYTHING or may_match(reads, bounds):
        raise overtaken(table.table, "rows it depends on were inserted")


def overtaken(table: TableInfo, why: str) -> CommitConflict:
    """Return the error for a change to a table that conflicts with a later commit."""
    return CommitConflict(f"the change to {table.qualified_name} was overtaken: {why} by another commit", hint=_AGAIN)
