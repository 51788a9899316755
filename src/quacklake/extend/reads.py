"""A table at one snapshot as a plan: its data files, the rows deleted in them, and the rows in the catalog.

An engine asks for a plan with ``plan_read``, opens each file with ``open_file``, leaves out the positions of
``find_deleted``, and gives the others the columns of today with ``schemas.conform``. What it cannot read by itself,
such as the rows in the catalog, comes from ``read_part``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.engines.duckdb.engine import check_filter
from quacklake.core.format.objects import TableInfo
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.reference import TableRef
from quacklake.core.scan import ScanPlan, to_predicate
from quacklake.core.transaction import Transaction, touched_files
from quacklake.extend.schemas import TableSchema
from quacklake.lake.lake import Lake, LakeAt, LakeTransaction

__all__ = [
    "PLACES",
    "PlannedFile",
    "ReadPlan",
    "Source",
    "find_deleted",
    "open_file",
    "plan_read",
    "read_part",
]

Source: TypeAlias = Lake | LakeAt | LakeTransaction
"""A state that can be read: a lake at its newest snapshot, at a past one (``lake.at``), or an open transaction."""

PLACES = pa.schema([("_ql_file_id", pa.int64()), ("_ql_version", pa.int64()), ("_ql_position", pa.int64())])
"""The place of a row: its position in a data file, counted from 0, or else in a version of the rows in the catalog."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A Parquet file of a plan.

    ``url`` is an absolute path or the address in an object store. ``has_deletes`` says that ``find_deleted`` has
    positions to leave out. A file that is ``plain`` has column ids, and shows all rows but those. Others are encrypted,
    came from elsewhere without ids, or hold rows of later snapshots: leave them to ``read_part``.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake:
    ...     (file,) = plan_read(lake, "events").files
    ...     file.rows, file.has_deletes, file.plain
    (5, True, True)
    """

    id: int
    url: str
    rows: int
    size_bytes: int
    has_deletes: bool
    plain: bool


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A table at one snapshot, less the files that a filter rules out.

    ``schema`` has all columns of the table. ``catalog_rows`` is the number of rows that are in no file but in the
    catalog. ``where`` is the filter of the plan: the rows of its files still have to pass it.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake:
    ...     plan = plan_read(lake, "events", where="id > 3")
    ...     plan.table, plan.schema.names, len(plan.files), plan.catalog_rows
    ('main.events', ('id', 'name'), 1, 2)
    """

    table: str
    snapshot: int
    schema: TableSchema
    files: tuple[PlannedFile, ...]
    catalog_rows: int
    where: str | pc.Expression | None
    _plan: ScanPlan = field(repr=False, compare=False)
    _context: LakeContext = field(repr=False, compare=False)

    @property
    def pieces(self) -> tuple[PlannedFile | None, ...]:
        """The parts that can be read beside each other: the files, then ``None`` for the rows in the catalog if any."""
        return (*self.files, None) if self.catalog_rows else self.files


def plan_read(source: Source, table: str, where: str | pc.Expression | None = None) -> ReadPlan:
    """Return the plan of a table, without the files that hold no row of a filter: SQL or a ``pyarrow`` expression.

    Raise ``NotFoundError`` for a table that is not there, ``PredicateError`` for a filter that cannot be used, and
    ``NotPermittedError`` for the lake of a principal, whose rows are read through the lake itself.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake:
    ...     before, now = plan_read(lake.at(version=2), "events"), plan_read(lake, "events")
    ...     (before.snapshot, before.catalog_rows), (now.snapshot, now.catalog_rows)
    ((2, 0), (4, 2))
    """
    source.handle.check_whole("the files of a table")
    tx = source.handle.view()
    return plan_in(tx, source.handle.context, find_table(tx, table), where)


def plan_in(tx: Transaction, context: LakeContext, table: TableInfo, where: str | pc.Expression | None) -> ReadPlan:
    """Return the plan of a table as a transaction sees it."""
    if isinstance(where, str):
        check_filter(where)
    plan = tx.plan(table, to_predicate(where, table.schema))
    return ReadPlan(
        table=table.qualified_name,
        snapshot=plan.snapshot_id,
        schema=plan.schema,
        files=_planned_files(plan, context),
        catalog_rows=0 if plan.inlined is None else plan.inlined.num_rows,
        where=where,
        _plan=plan,
        _context=context,
    )


def find_table(tx: Transaction, table: str) -> TableInfo:
    """Return a table by the name that users write. Raise ``NotFoundError``."""
    ref = TableRef.parse(table)
    return tx.find_table(ref.schema, ref.name)


def _planned_files(plan: ScanPlan, context: LakeContext) -> tuple[PlannedFile, ...]:
    names = ("data_file_id", "path", "record_count", "file_size_bytes", "encryption_key", "delete_encryption_key")
    ids, paths, rows, sizes, *keys = (plan.files.column(name).to_pylist() for name in names)
    urls = context.store.readable_urls(paths)
    return tuple(
        PlannedFile(id_, url, count, size, deletes, not partial and mapping is None and secret == (None, None))
        for id_, url, count, size, secret, (deletes, partial, mapping) in zip(
            ids, urls, rows, sizes, zip(*keys, strict=True), plan.kinds, strict=True
        )
    )


def open_file(plan: ReadPlan, file: PlannedFile) -> pa.NativeFile:
    """Return a file of a plan, open for reading at any position, from every kind of store; the caller closes it.

    Raise ``CorruptFileError`` if it is gone, and ``PathError`` if a link leads out of the lake.

    >>> import pyarrow.parquet as pq
    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake:
    ...     plan = plan_read(lake, "events")
    ...     with open_file(plan, plan.files[0]) as opened:
    ...         pq.read_table(opened).column("id").to_pylist()
    [0, 1, 2, 3, 4]
    """
    (path,) = plan._plan.of_files([file.id]).files.column("path").to_pylist()
    return plan._context.store.open_input(path)


def find_deleted(plan: ReadPlan, file: PlannedFile) -> pa.Int64Array:
    """Return the positions in a file of the rows that are deleted at the snapshot, in order and each once.

    They come from delete files of either kind, Parquet or deletion vectors, and from the catalog.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake:
    ...     plan = plan_read(lake, "events")
    ...     find_deleted(plan, plan.files[0]).to_pylist()
    [1]
    """
    part = plan._plan.of_files([file.id])
    found = [part.deletes.column("row_id")]
    touched = touched_files(part, {file.id})[file.id]
    if touched.delete_path is not None:
        found.append(plan._context.writer.deleted_positions(touched, plan.snapshot))
    chunks = [chunk for column in found for chunk in column.chunks]
    positions = pa.chunked_array(chunks, pa.int64()).combine_chunks()
    return pc.take(positions, pc.array_sort_indices(positions)) if len(found) == 1 else pc.unique(positions).sort()


def read_part(
    plan: ReadPlan, part: PlannedFile | None, columns: Sequence[str] | None = None, *, places: bool = False
) -> pa.RecordBatchReader:
    """Return the rows of a file, or of the catalog (``None``), in the columns of the table, without deleted ones.

    The core reads them, whatever they are: this is for what an engine does not read by itself. With ``places``, the
    columns of ``PLACES`` come after the others.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake:
    ...     plan = plan_read(lake, "events")
    ...     read_part(plan, None, ["name"]).read_all().to_pydict()
    ...     read_part(plan, plan.files[0], ["id"], places=True).read_all().column("_ql_position").to_pylist()
    {'name': ['few', 'more']}
    [0, 2, 3, 4]
    """
    chosen = plan._plan.of_files([] if part is None else [part.id])
    if part is None:
        chosen = replace(chosen, inlined=plan._plan.inlined)
    names = plan.schema.names if columns is None else tuple(columns)
    reader = plan._context.engine.scan(chosen, columns=names, places=places).reader
    own = pa.schema([plan.schema.find(name).arrow_field() for name in names])
    schema = pa.schema([*own, *PLACES]) if places else own
    wanted = [*range(len(names)), *(reader.schema.get_field_index(name) for name in PLACES.names if places)]

    def select(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([batch.column(place) for place in wanted], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, map(select, reader)) if wanted else reader
