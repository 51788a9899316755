"""The methods that lakes, past snapshots and open transactions share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from quacklake.core.engines.duckdb.connections import connect_store
from quacklake.core.format.evolution import PRIMARY_KEY, key_tag, with_required
from quacklake.core.format.names import check_name, full_name, quote
from quacklake.core.format.objects import MacroInfo, TableInfo, ViewInfo
from quacklake.core.format.schema import TableSchema, from_arrow
from quacklake.core.format.snapshots import Operation
from quacklake.core.operations import dml, evolution
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.handles import Handle, HasHandle
from quacklake.core.operations.reference import TableRef, name_parts, renamed
from quacklake.core.operations.sources import Input
from quacklake.core.operations.views import Parameters, check_macro, make_variant
from quacklake.core.scan import Filter
from quacklake.core.sql.sessions import LakeSessions
from quacklake.core.sql.views import check_view
from quacklake.core.storage import Store
from quacklake.core.transaction import Transaction
from quacklake.errors import InputError, NotFoundError
from quacklake.inputs.column_types import to_schema
from quacklake.inputs.frames import to_source
from quacklake.lake.registered_views import register_views
from quacklake.lake.restoring import UndoReport
from quacklake.lake.table import Table
from quacklake.lake.table_scan import TableScan
from quacklake.lake.undoing import undrop
from quacklake.lake.view import View

if TYPE_CHECKING:
    import duckdb

    from quacklake.core.sql.result import Result


class LakeReader:
    """Reads tables and views and runs SQL; the base of lakes, past snapshots and transactions."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self._sessions = LakeSessions(handle, reuse=True)

    def sql(self, text: str, params: Sequence[Any] | dict[str, Any] | None = None) -> Result:
        """Run one or more SQL statements and return the result of the last one.

        ``params`` holds values for ``?`` and ``$1`` (a list) or for ``$name`` (a dictionary). Tables are named
        ``table`` or ``schema.table``. Each thread has its own lasting session, so a ``BEGIN`` stays open until
        ``COMMIT``. Raise ``SqlError``, or the error of the operation itself.
        """
        return self._sessions.current()._from(text, params)

    def attach(self, lake: HasHandle, alias: str) -> None:
        """Let ``sql`` in this thread also read an open lake, whose tables are ``alias.schema.table``."""
        self._sessions.current().attach(lake, alias)

    @property
    def _context(self) -> LakeContext:
        return self.handle.context

    def table(self, name: str) -> Table:
        """Return a table by name: ``schema.table``, or ``table`` in ``main``. A missing table raises only on use."""
        ref = TableRef.parse(name, nested=self._context.catalog.is_next)
        return Table(self.handle, ref)

    def __getitem__(self, name: str) -> Table:
        """Return an existing table: ``lake["schema.t"]``. Raise ``NotFoundError`` that suggests similar names."""
        table = self.table(name)
        view = self.handle.view()
        ref = TableRef.parse(name)
        if view.get_table(ref.schema, ref.name) is None and view.objects.get_view(ref.schema, ref.name) is not None:
            raise NotFoundError(f"{name} is a view, not a table", hint=f'use lake.view("{name}")')
        view.find_table(ref.schema, ref.name)
        return table

    def __contains__(self, name: object) -> bool:
        """Return whether a table exists: ``"t" in lake``."""
        if not isinstance(name, str):
            return False
        ref = TableRef.parse(name)
        return self.handle.view().get_table(ref.schema, ref.name) is not None

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the tables, as ``tables`` returns them."""
        return iter(self.tables())

    def _ipython_key_completions_(self) -> list[str]:
        return [name.removeprefix("main.") for name in self.tables()]

    def scan(self, name: str, columns: Sequence[str] | None = None, where: Filter | None = None) -> TableScan:
        """Return a lazy scan of a table."""
        return self.table(name).scan(columns, where)

    def schemas(self) -> list[str]:
        """Return the names of the schemas."""
        return [info.name for info in self.handle.view().schemas()]

    def tables(self, schema: str | None = None) -> list[str]:
        """Return the names of the tables as ``schema.table``."""
        names = self.handle.view().table_names()
        return [f"{owner}.{name}" for owner, name in names if schema is None or owner == schema]

    def _tables(self) -> list[TableInfo]:
        return self.handle.view().tables()

    def view(self, name: str) -> View:
        """Return a view by name: ``schema.view``, or ``view`` in ``main``. A missing view raises only on use."""
        ref = TableRef.parse(name, nested=self._context.catalog.is_next)
        return View(self.handle, ref)

    def views(self, schema: str | None = None) -> list[str]:
        """Return the names of the views as ``schema.view``."""
        found = self.handle.view().objects.views()
        return [view.qualified_name for view in found if schema is None or view.schema_name == schema]

    def macros(self, schema: str | None = None) -> list[MacroInfo]:
        """Return the macros with their names, parameters and SQL."""
        return [macro for macro in self.handle.view().objects.macros() if schema is None or macro.schema_name == schema]

    @overload
    def register(self, target: duckdb.DuckDBPyConnection) -> None: ...

    @overload
    def register(self, target: str, rows: Any) -> None: ...

    def register(self, target: duckdb.DuckDBPyConnection | str, rows: Any = None) -> None:
        """Register rows as a table for SQL, or register every table of the lake in a DuckDB connection.

        ``register("wanted", df)`` lets ``sql`` query ``wanted`` until ``unregister``, in every thread. It takes a
        frame, Arrow data, or any other input of ``append`` except files, which SQL reads directly.

        ``register(connection)`` creates a view in the connection for each table as it is now. Unlike
        ``Table.to_duckdb``, the views do not follow the lake. SQL in the connection then reads the lake's files; tables
        in ``main`` also work without a schema.
        """
        if isinstance(target, str):
            self._sessions.current().register(target, rows)
            return
        view = self.handle.view()
        connect_store(target, self._context.store)
        bind = partial(self._context.engine.bind, target)
        register_views(target, map(view.plan, view.tables()), bind)

    def unregister(self, name: str) -> None:
        """Remove rows that ``register`` added."""
        self._sessions.current().unregister(name)


class LakeWriter(LakeReader):
    """Creates and drops schemas, tables, views and macros; the base of lakes and transactions."""

    def create_schema(self, name: str, *, parent: str | None = None, if_not_exists: bool = False) -> None:
        """Create a schema; with ``parent``, create it inside another schema (format version 1.1 only).

        A nested schema is called ``"parent"."name"``, and a table in it ``parent.name.table``.
        """
        full = name if parent is None else full_name([*name_parts(parent), check_name(name, "schema")])
        self.handle.run(lambda tx: tx.create_schema(full, if_not_exists=if_not_exists))

    def drop_schema(self, name: str, *, cascade: bool = False) -> None:
        """Drop a schema; ``cascade`` also drops its tables and nested schemas."""
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
        index: bool = True,
    ) -> Table:
        """Create a table.

        ``columns`` is a mapping of names to types, an Arrow schema, a dataclass (see ``quacklake.RowType``), or data.
        Data is anything that ``Table.append`` takes; it fills the table in the same snapshot. A type is an SQL type
        (``"BIGINT"``, ``"VARCHAR NOT NULL"``), a Python type (``int``, ``list[str]``, ``{"x": float}`` for a struct),
        or an Arrow, pandas or polars type.
        ``merge`` and ``append(dedup=True)`` match rows by ``primary_key``, whose columns reject NULL; other writers and
        a plain ``append`` do not check it. ``replace`` drops an existing table of that name in the same snapshot.
        ``partition_by`` and ``sort_by`` take the keys of ``Table.set_partitioned_by`` and ``Table.set_sorted_by``.
        ``index`` is that of ``Table.append``.
        """
        if replace and if_not_exists:
            raise InputError("pass replace=True or if_not_exists=True, not both")
        ref = TableRef.parse(name)
        schema, source = _schema_of(columns, self._context.store, index)
        keys = [primary_key] if isinstance(primary_key, str) else list(primary_key or ())
        tag = key_tag(schema, keys) if primary_key is not None else None
        schema = with_required(schema, keys)

        def work(tx: Transaction) -> None:
            existing = tx.get_table(ref.schema, ref.name)
            if if_not_exists and existing is not None:
                return
            if replace and existing is not None:
                tx.drop_table(existing)
            info = evolution.create_table(self._context, tx, ref, schema, partition_by, sort_by)
            if tag is not None:
                tx.objects.set_tags(info, {PRIMARY_KEY: tag})
            if source is not None and tag is not None and not source.empty:
                dml.merge(self._context, tx, info, source, keys, asked=Operation.INSERT)
            elif source is not None:
                dml.append(self._context, tx, info, source)

        self.handle.run(work, replayable=source is None or source.replayable)
        return self.table(name)

    def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a table; older snapshots still show its rows."""
        ref = TableRef.parse(name)
        self._drop(lambda tx: (tx.get_table if if_exists else tx.find_table)(ref.schema, ref.name))

    def rename_table(self, name: str, new_name: str) -> Table:
        """Rename a table within its schema."""
        ref = TableRef.parse(name)
        target = renamed(ref, new_name, "table")
        self.handle.run(lambda tx: tx.rename_table(tx.find_table(ref.schema, ref.name), target.name))
        return self.table(f"{quote(ref.schema)}.{quote(target.name)}")

    def create_view(self, name: str, sql: str, *, columns: Sequence[str] | None = None, replace: bool = False) -> View:
        """Create a view: a query over the lake's tables and views that every client can read.

        Tables are named ``table`` or ``schema.table``; a name without a schema is looked up in the view's schema, then
        in ``main``. ``columns`` renames the first columns. Raise ``InputError`` for a query that cannot run.
        """
        ref = TableRef.parse(name)
        aliases = () if columns is None else tuple(check_name(column, "column") for column in columns)

        def work(tx: Transaction) -> None:
            owner = tx.find_schema(ref.schema)
            text = check_view(self._context, tx, owner.name, sql, aliases)
            tx.objects.create_view(owner.name, ref.name, text, aliases, replacing=replace)

        self.handle.run(work)
        return self.view(name)

    def drop_view(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a view; older snapshots keep it."""
        ref = TableRef.parse(name)
        self._drop(lambda tx: (tx.objects.get_view if if_exists else tx.objects.find_view)(ref.schema, ref.name))

    def rename_view(self, name: str, new_name: str) -> View:
        """Rename a view within its schema."""
        ref = TableRef.parse(name)
        target = renamed(ref, new_name, "view")
        self.handle.run(lambda tx: tx.objects.rename_view(tx.objects.find_view(ref.schema, ref.name), target.name))
        return self.view(f"{quote(ref.schema)}.{quote(target.name)}")

    def create_macro(
        self, name: str, parameters: Parameters, sql: str, *, table: bool = False, replace: bool = False
    ) -> None:
        """Create a macro that DuckDB clients can call: an expression, or with ``table`` a query.

        ``parameters`` are names, or a mapping of names to defaults (None means no default).
        """
        ref = TableRef.parse(name)
        given = make_variant(parameters, sql)

        def work(tx: Transaction) -> None:
            owner = tx.find_schema(ref.schema)
            variant = check_macro(tx, owner.name, given, is_table=table)
            tx.objects.create_macro(owner.name, ref.name, (variant,), is_table=table, replacing=replace)

        self.handle.run(work)

    def drop_macro(self, name: str, *, table: bool = False, if_exists: bool = False) -> None:
        """Drop a macro; older snapshots keep it."""
        ref = TableRef.parse(name)
        self._drop(
            lambda tx: (tx.objects.get_macro if if_exists else tx.objects.find_macro)(
                ref.schema, ref.name, is_table=table
            )
        )

    def _drop(self, find: Callable[[Transaction], TableInfo | ViewInfo | MacroInfo | None]) -> None:
        def work(tx: Transaction) -> None:
            found = find(tx)
            if isinstance(found, TableInfo):
                tx.drop_table(found)
            elif found is not None:
                tx.objects.drop(found)

        self.handle.run(work)

    def undrop(self, name: str, *, as_: str | None = None) -> UndoReport:
        """Restore the most recently dropped table, view or macro of that name as it was just before the drop.

        ``as_`` gives it another name in its schema, if the old one is taken. A table keeps its id and its history; if
        its schema was dropped too, it comes back as a copy in a new schema of that name. Raise ``AlreadyExistsError``
        when the name is in use, and ``NotFoundError`` when nothing was dropped or its snapshots have expired.
        """
        return undrop(self.handle, name, as_)


def _schema_of(columns: Any, store: Store, index: bool) -> tuple[TableSchema, Input | None]:
    """Return the schema to create, and the rows given with it, if any."""
    schema = to_schema(columns)
    if schema is not None:
        return schema, None
    source = to_source(columns, store, index=index)
    columns = getattr(source, "columns", None)
    return from_arrow(source.opened().schema) if columns is None else columns, source
