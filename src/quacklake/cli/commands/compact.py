"""``quacklake compact``: few large files instead of many small ones."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

import pyarrow as pa

from quacklake.cli.commands.command import Command
from quacklake.cli.context import Context
from quacklake.cli.progress import stages
from quacklake.errors import InputError
from quacklake.lake import Lake
from quacklake.maintenance.reports import CompactionReport, Progress

__all__ = ["COMPACT"]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE", nargs="?", help="table or schema.table (default: every table)")
    parser.add_argument(
        "--delete-threshold", type=float, metavar="SHARE", help="rewrite files that lost this share of their rows"
    )
    parser.add_argument("--order-by", metavar="COLUMN", nargs="+", help="write all files of the table anew, sorted")
    parser.add_argument("--zorder", metavar="COLUMN", nargs="+", help="… along a curve that is near in all of these")


def _run(context: Context) -> None:
    with context.open(write=True) as lake, stages() as progress:
        reports = _compact(context.arguments, lake, progress)
    if context.output.format == "table":
        for report in reports:
            context.output.result(_sentence(report), {})
            for skipped in report.skipped:
                context.output.result(f"  left alone: {skipped.what}: {skipped.reason}", {})
        if not reports:
            context.output.result("there was nothing to do", {})
    else:
        context.output.rows(_rows(reports))


def _compact(arguments: argparse.Namespace, lake: Lake, progress: Progress) -> list[CompactionReport]:
    """What was done, without the operations that found nothing to do."""
    share = arguments.delete_threshold
    if share is not None and not 0 <= share <= 1:
        raise InputError(f"--delete-threshold is between 0 and 1, not {share}")  # before anything is done
    if arguments.order_by or arguments.zorder:
        if arguments.table is None:
            raise InputError("--order-by and --zorder need a table")
        table = lake.table(arguments.table)
        return [table.optimize(order_by=arguments.order_by, zorder=arguments.zorder, progress=progress)]
    if arguments.table is not None:
        table = lake.table(arguments.table)
        reports = [
            table.flush_inlined_data(progress=progress),
            table.merge_adjacent_files(progress=progress),
            table.rewrite_data_files(arguments.delete_threshold, progress=progress),
        ]
    else:
        reports = [
            *lake.flush_inlined_data(progress=progress),
            *lake.merge_adjacent_files(progress=progress),
            *lake.rewrite_data_files(delete_threshold=arguments.delete_threshold, progress=progress),
        ]
    return [report for report in reports if report.snapshot is not None or report.skipped]


def _sentence(report: CompactionReport) -> str:
    what = f"{report.operation} {report.table}"
    if report.snapshot is None:
        return f"{what}: nothing to do"
    files = f"{report.files_before:,} files became {report.files_after:,}"
    return f"{what}: {files}, {report.rows:,} rows, in snapshot {report.snapshot}"


def _rows(reports: Sequence[CompactionReport]) -> pa.Table:
    fields = {"operation": pa.string(), "table": pa.string()}
    numbers = ("snapshot", "files_before", "files_after", "bytes_before", "bytes_after", "rows")
    schema = pa.schema([*fields.items(), *((name, pa.int64()) for name in numbers)])
    return pa.Table.from_pylist([asdict(report) for report in reports], schema=schema)


COMPACT = Command("compact", "Flush inlined rows, merge small files, drop deleted rows", _run, _configure)
