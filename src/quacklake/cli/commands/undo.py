"""``quacklake rollback``, ``restore`` and ``undrop``: return to an older state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from quacklake.cli.context import Context, version_of
from quacklake.cli.options import DryRun, TableName, To, Yes
from quacklake.cli.output import plural
from quacklake.cli.progress import stages

if TYPE_CHECKING:
    from quacklake.operations.restoring import UndoReport


def rollback(context: Context, to: To, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Nothing is lost: the older state becomes a new snapshot.

    It asks first; where nobody can be asked, --yes is needed.
    """
    with context.open(write=True) as lake:
        if not dry_run:
            context.confirm(f"Roll the whole lake {lake.url} back to {to}?", yes=yes, must="a rollback")
        with stages() as progress:
            report = lake.rollback(version_of(to), dry_run=dry_run, progress=progress)
        _print(context, report)


def restore(context: Context, table: TableName, to: To, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Nothing is lost: the older state becomes a new snapshot."""
    with context.open(write=True) as lake:
        if not dry_run:
            context.confirm(f"Take {table} back to {to}?", yes=yes)
        _print(context, lake.table(table).restore(version_of(to), dry_run=dry_run))


def undrop(
    context: Context,
    table: TableName,
    as_: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Another name for it, in the same schema.")
    ] = None,
) -> None:
    """The one that was dropped last, as it was just before."""
    with context.open(write=True) as lake:
        _print(context, lake.undrop(table, as_=as_))


def _print(context: Context, report: UndoReport) -> None:
    facts = asdict(report)
    context.output.result("\n".join(_lines(report)), {name: _listed(value) for name, value in facts.items()})


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _lines(report: UndoReport) -> Iterator[str]:
    if report.dry_run:
        yield f"To be as at snapshot {report.version}, this would be done:"
    elif report.snapshot is None:
        yield f"Everything is as at snapshot {report.version}: nothing was changed."
    else:
        yield f"As at snapshot {report.version} again, in snapshot {report.snapshot}."
    for table in report.restored:
        columns = ", columns or layout changed" if table.altered else ""
        kept = f", wider types kept: {', '.join(table.kept_types)}" if table.kept_types else ""
        yield f"  {table.table}: {plural(table.inserted, 'row')} put back, {table.deleted:,} taken away{columns}{kept}"
    yield from (f"  {name}: dropped" for name in report.dropped)
    yield from (f"  {name}: undropped" for name in report.undropped)
    yield from (f"  {text}" for text in report.objects)
