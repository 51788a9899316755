"""``quacklake snapshots``, ``history``, ``tag``, ``rollback``, ``restore`` and ``undrop``: the past of a lake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from quacklake.cli.context import Context, version_of
from quacklake.cli.options import DryRun, TableName, To, Yes, argument, complete_version, count_of, option
from quacklake.cli.output import plural
from quacklake.cli.progress import stages
from quacklake.errors import InputError, NotFoundError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

    from quacklake import UndoReport

Newest = Annotated[str, option("--limit -n", 'The number of snapshots to show, or "all".', "COUNT")]


def snapshots(context: Context, limit: Newest = "20") -> None:
    """The operation and description tell what was done; the changes are in the notation of the DuckLake format."""
    count = count_of(limit)
    with context.open() as lake:
        _print_snapshots(context, lake.snapshots().sort_by([("snapshot_id", "descending")]), count)


def history(context: Context, table: TableName, limit: Newest = "20") -> None:
    """The operation and description tell what was done; the changes are in the notation of the DuckLake format."""
    count = count_of(limit)
    with context.open() as lake:
        _print_snapshots(context, lake.table(table).history(), count)


def _print_snapshots(context: Context, snapshots: pa.Table, limit: int | None) -> None:
    """Print the first snapshots. In a table, words come before codes, and empty columns (an author) are left out."""
    shown = snapshots if limit is None else snapshots.slice(0, limit)
    if context.output.for_people:
        first = ["snapshot_id", "snapshot_time", "operation", "description"]
        names = [*first, *(name for name in shown.column_names if name not in first and name != "schema_version")]
        shown = shown.select([name for name in names if shown.column(name).null_count < shown.num_rows])
    context.output.rows(shown, total=snapshots.num_rows)


def tag(
    context: Context,
    name: Annotated[
        str | None, argument("NAME", "The tag; without it, all tags are listed.", autocompletion=complete_version)
    ] = None,
    at: Annotated[
        str | None,
        option(
            "--at --version",
            "The snapshot to tag: a snapshot number, another tag, or a time. By default the newest.",
            "VERSION",
            autocompletion=complete_version,
        ),
    ] = None,
    replace: Annotated[bool, option("--replace", "Move the tag if it exists.")] = False,
    delete: Annotated[bool, option("--delete", "Remove the tag.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """A snapshot with a tag does not expire. You can use the tag wherever a command takes a snapshot."""
    if name is None:
        if at is not None or replace or delete:
            raise InputError("--at, --replace and --delete need the NAME of a tag")
        with context.open() as lake:
            context.output.rows(lake.history.tags())
        return
    if delete:
        if at is not None or replace:
            raise InputError("--delete cannot be combined with --at or --replace")
        _delete_tag(context, name, dry_run=dry_run, yes=yes)
        return
    if dry_run:
        raise InputError("--dry-run needs --delete")
    with context.open(write=True) as lake:
        snapshot = lake.tag(name, context.snapshot(lake, at), replace=replace)
        context.output.result(f"snapshot {snapshot} has the tag {name}", {"tag": name, "snapshot": snapshot})


def _delete_tag(context: Context, name: str, *, dry_run: bool, yes: bool) -> None:
    with context.open(write=not dry_run) as lake:
        if dry_run:
            tags = {row["tag"]: row["snapshot_id"] for row in lake.history.tags().to_pylist()}
            if name not in tags:
                raise NotFoundError(f'no snapshot has the tag "{name}"', hint=nearest(name, tags))
            context.output.result(
                f"the tag {name} of snapshot {tags[name]} would be removed", {"tag": name, "snapshot": tags[name]}
            )
            return
        context.confirm(f"Remove the tag {name}? Its snapshot can then expire.", yes=yes)
        lake.history.untag(name)
        context.output.result(f"removed the tag {name}", {"tag": name, "snapshot": None})


def rollback(context: Context, to: To, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Nothing is lost: the older state becomes a new snapshot.

    The command asks for confirmation; without a terminal, it needs --yes.
    """
    with context.open(write=True) as lake:
        if not dry_run:
            context.confirm(f"Roll back the whole lake {lake.url} to {to}?", yes=yes, must="a rollback")
        with stages() as progress:
            report = lake.rollback(version_of(to), dry_run=dry_run, progress=progress)
        _print_undo(context, report)


def restore(context: Context, table: TableName, to: To, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Nothing is lost: the older state becomes a new snapshot."""
    with context.open(write=True) as lake:
        if not dry_run:
            context.confirm(f"Restore {table} to {to}?", yes=yes)
        _print_undo(context, lake.table(table).restore(version_of(to), dry_run=dry_run))


def undrop(
    context: Context,
    table: TableName,
    as_: Annotated[str | None, option("--as", "Restore it under another name, in the same schema.", "NAME")] = None,
) -> None:
    """If several had this name, the one that was dropped last comes back, as it was before."""
    with context.open(write=True) as lake:
        _print_undo(context, lake.undrop(table, as_=as_))


def _print_undo(context: Context, report: UndoReport) -> None:
    context.output.result("\n".join(_undo_lines(report)), asdict(report))


def _undo_lines(report: UndoReport) -> Iterator[str]:
    if report.dry_run:
        yield f"a return to snapshot {report.version} would make these changes:"
    elif report.snapshot is None:
        yield f"everything is as in snapshot {report.version} already: nothing was changed"
    else:
        yield f"restored snapshot {report.version} in snapshot {report.snapshot}"
    for table in report.restored:
        columns = ", columns or layout changed" if table.altered else ""
        kept = f", wider types kept: {', '.join(table.kept_types)}" if table.kept_types else ""
        yield f"  {table.table}: {plural(table.inserted, 'row')} restored, {table.deleted:,} removed{columns}{kept}"
    yield from (f"  {name}: dropped" for name in report.dropped)
    yield from (f"  {name}: undropped" for name in report.undropped)
    yield from (f"  {text}" for text in report.objects)
