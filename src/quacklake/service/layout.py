"""The layout of a table, as the catalog knows it: bounds of columns, partitions and files. No file is opened."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.catalog.reading.health import file_bounds
from quacklake.core.format.bounds import Comparable, comparable, decode, encode_comparable
from quacklake.core.format.types import StatsKind, scalar
from quacklake.core.scan.plan import column_key, unreadable_key

if TYPE_CHECKING:
    from quacklake.core.format.objects import TableInfo
    from quacklake.core.scan import ScanPlan
    from quacklake.core.transaction import Transaction
    from quacklake.extend.schemas import Column

__all__ = ["Partition", "files", "partitions", "statistics"]

_EXACT = (StatsKind.INTEGER, StatsKind.DATE)
"""Types whose bounds are values of the column, not only bounds."""


def statistics(view: Transaction, table: TableInfo) -> dict[str, Any]:
    """Return the rows of a table, and the bounds and nulls of its columns; nested columns have none."""
    plan = view.plan(table)
    columns = [column for column in table.schema.columns if not column.nested]
    with view.catalog.read() as reader:
        stored = file_bounds(reader, view.base, table.id, [column.id for column in columns])
    whole = plan.count() is not None and not plan.deletes.num_rows
    return {
        "rows": plan.count(),
        "columns": [
            {"name": column.name, "type": column.duckdb_type()}
            | (_bounds(plan, column, stored, whole=whole) if not column.nested else _UNKNOWN)
            for column in table.schema.columns
        ],
    }


_UNKNOWN: dict[str, Any] = {"min": None, "max": None, "nulls": None, "exact": False}


def _bounds(plan: ScanPlan, column: Column, stored: Any, *, whole: bool) -> dict[str, Any]:
    """Return the bounds of a column. ``whole`` tells that every row of every file is one of the snapshot."""
    values: list[Comparable | None] = []
    nulls: int | None = 0
    exact, bounded = whole and scalar(column.type).stats in _EXACT, True
    ids = (plan.files.column(name).to_pylist() for name in ("data_file_id", "record_count"))
    for file_id, rows in zip(*ids, strict=True):
        least, greatest, missing, is_value = stored.get((file_id, column.id), (None, None, None, False))
        nulls = None if nulls is None or missing is None else nulls + missing
        if missing is not None and missing == rows:
            continue  # all of its rows are null
        exact = exact and is_value
        values += [decode(least, column.type), decode(greatest, column.type)]
    if plan.inlined is not None:
        there = plan.inlined.column(column_key(column))
        nulls = None if nulls is None else nulls + there.null_count
        values += [comparable(value, column.type) for value in there.to_pylist() if value is not None]
        if unreadable_key(column) in plan.inlined.column_names:
            values.append(None)
    bounded = None not in values
    known = [value for value in values if value is not None] if bounded else []
    ends: Sequence[Any] = (min(known), max(known)) if known else (None, None)
    least, greatest = (None if end is None else _show_bound(end, column.type) for end in ends)
    return {"min": least, "max": greatest, "nulls": nulls, "exact": bool(exact and bounded)}


def _show_bound(value: Comparable, type: str) -> Any:
    """Return a bound as JSON has it: a number, or the text of any other value."""
    if isinstance(value, bool) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, int) and scalar(type).stats is StatsKind.INTEGER:
        return value
    return str(value) if isinstance(value, Decimal) else encode_comparable(value, type)


@dataclass(frozen=True)
class Partition:
    """The files of a partition, together. ``order`` is its place among the partitions of a table."""

    values: tuple[str | None, ...]
    current: bool
    files: int
    rows: int
    deleted_rows: int
    bytes: int

    @property
    def order(self) -> tuple[str, ...]:
        """The texts by which partitions are sorted: the current layout first, then null, then by value."""
        texts = ("0" if value is None else f"1{value}" for value in self.values)
        return "0" if self.current else "1", *texts

    def shown(self) -> dict[str, Any]:
        """Return the partition as JSON has it."""
        return {
            "values": list(self.values),
            "current": self.current,
            "files": self.files,
            "rows": self.rows,
            "deleted_rows": self.deleted_rows,
            "bytes": self.bytes,
        }


def partitions(view: Transaction, table: TableInfo) -> list[Partition]:
    """Return the partitions of a table in their order. Files without partition values are one of their own."""
    sums: dict[tuple[bool, tuple[str | None, ...]], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for row in _rows(view, table, -1, None)[0]:
        values = tuple(row["partition"])
        total = sums[(_is_current(table, row["partition_id"]), values)]
        for place, amount in enumerate((1, row["rows"], row["deleted_rows"], row["bytes"])):
            total[place] += amount
    found = [Partition(values, current, *total) for (current, values), total in sums.items()]
    return sorted(found, key=lambda each: each.order)


def _is_current(table: TableInfo, partition_id: int | None) -> bool:
    return (None if table.partition is None else table.partition.id) == partition_id


def files(view: Transaction, table: TableInfo, after: int, most: int) -> tuple[list[dict[str, Any]], bool]:
    """Return the files after an id, by id, at most so many, and whether there are more."""
    rows, more = _rows(view, table, after, most)
    with view.catalog.read() as reader:
        times = reader.snapshots.times({row["begin_snapshot"] for row in rows})
    root = view.store.root
    return [
        {
            "data_file_id": row["data_file_id"],
            "path": str(row["path"]).removeprefix(root).lstrip("/"),
            "record_count": row["rows"],
            "deleted_rows": row["deleted_rows"],
            "file_size_bytes": row["bytes"],
            "begin_snapshot": row["begin_snapshot"],
            "added": times.get(row["begin_snapshot"]),
            "partition": row["partition"],
            "current_partitioning": _is_current(table, row["partition_id"]),
        }
        for row in rows
    ], more


_NAMES = ("data_file_id", "path", "record_count", "file_size_bytes", "begin_snapshot", "partition_id", "delete_count")


def _rows(view: Transaction, table: TableInfo, after: int, most: int | None) -> tuple[list[dict[str, Any]], bool]:
    """Return files with their deletes and partition values, by id, and whether there are more."""
    plan = view.plan(table)
    chosen: pa.Table = plan.files.select(list(_NAMES)).sort_by("data_file_id")
    chosen = chosen.filter(pc.greater(chosen.column("data_file_id"), after))
    page = chosen if most is None else chosen.slice(0, most)
    found: list[dict[str, Any]] = page.to_pylist()
    parted = [row["data_file_id"] for row in found if row["partition_id"] is not None]
    values: dict[int, dict[int, str | None]] = {}
    if parted:
        with view.catalog.read() as reader:
            values = reader.files.partition_values(table.id, parted)
    deleted = plan.deleted_counts
    for row in found:
        own = values.get(row["data_file_id"], {})
        row["partition"] = [own[index] for index in sorted(own)]
        row["rows"], row["bytes"] = row.pop("record_count"), row.pop("file_size_bytes")
        row["deleted_rows"] = (row.pop("delete_count") or 0) + deleted.get(row["data_file_id"], 0)
    return found, page.num_rows < chosen.num_rows
