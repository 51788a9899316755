"""``quacklake rollback``, ``restore`` and ``undrop``: going back to an older state."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict

from quacklake.cli.commands.changes import bound
from quacklake.cli.commands.command import Command
from quacklake.cli.context import Context
from quacklake.errors import InputError
from quacklake.maintenance.undo import UndoReport

__all__ = ["RESTORE", "ROLLBACK", "UNDROP"]


def _configure_rollback(parser: argparse.ArgumentParser) -> None:
    _add_version(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _configure_restore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="table or schema.table")
    _add_version(parser)


def _configure_undrop(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="what was dropped: table or schema.table, a view or a macro")
    parser.add_argument("--as", metavar="NAME", dest="as_", help="another name for it, in the same schema")


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to", metavar="VERSION", type=bound, required=True, help="a snapshot: its number, its tag, or a time"
    )
    parser.add_argument("--dry-run", action="store_true", help="change nothing, tell what would be done")


def _rollback(context: Context) -> None:
    arguments = context.arguments
    with context.open(write=True) as lake:
        if not (arguments.dry_run or arguments.yes):
            _confirm(f"Roll the whole lake {lake.url} back to {arguments.to}?")
        _print(context, lake.rollback(arguments.to, dry_run=arguments.dry_run))


def _confirm(question: str) -> None:
    """Ask a person; nobody there to be asked means no."""
    if not sys.stdin.isatty():
        raise InputError("a rollback has to be confirmed", hint="pass --yes, or look first with --dry-run")
    sys.stderr.write(f"{question} [y/N] ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InputError("nothing was changed")


def _restore(context: Context) -> None:
    arguments = context.arguments
    with context.open(write=True) as lake:
        _print(context, lake.table(arguments.table).restore(arguments.to, dry_run=arguments.dry_run))


def _undrop(context: Context) -> None:
    with context.open(write=True) as lake:
        _print(context, lake.undrop(context.arguments.table, as_=context.arguments.as_))


def _print(context: Context, report: UndoReport) -> None:
    facts = asdict(report)
    context.output.result("\n".join(_lines(report)), {name: _listed(value) for name, value in facts.items()})


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _lines(report: UndoReport) -> Iterator[str]:
    """What a person is told."""
    if report.dry_run:
        yield f"To be as at snapshot {report.version}, this would be done:"
    elif report.snapshot is None:
        yield f"Everything is as at snapshot {report.version}: nothing was changed."
    else:
        yield f"As at snapshot {report.version} again, in snapshot {report.snapshot}."
    for table in report.restored:
        columns = ", columns or layout changed" if table.altered else ""
        kept = f", wider types kept: {', '.join(table.kept_types)}" if table.kept_types else ""
        yield f"  {table.table}: {table.inserted:,} rows put back, {table.deleted:,} taken away{columns}{kept}"
    yield from (f"  {name}: dropped" for name in report.dropped)
    yield from (f"  {name}: undropped" for name in report.undropped)
    yield from (f"  {text}" for text in report.objects)


ROLLBACK = Command("rollback", "Take the whole lake back to an older state", _rollback, _configure_rollback)
RESTORE = Command("restore", "Take a table back to an older state", _restore, _configure_restore)
UNDROP = Command("undrop", "Bring back a table, view or macro that was dropped", _undrop, _configure_undrop)
