"""``pond backup``, ``backups``, ``prune-backups``, ``restore``, ``push`` and ``pull``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from quacklake.cli.options import DryRun, Yes, argument, option
from quacklake.cli.output import human_size, plural
from quacklake.cli.pond.context import PondContext
from quacklake.cli.progress import stages
from quacklake.config import redact

if TYPE_CHECKING:
    from quacklake.pond.backup import BackupDone, BackupPlace

KeyFile = Annotated[
    str | None,
    option("--key-file", "A file with the key of encrypted backups, instead of QUACKLAKE_BACKUP_KEY.", "FILE"),
]
Source = Annotated[str, argument("SRC", "The folder or s3:// URL of the backups.")]
RemoteName = Annotated[str | None, argument("REMOTE", "The name of a remote; by default the only one.")]


def _place(context: PondContext, url: str, key_file: str | None) -> BackupPlace:
    from quacklake.config import resolve
    from quacklake.errors import ConfigError
    from quacklake.pond.backup import BackupPlace

    given: dict[str, Any] = {}
    if key_file is not None:
        try:
            given["backup_key"] = Path(key_file).read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise ConfigError(f"the file {key_file} of the key cannot be read") from None
    return BackupPlace(url, resolve(given, config_file=context.options.config_file))


def _tell(context: PondContext, done: BackupDone, where: str) -> None:
    made = done.backup
    context.output.result(
        f"backed up transaction #{made.txn_seq:03d} to {where} as {made.id}: {plural(done.files, 'file')},"
        f" {done.copied:,} of them new ({human_size(done.bytes_copied)})",
        {**asdict(made), "files": done.files, "copied": done.copied, "bytes_copied": done.bytes_copied},
    )


def backup(
    context: PondContext,
    place: Annotated[str, argument("DEST", "A folder or s3:// URL; it may have older backups of the same pond.")],
    key_file: KeyFile = None,
) -> None:
    """Only what is new is copied. An interrupted backup does not exist; the next one uses what it has copied."""
    from quacklake.pond.backup import backup as back_up

    target = _place(context, place, key_file)
    with context.pond(write=True) as pond, stages() as progress:
        done = back_up(pond, target, progress)
    _tell(context, done, redact(place))


def backups(context: PondContext, place: Source, key_file: KeyFile = None) -> None:
    """The oldest backup comes first."""
    import pyarrow as pa

    rows = [
        {"id": each.id, "time": each.time, "txn_seq": each.txn_seq, "large_files": each.large_files}
        for each in _place(context, place, key_file).backups()
    ]
    types: dict[str, Any] = {"id": pa.string(), "time": pa.string(), "txn_seq": pa.int64(), "large_files": pa.int64()}
    context.output.rows(pa.Table.from_pylist(rows, pa.schema(list(types.items()))))


def prune_backups(
    context: PondContext,
    place: Source,
    keep_last: Annotated[int | None, option("--keep-last", "Keep at least the newest N backups.", "N")] = None,
    older_than: Annotated[
        str | None, option("--older-than", "Only backups older than a time or an age: 90d, '3 months'.", "AGE")
    ] = None,
    key_file: KeyFile = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """The newest backup is never removed."""
    from quacklake.pond.pruning import prune

    source = _place(context, place, key_file)
    if not dry_run:
        context.confirm(f"Remove old backups in {redact(place)} permanently?", yes=yes)
    with stages() as progress:
        done = prune(source, keep_last=keep_last, older_than=older_than, dry_run=dry_run, progress=progress)
    context.output.result(
        f"{plural(len(done.backups), 'backup')} and {plural(done.files, 'file')} ({human_size(done.bytes)})"
        f" {'would be removed' if done.dry_run else 'removed'}, {len(done.kept):,} kept",
        asdict(done),
    )


def restore(
    context: PondContext,
    place: Source,
    backup: Annotated[str | None, option("--backup", "The backup; by default the newest.", "ID")] = None,
    key_file: KeyFile = None,
) -> None:
    """The pond is made where --pond or POND says, in a database of any kind; every byte is verified on its way."""
    from quacklake.pond.backup import restore as restore_pond
    from quacklake.pond.places import find

    source = _place(context, place, key_file)
    config_file = context.options.config_file
    with (
        stages() as progress,
        restore_pond(source, find(context.place), backup, progress, config_file=config_file) as pond,
    ):
        last = pond.last_commit()
        facts = {"pond": redact(context.place), "txn_seq": last.txn_seq, "snapshot": last.snapshot_id}
        context.output.result(f"restored transaction #{last.txn_seq:03d} to {redact(context.place)}", facts)


def push(context: PondContext, remote: RemoteName = None) -> None:
    """A remote is a resource of the kind Remote. With auto_push: true every change is pushed by itself."""
    from quacklake.pond.remotes import find
    from quacklake.pond.remotes import push as push_to

    with context.pond(write=True) as pond, stages() as progress:
        done = push_to(pond, find(pond.fs(), remote), progress, context.options.config_file)
    _tell(context, done, remote or "the remote")


def pull(context: PondContext, remote: RemoteName = None) -> None:
    """A pond that is an older copy of the same pond gets the newer state. Nothing is lost: a pond that has changes of
    its own is refused.
    """
    from quacklake.pond.remotes import find
    from quacklake.pond.remotes import pull as pull_from

    with context.pond(write=True) as pond, stages() as progress:
        found = pull_from(pond, find(pond.fs(), remote), progress, context.options.config_file)
    if found is None:
        context.output.result("the pond is up to date", {"pulled": None})
    else:
        context.output.result(f"pulled up to transaction #{found.txn_seq:03d}", {"pulled": found.id})
