"""``quacklake expire`` and ``cleanup``: expire old snapshots, and remove the files that only they used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from quacklake.cli.context import Context
from quacklake.cli.options import DryRun, Yes, names_of
from quacklake.cli.output import human_size, plural
from quacklake.cli.progress import stages

if TYPE_CHECKING:
    from quacklake.maintenance.cleanup import CleanupReport
    from quacklake.maintenance.reports import Skipped

_SHOWN = 20
"""The most paths that are printed for people."""


def expire(
    context: Context,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="A time, or a span such as 7d, 12h or '1 month'.")
    ] = None,
    keep_last: Annotated[
        int | None, typer.Option("--keep-last", metavar="N", help="Keep the newest N snapshots at least.")
    ] = None,
    versions: Annotated[
        str | None,
        typer.Option("--versions", metavar="NUMBERS", help="Expire these snapshots, with commas between them."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Without any option the lake's expire_older_than decides. The newest one stays, and those that have a tag."""
    chosen = None if versions is None else [_number(text) for text in names_of(versions) or ()]
    with context.open(write=True) as lake:
        if not dry_run:
            context.confirm(f"Remove old snapshots of {lake.url} for good?", yes=yes)
        with stages() as progress:
            report = lake.expire_snapshots(
                older_than, versions=chosen, keep_last=keep_last, dry_run=dry_run, progress=progress
            )
    files = report.data_files + report.delete_files
    verb = "would expire" if report.dry_run else "expired"
    sentence = f"{plural(len(report.snapshots), 'snapshot')} {verb}; the oldest left is {report.oldest}"
    if files:
        sentence += f"; {plural(files, 'file')} ({human_size(report.bytes)}) are left for `quacklake cleanup`"
    facts = asdict(report)
    context.output.result(sentence, {**facts, "snapshots": list(report.snapshots), "kept": list(facts["kept"])})
    _tell_skipped(context, report.kept, "kept")


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise typer.BadParameter(f"{text!r} is not the number of a snapshot", param_hint="'--versions'")
    return int(text)


def cleanup(
    context: Context,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="A time, or a span such as 2d or 36h.")
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="Whatever their age: only when nobody writes or reads.")] = False,
    orphans: Annotated[bool, typer.Option("--orphans", help="Files that no commit knows, left by crashes.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Files wait for the lake's delete_older_than, two days unless it says otherwise; orphans for orphan_grace."""
    with context.open(write=True) as lake:
        if not dry_run:
            context.confirm(f"Remove files of {lake.url} for good?", yes=yes)
        with stages() as progress:
            work = lake.delete_orphaned_files if orphans else lake.cleanup_old_files
            report = work(older_than, cleanup_all=all, dry_run=dry_run, progress=progress)
    facts = asdict(report)
    context.output.result(
        _cleanup_sentence(report), {**facts, "paths": list(report.paths), "skipped": list(facts["skipped"])}
    )
    _tell_skipped(context, report.skipped, "left alone")


def _cleanup_sentence(report: CleanupReport) -> str:
    size = "" if report.bytes is None else f" ({human_size(report.bytes)})"
    lines = [f"{plural(report.files, 'file')}{size} {'would be removed' if report.dry_run else 'removed'}"]
    if report.dry_run:
        shown = report.paths[:_SHOWN]
        lines += [f"  {path}" for path in shown]
        lines += [f"  … and {report.files - len(shown):,} more"] if report.files > len(shown) else []
    if report.failed:
        lines.append(f"{report.failed:,} could not be removed and are tried again next time")
    return "\n".join(lines)


def _tell_skipped(context: Context, skipped: Sequence[Skipped], verb: str) -> None:
    for found in skipped:
        context.output.say(f"  {verb}: {found.what}: {found.reason}")
