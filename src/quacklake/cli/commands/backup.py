"""``quacklake backup``, ``backups``, ``prune-backups``, ``restore-backup`` and ``migrate``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from quacklake.cli.context import Context
from quacklake.cli.options import DryRun, Yes, argument, option
from quacklake.cli.output import human_size, plural
from quacklake.cli.progress import stages
from quacklake.errors import ConfigError

_COLUMNS = ("id", "time", "snapshot", "database", "files", "bytes")

Place = Annotated[str, argument("SRC", "The folder or s3:// URL of the backups.")]


def backup(
    context: Context,
    place: Annotated[str, argument("DEST", "A folder or s3:// URL outside the lake; it may have older backups.")],
) -> None:
    """An interrupted backup is not listed; the next one uses the files that it has copied."""
    with context.open() as lake, stages() as progress:
        done = lake.backup(place, progress)
    context.output.result(
        f"backed up snapshot {done.snapshot} as {done.id}: {plural(done.files, 'file')}, {done.copied:,} of them new"
        f" ({human_size(done.bytes_copied)})",
        asdict(done),
    )
    for each in done.skipped:
        context.output.say(f"left out: {each.what}: {each.reason}")


def backups(context: Context, place: Place) -> None:
    """The oldest backup comes first."""
    import pyarrow as pa

    from quacklake.lake.connect import backups

    found = backups(place, config_file=context.options.config_file)
    rows = {name: [getattr(info, name) for info in found] for name in _COLUMNS}
    types = {"id": pa.string(), "time": pa.string(), "database": pa.string()}
    context.output.rows(
        pa.table({name: pa.array(values, types.get(name, pa.int64())) for name, values in rows.items()})
    )


def prune_backups(
    context: Context,
    place: Place,
    keep_last: Annotated[int | None, option("--keep-last", "Keep at least the newest N backups.", "N")] = None,
    older_than: Annotated[
        str | None, option("--older-than", "Only backups older than a time or an age: 90d, '3 months'.", "AGE")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """The newest backup is never removed."""
    from quacklake.lake.connect import prune_backups

    if not dry_run:
        context.confirm(f"Remove old backups in {place} permanently?", yes=yes)
    with stages() as progress:
        done = prune_backups(
            place,
            keep_last=keep_last,
            older_than=older_than,
            dry_run=dry_run,
            config_file=context.options.config_file,
            progress=progress,
        )
    context.output.result(
        f"{plural(len(done.backups), 'backup')} and {plural(done.files, 'file')} ({human_size(done.bytes)})"
        f" {'would be removed' if done.dry_run else 'removed'}, {len(done.kept):,} kept",
        asdict(done),
    )


def restore_backup(
    context: Context,
    place: Place,
    backup: Annotated[str | None, option("--backup", "The backup; by default the newest.", "ID")] = None,
) -> None:
    """The command creates the lake in an empty database, --lake, and an empty folder, --data-path, and verifies it."""
    from quacklake.lake.connect import restore_backup

    if context.config.url is None:
        raise ConfigError("no lake was given", hint="pass --lake, the URL of an empty database of any kind")
    if context.config.data_path is None:
        raise ConfigError("no data path was given", hint="pass --data-path, an empty folder or s3:// URL for the files")
    with (
        stages() as progress,
        restore_backup(
            place,
            context.config.url,
            context.config.data_path,
            backup=backup,
            config_file=context.options.config_file,
            progress=progress,
        ) as lake,
    ):
        snapshot, tables = lake.current_snapshot(), len(lake.tables())
        context.output.result(
            f"restored snapshot {snapshot} with {plural(tables, 'table')} to {lake.url}",
            {"url": lake.url, "data_path": lake.data_path, "snapshot": snapshot, "tables": tables},
        )


def migrate(
    context: Context,
    to: Annotated[str | None, option("--to", "1.0 or 1.1; by default, an older lake gets 1.0.", "VERSION")] = None,
) -> None:
    """Close other clients first: those that do not support the new version cannot open the lake any more.

    A lake of version 1.1 can go back to 1.0, unless it uses features that 1.0 lacks; the error lists them.
    """
    with context.open(write=True) as lake:
        before = lake.version
        after = lake.migrate(to)
        done = f"migrated from format version {before} to {after}"
        if before == after:
            done = f"the lake has format version {after} already"
        context.output.result(done, {"from": before, "to": after, "migrated": before != after})
