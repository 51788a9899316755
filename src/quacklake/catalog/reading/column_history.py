"""The past of a table's nested columns, from the rows of ``ducklake_column``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from quacklake.errors import CatalogError
from quacklake.format.schema import Column, ColumnRow, Past, TableSchema, unflatten

#: Of each row: column, parent, name, begin and end.
HistoryRow = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Reshaped:
    """The snapshot at which fields inside nested columns last came, went or were renamed.

    ``changed`` means that some did so without their column.
    """

    at: int | None = None
    changed: bool = False


def last_reshape(rows: Iterable[HistoryRow], snapshot_id: int) -> Reshaped:
    """Return what happened up to ``snapshot_id`` to the fields of columns that are still there.

    Fields that only changed their type do not count. What came into being with its column does: a file of that very
    snapshot may have been written before the fields got the names they have in the catalog.
    """
    lives: dict[int, list[tuple[int, int | None, str]]] = {}
    parents: dict[int, int | None] = {}
    for column_id, parent, name, begin, end in rows:
        ended = end if end is not None and end <= snapshot_id else None
        lives.setdefault(column_id, []).append((begin, ended, name))
        parents[column_id] = parent
    for life in lives.values():
        life.sort(key=lambda row: row[0])
    made: list[int] = []
    changed: list[int] = []
    for column_id, life in lives.items():
        top = _top(column_id, parents)
        if top == column_id or top not in lives or lives[top][-1][1] is not None:
            continue
        first, last = life[0][0], life[-1][1]
        (changed if first > lives[top][0][0] else made).append(first)
        # a field that was dropped for a while is missing in the files of that time
        changed += [b[0] for a, b in itertools.pairwise(life) if (a[1], a[2]) != (b[0], b[2])]
        changed += [] if last is None else [last]
    return Reshaped(max([*made, *changed], default=None), bool(changed))


def past_columns(rows: Sequence[tuple[ColumnRow, int, int | None]]) -> Past:
    """Return the columns of a table at each snapshot that changed them; of each row its begin and end.

    What expired snapshots have taken with them is missing; columns that are no longer whole are left out.
    """
    past: list[tuple[int, TableSchema]] = []
    for time in sorted({begin for _, begin, _ in rows} | {end for _, _, end in rows if end is not None}):
        there = [row for row, begin, end in rows if begin <= time and (end is None or end > time)]
        schema = TableSchema(tuple(_whole_columns(there)))
        if not past or past[-1][1] != schema:
            past.append((time, schema))
    return tuple(past)


def _whole_columns(rows: Sequence[ColumnRow]) -> Iterator[Column]:
    parents: dict[int, int | None] = {row.column_id: row.parent_column for row in rows}
    trees: dict[int | None, list[ColumnRow]] = {}
    for row in rows:
        trees.setdefault(_top(row.column_id, parents), []).append(row)
    for tree in trees.values():
        with suppress(CatalogError):
            yield from unflatten(tree).columns


def _top(column_id: int, parents: dict[int, int | None]) -> int | None:
    """Return the column of the table that a node belongs to; None in a catalog whose parents go round in a circle."""
    for _ in range(len(parents) + 1):
        parent = parents.get(column_id)
        if parent is None:
            return column_id
        column_id = parent
    return None
