"""DELETE in tasks that read whole files: each writes the delete files of the files it has read.

DuckDB finds the rows, by the filter as the user wrote it. Delete files are written in Python anyway, so that rows need
not pass from Spark to Python, and one job without a shuffle does all of it. The driver gets a summary of each file.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.engines.duckdb import DuckDBEngine, FileWriter, Vectors
from quacklake.core.engines.duckdb.finding import matching
from quacklake.core.transaction import NewDeleteFile, positions_by_file, touched_files
from quacklake.errors import InputError
from quacklake.spark.read.slices import SLICE_BYTES

if TYPE_CHECKING:
    from quacklake.extend.plans import ScanPlan
    from quacklake.extend.schemas import TableInfo
    from quacklake.extend.stores import Store
    from quacklake.spark.expressions.translator import Filter


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """The rows that a task has found in a file: their number, and their places unless the whole file is gone.

    The places are in a delete file, or positions for the driver when they are few.
    """

    file_id: int
    count: int
    file: NewDeleteFile | None = None
    positions: pa.Array | None = None


@dataclass(frozen=True, repr=False)
class DeleteTask:
    """Deletes the rows of some files that match a filter; may run twice, which leaves files that nothing refers to.

    ``begins`` are the snapshots at which delete files began, by data file. Up to ``limit`` deletes are returned instead
    of written.
    """

    store: Store
    table: TableInfo
    plan: ScanPlan
    where: Filter
    begins: Mapping[int, int | None]
    snapshot: int
    vectors: Vectors
    limit: int
    encrypted: bool

    def __call__(self) -> list[DeletedRows] | InputError:
        """Return what was found in each file with such rows, or the error of a filter that fails."""
        try:
            with closing(DuckDBEngine(self.store, threads=1, reuse=not self.encrypted)) as engine:
                found = positions_by_file(self._matching(engine))
        except InputError as error:  # running the task again would not help
            return error
        touched, writer = touched_files(self.plan, set(found)), FileWriter(self.store, encrypted=self.encrypted)
        count = 0
        rows: dict[int, pa.Table] = {}
        done: list[DeletedRows] = []
        for id_, positions in found.items():
            dated = writer.dated_deletes(touched[id_], positions, self.snapshot, self.begins.get(id_))
            new = pc.equal(dated.column(1), self.snapshot + 1)
            added = pc.sum(new, min_count=0).as_py()
            if not added:
                continue
            if touched[id_].live == added:
                done.append(DeletedRows(id_, added))
                continue
            count, rows[id_] = count + added, dated
            done.append(DeletedRows(id_, added, positions=dated.filter(new).column(0).combine_chunks()))
        if count <= self.limit:
            return done
        begun: list[str] = []
        facts = (begun.append, self.snapshot)
        try:
            return [
                each
                if each.positions is None
                else DeletedRows(
                    each.file_id,
                    each.count,
                    writer.write_dated(
                        self.table,
                        each.file_id,
                        touched[each.file_id],
                        rows[each.file_id],
                        *facts,
                        self.begins.get(each.file_id),
                        vectors=self.vectors,
                    ),
                )
                for each in done
            ]
        except BaseException:
            self.store.delete(begun)
            raise

    def _matching(self, engine: DuckDBEngine) -> pa.Table:
        """Return the places of matching rows; those in delete files may be among them.

        Most often a filter is computed for deleted rows too, which takes less time than to leave them out. Then it may
        fail for one of them, and is computed again without them.
        """
        files = self.plan.files
        if files.column("delete_path").null_count == files.num_rows:
            return matching(engine, self.plan, self.where).positions
        for name in [name for name in files.column_names if name.startswith("delete_")]:
            index, field = files.schema.get_field_index(name), files.schema.field(name)
            files = files.set_column(index, field, pa.nulls(files.num_rows, field.type))
        try:
            return matching(engine, replace(self.plan, files=files), self.where).positions
        except InputError:
            return matching(engine, self.plan, self.where).positions


def shared_out(sizes: Iterable[tuple[int, int]], tasks: int) -> list[list[int]]:
    """Return files, given as ids and sizes, in about equal parts: one for each task, or more if there is much to read.

    A task that reads several parts holds the rows of one at a time.
    """
    files = sorted(sizes, key=lambda each: each[1], reverse=True)
    count = min(len(files), max(tasks, -(-sum(size for _, size in files) // SLICE_BYTES)))
    parts: Sequence[list[int]] = [[] for _ in range(count)]
    filled = [(0, number) for number in range(count)]
    for id_, size in files:
        total, number = heapq.heappop(filled)
        parts[number].append(id_)
        heapq.heappush(filled, (total + size, number))
    return list(parts)
