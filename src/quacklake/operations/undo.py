"""Reports of restores, and the choice and check of the files that take part."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.catalog import Catalog
from quacklake.errors import SnapshotExpiredError
from quacklake.scan import ScanPlan
from quacklake.storage import Store

_THREADS = 16


@dataclass(frozen=True, slots=True)
class RestoredTable:
    """Result of a restore for one table. ``kept_types`` lists columns that keep a wider type than they had."""

    table: str
    inserted: int = 0
    deleted: int = 0
    altered: bool = False
    kept_types: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """True when anything changed."""
        return bool(self.inserted or self.deleted or self.altered)


@dataclass(frozen=True, slots=True)
class UndoReport:
    """Report of a restore, an undrop or a rollback, or of its dry run.

    ``version`` is the restored snapshot, ``snapshot`` the new one: None when there was nothing to change, after a dry
    run, and in an open transaction. ``objects`` covers schemas, views and macros.
    """

    operation: str
    version: int
    snapshot: int | None = None
    restored: tuple[RestoredTable, ...] = ()
    dropped: tuple[str, ...] = ()
    undropped: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def inserted(self) -> int:
        """The number of restored rows."""
        return sum(table.inserted for table in self.restored)

    @property
    def deleted(self) -> int:
        """The number of removed rows."""
        return sum(table.deleted for table in self.restored)


def unchanged_files(now: ScanPlan, past: ScanPlan) -> set[int]:
    """Return the data files with exactly the same rows in both plans, as far as the metadata can tell.

    A file with a delete file is never included, because it may hold deletes of any snapshot.
    """
    both = _plain(now, past.snapshot_id) & _plain(past, past.snapshot_id)
    return {id_ for id_ in both if now.deleted_counts.get(id_) == past.deleted_counts.get(id_)}


def _plain(plan: ScanPlan, version: int) -> set[int]:
    files = plan.files
    whole = pc.fill_null(pc.less_equal(files.column("partial_max"), version), True)
    chosen = pc.and_(whole, pc.is_null(files.column("delete_path")))
    return set(files.column("data_file_id").filter(chosen).to_pylist())


def newer_files(plan: ScanPlan, version: int) -> set[int]:
    """Return the data files added after a snapshot, also by an open transaction; all their rows are newer."""
    newer = pc.fill_null(pc.greater(plan.files.column("begin_snapshot"), version), True)
    return set(plan.files.column("data_file_id").filter(newer).to_pylist())


def only_files(plan: ScanPlan, ids: Collection[int], *, inlined: bool = True) -> ScanPlan:
    """Return the plan with only these data files, with or without its inlined rows."""
    chosen = pa.array(sorted(ids), pa.int64())
    files = plan.files.filter(pc.is_in(plan.files.column("data_file_id"), value_set=chosen))
    deletes = plan.deletes.filter(pc.is_in(plan.deletes.column("file_id"), value_set=chosen))
    return replace(plan, files=files, deletes=deletes, inlined=plan.inlined if inlined else None)


def check_files(catalog: Catalog, store: Store, plan: ScanPlan) -> None:
    """Raise ``SnapshotExpiredError`` unless every data and delete file of a plan exists."""
    data, deletes = _pairs(plan, "data_file_id", "path"), _pairs(plan, "delete_file_id", "delete_path")
    wanted = [*data, *deletes]
    if not wanted:
        return
    with ThreadPoolExecutor(min(_THREADS, len(wanted)), "quacklake-exists") as pool:
        there = list(pool.map(lambda pair: store.exists(pair[1]), wanted))
    lost = [number for number, found in enumerate(there) if not found]
    if not lost:
        return
    with catalog.read() as reader:
        ends = reader.files.ends(
            [wanted[number][0] for number in lost if number < len(data)],
            [wanted[number][0] for number in lost if number >= len(data)],
        )
    known = [end for end in ends if end is not None]
    hint = "the present state needs some of them too: the lake is damaged"
    if len(known) == len(ends) and known:
        hint = f"the oldest version after it that needs none of these is {max(known)}"
    raise SnapshotExpiredError(
        f"{len(lost)} of {len(wanted)} files of {plan.schema_name}.{plan.table_name} that version {plan.snapshot_id}"
        " needs are gone",
        hint=hint,
    )


def _pairs(plan: ScanPlan, id_: str, path: str) -> Sequence[tuple[int, str]]:
    found = zip(plan.files.column(id_).to_pylist(), plan.files.column(path).to_pylist(), strict=True)
    return [(number, text) for number, text in found if text is not None]
