"""The change feed of a table: a lazy read of the rows that a range of snapshots inserted, updated and deleted."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from operator import index
from typing import TypeAlias

import pyarrow as pa

from quacklake.core.catalog import Reader, own_tables
from quacklake.core.engines.duckdb import RunningScan
from quacklake.core.format.snapshots import Snapshot, is_tag
from quacklake.core.operations.context import boundary
from quacklake.core.operations.lazy_reads import Frame
from quacklake.core.operations.times import instant
from quacklake.core.scan.feed import FeedPlan, plan_feed
from quacklake.errors import InputError, NotFoundError

Bound: TypeAlias = "int | dt.datetime | str"
"""An end of a range of snapshots: a snapshot id, a tag or a time."""


@dataclass(frozen=True, repr=False)
@boundary
class ChangeScan(Frame):
    """The row changes of a table from one snapshot to another, both included.

    The columns are ``snapshot_id``, ``rowid``, ``change_type`` (``insert``, ``delete``, ``update_preimage``,
    ``update_postimage``) and those of the table at the last snapshot. Rows come in no particular order.
    """

    _since: Bound
    _until: Bound | None = None
    _inserts: bool = True
    _deletes: bool = True

    @property
    def _range(self) -> str:  # type: ignore[override]
        return f" since {self._since}" + ("" if self._until is None else f" until {self._until}")

    def plan(self) -> FeedPlan:
        """Return the files and inlined rows that hold the changes. Raise ``SnapshotExpiredError``."""
        view = self._handle.view()
        table = view.find_table(self._ref.schema, self._ref.name)
        if table.id < 0:
            raise NotFoundError(f"{table.qualified_name} has no history before its transaction is committed")
        catalog = view.catalog
        with catalog.read() as reader:
            until = _last(reader, self._until, view.base)
            since = first_of(reader, self._since, view.base)
            past = view.whole(table) if until == view.base else reader.tables.by_id(until, table.id)
            if past is None:
                raise NotFoundError(f"{table.qualified_name} did not exist yet at snapshot {until.id}")
            most = self._handle.context.config.plan_max_files
            plan = plan_feed(reader, catalog, view.store, past, since, until, most)
        visible = None if view.rules is None else view.rules.visible(past, derived=view.is_derived(past))
        if view.rules is not None:
            view.rules.noted(past, (past.schema if visible is None else visible.schema).names, until.id)
        return plan if visible is None else visible.feed(plan)

    def scan(self, batch_rows: int | None = None) -> RunningScan:
        """Start a scan that can be cancelled."""
        return self._handle.context.engine.feed(
            self.plan(),
            inserts=self._inserts,
            deletes=self._deletes,
            columns=self._columns,
            where=self._where,
            limit=self._limit,
            batch_rows=batch_rows or self._handle.context.config.fetch_batch_rows,
        )

    def count(self) -> int:
        """Return the number of changes."""
        if self._where is None or isinstance(self._where, str):
            total = self._handle.context.engine.count_feed(
                self.plan(), self._where, inserts=self._inserts, deletes=self._deletes
            )
        else:
            total = sum(batch.num_rows for batch in self.to_batches())
        return total if self._limit is None else min(total, self._limit)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the changes."""
        schema = self.plan().schema
        names = schema.names if self._columns is None else self._columns
        return pa.schema([schema.find(name).arrow_field() for name in names])


def _number(reader: Reader, bound: Bound) -> int | None:
    """Return the snapshot id that a bound gives directly or by tag; None for a time."""
    if isinstance(bound, str) and is_tag(bound):
        return own_tables.tagged(reader, bound).id
    if isinstance(bound, str | dt.datetime):
        return None
    try:
        return None if isinstance(bound, bool) else index(bound)
    except TypeError:
        return None


def first_of(reader: Reader, bound: Bound, newest: Snapshot) -> int:
    """Return the first snapshot of a range; the one after the newest if the range has not begun yet."""
    number = _number(reader, bound)
    if number is None:
        number = reader.snapshots.first_since(instant(bound))
        return newest.id + 1 if number is None else number
    if number < 0:
        raise InputError(f"a snapshot cannot be {number}", hint="snapshots are numbered from 0")
    return number


def _last(reader: Reader, bound: Bound | None, newest: Snapshot) -> Snapshot:
    """Return the last snapshot of a range, but none after ``newest``."""
    if bound is None:
        return newest
    number = _number(reader, bound)
    if number is None:
        found = reader.snapshots.at_time(instant(bound), until=True)
        return newest if found.id > newest.id else found
    if number > newest.id:
        raise NotFoundError(f"No snapshot found at version {number}", hint=f"the newest is {newest.id}")
    return newest if number == newest.id else reader.snapshots.at_version(number)
