"""Tables of the lake itself as the source and as sinks of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.connectors.change_feed import FEED, KIND, OPS, VERSION
from quacklake.connectors.options import ConnectorOptions
from quacklake.connectors.table_source import ReadOptions, TableSource, Unit
from quacklake.errors import ConfigError, NotFoundError
from quacklake.extend.names import TableRef
from quacklake.extend.writes import Change
from quacklake.lake import Lake

Counts: TypeAlias = dict[str, Any]
Work: TypeAlias = Callable[[Change], Counts]
"""Adds to a change, and returns its numbers."""

MODES = ("append", "upsert", "changes")
_RANGE = 1_000_000
"""The row ids that are read and put in order at a time."""


class LakeSink:
    """A table of the lake, whose rows are committed together with the checkpoint."""

    def __init__(self, lake: Lake, options: Mapping[str, Any]) -> None:
        read = ConnectorOptions("lake", options)
        self.lake = lake
        self.table = read.text("table")
        self.ref = TableRef.parse(self.table)
        self.mode = read.choice("mode", MODES, "append")
        self.key = read.names("key")
        self.order_by = read.optional("order_by")
        self.evolve = read.boolean("schema_evolution", False)
        self._partition_by = read.names("partition_by")
        self._creates = read.boolean("create", True)
        read.finish()
        if self.mode != "append" and not self.key:
            raise ConfigError(f"lake: the mode {self.mode} needs a key", hint="key: id")
        if self.mode == "append" and self.key:
            raise ConfigError("lake: the mode append has no key", hint="mode: upsert")

    def initialize(self, schema: pa.Schema) -> None:
        """Create the table unless it is there, and check that it has the columns of the rows."""
        beside = FEED if self.mode == "changes" else {}
        schema = pa.schema([field for field in schema if field.name not in beside])
        found = self.lake.handle.view().get_table(self.ref.schema, self.ref.name)
        if found is None:
            if not self._creates:
                raise NotFoundError(f"there is no table {self.table}", hint="create: true makes it")
            table = self.lake.create_table(self.table, schema)
            if self._partition_by:
                table.set_partitioned_by(*self._partition_by)
            return
        for name in self.key:
            found.schema.find(name)
        if not self.evolve:
            self.lake.handle.context.match(schema, found, partial=True)

    def table_id(self) -> str | None:
        """Return the UUID of the table; None when it is not there."""
        found = self.lake.handle.view().get_table(self.ref.schema, self.ref.name)
        return None if found is None else found.uuid

    def change(self, rows: pa.Table) -> Work:
        """Return the change that writes the rows of a batch."""

        def work(change: Change) -> Counts:
            deleted = 0
            if not rows.num_rows:
                return {"rows": 0, "deleted": 0}
            if self.mode == "append":
                change.transaction.table(self.table).append(rows, evolve=self.evolve)
            elif self.mode == "upsert":
                change.upsert(self.table, rows, self.key, self.order_by, evolve=self.evolve)
            else:
                deleted = change.apply_changes(self.table, rows, self.key, evolve=self.evolve)
            return {"rows": rows.num_rows - deleted, "deleted": deleted}

        return work


class LakeSource(TableSource):
    """The rows of a table of the lake: all, then those that are inserted; with a feed, every change.

    A position is a snapshot. Rows of a snapshot come in the order of their row ids.
    """

    def __init__(self, lake: Lake, options: Mapping[str, Any]) -> None:
        read = ConnectorOptions("lake", options)
        self._table = lake.table(read.text("table"))
        self._lake = lake
        super().__init__(ReadOptions.of(read))
        read.finish()

    def schema(self) -> pa.Schema:
        """Return the columns of the table, and those of a change."""
        return _with_change(self._table.schema, self.options)

    def identity(self) -> str:
        """Return the id of the table."""
        return str(self._table.info.uuid)

    def newest(self) -> int:
        """Return the newest snapshot."""
        return self._lake.current_snapshot()

    def behind(self, position: int) -> int:
        """Return how many snapshots after one have changed the table."""
        return sum(id_ > position for id_ in self._table.history().column("snapshot_id").to_pylist())

    def waiting_since(self, position: int) -> datetime | None:
        """Return when the first snapshot after one that changed the table was made; None without one."""
        made = self._table.history().select(["snapshot_id", "snapshot_time"]).to_pylist()
        times: list[datetime] = [each["snapshot_time"] for each in made if each["snapshot_id"] > position]
        return min(times, default=None)

    def version_at(self, moment: datetime) -> int:
        """Return the snapshot that was the newest at a time."""
        return self._lake.at(timestamp=moment).snapshot_id

    def state(self, version: int) -> Sequence[Unit]:
        """Return the rows of a snapshot."""
        table = self._lake.at(version=version).table(self._table.name)
        ids = pc.min_max(table.scan(columns=[], row_ids=True).to_arrow().column("rowid"))

        def read(first: int, end: int) -> Iterable[pa.RecordBatch]:
            rows = table.scan(row_ids=True, where=f"rowid >= {first} AND rowid < {end}").to_arrow().sort_by("rowid")
            return _batches(rows.drop_columns("rowid"), self.options.batch_rows)

        return list(_ranges(ids, read))

    def commits(self, after: int, until: int) -> Iterator[tuple[int, Sequence[Unit]]]:
        """Yield the snapshots behind one that changed the table, each with its new rows or changes, and the last."""
        self._table.changes(max(after, 0) + 1, until).plan()  # raises when part of the history is gone
        touched = (id_ for id_ in self._table.history().column("snapshot_id").to_pylist() if after < id_ <= until)
        for version in sorted(touched):
            changes = self._table.changes(version, version)
            if not self.options.feed:
                changes = self._table.insertions(version, version).where("change_type = 'insert'")
            ids = pc.min_max(changes.select("rowid").to_arrow().column("rowid"))

            def read(first: int, end: int, changes: Any = changes) -> Iterable[pa.RecordBatch]:
                return self._to_changes(changes.where(f"rowid >= {first} AND rowid < {end}").to_arrow())

            yield version, list(_ranges(ids, read))
        yield until, ()

    def _to_changes(self, rows: pa.Table) -> Iterable[pa.RecordBatch]:
        order = pc.index_in(rows.column("change_type"), pa.array(["delete", "update_preimage", "update_postimage"]))
        rows = rows.append_column("_order", order).sort_by([("rowid", "ascending"), ("_order", "ascending")])
        feed = {KIND: rows.column("change_type"), VERSION: rows.column("snapshot_id")}
        kept = rows.select(self._table.schema.names)
        if self.options.feed and self.options.changelog == "op":
            kinds = [OPS.get(kind.as_py()) for kind in feed[KIND]]
            kept = kept.append_column("_op", pa.array(kinds, pa.string())).filter(pc.is_valid(pa.array(kinds)))
        elif self.options.feed:
            for name, values in feed.items():
                kept = kept.append_column(name, values)
        return _batches(kept, self.options.batch_rows)


def _batches(rows: pa.Table, size: int) -> Iterable[pa.RecordBatch]:
    found: list[pa.RecordBatch] = rows.to_batches(size)
    return found


def _with_change(schema: pa.Schema, options: ReadOptions) -> pa.Schema:
    if not options.feed:
        return schema
    if options.changelog == "op":
        return schema.append(pa.field("_op", pa.string()))
    return schema.append(pa.field(KIND, pa.string())).append(pa.field(VERSION, pa.int64()))


def _ranges(ids: Any, read: Callable[[int, int], Iterable[pa.RecordBatch]]) -> Iterator[Unit]:
    least, most = ids["min"].as_py(), ids["max"].as_py()
    if least is None:
        return
    for first in range(least - least % _RANGE, most + 1, _RANGE):
        yield Unit(str(first), lambda first=first: read(first, first + _RANGE))  # type: ignore[misc]
