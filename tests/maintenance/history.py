"""A lake's rows, row ids and change feed at every snapshot: what no compaction may change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import quacklake

__all__ = ["Past", "past", "rows"]

Row = tuple[Any, ...]


def rows(first: int, count: int, name: str = "n") -> pa.Table:
    """Rows (id, name, part)."""
    ids = range(first, first + count)
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "name": [f"{name}{i}" for i in ids], "part": [i % 3 for i in ids]}
    )


@dataclass(frozen=True)
class Past:
    """A table at every snapshot up to one, and the changes of each."""

    states: dict[int, list[Row]]
    feed: list[Row]


def past(lake: quacklake.Lake, name: str = "t", until: int | None = None) -> Past:
    """Return a table as it was at every snapshot, and its change feed."""
    last = lake.current_snapshot() if until is None else until
    states = {}
    for version in range(1, last + 1):
        view = lake.at(version=version)
        if f"main.{name}" in view.tables():
            states[version] = _sorted(view.table(name).scan(row_ids=True).to_arrow())
    first = min(states)
    return Past(states, _sorted(lake.table(name).changes(first, last).to_arrow()))


def _sorted(found: pa.Table) -> list[Row]:
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)
