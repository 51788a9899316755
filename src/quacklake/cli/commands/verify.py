"""``quacklake verify``: check that a lake is intact, and repair what can be repaired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from quacklake.cli.context import Context
from quacklake.cli.output import plural
from quacklake.cli.progress import stages
from quacklake.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from quacklake.maintenance.verify import Finding, RepairReport

_BROKEN = 1
_COLUMNS = ("code", "severity", "what", "table", "file_id", "repairable", "hint")


def verify(
    context: Context,
    deep: Annotated[bool, typer.Option("--deep", help="Read all rows too.")] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Show what can be mended without losing anything.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --repair: mend it.")] = False,
) -> int:
    """The exit code is 1 when there are errors; warnings alone do not change it."""
    if yes and not repair:
        raise InputError("--yes goes with --repair")
    with context.open(write=repair and yes) as lake:
        with stages() as progress:
            report = lake.verify(deep=deep, progress=progress)
        if repair:
            done = lake.maintenance.repair(report, dry_run=not yes)
            _print_repair(context, done)
            return _BROKEN if any(found.severity == "error" for found in _remaining(done)) else 0
    if context.output.for_people and report.ok:
        context.output.say(f"nothing found: {plural(report.files, 'file')}, snapshot {report.snapshot}")
    else:
        context.output.rows(_rows(report.findings))
    for skipped in report.skipped:
        context.output.say(f"not looked at: {skipped.what}: {skipped.reason}")
    return _BROKEN if report.errors else 0


def _remaining(done: RepairReport) -> Sequence[Finding]:
    return (*done.left, *(done.repaired if done.dry_run else ()))


def _print_repair(context: Context, done: RepairReport) -> None:
    if not context.output.for_people:
        context.output.rows(_rows((*done.repaired, *done.left)))
        return
    if done.repaired:
        context.output.rows(_rows(done.repaired))
    verb = "can be mended: --repair --yes does it" if done.dry_run else f"mended in snapshot {done.snapshot}"
    context.output.say(f"{len(done.repaired)} {verb}" if done.repaired else "nothing to mend")
    if done.left:
        context.output.rows(_rows(done.left))
        context.output.say(f"{len(done.left)} cannot be mended")


def _rows(findings: Sequence[Finding]) -> pa.Table:
    import pyarrow as pa

    types = {"file_id": pa.int64(), "repairable": pa.bool_()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in _COLUMNS])
    return pa.Table.from_pylist(
        [{name: getattr(found, name) for name in _COLUMNS} for found in findings], schema=schema
    )
