"""A lake as a source of dlt."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import dlt
import pyarrow as pa
import pyarrow.compute as pc
from dlt.extract.resource import DltResource

import quacklake
from quacklake import Lake

DELETED, ORDER = "_deleted", "_order"
"""The columns that say that a row was deleted, and which change of a row is the last."""
_FEED = ("snapshot_id", "rowid", "change_type")
_SNAPSHOT = "snapshot"


def lake_table(
    lake: str | Lake,
    name: str,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    key: str | Sequence[str] | None = None,
    **settings: Any,
) -> DltResource:
    """Return the rows of a table as a resource of dlt, read in Arrow batches at one snapshot.

    Without a ``key``, each run replaces what the run before has loaded. With one, runs after the first yield only what
    snapshots have changed since, and the resource merges it: changed rows replace those with the same key, deleted rows
    are removed. ``settings`` are those of ``quacklake.connect``.
    """
    resource = name.rpartition(".")[2]
    if key is None:
        return dlt.resource(_rows, name=resource, write_disposition="replace")(lake, name, columns, where, settings)
    keys = [key] if isinstance(key, str) else list(key)
    chosen = None if columns is None else list(dict.fromkeys([*columns, *keys]))
    hints: Any = {DELETED: {"hard_delete": True}, ORDER: {"dedup_sort": "desc"}}
    followed = dlt.resource(_changes, name=resource, write_disposition="merge", primary_key=keys, columns=hints)
    return followed(lake, name, chosen, where, settings)


def _rows(
    lake: str | Lake, name: str, columns: Sequence[str] | None, where: str | None, settings: dict[str, Any]
) -> Iterator[pa.Table]:
    with _opened(lake, settings) as opened:
        table = opened.at(opened.current_snapshot()).table(name)
        for batch in table.to_batches(columns=columns, where=where):
            yield pa.Table.from_batches([batch])


def _changes(
    lake: str | Lake, name: str, columns: Sequence[str] | None, where: str | None, settings: dict[str, Any]
) -> Iterator[pa.Table]:
    position = dlt.current.resource_state()
    with _opened(lake, settings) as opened:
        now, last = opened.current_snapshot(), position.get(_SNAPSHOT)
        wanted = list(columns or opened.at(now).table(name).columns)
        if taken := sorted({column.lower() for column in wanted} & {*_FEED, DELETED, ORDER}):
            raise ValueError(f"{name} cannot be followed: changes have columns {', '.join(taken)} of their own")
        if last is None:
            for batch in opened.at(now).table(name).to_batches(columns=wanted, where=where):
                rows = pa.Table.from_batches([batch])
                yield _marked(rows, pa.nulls(rows.num_rows, pa.string()), pa.nulls(rows.num_rows, pa.int64()))
        elif now > last:
            feed = opened.table(name).changes(since=last + 1, until=now)
            for batch in (feed if where is None else feed.where(where)).to_batches():
                rows = pa.Table.from_batches([batch])
                yield _marked(rows.select(wanted), rows["change_type"], rows["snapshot_id"])
        position[_SNAPSHOT] = now if last is None else max(now, last)


def _marked(rows: pa.Table, kinds: Any, snapshots: Any) -> pa.Table:
    """Add what a merge asks for. What was before an update counts as deleted, unless a later row has the same key."""
    gone = pc.fill_null(pc.is_in(kinds, pa.array(["delete", "update_preimage"])), False)
    order = pc.add(pc.multiply(pc.fill_null(snapshots, 0), 2), pc.cast(pc.invert(gone), pa.int64()))
    return rows.append_column(DELETED, gone).append_column(ORDER, order)


@contextlib.contextmanager
def _opened(lake: str | Lake, settings: dict[str, Any]) -> Iterator[Lake]:
    if isinstance(lake, Lake):
        yield lake
        return
    with quacklake.connect(lake, **settings) as opened:
        yield opened
