"""``quacklake backup``, ``backups``, ``prune-backups`` and ``restore-backup``."""

from __future__ import annotations

import argparse
from dataclasses import asdict

import pyarrow as pa

from quacklake.cli.commands.command import Command
from quacklake.cli.context import Context
from quacklake.cli.output import human_size
from quacklake.cli.progress import stages
from quacklake.errors import ConfigError
from quacklake.lake import backups, prune_backups, restore_backup

__all__ = ["BACKUP", "BACKUPS", "PRUNE_BACKUPS", "RESTORE_BACKUP"]

_COLUMNS = ("id", "time", "snapshot", "database", "files", "bytes")


def _configure_backup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "place", metavar="DEST", help="a folder or s3:// URL outside of the lake; may hold backups already"
    )


def _backup(context: Context) -> None:
    with context.open() as lake, stages() as progress:
        done = lake.backup(context.arguments.place, progress)
    context.output.result(
        f"backed up snapshot {done.snapshot} as {done.id}: {done.files:,} files, {done.copied:,} of them new"
        f" ({human_size(done.bytes_copied)})",
        {
            "id": done.id,
            "snapshot": done.snapshot,
            "files": done.files,
            "copied": done.copied,
            "bytes_copied": done.bytes_copied,
            "skipped": [{"what": each.what, "reason": each.reason} for each in done.skipped],
        },
    )
    if context.output.format == "table":
        for each in done.skipped:
            context.output.result(f"not in it: {each.what}: {each.reason}", {})


def _configure_backups(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("place", metavar="SRC", help="the folder or s3:// URL with the backups")


def _backups(context: Context) -> None:
    found = backups(context.arguments.place, config_file=context.arguments.config)
    rows = {name: [getattr(info, name) for info in found] for name in _COLUMNS}
    types = {"id": pa.string(), "time": pa.string(), "database": pa.string()}
    context.output.rows(
        pa.table({name: pa.array(values, types.get(name, pa.int64())) for name, values in rows.items()})
    )


def _configure_prune(parser: argparse.ArgumentParser) -> None:
    _configure_backups(parser)
    parser.add_argument("--keep-last", metavar="N", type=int, help="keep the newest N backups at least")
    parser.add_argument("--older-than", metavar="AGE", help="a time, or a span such as '90 days'")
    parser.add_argument("--dry-run", action="store_true", help="remove nothing, tell what would be removed")


def _prune(context: Context) -> None:
    arguments = context.arguments
    with stages() as progress:
        done = prune_backups(
            arguments.place,
            keep_last=arguments.keep_last,
            older_than=arguments.older_than,
            dry_run=arguments.dry_run,
            config_file=arguments.config,
            progress=progress,
        )
    count = len(done.backups)
    context.output.result(
        f"{count:,} backup{'' if count == 1 else 's'} and {done.files:,} files ({human_size(done.bytes)})"
        f" {'would be removed' if done.dry_run else 'removed'}, {len(done.kept):,} kept",
        {**asdict(done), "backups": list(done.backups), "kept": list(done.kept)},
    )


def _configure_restore(parser: argparse.ArgumentParser) -> None:
    _configure_backups(parser)
    parser.add_argument("--lake", metavar="URL", required=True, help="the empty database for the metadata")
    parser.add_argument("--backup", metavar="ID", help="which one (default: the newest)")


def _restore(context: Context) -> None:
    arguments = context.arguments
    if context.config.data_path is None:
        raise ConfigError("no data path was given", hint="pass --data-path, an empty folder or s3:// URL for the files")
    with (
        stages() as progress,
        restore_backup(
            arguments.place,
            arguments.lake,
            context.config.data_path,
            backup=arguments.backup,
            config_file=arguments.config,
            progress=progress,
        ) as lake,
    ):
        snapshot, tables = lake.current_snapshot(), len(lake.tables())
        context.output.result(
            f"restored snapshot {snapshot} with {tables} table{'' if tables == 1 else 's'} to {lake.url}",
            {"url": lake.url, "data_path": lake.data_path, "snapshot": snapshot, "tables": tables},
        )


BACKUP = Command(
    "backup", "Back the lake up to another place: its catalog, and the files that are new", _backup, _configure_backup
)
BACKUPS = Command("backups", "List the backups in a place", _backups, _configure_backups)
PRUNE_BACKUPS = Command("prune-backups", "Remove old backups, and the files only they have", _prune, _configure_prune)
RESTORE_BACKUP = Command("restore-backup", "Make a lake of a backup", _restore, _configure_restore)
