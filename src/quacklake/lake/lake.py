"""The ``Lake`` class, with its snapshots and transactions."""

from __future__ import annotations

import datetime as dt
import html
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

import pyarrow as pa

from quacklake.core.format.objects import Limits
from quacklake.core.format.signatures import Signature
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.lazy import provided
from quacklake.core.operations.context import LakeContext, boundary
from quacklake.core.operations.handles import LakeHandle, SnapshotHandle, TransactionHandle
from quacklake.core.operations.options import LakeHistory, LakeOptions, StreamPositions, lake_history
from quacklake.core.operations.times import Age
from quacklake.core.operations.versions import Version, choose_version
from quacklake.core.progress import Progress, silent
from quacklake.errors import InputError
from quacklake.lake.restoring import UndoReport
from quacklake.lake.transfers import ExportOptions, ExportReport, ImportOptions, ImportReport, export_to, import_from
from quacklake.lake.undoing import roll_back_lake
from quacklake.lake.writing import LakeReader, LakeWriter

if TYPE_CHECKING:
    from quacklake.core.access import LakeAccess
    from quacklake.core.maintenance.backup import BackupReport
    from quacklake.core.maintenance.cleanup import CleanupReport, OnPath
    from quacklake.core.maintenance.expiry import ExpiryReport
    from quacklake.core.maintenance.lake_maintenance import LakeMaintenance
    from quacklake.core.maintenance.policy import Policy
    from quacklake.core.maintenance.scheduler import MaintenanceReport
    from quacklake.core.maintenance.verify import VerifyReport
    from quacklake.core.materialized.definition import RefreshReport
    from quacklake.core.materialized.views import MaterializedViews
    from quacklake.core.storage import Store
    from quacklake.core.transaction import Transaction
    from quacklake.lake.adopting import AdoptReport, ForeignTable
    from quacklake.lake.bisect import Bisection, Check
    from quacklake.lake.diff import LakeDiff
    from quacklake.lake.revert import Choice, RevertReport
    from quacklake.lake.table import Table

_SHOWN_TABLES = 30
T = TypeVar("T")


@boundary
class Lake(LakeWriter):
    """A lake: one metadata database and one data path. Safe to share between threads; also a context manager.

    Less common operations are grouped: ``lake.maintenance``, ``lake.history``, ``lake.options``, ``lake.streams``.
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
        from quacklake.core.maintenance.lake_maintenance import LakeMaintenance

        return LakeMaintenance(self.handle)

    @cached_property
    def materialized_views(self) -> MaterializedViews:
        """The materialized views of the lake: list, describe, refresh, explain, verify and drop them."""
        from quacklake.core.materialized.views import MaterializedViews

        return MaterializedViews(self.handle)

    # -- access --------------------------------------------------------------------------------------------------------

    @cached_property
    def access(self) -> LakeAccess:
        """The users of the lake: their roles, grants and tokens, and the row filters and masks of tables."""
        from quacklake.core.access import LakeAccess

        return LakeAccess(self.handle)

    def as_principal(self, name: str) -> Lake:
        """Return the lake as a user of it may use it: only what grants allow, behind row filters and masks.

        Everything else does not exist, or raises ``NotPermittedError``. What holds is read for each statement. An
        administrator gets this lake itself. Raise ``NotFoundError`` for an unknown user.
        """
        from quacklake.lake.principal import PrincipalHandle, PrincipalLake

        if self.access.rules(name).is_admin:
            return self
        self.access.check_user(name)
        return PrincipalLake(PrincipalHandle(self._context, name.lower()))

    # -- lifetime ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every connection."""
        self._sessions.close()
        if "access" in self.__dict__:
            self.access.flush_audit()
        self.handle.close()

    def __enter__(self) -> Lake:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The URL of the metadata database, without a password."""
        return str(self._context.catalog.url)

    @property
    def catalog(self) -> str | None:
        """The name under which this catalog (tenant) of a shared lake was opened; None for a plain lake."""
        return self._context.catalog.tenant

    @property
    def data_path(self) -> str:
        """The folder or URL that holds the data files."""
        return self._context.store.root

    @property
    def version(self) -> str:
        """The DuckLake format version of this lake."""
        return self._context.catalog.version

    def migrate(self, to: str | None = None) -> str:
        """Convert the lake to format version ``"1.0"`` or ``"1.1"`` and return its version.

        By default, a lake in an older version is upgraded to 1.0, and a writable lake stays as it is. A 1.1 lake can go
        back to 1.0 unless it uses features that 1.0 lacks: ``UnsupportedFeatureError`` then lists them. The migration
        is atomic (on MySQL: run it again after a failure). Every other client must reopen the lake.
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
        from quacklake.core.operations.cells import html_table

        tables = self._tables()
        rows = pa.Table.from_pylist(
            [{"table": table.qualified_name, "columns": ", ".join(table.schema.names)} for table in tables],
            pa.schema([("table", pa.string()), ("columns", pa.string())]),
        )
        return f"<p>{html.escape(repr(self))}</p>{html_table(rows.slice(0, _SHOWN_TABLES), total=rows.num_rows)}"

    def signed(self, message: str | None = None, author: str | None = None, extra: str | None = None) -> Lake:
        """Return the same lake with an author, message and extra text for its snapshots; closing either closes both."""
        return type(self)(self.handle.signed(Signature(author, message, extra)))

    @contextmanager
    def transaction(
        self, message: str | None = None, author: str | None = None, extra: str | None = None
    ) -> Iterator[LakeTransaction]:
        """Group many changes into one snapshot: commit when the block ends, roll back when it raises.

        Reads in the block see its own changes. Its end raises ``CommitConflict`` when another commit conflicts with it.
        """
        tx = self.handle.begin_open()
        try:
            yield self._open(tx)
            self.handle.commit(tx, Signature(author, message, extra))
        except BaseException:
            tx.rollback()
            raise

    def run(
        self,
        work: Callable[[LakeTransaction], T],
        message: str | None = None,
        author: str | None = None,
        extra: str | None = None,
    ) -> T:
        """Commit the changes of ``work``, a function of a transaction, as one snapshot; return what it returns.

        When another commit conflicts with the changes, ``work`` runs again on the newest snapshot: as often as the
        settings say, and with a turn of its own when it keeps losing. Raise ``CommitConflict`` after that.
        """
        signature = Signature(author, message, extra)
        handle = self.handle.signed(signature) if signature.given else self.handle
        return handle.run(lambda tx: work(self._open(tx)))

    def _open(self, tx: Transaction) -> LakeTransaction:
        """Return a transaction as users have it."""
        return LakeTransaction.of(self._context, tx)

    # -- materialized views ------------------------------------------------------------------------------------------

    def create_materialized_view(
        self,
        name: str,
        query: str,
        *,
        refresh: str = "manual",
        engine: str = "auto",
        full: bool = False,
        partition_by: str | Sequence[str] = (),
        replace: bool = False,
        if_not_exists: bool = False,
    ) -> Table:
        """Create a table that holds the answer of a query, and that a refresh brings up to date from the changes.

        ``refresh`` is ``manual``, ``on commit`` or ``every 1 minute``. Raise ``InputError`` for a query that cannot be
        refreshed incrementally; ``full`` allows it, and recomputes the view at every refresh.
        """
        self.materialized_views.create(
            name,
            query,
            refresh=refresh,
            engine=engine,
            full=full,
            partition_by=partition_by,
            replace=replace,
            if_not_exists=if_not_exists,
        )
        return self.table(name)

    def refresh(self, name: str, *, full: bool = False) -> RefreshReport:
        """Bring a materialized view to the newest snapshot, after the views that it reads.

        Raise ``StaleViewError`` when its query can no longer run; the view keeps its rows.
        """
        return self.materialized_views.refresh(name, full=full)

    # -- foreign tables ----------------------------------------------------------------------------------------------

    def adopt(
        self, source: str, as_: str | None = None, *, sync: bool = False, dry_run: bool = False, **options: Any
    ) -> AdoptReport:
        """Register the files of a Delta or Iceberg table as a new table, without copying them, in one snapshot.

        ``source`` is ``"delta:/path"``, ``"delta:s3://bucket/path"``, ``"iceberg:/path/metadata/v3.metadata.json"`` or
        the folder of an Iceberg table; ``as_`` (or ``as`` in a mapping of options) names the table. Rows that are
        deleted there are deleted here. ``sync`` follows the foreign table: call it again to register only what changed
        since. ``dry_run`` reports what would be done. The folder must be in the setting ``foreign_paths``; files there
        are never changed or removed. Raise ``StreamMismatchError`` when the foreign table was replaced by another, or
        when rows of the table were changed here.
        """
        name = options.pop("as", as_)
        if options or not isinstance(name, str):
            wrong = f"there is no option {next(iter(options))!r}" if options else "adopt needs a name for the table"
            raise InputError(wrong, hint='lake.adopt("delta:/path", as_="events")')
        from quacklake.lake.adopting import adopt

        read = partial(foreign_table, self._context.store, source)
        return adopt(self.handle, read, name, sync=sync, dry_run=dry_run)

    def import_from(self, source: str, table: str | None = None, **options: Unpack[ImportOptions]) -> ImportReport:
        """Copy all tables of a source into new tables, and report what was taken over and what was not.

        ``source`` is ``"parquet:FOLDER"`` (or ``csv:``, ``json:``), ``"duckdb:FILE"``, ``"sqlite:FILE"``,
        ``"delta:PLACE"``, ``"iceberg:PLACE"``, ``"postgresql://…"`` or ``"mysql://…"``. ``table`` names the table where
        the source is one; ``schema`` puts all tables into one schema. ``include`` and ``exclude`` are patterns such as
        ``"shop.*"``. ``in_place`` registers Parquet files, Delta and Iceberg tables without copying them. ``map_types``
        says which type values of a type that a lake lacks get. ``options`` are those of the connector, such as
        ``version``; ``csv`` are the :class:`quacklake.CsvOptions` of CSV and JSON files.

        An import that was interrupted goes on where it was: call it again. Raise ``AlreadyExistsError`` for a table
        that another one has made, before anything is written.
        """
        return import_from(self, source, table, **options)

    def export_to(
        self, target: str, tables: str | Sequence[str] = (), **options: Unpack[ExportOptions]
    ) -> ExportReport:
        """Write tables to a target that others read, all of the same snapshot; by default all tables.

        ``target`` is an address as ``import_from`` takes it: a folder of files, a DuckDB file, Delta or Iceberg tables,
        or a PostgreSQL database. ``partition_by`` makes folders such as ``year=2024``. Nothing is shown before it is
        complete, and nothing is replaced unless ``replace`` is true.
        """
        return export_to(self, target, tables, **options)

    def at(
        self,
        version: int | str | None = None,
        timestamp: dt.datetime | str | None = None,
        tag: str | None = None,
        *,
        to: Version | None = None,
    ) -> LakeAt:
        """Return the lake, read-only, at a snapshot id, a tag or a time; ``to`` is any of them.

        Text and naive times are UTC. Raise ``SnapshotExpiredError`` when the snapshot has expired.
        """
        return LakeAt(self.handle.at(version, timestamp, tag, to))

    def snapshots(self, limit: int | None = None, *, before: int | None = None) -> pa.Table:
        """Return the snapshots, oldest first: id, time, schema version, changes, author, message and operation.

        With ``limit`` only the newest ones, or with ``before`` the newest ones before that snapshot.
        ``changes`` holds the change codes of the format. ``operation`` is a word such as ``MERGE`` or ``RESTORE``, and
        ``description`` says what it did to which table. For commits of other clients, both come from the codes.
        """
        return lake_history(self._context, limit, before)

    def current_snapshot(self) -> int:
        """Return the id of the newest snapshot."""
        return self._context.latest().id

    def catalog_bytes(self) -> int | None:
        """Return the size of the metadata in bytes; None for a catalog of a shared lake."""
        return self._context.catalog.size()

    def limits(self) -> Limits:
        """Return the limits of this catalog (tenant) of a shared lake; a plain lake has none."""
        self._context.latest()
        return self._context.catalog.limits

    def tag(self, name: str, version: int | None = None, *, replace: bool = False) -> int:
        """Tag a snapshot (default: the newest) and return its id; see ``LakeHistory.tag``."""
        return self.history.tag(name, version, replace=replace)

    def rollback(
        self,
        to: Version | None = None,
        *,
        version: int | str | None = None,
        timestamp: dt.datetime | str | None = None,
        tag: str | None = None,
        dry_run: bool = False,
        progress: Progress = silent,
    ) -> UndoReport:
        """Restore the whole lake to a snapshot id, a tag or a time, in one new snapshot. The history stays.

        Tables created since then are dropped, and dropped tables come back. All others are restored as by
        ``Table.restore``, including their names. Schemas, views, macros, comments and tags are restored too; options
        are not part of a snapshot and stay as they are. ``dry_run`` changes nothing and reports what would be done.
        """
        chosen = choose_version(to, version=version, timestamp=timestamp, tag=tag)
        return roll_back_lake(self.handle, chosen, dry_run=dry_run, progress=progress)

    def revert(
        self,
        version: Version,
        *,
        on_conflict: Choice = "refuse",
        dry_run: bool = False,
        message: str | None = None,
        author: str | None = None,
    ) -> RevertReport:
        """Take back what one commit did to rows and tables, in one new snapshot, and keep all later commits.

        Rows that were changed again since are conflicts: ``refuse`` raises ``MergeConflictError`` with them and changes
        nothing, ``ours`` keeps them as they are now, ``theirs`` takes them back nevertheless, and ``columns`` joins
        both where different columns were changed. ``dry_run`` changes nothing and reports what would be done, with the
        conflicts. Raise ``UnsupportedFeatureError`` for a commit that altered columns, views or macros.
        """
        from quacklake.lake.revert import revert

        return revert(self, version, on_conflict=on_conflict, dry_run=dry_run, message=message, author=author)

    def diff(self, before: Version, after: Version | None = None, *, progress: Progress = silent) -> LakeDiff:
        """Compare two states of the lake: snapshot ids, tags or times; ``after`` is the newest by default.

        The result lists the tables that differ with the numbers of rows inserted, deleted and updated; its method
        ``rows`` returns the rows of a table that differ. Rows are matched by the primary key of a table, or else by
        their row ids. The work depends on what has changed in between, not on the size of the tables.
        """
        from quacklake.lake.diff import compare

        return compare(self, before, after, progress=progress)

    def bisect(
        self,
        check: Check,
        good: Version | None = None,
        bad: Version | None = None,
        *,
        rows: int = 10,
        progress: Progress = silent,
    ) -> Bisection:
        """Find the commit after which a check fails, by a binary search over the snapshots.

        ``check`` is a query that returns the bad rows (``SELECT * FROM t WHERE price < 0``), or one boolean that is
        true while all is well (``SELECT count(*) = 0 FROM t WHERE price < 0``), or a function that gets a past lake and
        returns True while all is well. ``good`` and ``bad`` are snapshot ids, tags or times: by default the oldest and
        the newest snapshot. Snapshots without the table or column that the check names count as good. At most ``rows``
        bad rows are read. Raise ``InputError`` if the check does not fail at ``bad``, or fails at ``good``.
        """
        from quacklake.lake.bisect import bisect

        return bisect(self, check, good, bad, rows=rows, progress=progress)

    # -- maintenance -------------------------------------------------------------------------------------------------

    def maintain(self, policy: Policy | None = None, *, progress: Progress = silent) -> MaintenanceReport:
        """Run the maintenance that is due under a policy: flush, expire, merge, rewrite, clean up.

        Raise ``LeaseHeldError`` when another process is maintaining the lake.
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
        """Remove snapshots and the data that only they can see; see ``LakeMaintenance.expire_snapshots``."""
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
        """Remove files that no snapshot needs any more; see ``LakeMaintenance.cleanup_old_files``."""
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
        """Remove files that the catalog does not know; see ``LakeMaintenance.delete_orphaned_files``."""
        return self.maintenance.delete_orphaned_files(
            older_than, cleanup_all=cleanup_all, dry_run=dry_run, on_path=on_path, progress=progress
        )

    def verify(self, deep: bool = False, progress: Progress = silent) -> VerifyReport:
        """Check the lake against every rule of the format; see ``LakeMaintenance.verify``."""
        return self.maintenance.verify(deep, progress)

    def backup(self, to: str | Path, progress: Progress = silent) -> BackupReport:
        """Back the lake up to a folder or ``s3://`` URL; see ``LakeMaintenance.backup``."""
        return self.maintenance.backup(to, progress)


@boundary
class LakeAt(LakeReader):
    """A read-only lake at one snapshot."""

    handle: SnapshotHandle

    @property
    def snapshot_id(self) -> int:
        """The id of the snapshot."""
        return self.handle.tx.base.id

    def export_to(
        self, target: str, tables: str | Sequence[str] = (), **options: Unpack[ExportOptions]
    ) -> ExportReport:
        """Write tables as they were to a target that others read; see ``Lake.export_to``."""
        return export_to(self, target, tables, **options)

    def __repr__(self) -> str:
        return f"<Lake {self._context.catalog.url} at snapshot {self.snapshot_id}>"


@boundary
class LakeTransaction(LakeWriter):
    """An open transaction: the methods of a lake, committed together as one snapshot."""

    handle: TransactionHandle

    @classmethod
    @contextmanager
    def scratch(cls, lake: Lake, at: LakeReader | None = None) -> Iterator[Self]:
        """Open a transaction that is never committed, on a state of the lake: for the views and tables of a query.

        Without ``at`` this is the newest snapshot.
        """
        tx = lake.handle.begin(None if at is None else at.handle.view().base, scratch=True)
        try:
            yield cls.of(lake.handle.context, tx)
        finally:
            tx.rollback()

    @classmethod
    def of(cls, context: LakeContext, tx: Transaction) -> Self:
        """Return a transaction of the core as users have it."""
        return cls(TransactionHandle(context, tx))

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot that its commit made, or was based on where there was nothing to commit; None before it."""
        return self.handle.tx.outcome

    def rollback(self, *_: object, **__: object) -> UndoReport:
        """Always raise ``InputError``; to roll back the transaction itself, raise an exception in its block."""
        raise InputError(
            "a lake cannot be rolled back inside a transaction",
            hint="use lake.rollback(to=…) outside; to give up the transaction, leave its block by an exception",
        )

    def mark(self, stream: str, epoch: int, run: str, position: str | None = None) -> None:
        """Commit this transaction as batch ``epoch`` of a stream, exactly once; see ``lake.streams.claim``.

        The end of the block raises ``StreamBatchDoneError`` when the batch is already committed, ``StreamFencedError``
        when another run has claimed the stream, and ``StreamMismatchError`` when the previous batch is missing.
        """
        self.handle.tx.mark(stream, epoch, run, position)

    def __repr__(self) -> str:
        if self.snapshot is not None:
            return f"<Transaction committed as snapshot {self.snapshot.id}>"
        return f"<Transaction open, on snapshot {self.handle.tx.base.id}>"


@provided
def foreign_table(store: Store, source: str) -> ForeignTable:
    """Return the current version of the foreign table that ``kind:place`` names."""
    raise NotImplementedError
