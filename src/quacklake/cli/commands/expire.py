"""``quacklake expire`` and ``cleanup``: how much of the past is kept, and the files that go with the rest."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from quacklake.cli.commands.command import Command
from quacklake.cli.context import Context
from quacklake.cli.output import human_size
from quacklake.cli.progress import stages
from quacklake.maintenance.removal import CleanupReport
from quacklake.maintenance.reports import Skipped

__all__ = ["CLEANUP", "EXPIRE"]

_SHOWN = 20
"""How many paths a person is shown."""


def _configure_expire(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--older-than", metavar="AGE", help="a time, or a span such as '7 days'")
    parser.add_argument("--keep-last", metavar="N", type=int, help="keep the newest N snapshots at least")
    parser.add_argument("--versions", metavar="N", type=int, nargs="+", help="expire these snapshots")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, tell what would expire")


def _expire(context: Context) -> None:
    arguments = context.arguments
    with context.open(write=True) as lake, stages() as progress:
        report = lake.expire_snapshots(
            arguments.older_than,
            versions=arguments.versions,
            keep_last=arguments.keep_last,
            dry_run=arguments.dry_run,
            progress=progress,
        )
    count, files = len(report.snapshots), report.data_files + report.delete_files
    verb = "would expire" if report.dry_run else "expired"
    sentence = f"{count:,} snapshot{'' if count == 1 else 's'} {verb}; the oldest left is {report.oldest}"
    if files:
        sentence += f"; {files:,} files ({human_size(report.bytes)}) are left for `quacklake cleanup`"
    facts = asdict(report)
    context.output.result(sentence, {**facts, "snapshots": list(report.snapshots), "kept": list(facts["kept"])})
    _tell_skipped(context, report.kept, "kept")


def _configure_cleanup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--older-than", metavar="AGE", help="a time, or a span such as '2 days'")
    parser.add_argument("--all", action="store_true", help="whatever its age: only when nobody writes or reads")
    parser.add_argument("--orphans", action="store_true", help="files that no commit knows, left by crashes")
    parser.add_argument("--dry-run", action="store_true", help="remove nothing, tell what would be removed")


def _cleanup(context: Context) -> None:
    arguments = context.arguments
    with context.open(write=True) as lake, stages() as progress:
        work = lake.delete_orphaned_files if arguments.orphans else lake.cleanup_old_files
        report = work(arguments.older_than, cleanup_all=arguments.all, dry_run=arguments.dry_run, progress=progress)
    facts = asdict(report)
    context.output.result(
        _cleanup_sentence(report), {**facts, "paths": list(report.paths), "skipped": list(facts["skipped"])}
    )
    _tell_skipped(context, report.skipped, "left alone")


def _cleanup_sentence(report: CleanupReport) -> str:
    size = "" if report.bytes is None else f" ({human_size(report.bytes)})"
    lines = [f"{report.files:,} files{size} {'would be removed' if report.dry_run else 'removed'}"]
    if report.dry_run:
        shown = report.paths[:_SHOWN]
        lines += [f"  {path}" for path in shown]
        lines += [f"  … and {report.files - len(shown):,} more"] if report.files > len(shown) else []
    if report.failed:
        lines.append(f"{report.failed:,} could not be removed and are tried again next time")
    return "\n".join(lines)


def _tell_skipped(context: Context, skipped: Sequence[Skipped], verb: str) -> None:
    if context.output.format == "table":
        for found in skipped:
            context.output.result(f"  {verb}: {found.what}: {found.reason}", {})


EXPIRE = Command("expire", "Remove old snapshots; newer ones stay as they are", _expire, _configure_expire)
CLEANUP = Command("cleanup", "Remove files that no snapshot needs any more", _cleanup, _configure_cleanup)
