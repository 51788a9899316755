"""``quacklake files``: the data files of a table."""

from __future__ import annotations

import argparse

import pyarrow as pa

from quacklake.cli.commands.command import Command
from quacklake.cli.context import Context
from quacklake.scan import ScanPlan

__all__ = ["FILES"]

_COLUMNS = ("data_file_id", "path", "record_count", "deleted_rows", "file_size_bytes", "begin_snapshot", "delete_path")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="table or schema.table")


def _run(context: Context) -> None:
    with context.open() as lake:
        context.output.rows(_files(lake.table(context.arguments.table).plan()))


def _files(plan: ScanPlan) -> pa.Table:
    """The files with the rows deleted from each, whether a delete file or the catalog says so."""
    ids, counts = (plan.files.column(name).to_pylist() for name in ("data_file_id", "delete_count"))
    deleted = [(count or 0) + plan.deleted_counts.get(id_, 0) for id_, count in zip(ids, counts, strict=True)]
    return plan.files.append_column("deleted_rows", pa.array(deleted, pa.int64())).select(_COLUMNS)


FILES = Command("files", "List the data files of a table, with what is deleted from each", _run, _configure)
