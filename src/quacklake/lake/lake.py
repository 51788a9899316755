"""A lake, as users hold it."""

from __future__ import annotations

import datetime as dt
import html
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

from quacklake.errors import InputError
from quacklake.format.limits import Limits
from quacklake.format.snapshots import Snapshot
from quacklake.lake.history import LakeHistory
from quacklake.lake.reading import LakeReader
from quacklake.lake.writing import LakeWriter
from quacklake.operations.boundary import boundary
from quacklake.operations.handles import LakeHandle, SnapshotHandle, TransactionHandle
from quacklake.operations.history import lake_history
from quacklake.operations.options import LakeOptions
from quacklake.operations.signature import Signature
from quacklake.operations.stream_positions import StreamPositions
from quacklake.operations.times import Age
from quacklake.operations.undo import UndoReport
from quacklake.operations.undoing import Version, roll_back_lake
from quacklake.progress import Progress, silent

if TYPE_CHECKING:
    from quacklake.maintenance.backup import BackupReport
    from quacklake.maintenance.expiry import ExpiryReport
    from quacklake.maintenance.lake_maintenance import LakeMaintenance
    from quacklake.maintenance.policy import Policy
    from quacklake.maintenance.removal import CleanupReport, OnPath
    from quacklake.maintenance.scheduler import MaintenanceReport
    from quacklake.maintenance.verify import VerifyReport

__all__ = ["Lake", "LakeAt", "LakeTransaction"]

_SHOWN_TABLES = 30


@boundary
class Lake(LakeWriter):
    """One metadata database and one data path. Safe to share between threads; also a context manager.

    What is less often needed is grouped: ``lake.maintenance``, ``lake.history``, ``lake.options``, ``lake.streams``.
    """

    handle: LakeHandle

    def __init__(self, handle: LakeHandle) -> None:
        super().__init__(handle)
        self.options = LakeOptions(handle)
        self.streams = StreamPositions(handle)
        self.history = LakeHistory(handle)

    @cached_property
    def maintenance(self) -> LakeMaintenance:
        """Compaction, expiry, removal of files, verification and backups."""
        from quacklake.maintenance.lake_maintenance import LakeMaintenance

        return LakeMaintenance(self.handle)

    # -- life --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Give back every connection."""
        self._sessions.close()
        self.handle.close()

    def __enter__(self) -> Lake:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where the metadata is; never with a password."""
        return str(self._context.catalog.url)

    @property
    def catalog(self) -> str | None:
        """The name by which this catalog (tenant) of a shared lake was opened; None for a plain lake."""
        return self._context.catalog.tenant

    @property
    def data_path(self) -> str:
        """Where the files are."""
        return self._context.store.root

    @property
    def version(self) -> str:
        """The version of the DuckLake format of this lake."""
        return self._context.catalog.version

    def migrate(self, to: str | None = None) -> str:
        """Bring the lake to another format version, ``"1.0"`` or ``"1.1"``; returns the version it has then.

        By default a lake of an older version becomes one of 1.0, and one that can be written stays what it is. From 1.1
        a lake goes back to 1.0 unless it holds what 1.0 has no place for: then ``UnsupportedFeatureError`` lists it.
        All or nothing (on MySQL: run it again after a failure). Whoever has the lake open has to open it again.
        """
        self._context.catalog.migrate(to)
        self._context.forget()
        return self.version

    def __repr__(self) -> str:
        if self._context.catalog.closed:
            return f"<Lake {self.url}, closed>"
        which = "" if self.catalog is None else f", catalog {self.catalog}"
        return f"<Lake {self.url}{which}, data in {self.data_path}>"

    def _repr_html_(self) -> str:
        from quacklake.operations.display import html_table

        tables = self._tables()
        rows = pa.table(
            {
                "table": pa.array([table.qualified_name for table in tables], pa.string()),
                "columns": pa.array([", ".join(table.schema.names) for table in tables], pa.string()),
            }
        )
        return f"<p>{html.escape(repr(self))}</p>{html_table(rows.slice(0, _SHOWN_TABLES), total=rows.num_rows)}"

    # -- transactions ------------------------------------------------------------------------------------------------

    def signed(self, message: str | None = None, author: str | None = None, extra: str | None = None) -> Lake:
        """The same lake, whose operations sign their snapshots; closing either closes both."""
        return Lake(LakeHandle(self._context, Signature(author, message, extra)))

    @contextmanager
    def transaction(
        self, message: str | None = None, author: str | None = None, extra: str | None = None
    ) -> Iterator[LakeTransaction]:
        """Many changes, one snapshot: committed when the block ends, rolled back when it raises.

        Inside, reads see the block's own changes. Raises ``CommitConflict`` at the end when another commit excludes it.
        """
        tx = self.handle.begin()
        opened = LakeTransaction(TransactionHandle(self._context, tx))
        try:
            yield opened
            opened.snapshot = self.handle.commit(tx, Signature(author, message, extra))
        except BaseException:
            tx.rollback()
            raise

    # -- time --------------------------------------------------------------------------------------------------------

    def at(
        self,
        version: int | str | None = None,
        timestamp: dt.datetime | str | None = None,
        tag: str | None = None,
    ) -> LakeAt:
        """The lake as it was at a snapshot, by number or tag, or at a time (text or naive times are UTC). Read-only.

        Raises ``SnapshotExpiredError`` when the snapshot has expired.
        """
        return LakeAt(self.handle.at(version, timestamp, tag))

    def snapshots(self) -> pa.Table:
        """Every snapshot: id, time, schema version, changes, author, message, and what it was in words; oldest first.

        ``changes`` are the codes of the format. ``operation`` is what was asked, such as ``MERGE`` or ``RESTORE``, and
        ``description`` says what it did to which table. Of commits of other clients the operation is told by the codes.
        """
        return lake_history(self._context)

    def current_snapshot(self) -> int:
        """The id of the newest snapshot."""
        return self._context.latest().id

    def catalog_bytes(self) -> int | None:
        """Return the bytes that the metadata takes in its database; None for a catalog of a shared lake."""
        return self._context.catalog.size()

    def limits(self) -> Limits:
        """What this catalog (tenant) of a shared lake may take; a plain lake has no limits."""
        self._context.latest()
        return self._context.catalog.limits

    def tag(self, name: str, version: int | None = None, *, replace: bool = False) -> int:
        """Give a snapshot (default: the newest) a name; returns its number. See ``lake.history``."""
        return self.history.tag(name, version, replace=replace)

    def rollback(self, to: Version, *, dry_run: bool = False, progress: Progress = silent) -> UndoReport:
        """Let the whole lake be as it was at a snapshot or a time, in one new snapshot; the history stays.

        Tables made since are dropped, those dropped since come back, all others are restored as ``Table.restore`` does,
        names too; schemas, views, macros, comments and tags are as they were. Options are in no snapshot and stay.
        ``dry_run`` changes nothing and tells what would be done.
        """
        return roll_back_lake(self.handle, to, dry_run=dry_run, progress=progress)

    # -- maintenance -------------------------------------------------------------------------------------------------

    def maintain(self, policy: Policy | None = None, *, progress: Progress = silent) -> MaintenanceReport:
        """Do what is due by a policy: flush, expire, merge, rewrite, clean up.

        Raises ``LeaseHeldError`` when another process is doing so.
        """
        return self.maintenance.maintain(policy, progress=progress)

    def expire_snapshots(
        self,
        older_than: Age | None = None,
        *,
        versions: Iterable[int] | None = None,
        keep_last: int | None = None,
        dry_run: bool = False,
        progress: Progress = silent,
    ) -> ExpiryReport:
        """Remove snapshots, and what only they could see; see ``LakeMaintenance.expire_snapshots``."""
        return self.maintenance.expire_snapshots(
            older_than, versions=versions, keep_last=keep_last, dry_run=dry_run, progress=progress
        )

    def cleanup_old_files(
        self,
        older_than: Age | None = None,
        *,
        cleanup_all: bool = False,
        dry_run: bool = False,
        on_path: OnPath | None = None,
        progress: Progress = silent,
    ) -> CleanupReport:
        """Remove the files that are in no snapshot any more; see ``LakeMaintenance.cleanup_old_files``."""
        return self.maintenance.cleanup_old_files(
            older_than, cleanup_all=cleanup_all, dry_run=dry_run, on_path=on_path, progress=progress
        )

    def delete_orphaned_files(
        self,
        older_than: Age | None = None,
        *,
        cleanup_all: bool = False,
        dry_run: bool = False,
        on_path: OnPath | None = None,
        progress: Progress = silent,
    ) -> CleanupReport:
        """Remove files that the catalog does not name; see ``LakeMaintenance.delete_orphaned_files``."""
        return self.maintenance.delete_orphaned_files(
            older_than, cleanup_all=cleanup_all, dry_run=dry_run, on_path=on_path, progress=progress
        )

    def verify(self, deep: bool = False, progress: Progress = silent) -> VerifyReport:
        """Hold the lake against every rule of its format; see ``LakeMaintenance.verify``."""
        return self.maintenance.verify(deep, progress)

    def backup(self, to: str | Path, progress: Progress = silent) -> BackupReport:
        """Back the lake up to a folder or ``s3://`` URL; see ``LakeMaintenance.backup``."""
        return self.maintenance.backup(to, progress)


@boundary
class LakeAt(LakeReader):
    """A lake at one snapshot. Read-only."""

    handle: SnapshotHandle

    def __init__(self, handle: SnapshotHandle) -> None:
        super().__init__(handle)

    @property
    def snapshot_id(self) -> int:
        """The snapshot this view shows."""
        return self.handle.tx.base.id

    def __repr__(self) -> str:
        return f"<Lake {self._context.catalog.url} at snapshot {self.snapshot_id}>"


@boundary
class LakeTransaction(LakeWriter):
    """An open transaction: the same methods as the lake's, all in one snapshot."""

    handle: TransactionHandle

    def __init__(self, handle: TransactionHandle) -> None:
        super().__init__(handle)
        self.snapshot: Snapshot | None = None

    def rollback(self, to: Version) -> UndoReport:
        """Not possible in an open transaction, which ``raise`` takes back."""
        raise InputError(
            "a lake cannot be rolled back inside a transaction",
            hint="use lake.rollback(to=…) outside; to give up the transaction, leave its block by an exception",
        )

    def mark(self, stream: str, epoch: int, run: str, position: str | None = None) -> None:
        """Let this be batch ``epoch`` of a stream, in the lake once and only once; see ``lake.streams.claim``.

        The end of the block raises ``StreamBatchDoneError`` when the batch is there already, ``StreamFencedError`` when
        another run has claimed the stream, and ``StreamMismatchError`` when the batch before it is not there.
        """
        self.handle.tx.mark(stream, epoch, run, position)

    def __repr__(self) -> str:
        state = (
            f"committed as snapshot {self.snapshot.id}"
            if self.snapshot
            else f"open, on snapshot {self.handle.tx.base.id}"
        )
        return f"<Transaction {state}>"
