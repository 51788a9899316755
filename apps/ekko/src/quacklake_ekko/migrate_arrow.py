"""``quacklake migrate-arrow``: from Ekko's Arrow files to the table ``blockchain.transactions``."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from quacklake.cli.context import Context
from quacklake.cli.options import DryRun, Yes, argument, option
from quacklake.cli.output import human_size, plural
from quacklake.cli.progress import stages

if TYPE_CHECKING:
    from quacklake import Lake
    from quacklake_ekko.migration import ArrowFolder, Comparison, MigrationState, SkippedFile

_DIFFERENT = 1
_SHOWN = 20

Folder = Annotated[str, argument("FOLDER", "The folder or s3:// URL in which transactions/ with the Arrow files is.")]


def backfill(
    context: Context,
    folder: Folder,
    batch_rows: Annotated[
        int, option("--batch-rows", "The number of rows of a commit, and in memory.", "N", min=1)
    ] = 100_000,
    again: Annotated[
        bool, option("--again", "Read all files, also those that were taken over, to bring back rows that are missing.")
    ] = False,
    dry_run: DryRun = False,
) -> int:
    """It can be interrupted at any time: the next one goes on, and takes every file once.

    Files that are damaged, or not as their path and metadata say, are left out and listed; the exit code is 1 then.
    """
    from quacklake_ekko.migration import backfill

    with context.open(write=not dry_run) as lake, stages() as progress:
        done = backfill(
            lake, _folder(lake, folder), again=again, dry_run=dry_run, batch_rows=batch_rows, progress=progress
        )
    counts = f"{plural(done.files, 'file')} with {plural(done.rows, 'row')}"
    context.output.result(
        f"{counts} would be taken over"
        if dry_run
        else f"took {counts} over: {done.inserted:,} inserted, {done.updated:,} updated",
        asdict(done),
    )
    _say_skipped(context, "left out", done.skipped)
    return _DIFFERENT if done.skipped else 0


def compare(
    context: Context,
    folder: Folder,
    before: Annotated[
        str | None, option("--before", "Leave out blocks from this time on, which may be being written.", "TIME")
    ] = None,
    allow_extra: Annotated[
        bool, option("--allow-extra", "Let the lake have transactions that the files lack.")
    ] = False,
    examples: Annotated[int, option("--examples", "The most examples of each kind.", "N", min=0)] = 10,
) -> int:
    """It compares counts and checksums by network and hour. The answer is kept in the lake for `switch` and `retire`.

    The exit code is 1 if anything differs or a file cannot be read.
    """
    from quacklake_ekko.migration import compare

    until = None if before is None else _moment(before)
    with context.open(write=True) as lake, stages() as progress:
        place = _folder(lake, folder)
        found = compare(lake, place, before=until, allow_extra=allow_extra, examples=examples, progress=progress)
    _print_comparison(context, found)
    return 0 if found.equal else _DIFFERENT


def switch(
    context: Context,
    folder: Folder,
    to: Annotated[Literal["lake", "arrow"], option("--to", "The side that readers use.", show_default=False)],
) -> None:
    """Readers use the lake only after a comparison that found no difference."""
    from quacklake_ekko.migration import switch

    with context.open(write=True) as lake:
        now = switch(lake, _folder(lake, folder), to)
    context.output.result(f"readers use the {_SIDES[now.readers]}", _facts(now))


def retire(context: Context, folder: Folder, dry_run: DryRun = False, yes: Yes = False) -> None:
    """It removes only files that the last comparison has found in the lake, and that have not changed since."""
    from quacklake_ekko.migration import retire

    if not dry_run:
        context.confirm(
            f"Remove the Arrow files in {folder} that are in the lake?", yes=yes, must="the removal of Arrow files"
        )
    with context.open(write=not dry_run) as lake, stages() as progress:
        done = retire(lake, _folder(lake, folder), dry_run=dry_run, progress=progress)
    context.output.result(
        f"{plural(done.files, 'file')} ({human_size(done.bytes)}) {'would be removed' if dry_run else 'removed'},"
        f" {len(done.kept):,} kept",
        {"files": done.files, "bytes": done.bytes, "kept": done.kept, "dry_run": done.dry_run},
    )
    _say_skipped(context, "kept", done.kept)


def status(context: Context, folder: Folder) -> None:
    """It shows the side that readers use, and the last comparison."""
    from quacklake_ekko.migration import load

    with context.open() as lake:
        opened = _folder(lake, folder)
        context.output.facts(_facts(load(lake, opened.url)))


_SIDES = {"lake": "lake", "arrow": "Arrow files"}


def _folder(lake: Lake, folder: str) -> ArrowFolder:
    from quacklake_ekko.migration import ArrowFolder

    return ArrowFolder.open(folder, lake.handle.context.config)


def _facts(state: MigrationState) -> dict[str, object]:
    return {"snapshot" if name == "snapshot_id" else name: value for name, value in asdict(state).items()}


def _print_comparison(context: Context, found: Comparison) -> None:
    if not context.output.for_people:
        context.output.facts(_comparison_facts(found))
        return
    import pyarrow as pa

    different = [hour for hour in found.hours if not hour.equal]
    if different:
        types = {
            "network": pa.string(),
            "hour": pa.timestamp("us", "UTC"),
            "arrow_rows": pa.int64(),
            "lake_rows": pa.int64(),
        }
        context.output.rows(pa.Table.from_pylist([asdict(hour) for hour in different], pa.schema(types.items())))
    for example in found.examples:
        context.output.say(f"{example.kind}: {example.tx_hash} ({example.network}, {example.hour:%Y-%m-%d %H}:00)")
    _say_skipped(context, "cannot be read", found.skipped)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in found.counts.items())
    rows = f"{found.arrow_rows:,} transactions in {plural(len(found.files), 'file')}, {found.lake_rows:,} in the lake"
    context.output.say(f"{'equal' if found.equal else 'different'}: {rows} ({counts})")


def _comparison_facts(found: Comparison) -> dict[str, object]:
    return {
        "equal": found.equal,
        "snapshot": found.snapshot_id,
        "before": found.before,
        "files": len(found.files),
        "arrow_rows": found.arrow_rows,
        "lake_rows": found.lake_rows,
        "counts": found.counts,
        "hours": [{**asdict(hour), "equal": hour.equal} for hour in found.hours],
        "examples": found.examples,
        "skipped": found.skipped,
        "arrow_seconds": round(found.arrow_seconds, 3),
        "lake_seconds": round(found.lake_seconds, 3),
    }


def _say_skipped(context: Context, what: str, skipped: tuple[SkippedFile, ...]) -> None:
    for each in skipped[:_SHOWN]:
        context.output.say(f"{what}: {each.path}: {each.reason}")
    if len(skipped) > _SHOWN:
        context.output.say(f"{what}: {plural(len(skipped) - _SHOWN, 'more file')}")


def _moment(text: str) -> dt.datetime:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time such as '2024-01-01 12:00'", param_hint="'--before'"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
