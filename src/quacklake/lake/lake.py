"""A lake, as users hold it."""

from __future__ import annotations

import datetime as dt
import html
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, overload

import duckdb
import pyarrow as pa

from quacklake.engines.duckdb.remote import connect_store
from quacklake.errors import InputError, NotFoundError
from quacklake.format.keys import PRIMARY_KEY, key_tag, with_required
from quacklake.format.names import check_name, full_name, quote
from quacklake.format.objects import MacroInfo, TableInfo
from quacklake.format.operations import Operation
from quacklake.format.schema import TableSchema, from_arrow
from quacklake.format.snapshots import Snapshot
from quacklake.lake.options import Configuring
from quacklake.lake.speaking import SpeaksSql
from quacklake.lake.streams import Streaming
from quacklake.lake.table import Table
from quacklake.lake.undo import RollingBack, Undropping
from quacklake.maintenance.backing_up import BackingUp
from quacklake.maintenance.lake_expiry import Expiring
from quacklake.maintenance.lake_maintenance import Maintaining
from quacklake.maintenance.table_maintenance import LakeCompaction
from quacklake.maintenance.verification import Verifying
from quacklake.operations import dml, layout
from quacklake.operations.boundary import boundary
from quacklake.operations.column_types import to_schema
from quacklake.operations.context import Shared
from quacklake.operations.dataframe import DataFrame
from quacklake.operations.frames import to_source
from quacklake.operations.handles import Handle, LakeHandle, SnapshotHandle, TransactionHandle
from quacklake.operations.history import lake_history
from quacklake.operations.macros import Parameters, make_variant
from quacklake.operations.reference import TableRef, name_parts, renamed
from quacklake.operations.signature import Signature
from quacklake.operations.source import Input
from quacklake.operations.views import View, check_macro, check_view
from quacklake.scan import Filter
from quacklake.storage import Store
from quacklake.tenancy.limits import Limited
from quacklake.transaction import Transaction

__all__ = ["Lake", "LakeAt", "LakeTransaction"]

_SHOWN_TABLES = 30


class _Reading(SpeaksSql):
    """What a lake, a past snapshot and an open transaction have in common."""

    handle: Handle

    @property
    def _shared(self) -> Shared:
        return self.handle.shared

    def table(self, name: str) -> Table:
        """A table by its name, ``schema.table`` or ``table`` in ``main``. Whether it exists shows when it is used."""
        ref = TableRef.parse(name, nested=self._shared.catalog.is_next)
        return Table(self.handle, ref)

    def __getitem__(self, name: str) -> Table:
        """A table that is there: ``lake["t"]``, ``lake["schema.t"]``. Raises ``NotFoundError`` with names like it."""
        table = self.table(name)
        view = self.handle.view()
        ref = TableRef.parse(name)
        if view.get_table(ref.schema, ref.name) is None and view.objects.get_view(ref.schema, ref.name) is not None:
            raise NotFoundError(f"{name} is a view, not a table", hint=f'use lake.view("{name}")')
        view.find_table(ref.schema, ref.name)
        return table

    def __contains__(self, name: object) -> bool:
        """True for the name of a table: ``"t" in lake``."""
        if not isinstance(name, str):
            return False
        ref = TableRef.parse(name)
        return self.handle.view().get_table(ref.schema, ref.name) is not None

    def __iter__(self) -> Iterator[str]:
        """The names of the tables, as ``tables`` gives them."""
        return iter(self.tables())

    def _ipython_key_completions_(self) -> list[str]:
        return [name.removeprefix("main.") for name in self.tables()]

    def scan(self, name: str, columns: Sequence[str] | None = None, where: Filter | None = None) -> DataFrame:
        """A lazy frame over a table."""
        return self.table(name).scan(columns, where)

    def schemas(self) -> list[str]:
        """The names of the schemas."""
        return [info.name for info in self.handle.view().schemas()]

    def tables(self, schema: str | None = None) -> list[str]:
        """The names of the tables, ``schema.table``."""
        return [info.qualified_name for info in self._tables() if schema is None or info.schema_name == schema]

    def _tables(self) -> list[TableInfo]:
        return self.handle.view().tables()

    def view(self, name: str) -> View:
        """A view by its name, ``schema.view`` or ``view`` in ``main``. Whether it exists shows when it is used."""
        ref = TableRef.parse(name, nested=self._shared.catalog.is_next)
        return View(self.handle, ref)

    def views(self, schema: str | None = None) -> list[str]:
        """The names of the views, ``schema.view``."""
        found = self.handle.view().objects.views()
        return [view.qualified_name for view in found if schema is None or view.schema_name == schema]

    def macros(self, schema: str | None = None) -> list[MacroInfo]:
        """The macros: their names, parameters and SQL."""
        return [macro for macro in self.handle.view().objects.macros() if schema is None or macro.schema_name == schema]

    @overload
    def register(self, target: duckdb.DuckDBPyConnection) -> None: ...

    @overload
    def register(self, target: str, rows: Any) -> None: ...

    def register(self, target: duckdb.DuckDBPyConnection | str, rows: Any = None) -> None:
        """Make rows a table for SQL, or every table of the lake a view in a DuckDB connection.

        ``register("wanted", df)`` lets ``sql`` speak of ``wanted`` until ``unregister``: a frame, Arrow data, or what
        else ``append`` takes, but for files, which SQL reads itself. Other threads see it, too.

        ``register(connection)`` makes views of the tables as they are at this moment: they do not follow the lake, as
        ``Table.to_duckdb`` does. The connection's own SQL then runs over the lake's files, and views in ``main`` are
        also there without a schema.
        """
        if isinstance(target, str):
            self._session().register(target, rows)
            return
        connection = target
        view = self.handle.view()
        connect_store(connection, self._shared.store)
        for info in view.tables():
            query = self._shared.engine.bind(connection, view.plan(info))
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(info.schema_name)}")
            connection.execute(f"CREATE OR REPLACE VIEW {quote(info.schema_name)}.{quote(info.name)} AS {query}")

    def unregister(self, name: str) -> None:
        """Forget rows that ``register`` has given a name."""
        self._session().unregister(name)


class _Writing(_Reading):
    """Schemas and tables, made and dropped."""

    def create_schema(self, name: str, *, parent: str | None = None, if_not_exists: bool = False) -> None:
        """Add a schema, or with ``parent`` one inside another, which a lake of the format version 1.1 can have.

        Such a schema is called ``"parent"."name"``, and a table in it ``parent.name.table``.
        """
        full = name if parent is None else full_name([*name_parts(parent), check_name(name, "schema")])
        self.handle.run(lambda tx: tx.create_schema(full, if_not_exists=if_not_exists))

    def drop_schema(self, name: str, *, cascade: bool = False) -> None:
        """Drop a schema; with ``cascade`` also its tables and the schemas inside it."""
        self.handle.run(lambda tx: tx.drop_schema(name, cascade=cascade))

    def create_table(
        self,
        name: str,
        columns: Any,
        *,
        primary_key: str | Sequence[str] | None = None,
        if_not_exists: bool = False,
        replace: bool = False,
        partition_by: str | Sequence[str] = (),
        sort_by: str | Sequence[str] = (),
    ) -> Table:
        """Add a table.

        ``columns`` is a mapping of names to types, an Arrow schema, or data: rows or files, as ``Table.append`` takes
        them, which then fill the table in the same snapshot. A type is SQL's (``"BIGINT"``, ``"VARCHAR NOT NULL"``),
        Python's (``int``, ``list[str]``, ``{"x": float}`` for a struct), or that of Arrow, pandas or polars.
        ``primary_key`` is what ``merge`` and ``append(dedup=True)`` go by; its columns take no NULL. Other writers, and
        a plain ``append``, do not check it. With ``replace`` a table of that name is dropped in the same snapshot.
        ``partition_by`` and ``sort_by`` are keys as ``Table.set_partitioned_by`` and ``Table.set_sorted_by`` take them.
        """
        if replace and if_not_exists:
            raise InputError("pass replace=True or if_not_exists=True, not both")
        ref = TableRef.parse(name)
        schema, source = _schema_of(columns, self._shared.store)
        keys = [primary_key] if isinstance(primary_key, str) else list(primary_key or ())
        tag = key_tag(schema, keys) if primary_key is not None else None
        schema = with_required(schema, keys)

        def work(tx: Transaction) -> None:
            existing = tx.get_table(ref.schema, ref.name)
            if if_not_exists and existing is not None:
                return
            if replace and existing is not None:
                tx.drop_table(existing)
            info = layout.create_table(self._shared, tx, ref, schema, partition_by, sort_by)
            if tag is not None:
                tx.objects.set_tags(info, {PRIMARY_KEY: tag})
            if source is not None and tag is not None and not source.empty:
                dml.merge(self._shared, tx, info, source, keys, asked=Operation.INSERT)
            elif source is not None:
                dml.append(self._shared, tx, info, source)

        self.handle.run(work, replayable=source is None or source.replayable)
        return self.table(name)

    def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a table; its rows stay readable at older snapshots."""
        ref = TableRef.parse(name)

        def work(tx: Transaction) -> None:
            if if_exists and tx.get_table(ref.schema, ref.name) is None:
                return
            tx.drop_table(tx.find_table(ref.schema, ref.name))

        self.handle.run(work)

    def rename_table(self, name: str, new_name: str) -> Table:
        """Give a table another name in its schema."""
        ref = TableRef.parse(name)
        target = renamed(ref, new_name, "table")
        self.handle.run(lambda tx: tx.rename_table(tx.find_table(ref.schema, ref.name), target.name))
        return self.table(f"{quote(ref.schema)}.{quote(target.name)}")

    # -- views and macros --------------------------------------------------------------------------------------------

    def create_view(self, name: str, sql: str, *, columns: Sequence[str] | None = None, replace: bool = False) -> View:
        """Add a view: a query over the lake's tables and views that every client can read.

        Tables are named ``table`` or ``schema.table``; a name without a schema means the view's own, then ``main``.
        ``columns`` are other names for the first columns. Raises ``InputError`` for a query that cannot run.
        """
        ref = TableRef.parse(name)
        aliases = () if columns is None else tuple(check_name(column, "column") for column in columns)

        def work(tx: Transaction) -> None:
            owner = tx.find_schema(ref.schema)
            text = check_view(self._shared, tx, owner.name, sql, aliases)
            tx.objects.create_view(owner.name, ref.name, text, aliases, replacing=replace)

        self.handle.run(work)
        return self.view(name)

    def drop_view(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a view; older snapshots keep it."""
        ref = TableRef.parse(name)

        def work(tx: Transaction) -> None:
            if if_exists and tx.objects.get_view(ref.schema, ref.name) is None:
                return
            tx.objects.drop(tx.objects.find_view(ref.schema, ref.name))

        self.handle.run(work)

    def rename_view(self, name: str, new_name: str) -> View:
        """Give a view another name in its schema."""
        ref = TableRef.parse(name)
        target = renamed(ref, new_name, "view")
        self.handle.run(lambda tx: tx.objects.rename_view(tx.objects.find_view(ref.schema, ref.name), target.name))
        return self.view(f"{quote(ref.schema)}.{quote(target.name)}")

    def create_macro(
        self, name: str, parameters: Parameters, sql: str, *, table: bool = False, replace: bool = False
    ) -> None:
        """Add a macro that DuckDB clients can call: an expression, or with ``table`` a query.

        ``parameters`` are names, or a mapping of names to defaults (None: it has none).
        """
        ref = TableRef.parse(name)
        given = make_variant(parameters, sql)

        def work(tx: Transaction) -> None:
            owner = tx.find_schema(ref.schema)
            variant = check_macro(self._shared, tx, owner.name, given, is_table=table)
            tx.objects.create_macro(owner.name, ref.name, (variant,), is_table=table, replacing=replace)

        self.handle.run(work)

    def drop_macro(self, name: str, *, table: bool = False, if_exists: bool = False) -> None:
        """Drop a macro; older snapshots keep it."""
        ref = TableRef.parse(name)

        def work(tx: Transaction) -> None:
            if if_exists and tx.objects.get_macro(ref.schema, ref.name, is_table=table) is None:
                return
            tx.objects.drop(tx.objects.find_macro(ref.schema, ref.name, is_table=table))

        self.handle.run(work)


@boundary
class Lake(
    RollingBack,
    _Writing,
    LakeCompaction,
    Expiring,
    Maintaining,
    Verifying,
    BackingUp,
    Configuring,
    Streaming,
    Limited,
):
    """One metadata database and one data path. Safe to share between threads; also a context manager."""

    handle: LakeHandle

    def __init__(self, handle: LakeHandle) -> None:
        self.handle = handle

    # -- life --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Give back every connection."""
        self._end_session()
        self._shared.engine.close()
        self._shared.catalog.close()

    def __enter__(self) -> Lake:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where the metadata is; never with a password."""
        return str(self._shared.catalog.url)

    @property
    def catalog(self) -> str | None:
        """The name by which this catalog (tenant) of a shared lake was opened; None for a plain lake."""
        return self._shared.catalog.tenant

    @property
    def data_path(self) -> str:
        """Where the files are."""
        return self._shared.store.root

    @property
    def version(self) -> str:
        """The version of the DuckLake format of this lake."""
        return self._shared.catalog.version

    def migrate(self, to: str | None = None) -> str:
        """Bring the lake to another format version, ``"1.0"`` or ``"1.1"``; returns the version it has then.

        By default a lake of an older version becomes one of 1.0, and one that can be written stays what it is. From 1.1
        a lake goes back to 1.0 unless it holds what 1.0 has no place for: then ``UnsupportedFeatureError`` lists it.
        All or nothing (on MySQL: run it again after a failure). Whoever has the lake open has to open it again.
        """
        self._shared.catalog.migrate(to)
        self._shared.forget()
        return self.version

    def __repr__(self) -> str:
        if self._shared.catalog.closed:
            return f"<Lake {self.url}, closed>"
        state = f"snapshot {self._shared.latest().id}, {len(self.tables())} tables"
        which = "" if self.catalog is None else f", catalog {self.catalog}"
        return f"<Lake {self.url}{which} at {state}, data in {self.data_path}>"

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
        return Lake(LakeHandle(self._shared, Signature(author, message, extra)))

    @contextmanager
    def transaction(
        self, message: str | None = None, author: str | None = None, extra: str | None = None
    ) -> Iterator[LakeTransaction]:
        """Many changes, one snapshot: committed when the block ends, rolled back when it raises.

        Inside, reads see the block's own changes. Raises ``CommitConflict`` at the end when another commit excludes it.
        """
        tx = self.handle.begin()
        opened = LakeTransaction(TransactionHandle(self._shared, tx))
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
        return lake_history(self._shared)

    def current_snapshot(self) -> int:
        """The id of the newest snapshot."""
        return self._shared.latest().id

    def catalog_bytes(self) -> int | None:
        """Return the bytes that the metadata takes in its database; None for a catalog of a shared lake."""
        return self._shared.catalog.size()


@boundary
class LakeAt(_Reading):
    """A lake at one snapshot. Read-only."""

    handle: SnapshotHandle

    def __init__(self, handle: SnapshotHandle) -> None:
        self.handle = handle

    @property
    def snapshot_id(self) -> int:
        """The snapshot this view shows."""
        return self.handle.tx.base.id

    def __repr__(self) -> str:
        return f"<Lake at snapshot {self.snapshot_id}, {len(self.tables())} tables>"


@boundary
class LakeTransaction(Undropping, _Writing):
    """An open transaction: the same methods as the lake's, all in one snapshot."""

    handle: TransactionHandle

    def __init__(self, handle: TransactionHandle) -> None:
        self.handle = handle
        self.snapshot: Snapshot | None = None

    def mark(self, stream: str, epoch: int, run: str, position: str | None = None) -> None:
        """Let this be batch ``epoch`` of a stream, in the lake once and only once; see ``Lake.claim_stream``.

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


def _schema_of(columns: Any, store: Store) -> tuple[TableSchema, Input | None]:
    """The schema to create, and the rows that come with it."""
    schema = to_schema(columns)
    if schema is not None:
        return schema, None
    source = to_source(columns, store)
    return from_arrow(source.opened().schema), source
