"""``quacklake backup``, ``backups``, ``prune-backups`` and ``restore-backup``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from quacklake.cli.context import Context
from quacklake.cli.options import DryRun, Yes
from quacklake.cli.output import human_size, plural
from quacklake.cli.progress import stages
from quacklake.errors import ConfigError

_COLUMNS = ("id", "time", "snapshot", "database", "files", "bytes")

Place = Annotated[
    str, typer.Argument(metavar="SRC", help="the folder or s3:// URL with the backups", show_default=False)
]


def backup(
    context: Context,
    place: Annotated[
        str,
        typer.Argument(
            metavar="DEST", help="a folder or s3:// URL outside of the lake; may hold backups", show_default=False
        ),
    ],
) -> None:
    """An interrupted backup does not exist; the next one goes on with what it has copied."""
    with context.open() as lake, stages() as progress:
        done = lake.backup(place, progress)
    context.output.result(
        f"backed up snapshot {done.snapshot} as {done.id}: {plural(done.files, 'file')}, {done.copied:,} of them new"
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
    for each in done.skipped:
        context.output.say(f"not in it: {each.what}: {each.reason}")


def backups(context: Context, place: Place) -> None:
    """The oldest comes first."""
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
    keep_last: Annotated[
        int | None, typer.Option("--keep-last", metavar="N", help="Keep the newest N backups at least.")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="A time, or a span such as 90d or '3 months'.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """The newest one always stays."""
    from quacklake.lake.connect import prune_backups

    if not dry_run:
        context.confirm(f"Remove old backups in {place} for good?", yes=yes)
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
        {**asdict(done), "backups": list(done.backups), "kept": list(done.kept)},
    )


def restore_backup(
    context: Context,
    place: Place,
    backup: Annotated[
        str | None, typer.Option("--backup", metavar="ID", help="Which one; the newest unless it is given.")
    ] = None,
) -> None:
    """The lake is made in the empty database of --lake and the empty folder of --data-path, and verified."""
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
