"""``quacklake adopt``: register the files of a Delta or Iceberg table, and follow it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from quacklake.cli.context import Context
from quacklake.cli.options import Author, DryRun, Message, TableName, argument, option
from quacklake.cli.output import plural

if TYPE_CHECKING:
    from quacklake.operations.adopting import AdoptReport

_SOURCE = "The foreign table: delta:PATH, or iceberg:PATH with a metadata file or the folder of a table."


def adopt(
    context: Context,
    source: Annotated[str, argument("SOURCE", _SOURCE)],
    table: TableName,
    sync: Annotated[
        bool, option("--sync", "Follow the foreign table: register only what changed since the last time.")
    ] = False,
    create: Annotated[bool, option("--create", "Create the lake and the schema if they do not exist.")] = False,
    dry_run: DryRun = False,
    message: Message = None,
    author: Author = None,
) -> None:
    """Nothing is copied, and the files stay their owner's. Their folder must be in the setting foreign_paths."""
    from quacklake.operations.reference import TableRef

    with context.open(write=True, create=create and not dry_run) as lake:
        if create and not dry_run:
            lake.create_schema(TableRef.parse(table).schema, if_not_exists=True)
        before = lake.current_snapshot()
        report = lake.signed(message, author).adopt(source, table, sync=sync, dry_run=dry_run)
        snapshot = lake.current_snapshot()
        changed = snapshot if snapshot > before and not dry_run else None
    context.output.result(_words(report, table, changed), {**asdict(report), "snapshot": changed})


def _words(report: AdoptReport, table: str, snapshot: int | None) -> str:
    when = f" in snapshot {snapshot}" if snapshot is not None else ""
    if report.created:
        verb = "would adopt" if report.dry_run else "adopted"
        files = f"{plural(report.added_files, 'file')} with {plural(report.added_rows, 'row')}"
        return f"{verb} {files} of {report.source} at version {report.version} as {table}{when}"
    if not (report.added_files or report.removed_files or report.changed_files):
        return f"{table} has the rows of version {report.version} already"
    parts = {"added": report.added_files, "removed": report.removed_files, "changed": report.changed_files}
    counts = ", ".join(f"{plural(count, 'file')} {word}" for word, count in parts.items() if count)
    verb = "would bring" if report.dry_run else "brought"
    return f"{verb} {table} to version {report.version}{when}: {counts}"
