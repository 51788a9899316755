"""What the rows of ``ducklake_column`` tell about the past of a table's nested columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

__all__ = ["last_reshape"]

#: Of each row: column, parent, name, begin and end.
HistoryRow = tuple[Any, ...]


def last_reshape(rows: Iterable[HistoryRow], snapshot_id: int) -> int | None:
    """The last snapshot up to ``snapshot_id`` at which a column got, lost or renamed a field inside it, or None.

    Rows of columns that are gone as a whole, or of fields that only changed their type, do not count.
    """
    lives: dict[int, list[tuple[int, int | None, str]]] = {}
    parents: dict[int, int | None] = {}
    for column_id, parent, name, begin, end in rows:
        ended = end if end is not None and end <= snapshot_id else None
        lives.setdefault(column_id, []).append((begin, ended, name))
        parents[column_id] = parent
    for life in lives.values():
        life.sort(key=lambda row: row[0])
    found: list[int] = []
    for column_id, life in lives.items():
        top = _top(column_id, parents)
        if top == column_id or top not in lives or lives[top][-1][1] is not None:
            continue
        if life[0][0] > lives[top][0][0]:
            found.append(life[0][0])
        found += [later[0] for earlier, later in itertools.pairwise(life) if earlier[2] != later[2]]
        last = life[-1][1]
        if last is not None:
            found.append(last)
    return max(found, default=None)


def _top(column_id: int, parents: dict[int, int | None]) -> int | None:
    """The column of the table that a node belongs to; None in a catalog whose parents go round in a circle."""
    for _ in range(len(parents) + 1):
        parent = parents.get(column_id)
        if parent is None:
            return column_id
        column_id = parent
    return None
