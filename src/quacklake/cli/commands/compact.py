"""``quacklake compact``: merge many small files into a few large ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from quacklake.cli.completion import complete_table
from quacklake.cli.context import Context
from quacklake.cli.options import names_of
from quacklake.cli.output import plural
from quacklake.cli.progress import stages
from quacklake.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from quacklake.lake.lake import Lake
    from quacklake.maintenance.reports import CompactionReport
    from quacklake.progress import Progress


def compact(
    context: Context,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE", help="table or schema.table; every table without it", autocompletion=complete_table
        ),
    ] = None,
    delete_threshold: Annotated[
        float | None,
        typer.Option("--delete-threshold", metavar="SHARE", help="Rewrite files that lost this share of their rows."),
    ] = None,
    order_by: Annotated[
        str | None,
        typer.Option("--order-by", metavar="NAMES", help="Write all files of the table anew, sorted by these columns."),
    ] = None,
    zorder: Annotated[
        str | None,
        typer.Option("--zorder", metavar="NAMES", help="The same, along a curve that is near in all of these columns."),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="FILTER", help="Only files of the table that may have rows like these."),
    ] = None,
) -> None:
    """It runs beside writers. Older snapshots keep the files they have; `quacklake cleanup` removes them later."""
    if delete_threshold is not None and not 0 <= delete_threshold <= 1:
        raise InputError(f"--delete-threshold is between 0 and 1, not {delete_threshold}")  # before anything is changed
    with context.open(write=True) as lake, stages() as progress:
        if order_by or zorder:
            reports = [_optimize(lake, table, names_of(order_by), names_of(zorder), where, progress)]
        else:
            reports = _compact(lake, table, delete_threshold, where, progress)
    if not context.output.for_people:
        context.output.rows(_rows(reports))
        return
    for report in reports:
        context.output.say(_sentence(report))
        for skipped in report.skipped:
            context.output.say(f"  left alone: {skipped.what}: {skipped.reason}")
    if not reports:
        context.output.say("there was nothing to do")


def _optimize(
    lake: Lake,
    table: str | None,
    order_by: list[str] | None,
    zorder: list[str] | None,
    where: str | None,
    progress: Progress,
) -> CompactionReport:
    if table is None:
        raise InputError("--order-by and --zorder need a table")
    return lake.table(table).optimize(order_by=order_by, zorder=zorder, where=where, progress=progress)


def _compact(
    lake: Lake, name: str | None, share: float | None, where: str | None, progress: Progress
) -> list[CompactionReport]:
    """Return the reports of the operations that found something to do."""
    if where is not None and name is None:
        raise InputError("--where needs a table")
    if name is not None:
        table = lake.table(name)
        reports = [
            table.flush_inlined_data(progress=progress),
            table.merge_adjacent_files(where=where, progress=progress),
            table.rewrite_data_files(share, where=where, progress=progress),
        ]
    else:
        reports = [
            *lake.maintenance.flush_inlined_data(progress=progress),
            *lake.maintenance.merge_adjacent_files(progress=progress),
            *lake.maintenance.rewrite_data_files(delete_threshold=share, progress=progress),
        ]
    return [report for report in reports if report.snapshot is not None or report.skipped]


def _sentence(report: CompactionReport) -> str:
    what = f"{report.operation} {report.table}"
    if report.snapshot is None:
        return f"{what}: nothing to do"
    files = f"{plural(report.files_before, 'file')} became {report.files_after:,}"
    return f"{what}: {files}, {plural(report.rows, 'row')}, in snapshot {report.snapshot}"


def _rows(reports: Sequence[CompactionReport]) -> pa.Table:
    import pyarrow as pa

    fields = {"operation": pa.string(), "table": pa.string()}
    numbers = ("snapshot", "files_before", "files_after", "bytes_before", "bytes_after", "rows")
    schema = pa.schema([*fields.items(), *((name, pa.int64()) for name in numbers)])
    return pa.Table.from_pylist([asdict(report) for report in reports], schema=schema)
