"""A table as the source of a stream: its start, the end of the next batch, and the rows between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from quacklake.core.catalog import Reader
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import Column
from quacklake.core.format.snapshots import ChangeKind, Snapshot, parse_changes
from quacklake.core.operations.change_feed import Bound, first_of
from quacklake.core.operations.context import LakeContext
from quacklake.core.scan import ScanPlan, plan_scan
from quacklake.core.scan.feed import FeedPlan, last_within, plan_feed
from quacklake.errors import NotFoundError, SnapshotExpiredError, StreamMismatchError, nearest

__all__ = ["StreamPlan", "StreamSource"]

#: ``table``: its id; ``after``: the last snapshot that was read; ``state``: the snapshot whose rows come first.
Position: TypeAlias = Mapping[str, int]

_EARLIEST, _LATEST = "earliest", "latest"
_FEED = (
    ChangeKind.INSERTED_INTO_TABLE,
    ChangeKind.INLINED_INSERT,
    ChangeKind.DELETED_FROM_TABLE,
    ChangeKind.INLINED_DELETE,
)
_LOSSES = (ChangeKind.DELETED_FROM_TABLE, ChangeKind.INLINED_DELETE)
_QUIET = 100  # the number of snapshots of other tables after which a position moves on, because an old position expires


@dataclass(frozen=True)
class StreamPlan:
    """Rows between two positions: a ``state``, then changes; ``names`` are the columns as the plans name them.

    ``times`` are those of the snapshots, in microseconds, for a stream of changes.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake:
    ...     source = StreamSource(lake.handle.context, lake.table("events").info, changes=True)
    ...     plan = source.plan(source.start(3), source.latest(source.start(3)))
    ...     plan.state, plan.feed.since, plan.feed.until, plan.names
    (None, 3, 4, ('id', 'name'))
    """

    state: ScanPlan | None
    feed: FeedPlan
    names: tuple[str, ...]
    times: Mapping[int, int]


@dataclass(frozen=True)
class StreamSource:
    """A table that is streamed, with the columns that it had when the stream was created, even if renamed later.

    A position is a snapshot: everything up to it has been read. Positions are plain dictionaries, to be stored. Without
    ``changes`` the stream has inserted rows only.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake:
    ...     source = StreamSource(lake.handle.context, lake.table("events").info)
    ...     start = source.start("latest")
    ...     lake.table("events").append({"id": [12], "name": ["new"]})
    ...     source.latest(start)["after"] - start["after"]
    1
    1
    """

    context: LakeContext
    table: TableInfo
    changes: bool = False
    max_files: int | None = None
    max_bytes: int | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the table, without those that a stream of changes adds."""
        return self.table.schema.columns

    def start(self, starting: Bound) -> Position:
        """Return the first position of a stream. Raise ``SnapshotExpiredError`` with the oldest remaining snapshot."""
        with self.context.catalog.read() as reader:
            newest = reader.snapshots.latest()
            if starting == _LATEST:
                return self._after(newest.id)
            oldest = reader.snapshots.oldest_unbroken()
            if starting == _EARLIEST:
                if not self.changes and self._has_lost_rows(reader, oldest, newest):
                    return {**self._after(newest.id), "state": newest.id}
                there = oldest.id and reader.tables.by_id(oldest, self.table.id) is not None
                after = self._after(oldest.id or -1)
                return {**after, "state": oldest.id} if there else after
            try:
                since = first_of(reader, starting, newest)
            except NotFoundError as error:
                near = nearest(starting, (_EARLIEST, _LATEST)) if isinstance(starting, str) else None
                if near:
                    raise NotFoundError(error.message, hint=near) from None
                raise
            if since > newest.id + 1:
                raise NotFoundError(f"there is no snapshot {since} yet", hint=f"the newest is {newest.id}")
            if oldest.id and since <= oldest.id:
                raise SnapshotExpiredError(
                    f"a stream cannot start at {starting!r}: snapshots after that, or the one before, have expired",
                    hint=f'the oldest start left is {oldest.id + 1}; "earliest" reads the whole table first',
                )
            return self._after(since - 1)

    def _has_lost_rows(self, reader: Reader, oldest: Snapshot, newest: Snapshot) -> bool:
        """Return whether rows that were inserted since a snapshot, or were there, are not there any more as they were.

        Where none is lost, the history gives the same rows as the table, in batches of a few snapshots.
        """
        made = reader.snapshots.changes_between(oldest.id + 1, newest.id)
        changes = (change for text in made.values() for change in parse_changes(text))
        return any(change.id == self.table.id and change.kind in _LOSSES for change in changes)

    def _after(self, snapshot: int) -> Position:
        return {"table": self.table.id, "after": snapshot}

    def latest(self, start: Position) -> Position:
        """Return the end of a batch that begins at a position; the same position when there is nothing new."""
        with self.context.catalog.read() as reader:
            newest = reader.snapshots.latest()
            after = start["after"]
            if newest.id <= after and "state" not in start:
                return start
            table = self._present(reader, newest, start)
            end = newest.id
            if self.max_files is not None or self.max_bytes is not None:
                files = reader.files.changed(table, after + 1, end)
                end = last_within(files, after + 1, end, self.max_files, self.max_bytes)
            if "state" not in start and end == newest.id and end - after < _QUIET:
                made = reader.snapshots.changes_between(after + 1, end)
                mine = (each for text in made.values() for each in parse_changes(text) if each.id == self.table.id)
                if len(made) == end - after and not any(change.kind in _FEED for change in mine):
                    return start
        return self._after(end)

    def plan(self, start: Position, end: Position) -> StreamPlan:
        """Return the rows between two positions. Raise ``SnapshotExpiredError`` or ``StreamMismatchError``."""
        catalog, store = self.context.catalog, self.context.store
        with catalog.read() as reader:
            until = reader.snapshots.at_version(end["after"]) if end["after"] >= 0 else reader.snapshots.latest()
            table = self._present(reader, until, start)
            since = start["after"] + 1
            state = None
            if "state" in start:
                base = reader.snapshots.at_version(start["state"])
                past = self._present(reader, base, start)
                state = plan_scan(reader, catalog, store, base, past)
            feed = plan_feed(reader, catalog, store, table, since, until, self.context.config.plan_max_files)
            versions = [*range(since, until.id + 1), *([] if state is None else [state.snapshot_id])]
            times = reader.snapshots.times(versions) if self.changes else {}
        names = tuple(table.schema.by_id(column.id).name for column in self.columns)
        return StreamPlan(state, feed, names, {id_: int(time.timestamp() * 1_000_000) for id_, time in times.items()})

    def _present(self, reader: Reader, snapshot: Snapshot, start: Position) -> TableInfo:
        """Return the table at a snapshot. It must still be the one that is streamed."""
        name = self.table.qualified_name
        if start["table"] != self.table.id:
            raise StreamMismatchError(
                f"the stream began with another table that was called {name}",
                hint="use another checkpoint, or another name for the pipeline",
            )
        found = reader.tables.by_id(snapshot, self.table.id)
        if found is None:
            raise NotFoundError(f"{name} does not exist at snapshot {snapshot.id}: it was dropped, or is not made yet")
        for column in self.columns:
            here = next((each for each in found.schema.columns if each.id == column.id), None)
            if here is None or not _alike(here, column):
                change = "was dropped" if here is None else f"is {here.duckdb_type()} now"
                raise StreamMismatchError(
                    f'the column "{column.name}" of {name} {change}, and the stream began with {column.duckdb_type()}',
                    hint="start the stream again: it continues from here with the present columns",
                )
        return found


def _alike(one: Column, two: Column) -> bool:
    """Return True when values of two columns look the same. Names of columns may differ, those of fields may not."""
    pairs = zip(one.children, two.children, strict=False)
    same = one.type == two.type and len(one.children) == len(two.children)
    return same and all(a.id == b.id and a.name == b.name and _alike(a, b) for a, b in pairs)
