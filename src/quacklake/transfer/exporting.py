"""Write the tables of one snapshot to a folder, a database or tables of another format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from quacklake import Lake, LakeAt
from quacklake.errors import InputError, NotFoundError, UnsupportedFeatureError
from quacklake.extend.names import TableRef, quote
from quacklake.extend.reporting import Progress, silent
from quacklake.lake.transfers import ExportReport, TransferredTable
from quacklake.transfer.tables import Selection, sql_name
from quacklake.transfer.targets import ExportedTable, ExportTarget, View, open_target

_AS_TEXT = ("interval", "timetz", "uint128")
"""Types of columns whose values Arrow does not carry whole; they are read as texts, which a target turns back."""


def export_to(
    lake: Lake | LakeAt,
    target: str,
    tables: Sequence[str] | str = (),
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    partition_by: Sequence[str] | str = (),
    replace: bool = False,
    options: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    progress: Progress = silent,
) -> ExportReport:
    """Write tables of a lake to a target; see ``LakeReader.export_to``."""
    at = lake if isinstance(lake, LakeAt) else lake.at(lake.current_snapshot())
    names = [tables] if isinstance(tables, str) else list(tables)
    chosen = _choose_tables(at, names, Selection(tuple(include), tuple(exclude)))
    keys = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    for table in chosen:
        for key in keys:
            table.columns.find(key)
    if not chosen:
        raise InputError("no table is to be exported", hint="check the patterns of include and exclude")
    views = [] if names else _views(at, Selection(tuple(include), tuple(exclude)))
    opened = open_target(at, target, partition_by=keys, replace=replace, options=options or {}, single=len(names) == 1)
    try:
        for table in chosen:
            opened.check(table)
        if dry_run:
            rehearsed = tuple(_rehearse(at, table) for table in chosen)
            opened.abort()
            return ExportReport(
                opened.place,
                at.snapshot_id,
                rehearsed,
                tuple(f"{schema}.{name}" for schema, name, *_ in views),
                (),
                True,
            )
        before = opened.begin(at.snapshot_id, chosen)
        written = [0 if table in before else _write(at, opened, table, progress) for table in chosen]
        shown, left = opened.views(views)
        sizes = opened.finish()
    except BaseException:
        opened.abort()
        raise
    done = tuple(
        TransferredTable(
            table.qualified_name,
            rows,
            at.table(table.sql_name).count() if table in before else 0,
            sizes.get(table.qualified_name),
            "exported",
        )
        for table, rows in zip(chosen, written, strict=True)
    )
    changed = [part for table in chosen for part in opened.left_out(table)]
    return ExportReport(opened.place, at.snapshot_id, done, tuple(shown), (*changed, *left), False)


def _choose_tables(at: LakeAt, names: Sequence[str], wanted: Selection) -> list[ExportedTable]:
    refs = [TableRef.parse(name) for name in names]
    found = []
    for info in at.handle.view().tables():
        if refs and not any(ref.schema == info.schema_name and ref.name == info.name for ref in refs):
            continue
        if wanted.has(info.schema_name, info.name):
            held = at.table(sql_name(info.schema_name, info.name))
            found.append(
                ExportedTable(
                    info.schema_name,
                    info.name,
                    info.schema,
                    held.comment,
                    held.column_comments,
                    held.primary_key,
                    info.uuid,
                )
            )
    for ref in refs:
        if not any((table.schema, table.name) == (ref.schema, ref.name) for table in found):
            raise NotFoundError(f"there is no table {ref.schema}.{ref.name}", hint="quacklake tables lists them")
    for table in found:
        _check(table)
    return found


def _check(table: ExportedTable) -> None:
    """Raise ``UnsupportedFeatureError`` for values that cannot leave a lake unchanged."""
    for column in table.columns.columns:
        kinds = {leaf.type for leaf in column.leaves()}
        if "variant" in kinds or (column.nested and kinds.intersection(_AS_TEXT)):
            raise UnsupportedFeatureError(
                f'the column "{column.name}" of {table.qualified_name} is {column.duckdb_type()}: not exported',
                hint="leave the table out with exclude, or export a table without the column",
            )


def _views(at: LakeAt, wanted: Selection) -> list[View]:
    found = at.handle.view().objects.views()
    return [
        (view.schema_name, view.name, view.sql, view.aliases)
        for view in found
        if wanted.has(view.schema_name, view.name)
    ]


def _rehearse(at: LakeAt, table: ExportedTable) -> TransferredTable:
    return TransferredTable(table.qualified_name, at.table(table.sql_name).count(), 0, None, "would be exported")


def _write(at: LakeAt, target: ExportTarget, table: ExportedTable, progress: Progress) -> int:
    """Write the rows of a table and return how many."""
    label, rows = f"exporting {table.qualified_name}", 0
    total = at.table(table.sql_name).plan().count()
    progress(label, 0, total)
    reader = _reader(at, table)

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in reader:
            yield batch
            rows += batch.num_rows
            progress(label, rows, total)

    target.write(table, pa.RecordBatchReader.from_batches(reader.schema, counted()))
    return rows


def _reader(at: LakeAt, table: ExportedTable) -> pa.RecordBatchReader:
    """Return the rows; what Arrow does not carry whole comes as text."""
    if not any(column.type in _AS_TEXT for column in table.columns.columns):
        return at.table(table.sql_name).scan().to_reader()
    values = (
        f"CAST({quote(column.name)} AS VARCHAR) AS {quote(column.name)}"
        if column.type in _AS_TEXT
        else quote(column.name)
        for column in table.columns.columns
    )
    return at.sql(f"SELECT {', '.join(values)} FROM {table.sql_name}").to_reader()
