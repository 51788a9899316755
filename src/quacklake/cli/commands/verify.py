"""``quacklake verify``: whether a lake is whole, and mending what can be mended."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import pyarrow as pa

from quacklake.cli.commands.command import Command
from quacklake.cli.context import Context
from quacklake.cli.progress import stages
from quacklake.errors import InputError
from quacklake.maintenance.verify import Finding, RepairReport

__all__ = ["VERIFY"]

_BROKEN = 1
_SCHEMA = pa.schema(
    [
        ("code", pa.string()),
        ("severity", pa.string()),
        ("what", pa.string()),
        ("table", pa.string()),
        ("file_id", pa.int64()),
        ("repairable", pa.bool_()),
        ("hint", pa.string()),
    ]
)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--deep", action="store_true", help="read all rows too")
    parser.add_argument("--repair", action="store_true", help="show what can be mended without losing anything")
    parser.add_argument("--yes", action="store_true", help="with --repair: mend it")


def _run(context: Context) -> int:
    arguments = context.arguments
    if arguments.yes and not arguments.repair:
        raise InputError("--yes goes with --repair")
    with context.open(write=arguments.repair and arguments.yes) as lake:
        with stages() as progress:
            report = lake.verify(deep=arguments.deep, progress=progress)
        if arguments.repair:
            done = lake.repair(report, dry_run=not arguments.yes)
            _print_repair(context, done)
            return _BROKEN if any(found.severity == "error" for found in _remaining(done)) else 0
    if context.output.format == "table" and report.ok:
        context.output.result(f"nothing found: {report.files:,} files, snapshot {report.snapshot}", {})
    else:
        context.output.rows(_rows(report.findings))
    if context.output.format == "table":
        for skipped in report.skipped:
            context.output.result(f"not looked at: {skipped.what}: {skipped.reason}", {})
    return _BROKEN if report.errors else 0


def _remaining(done: RepairReport) -> Sequence[Finding]:
    return (*done.left, *(done.repaired if done.dry_run else ()))


def _print_repair(context: Context, done: RepairReport) -> None:
    if context.output.format != "table":
        context.output.rows(_rows((*done.repaired, *done.left)))
        return
    if done.repaired:
        context.output.rows(_rows(done.repaired))
    verb = "can be mended: --repair --yes does it" if done.dry_run else f"mended in snapshot {done.snapshot}"
    context.output.result(f"{len(done.repaired)} {verb}" if done.repaired else "nothing to mend", {})
    if done.left:
        context.output.rows(_rows(done.left))
        context.output.result(f"{len(done.left)} cannot be mended", {})


def _rows(findings: Sequence[Finding]) -> pa.Table:
    rows = [{name: getattr(found, name) for name in _SCHEMA.names} for found in findings]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


VERIFY = Command("verify", "Check that the lake is whole: catalog, files, with --deep all rows", _run, _configure)
