"""Parts of tables and feeds that tasks read apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from quacklake.extend.plans import FeedPlan, ScanPlan

SLICE_BYTES = 128 << 20
"""About how much of files one part has."""


def slices(plan: FeedPlan, *, deletes: bool = True) -> list[FeedPlan]:
    """Return the parts of a feed; without ``deletes`` those that only take rows away are left out.

    Rows of one update may come from one file and go from another: where there are updates, all that may be part of one
    is one part.
    """
    tangled = plan.tangled
    files = plan.rows.files
    apart: list[tuple[int, int]] = []
    for id_, begin, last, bytes_ in _rows(files, "data_file_id", "begin_snapshot", "partial_max", "file_size_bytes"):
        comes = (begin if last is None else last) >= plan.since
        if id_ not in tangled and (comes or deletes):
            apart.append((id_, bytes_ or 0))
    parts = [plan.of_files(ids, inlined=False) for ids in _pack_files(apart)]
    came, went = (0 if rows is None else rows.num_rows for rows in (plan.inserted, plan.deleted))
    if tangled or came or (went and deletes):
        parts.append(plan.of_files(sorted(tangled), inlined=True))
    return parts


def state_slices(plan: ScanPlan) -> list[ScanPlan]:
    """Return the parts of a table."""
    sizes = [(id_, bytes_ or 0) for id_, bytes_ in _rows(plan.files, "data_file_id", "file_size_bytes")]
    parts = [plan.of_files(ids) for ids in _pack_files(sizes)]
    if plan.inlined is not None and plan.inlined.num_rows:
        parts.append(replace(plan, files=plan.files.slice(0, 0), deletes=plan.deletes.slice(0, 0)))
    return parts


def _rows(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)


def _pack_files(files: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    group: list[int] = []
    total = 0
    for id_, bytes_ in files:
        if group and total + bytes_ > SLICE_BYTES:
            yield group
            group, total = [], 0
        group.append(id_)
        total += bytes_
    if group:
        yield group
