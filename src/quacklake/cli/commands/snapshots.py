"""Commands for the past of a lake: ``snapshots``, ``history``, ``tag``, ``diff``, ``bisect`` and the ways back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Annotated, Any

from quacklake.cli.context import Context, version_of
from quacklake.cli.options import DryRun, TableName, To, Yes, argument, complete_version, count_of, option
from quacklake.cli.output import plural
from quacklake.cli.progress import stages
from quacklake.errors import InputError, MergeConflictError, NotFoundError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

    from quacklake import UndoReport
    from quacklake.lake.bisect import Bisection
    from quacklake.lake.revert import RevertReport

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


def diff(
    context: Context,
    before: Annotated[str, argument("BEFORE", "A snapshot number, a tag or a time.", autocompletion=complete_version)],
    after: Annotated[
        str | None, argument("AFTER", "Another one. By default the newest snapshot.", autocompletion=complete_version)
    ] = None,
    table: Annotated[str | None, option("--table -t", "Show the rows of this table that differ.", "TABLE")] = None,
    limit: Annotated[str, option("--limit -n", 'The number of rows to show, or "all".', "COUNT")] = "20",
) -> None:
    """Rows are matched by the primary key of a table, or else by their row ids. Moved rows do not differ."""
    count = count_of(limit)
    with context.open() as lake, stages() as progress:
        found = lake.diff(version_of(before), None if after is None else version_of(after), progress=progress)
        if table is not None:
            rows = found.rows(table)
            context.output.rows(rows if count is None else rows.slice(0, count), total=rows.num_rows)
        elif found or not context.output.for_people:
            counts = found.to_arrow()
            given = [name for name in counts.column_names if any(counts.column(name).to_pylist())]
            context.output.rows(counts.select(given) if context.output.for_people else counts)
        else:
            context.output.say(f"nothing differs between the snapshots {found.before} and {found.after}")


def bisect(
    context: Context,
    check: Annotated[
        str, argument("SQL", "A query of the bad rows, or of one boolean that is true while all is well.")
    ],
    good: Annotated[
        str | None,
        option(
            "--good",
            "A snapshot at which all is well: a snapshot number, a tag or a time. By default the oldest.",
            "VERSION",
            autocompletion=complete_version,
        ),
    ] = None,
    bad: Annotated[
        str | None,
        option(
            "--bad",
            "A later snapshot at which the check fails. By default the newest.",
            "VERSION",
            autocompletion=complete_version,
        ),
    ] = None,
    limit: Annotated[str, option("--limit -n", 'The number of bad rows to show, or "all".', "COUNT")] = "10",
) -> None:
    """The check runs at few snapshots: ten of a thousand. Those without its table or column count as good."""
    count = count_of(limit)
    with context.open() as lake:
        ends = {"good": None if good is None else version_of(good), "bad": None if bad is None else version_of(bad)}
        with stages() as progress:
            found = lake.bisect(check, **ends, rows=sys.maxsize if count is None else count, progress=progress)
        context.output.result("\n".join(_bisection_lines(found)), _bisection_facts(found))
        if found.rows is not None and context.output.for_people:
            context.output.rows(found.rows)


def _bisection_lines(found: Bisection) -> Iterator[str]:
    yield f"snapshot {found.bad} is the first bad one, and {found.good} the last good one"
    commit = found.commit
    author = "" if commit["author"] is None else f" by {commit['author']}"
    yield f"  {commit['snapshot_time']:%Y-%m-%d %H:%M:%S} UTC{author}: {commit['description'] or commit['operation']}"
    yield from (f"  {commit[name]}" for name in ("commit_message", "commit_extra_info") if commit[name] is not None)
    skipped = f", {len(found.skipped)} of them without its table or column" if found.skipped else ""
    yield f"  the check ran at {plural(found.checks, 'snapshot')}{skipped}"


def _bisection_facts(found: Bisection) -> dict[str, object]:
    rows = None if found.rows is None else found.rows.to_pylist()
    return {**{field.name: getattr(found, field.name) for field in fields(found)}, "rows": rows}


def revert(
    context: Context,
    version: Annotated[
        str,
        argument("VERSION", "The snapshot of the commit: a number, a tag or a time.", autocompletion=complete_version),
    ],
    on_conflict: Annotated[
        str,
        option(
            "--on-conflict",
            "What to do with rows that were changed again since: refuse; keep ours (as they are now); take theirs (as"
            " they were before the commit); or join them by columns.",
            "refuse|ours|theirs|columns",
        ),
    ] = "refuse",
    message: Annotated[str | None, option("--message -m", "The message of the new snapshot.", "TEXT")] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Nothing is lost: the result is a new snapshot, which can be reverted, too.

    Rows that were changed again since are conflicts.
    """
    with context.open(write=True) as lake:
        if not dry_run:
            context.confirm(f"Take back snapshot {version} of {lake.url}?", yes=yes)
        choice: Any = on_conflict
        try:
            report = lake.revert(version_of(version), on_conflict=choice, dry_run=dry_run, message=message)
        except MergeConflictError as error:
            error.hint = error.hint or "--dry-run shows them; --on-conflict decides"
            raise
        conflicts = {name: rows.to_pylist() for name, rows in report.conflicts.items()}
        facts = {**{each.name: getattr(report, each.name) for each in fields(report)}, "conflicts": conflicts}
        facts["tables"] = [asdict(table) for table in report.tables]
        context.output.result("\n".join(_revert_lines(report)), facts)
        if context.output.for_people:
            for rows in report.conflicts.values():
                context.output.rows(rows)


def _revert_lines(report: RevertReport) -> Iterator[str]:
    if not report.tables and not report.conflicts:
        yield f"nothing is left of snapshot {report.version}: nothing was changed"
    elif report.dry_run:
        yield f"a revert of snapshot {report.version} would make these changes:"
    elif report.snapshot is None:
        yield f"all rows of snapshot {report.version} were changed again since: nothing was changed"
    else:
        yield f"reverted snapshot {report.version} in snapshot {report.snapshot}"
    for table in report.tables:
        counts = f"{plural(table.inserted, 'row')} back, {table.deleted:,} removed, {table.updated:,} set back"
        yield f"  {table.table}: {counts if table.kind == 'changed' else table.kind}"
    yield from (f"  {name}: {plural(rows.num_rows, 'conflict')}" for name, rows in report.conflicts.items())


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
