"""What a lake keeps of its past: expiry of snapshots, removal of their files, and names for snapshots."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from operator import index

import pyarrow as pa

from quacklake.catalog import snapshot_tags
from quacklake.catalog.expiring import names_of
from quacklake.errors import ConfigError, InputError
from quacklake.format.options import format_option
from quacklake.format.snapshots import SnapshotTag, check_tag
from quacklake.maintenance.cleanup import cleanup_old_files
from quacklake.maintenance.expiry import ExpiryReport, ExpiryRequest, expire_snapshots
from quacklake.maintenance.orphans import delete_orphaned_files
from quacklake.maintenance.removal import CleanupReport, OnPath
from quacklake.maintenance.reports import Progress, silent
from quacklake.operations.context import Shared
from quacklake.operations.handles import Handle
from quacklake.operations.reference import TableRef
from quacklake.operations.times import Age, before, span

__all__ = ["DELETE_AFTER", "Expiring"]

DELETE_AFTER = dt.timedelta(days=2)
"""How long a file waits for its removal where the lake does not say, as in stock DuckLake."""


class Expiring:
    """Expiry, removal and tags of a lake."""

    handle: Handle

    @property
    def _shared(self) -> Shared:
        return self.handle.shared

    # -- expiry ------------------------------------------------------------------------------------------------------

    def expire_snapshots(
        self,
        older_than: Age | None = None,
        *,
        versions: Iterable[int] | None = None,
        keep_last: int | None = None,
        dry_run: bool = False,
        progress: Progress = silent,
    ) -> ExpiryReport:
        """Remove snapshots, and what only they could see; files are then removed by ``cleanup_old_files``.

        ``older_than`` is a time (naive ones are UTC) or a span of time such as ``"7 days"``; without any argument the
        option ``expire_older_than`` holds, and nothing expires when it is not set. ``versions`` names snapshots
        instead. ``keep_last`` snapshots stay at least; where no age is given or set, all others go.

        The newest snapshot, snapshots with a tag and those that a table keeps for itself (``set_retention``) stay: the
        report says so. Raises ``InputError`` when one of them is among ``versions``, ``NotFoundError`` for a version
        that does not exist.
        """
        if versions is not None and (older_than is not None or keep_last is not None):
            raise InputError(
                "expire_snapshots cannot specify both 'versions' and 'older_than' or 'keep_last'",
                hint="pass versions= alone",
            )
        if keep_last is not None and _version(keep_last) < 1:
            raise InputError(f"keep_last must be a number from 1, not {keep_last!r}")
        named = None if versions is None else tuple(_version(version) for version in versions)
        limit = None if named is not None else self._limit(older_than, "expire_older_than")
        shared = self._shared
        return expire_snapshots(
            shared.catalog,
            shared.store,
            ExpiryRequest(limit, named, keep_last),
            retry=shared.retry,
            dry_run=dry_run,
            progress=progress,
        )

    def _limit(self, older_than: Age | None, option: str) -> dt.datetime | None:
        """The time before which something is old enough: as given, else as the lake has it, else None."""
        if older_than is not None:
            return before(older_than)
        self._shared.forget_options()
        age = self._shared.effective(option, None, None)
        return None if age is None else before(age)

    def set_retention(self, table: str, keep: dt.timedelta | str | None) -> None:
        """Let a table keep its history longer than the lake: snapshots of that span that changed it do not expire.

        None takes it back. A span shorter than the lake's ``expire_older_than`` is refused: rows of the table would be
        missing in snapshots that other clients can still read. Stock clients do not know of this.
        """
        text = None
        if keep is not None:
            wanted = span(keep)
            self._shared.forget_options()
            whole = self._shared.effective("expire_older_than", None, None)
            if whole is not None and wanted < whole:
                raise ConfigError(
                    f"a table cannot keep its history for less time than the lake, which keeps {whole}",
                    hint="rows of it would be missing in snapshots that can still be read: set expire_older_than",
                )
            text = format_option("expire_older_than", keep)
        ref = TableRef.parse(table)
        found = self.handle.view().find_table(ref.schema, ref.name)
        with self._shared.catalog.commit() as writer:
            writer.check_there()
            snapshot_tags.put_retention(writer, found.id, text)

    def retentions(self) -> dict[str, str]:
        """The tables that keep their history longer than the lake, and for how long."""
        with self._shared.catalog.read() as reader:
            reader.check_there()
            spans = snapshot_tags.retention(reader)
            names = names_of(reader, sorted(spans))
        return {names[id_]: keep for id_, keep in spans.items() if id_ in names}

    # -- removal -----------------------------------------------------------------------------------------------------

    def cleanup_old_files(
        self,
        older_than: Age | None = None,
        *,
        cleanup_all: bool = False,
        dry_run: bool = False,
        on_path: OnPath | None = None,
        progress: Progress = silent,
    ) -> CleanupReport:
        """Remove the files that are in no snapshot any more, as expiry and compaction have left them.

        They must have been left before ``older_than`` (default: the option ``delete_older_than``, else two days), so
        that reads which have begun can end; with ``cleanup_all`` all go. A file that a table still has, and one that is
        not below the data path, is never removed. Files that cannot be removed now stay for the next time. The report
        has the first paths; ``on_path`` is told every one, also in a dry run.
        """
        limit = self._removal_limit(older_than, cleanup_all)
        if limit is None and not cleanup_all:
            limit = before(DELETE_AFTER)
        return self._remove(cleanup_old_files, limit, dry_run=dry_run, on_path=on_path, progress=progress)

    def delete_orphaned_files(
        self,
        older_than: Age | None = None,
        *,
        cleanup_all: bool = False,
        dry_run: bool = False,
        on_path: OnPath | None = None,
        progress: Progress = silent,
    ) -> CleanupReport:
        """Remove files below the data path that the catalog does not name, left by crashes and failed commits.

        They must have been written before ``older_than`` (default: the setting ``orphan_grace``, or the option
        ``delete_older_than`` where that is longer). The files of an open transaction are not named either: give it time
        to end, and use ``cleanup_all`` only when nobody writes. Only files with names of the lake's own kind, in the
        lake's own folders, are removed. ``on_path`` is told the path of every one.
        """
        limit = self._removal_limit(older_than, cleanup_all)
        if older_than is None and not cleanup_all:
            grace = before(self._shared.config.orphan_grace)
            limit = grace if limit is None else min(limit, grace)
        return self._remove(delete_orphaned_files, limit, dry_run=dry_run, on_path=on_path, progress=progress)

    def _remove(
        self,
        work: Callable[..., CleanupReport],
        limit: dt.datetime | None,
        *,
        dry_run: bool,
        on_path: OnPath | None,
        progress: Progress,
    ) -> CleanupReport:
        shared = self._shared
        return work(
            shared.catalog,
            shared.store,
            before=limit,
            threads=shared.config.cleanup_threads,
            keep=shared.config.report_paths,
            dry_run=dry_run,
            on_path=on_path,
            progress=progress,
        )

    def _removal_limit(self, older_than: Age | None, cleanup_all: bool) -> dt.datetime | None:
        if self._shared.catalog.read_only:
            raise self._shared.catalog.refusal()
        if cleanup_all and older_than is not None:
            raise InputError("pass older_than= or cleanup_all=True, not both")
        return None if cleanup_all else self._limit(older_than, "delete_older_than")

    # -- tags --------------------------------------------------------------------------------------------------------

    def tag(self, name: str, version: int | None = None, *, replace: bool = False) -> int:
        """Give a snapshot (default: the newest) a name; returns its number.

        A snapshot with a tag does not expire, unless a client that knows no tags expires it, and ``lake.at(tag=…)``
        reads it. With ``replace`` a tag may move. Raises ``InvalidNameError``, ``AlreadyExistsError``.
        """
        check_tag(name)
        with self._shared.catalog.commit() as writer:
            snapshot = writer.latest() if version is None else writer.at_version(_version(version))
            tag = SnapshotTag(name, snapshot.id, dt.datetime.now(dt.UTC))
            snapshot_tags.add_tag(writer, tag, replace=replace)
        return snapshot.id

    def untag(self, name: str) -> None:
        """Take a tag away; its snapshot may expire then. Raises ``NotFoundError``."""
        check_tag(name)
        with self._shared.catalog.commit() as writer:
            writer.check_there()
            snapshot_tags.remove_tag(writer, name)

    def tags(self) -> pa.Table:
        """Every tag: its name, its snapshot and when it was given."""
        with self._shared.catalog.read() as reader:
            reader.check_there()
            found = snapshot_tags.tags(reader)
        columns = {
            "tag": pa.array([tag.name for tag in found], pa.string()),
            "snapshot_id": pa.array([tag.snapshot_id for tag in found], pa.int64()),
            "created": pa.array([tag.created for tag in found], pa.timestamp("us", tz="UTC")),
        }
        return pa.table(columns)


def _version(version: object) -> int:
    try:
        if isinstance(version, bool):
            raise TypeError
        number = index(version)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"a version is the number of a snapshot, not {version!r}") from None
    if number < 0:
        raise InputError(f"a snapshot cannot be {number}", hint="snapshots are numbered from 0")
    return number
