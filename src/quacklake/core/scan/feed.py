"""The change feed: which rows came and went in a range of snapshots, as a plan that an engine can run.

A row in a file comes with the snapshot of its file, or with the one stored beside it when the file was merged from
several. It goes with the snapshot that a delete file or the catalog has for its position, or else with its file.
What compaction wrote or ended neither comes nor goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quacklake import telemetry
from quacklake.core.catalog import Catalog, Reader
from quacklake.core.format.names import fold
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.format.snapshots import ChangeKind, Snapshot, parse_changes
from quacklake.core.scan.inlined_rows import decode_marked
from quacklake.core.scan.legacy_files import map_by_names
from quacklake.core.scan.plan import FILES, ScanPlan
from quacklake.core.scan.planner import plan_files, plan_mappings, plan_past
from quacklake.core.storage import Store
from quacklake.errors import InputError, SnapshotExpiredError

#: The columns of a feed before the table's own.
FEED_COLUMNS = (Column(-1, "snapshot_id", "int64"), Column(-2, "rowid", "int64"), Column(-3, "change_type", "varchar"))
#: One row per delete file. Deletes after ``last``, when the data file ended, do not count.
DELETE_FILES = pa.schema(
    [
        ("data_file_id", pa.int64()),
        ("path", pa.string()),
        ("format", pa.string()),
        ("begin_snapshot", pa.int64()),
        ("last", pa.int64()),
        ("record_count", pa.int64()),
        ("encryption_key", pa.string()),
    ]
)
#: Deletes in the catalog: the position of a row in a data file, and the snapshot that deleted it.
DATED_POSITIONS = pa.schema([("file_id", pa.int64()), ("row_id", pa.int64()), ("snapshot_id", pa.int64())])

_COMPACTIONS = (ChangeKind.MERGE_ADJACENT, ChangeKind.REWRITE_DELETE, ChangeKind.COMPACTED_TABLE)
_INSERTS = (ChangeKind.INSERTED_INTO_TABLE, ChangeKind.INLINED_INSERT)
_DELETES = (ChangeKind.DELETED_FROM_TABLE, ChangeKind.INLINED_DELETE)


@dataclass(frozen=True)
class FeedPlan:
    """Everything an engine needs to find what snapshots ``since`` to ``until`` (both included) changed in a table.

    ``rows`` has the data files as they were written, without deletes. ``ended`` are those that a change has ended in
    the range, each with its snapshot. ``inserted`` and ``deleted`` are inlined rows, dated by ``begin_snapshot``.
    ``updates`` are the snapshots that may have rows that both went and came.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake:
    ...     plan = lake.table("events").changes(since=3).plan()
    ...     plan.since, plan.until, plan.rows.files.num_rows, plan.inserted.num_rows
    (3, 4, 1, 2)
    """

    since: int
    until: int
    rows: ScanPlan
    ended: dict[int, int] = field(default_factory=dict)
    delete_files: pa.Table = field(default_factory=DELETE_FILES.empty_table, repr=False)
    positions: pa.Table = field(default_factory=DATED_POSITIONS.empty_table)
    inserted: pa.Table | None = None
    deleted: pa.Table | None = None
    compactions: tuple[int, ...] = ()
    updates: tuple[int, ...] = ()
    whole: FeedPlan | None = None
    """The changes of the whole table, of which ``rows`` shows a part; then the rest of this plan is empty."""

    @cached_property
    def first_deletes(self) -> dict[int, int]:
        """The earliest snapshot that may have deleted a row of each data file that has deletes."""
        first: dict[int, int] = {}
        for table, file, date in (
            (self.delete_files, "data_file_id", "begin_snapshot"),
            (self.positions, "file_id", "snapshot_id"),
        ):
            for id_, begin in _rows(table, file, date):
                first[id_] = min(begin, first.get(id_, begin))
        return first

    @cached_property
    def tangled(self) -> set[int]:
        """The files that rows of an update may have come with or gone from."""
        if not self.updates:
            return set()
        first = self.first_deletes
        newest = max(self.updates)
        return {
            id_
            for id_, begin, last in _rows(self.rows.files, "data_file_id", "begin_snapshot", "partial_max")
            if last is not None
            or begin in self.updates
            or first.get(id_, newest + 1) <= newest
            or self.ended.get(id_) in self.updates
        }

    def of_files(self, ids: Sequence[int], *, inlined: bool) -> FeedPlan:
        """Return the part of the feed that comes from some files, and with ``inlined`` from the catalog."""
        chosen = pa.array(ids, pa.int64())

        def of(table: pa.Table, key: str) -> pa.Table:
            return table.filter(pc.is_in(table.column(key), value_set=chosen))

        return replace(
            self,
            rows=replace(self.rows, files=of(self.rows.files, "data_file_id")),
            ended={id_: self.ended[id_] for id_ in ids if id_ in self.ended},
            delete_files=of(self.delete_files, "data_file_id"),
            positions=of(self.positions, "file_id"),
            inserted=self.inserted if inlined else None,
            deleted=self.deleted if inlined else None,
        )

    def plain_inserts(self) -> tuple[ScanPlan, FeedPlan]:
        """Return what any scan gives as it is: files whose rows were all inserted in the range; and the rest.

        A file that rows of an update went from belongs to the rest: without it the new values would seem inserted.
        """
        first = self.first_deletes
        rows = list(_rows(self.rows.files, "data_file_id", "begin_snapshot", "partial_max"))
        plain = [
            last is None
            and begin >= self.since
            and begin not in self.compactions
            and id_ not in self.tangled
            and not first.get(id_, begin + 1) <= begin
            for id_, begin, last in rows
        ]
        inlined = None if self.updates else self.inserted
        scan = replace(self.rows, files=self.rows.files.filter(pa.array(plain, pa.bool_())), inlined=inlined)
        others = [row[0] for row, one in zip(rows, plain, strict=True) if not one]
        return scan, self.of_files(others, inlined=bool(self.updates))

    @property
    def schema(self) -> TableSchema:
        """The columns of the feed. One of the table's with a name of the feed's own gets a number."""
        taken = {column.name for column in FEED_COLUMNS}
        columns = list(FEED_COLUMNS)
        for column in self.rows.schema.columns:
            name = column.name
            number = 0
            while fold(name) in taken:
                number += 1
                name = f"{column.name}_{number}"
            taken.add(fold(name))
            # a deleted row may have had NULL in a column that forbids it today
            columns.append(replace(column, name=name, nullable=True))
        return TableSchema(tuple(columns))


def plan_feed(
    reader: Reader,
    catalog: Catalog,
    store: Store,
    table: TableInfo,
    since: int,
    until: Snapshot,
    max_files: int | None = None,
) -> FeedPlan:
    """Return the plan of the changes to a table, given as it is at ``until``, in snapshots ``since`` to ``until``.

    Raise ``SnapshotExpiredError`` when one of them, or the one before, has expired; otherwise as ``plan_scan`` does.
    """
    empty = ScanPlan(
        table.id,
        table.schema_name,
        table.name,
        until.id,
        store.root,
        table.schema,
        files=FILES.empty_table(),
        columns_since=table.columns_since,
    )
    if since > until.id:
        return FeedPlan(since, until.id, empty)
    with telemetry.timed("scan.plan_feed"):
        compactions, updates = _changes(reader, table.id, since, until.id)
        changed = reader.files.changed(table, since, until.id)
        if max_files is not None and changed.num_rows > max_files:
            raise InputError(
                f"the changes of {table.qualified_name} are in {changed.num_rows} files, plan_max_files is {max_files}",
                hint="ask for fewer snapshots, or raise the setting",
            )
        positions = reader.inlined.deletes_until(table.id, until.id)
        inlined = reader.inlined.changed_rows(table, since, until.id)
        rows = decode_marked(inlined, table.schema, catalog.encoding, ends=True)
        reshaped = reader.tables.reshaped(until, table)
        mappings = plan_mappings(reader, changed)
        past = plan_past(reader, until, table, changed)
    joined = plan_files(changed, table, store, until.id, encrypted=catalog.encrypted)
    joined, mappings = map_by_names(reader, store, until, table, joined, mappings)
    files, ends = _data_files(joined, changed)
    inserted, deleted = _split_inlined(rows, since, until.id)
    # the deletes in the catalog that count: of the files at hand, and not later than these ended
    positions = pa.table(positions.columns, schema=DATED_POSITIONS)
    planned = files.column("data_file_id").combine_chunks()
    positions = positions.filter(pc.is_in(positions.column("file_id"), value_set=planned))
    last = pa.array([ends.get(id_, until.id) for id_ in positions.column("file_id").to_pylist()], pa.int64())
    positions = positions.filter(pc.less_equal(positions.column("snapshot_id"), last))
    return FeedPlan(
        since=since,
        until=until.id,
        rows=replace(
            empty, files=files, shaped_at=reshaped.at, reshaped=reshaped.changed, mappings=mappings, past=past
        ),
        ended={id_: end for id_, end in ends.items() if since <= end <= until.id and end not in compactions},
        delete_files=_delete_files(joined, changed, until.id),
        positions=positions,
        inserted=inserted,
        deleted=deleted,
        compactions=compactions,
        updates=updates,
    )


def _changes(reader: Reader, table_id: int, since: int, until: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the snapshots that compacted the table, and those that may have updated rows of it."""
    first = max(since - 1, 0)
    made = reader.snapshots.changes_between(first, until)
    if len(made) != until - first + 1:
        reader.snapshots.check_there()
        # in as many steps as there are snapshots, however large their numbers are
        missing, oldest = first, until + 1
        while missing in made:
            missing += 1
        while oldest - 1 in made:
            oldest -= 1
        raise SnapshotExpiredError(
            f"the changes since snapshot {since} cannot be read: snapshot {missing} has expired",
            hint=f"read the whole table at snapshot {oldest}, then its changes since {oldest + 1}"
            if oldest <= until
            else "lake.snapshots() lists what exists",
        )
    compactions, updates = [], []
    for id_, text in made.items():
        if id_ < since or f":{table_id}" not in (text or ""):
            continue
        kinds = {change.kind for change in parse_changes(text) if change.id == table_id}
        if kinds.intersection(_COMPACTIONS):
            compactions.append(id_)
        if kinds.intersection(_INSERTS) and kinds.intersection(_DELETES):
            updates.append(id_)
    return tuple(compactions), tuple(updates)


def _data_files(joined: pa.Table, planned: pa.Table) -> tuple[pa.Table, dict[int, int]]:
    """Return each data file once, without its delete files, and when those that ended did."""
    ids = planned.column("data_file_id").to_pylist()
    first = [index for index, id_ in enumerate(ids) if index == 0 or ids[index - 1] != id_]
    files = joined.take(pa.array(first, pa.int64()))
    for name in FILES.names:
        if name.startswith("delete_"):
            at = FILES.get_field_index(name)
            files = files.set_column(at, FILES.field(name), pa.nulls(files.num_rows, FILES.field(name).type))
    ends = zip(ids, planned.column("end_snapshot").to_pylist(), strict=True)
    return files, {id_: end for id_, end in ends if end is not None}


def _delete_files(joined: pa.Table, planned: pa.Table, until: int) -> pa.Table:
    table = pa.table(
        [
            joined.column("data_file_id"),
            joined.column("delete_path"),
            joined.column("delete_format"),
            planned.column("delete_begin_snapshot"),
            pc.min_element_wise(planned.column("end_snapshot"), pa.scalar(until, pa.int64())),
            joined.column("record_count"),
            joined.column("delete_encryption_key"),
        ],
        schema=DELETE_FILES,
    )
    return table.filter(pc.is_valid(table.column("path")))


def _split_inlined(rows: pa.Table | None, since: int, until: int) -> tuple[pa.Table | None, pa.Table | None]:
    """Return inlined rows that came, and those that went, dated by when they did."""
    if rows is None:
        return None, None
    begin, end = rows.column("begin_snapshot"), rows.column("end_snapshot")
    lived = pc.fill_null(pc.not_equal(begin, end), True)
    rows = rows.drop_columns(["end_snapshot"])
    came = pc.and_(pc.and_(pc.greater_equal(begin, since), pc.less_equal(begin, until)), lived)
    went = pc.and_(pc.and_(pc.greater_equal(end, since), pc.less_equal(end, until)), lived)
    dated = rows.set_column(rows.schema.get_field_index("begin_snapshot"), "begin_snapshot", end)
    return rows.filter(came), dated.filter(pc.fill_null(went, False))


def last_within(files: pa.Table, since: int, until: int, max_files: int | None, max_bytes: int | None) -> int:
    """Return the last snapshot of a range up to which the limits hold; at least that of the first rows.

    ``files`` are those of the range, as ``Reader.changed_files`` gives them. Snapshots are never torn apart.
    """
    if max_files is None and max_bytes is None:
        return until
    sizes: dict[int, list[int]] = {}
    seen: set[int] = set()
    for id_, begin, last, bytes_ in _rows(files, "data_file_id", "begin_snapshot", "partial_max", "file_size_bytes"):
        if id_ in seen or (begin if last is None else last) < since:
            continue
        seen.add(id_)
        sizes.setdefault(max(begin, since), []).append(bytes_ or 0)
    count = total = 0
    for snapshot in sorted(sizes):
        count += len(sizes[snapshot])
        total += sum(sizes[snapshot])
        over = (max_files is not None and count > max_files) or (max_bytes is not None and total > max_bytes)
        if over and count > len(sizes[snapshot]):
            return snapshot - 1
        if over:
            return snapshot
    return until


def _rows(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)
