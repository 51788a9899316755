"""A feed in parts that can be read independently, on as many machines as there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.scan.feed import FeedPlan
from quacklake.scan.plan import POSITIONS, ScanPlan

SLICE_BYTES = 128 << 20
"""About how much of files one part has."""


def plain_inserts(plan: FeedPlan) -> tuple[ScanPlan, FeedPlan]:
    """Return what any scan gives as it is: files whose rows were all inserted in the range; and the rest of the feed.

    A file that rows of an update went from belongs to the rest: without it the new values would seem to be inserted.
    """
    first, tangled = plan.first_deletes, _tangled(plan)
    begins, partial = (plan.rows.files.column(name).to_pylist() for name in ("begin_snapshot", "partial_max"))
    ids = plan.rows.files.column("data_file_id").to_pylist()
    plain = [
        last is None
        and begin >= plan.since
        and begin not in plan.compactions
        and id_ not in tangled
        and not first.get(id_, begin + 1) <= begin
        for id_, begin, last in zip(ids, begins, partial, strict=True)
    ]
    chosen = pa.array(plain, pa.bool_())
    inlined = None if plan.updates else plan.inserted
    scan = replace(plan.rows, files=plan.rows.files.filter(chosen), inlined=inlined)
    rest = _of_files(plan, [id_ for id_, one in zip(ids, plain, strict=True) if not one], inlined=bool(plan.updates))
    return scan, rest


def slices(plan: FeedPlan, *, deletes: bool = True) -> list[FeedPlan]:
    """Return the parts of a feed; without ``deletes`` those that only take rows away are left out.

    Rows of one update may come from one file and go from another: where there are updates, all that may be part of one
    is one part.
    """
    tangled = _tangled(plan)
    files = plan.rows.files
    apart: list[tuple[int, int]] = []
    for id_, begin, last, bytes_ in zip(
        *(
            files.column(name).to_pylist()
            for name in ("data_file_id", "begin_snapshot", "partial_max", "file_size_bytes")
        ),
        strict=True,
    ):
        comes = (begin if last is None else last) >= plan.since
        if id_ not in tangled and (comes or deletes):
            apart.append((id_, bytes_ or 0))
    parts = [_of_files(plan, ids, inlined=False) for ids in _packed(apart)]
    came, went = (0 if rows is None else rows.num_rows for rows in (plan.inserted, plan.deleted))
    if tangled or came or (went and deletes):
        parts.append(_of_files(plan, sorted(tangled), inlined=True))
    return parts


def state_slices(plan: ScanPlan) -> list[ScanPlan]:
    """Return the parts of a scan."""
    sizes = zip(*(plan.files.column(name).to_pylist() for name in ("data_file_id", "file_size_bytes")), strict=True)
    parts = []
    for ids in _packed([(id_, bytes_ or 0) for id_, bytes_ in sizes]):
        chosen = pa.array(ids, pa.int64())
        files = plan.files.filter(pc.is_in(plan.files.column("data_file_id"), value_set=chosen))
        gone = plan.deletes.filter(pc.is_in(plan.deletes.column("file_id"), value_set=chosen))
        parts.append(replace(plan, files=files, deletes=gone, inlined=None))
    if plan.inlined is not None and plan.inlined.num_rows:
        parts.append(replace(plan, files=plan.files.slice(0, 0), deletes=POSITIONS.empty_table()))
    return parts


def last_within(files: pa.Table, since: int, until: int, max_files: int | None, max_bytes: int | None) -> int:
    """Return the last snapshot of a range up to which the limits hold; at least that of the first rows.

    ``files`` are those of the range, as ``Reader.changed_files`` gives them. Snapshots are never torn apart.
    """
    if max_files is None and max_bytes is None:
        return until
    sizes: dict[int, list[int]] = {}
    seen: set[int] = set()
    names = ("data_file_id", "begin_snapshot", "partial_max", "file_size_bytes")
    for id_, begin, last, bytes_ in zip(*(files.column(name).to_pylist() for name in names), strict=True):
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


def _packed(files: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """Yield ids in groups of about a size."""
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


def _of_files(plan: FeedPlan, ids: Sequence[int], *, inlined: bool) -> FeedPlan:
    """Return the feed of some files only."""
    chosen = pa.array(ids, pa.int64())

    def of(table: pa.Table, key: str) -> pa.Table:
        return table.filter(pc.is_in(table.column(key), value_set=chosen))

    return replace(
        plan,
        rows=replace(plan.rows, files=of(plan.rows.files, "data_file_id")),
        ended={id_: plan.ended[id_] for id_ in ids if id_ in plan.ended},
        delete_files=of(plan.delete_files, "data_file_id"),
        positions=of(plan.positions, "file_id"),
        inserted=plan.inserted if inlined else None,
        deleted=plan.deleted if inlined else None,
    )


def _tangled(plan: FeedPlan) -> set[int]:
    """Return the files that rows of an update may have come with or gone from."""
    if not plan.updates:
        return set()
    first = plan.first_deletes
    newest = max(plan.updates)
    names = ("data_file_id", "begin_snapshot", "partial_max")
    return {
        id_
        for id_, begin, last in zip(*(plan.rows.files.column(name).to_pylist() for name in names), strict=True)
        if last is not None
        or begin in plan.updates
        or first.get(id_, newest + 1) <= newest
        or plan.ended.get(id_) in plan.updates
    }
