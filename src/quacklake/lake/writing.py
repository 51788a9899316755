"""The writing methods that lakes and open transactions share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quacklake.errors import InputError
from quacklake.format.evolution import PRIMARY_KEY, key_tag, with_required
from quacklake.format.names import check_name, full_name, quote
from quacklake.format.schema import TableSchema, from_arrow
from quacklake.format.snapshots import Operation
from quacklake.lake.reading import LakeReader
from quacklake.lake.table import Table
from quacklake.lake.view import View
from quacklake.operations import dml, evolution
from quacklake.operations.column_types import to_schema
from quacklake.operations.frames import Input, to_source
from quacklake.operations.reference import TableRef, name_parts, renamed
from quacklake.operations.restoring import UndoReport
from quacklake.operations.undoing import undrop
from quacklake.operations.views import Parameters, check_macro, make_variant
from quacklake.sql.views import check_view
from quacklake.storage import Store
from quacklake.transaction import Transaction


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
    ) -> Table:
        """Create a table.

        ``columns`` is a mapping of names to types, an Arrow schema, or data. Data is anything that ``Table.append``
        takes; it fills the table in the same snapshot. A type is an SQL type (``"BIGINT"``, ``"VARCHAR NOT NULL"``), a
        Python type (``int``, ``list[str]``, ``{"x": float}`` for a struct), or an Arrow, pandas or polars type.
        ``merge`` and ``append(dedup=True)`` match rows by ``primary_key``, whose columns reject NULL; other writers and
        a plain ``append`` do not check it. ``replace`` drops an existing table of that name in the same snapshot.
        ``partition_by`` and ``sort_by`` take the keys of ``Table.set_partitioned_by`` and ``Table.set_sorted_by``.
        """
        if replace and if_not_exists:
            raise InputError("pass replace=True or if_not_exists=True, not both")
        ref = TableRef.parse(name)
        schema, source = _schema_of(columns, self._context.store)
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

        def work(tx: Transaction) -> None:
            if if_exists and tx.get_table(ref.schema, ref.name) is None:
                return
            tx.drop_table(tx.find_table(ref.schema, ref.name))

        self.handle.run(work)

    def rename_table(self, name: str, new_name: str) -> Table:
        """Rename a table within its schema."""
        ref = TableRef.parse(name)
        target = renamed(ref, new_name, "table")
        self.handle.run(lambda tx: tx.rename_table(tx.find_table(ref.schema, ref.name), target.name))
        return self.table(f"{quote(ref.schema)}.{quote(target.name)}")

    # -- views and macros --------------------------------------------------------------------------------------------

    def create_view(self, name: str, sql: str, *, columns: Sequence[str] | None = None, replace: bool = False) -> View:
        """Create a view: a query over the lake's tables and views that every client can read.

        Tables are named ``table`` or ``schema.table``; a name without a schema is looked up in the view's schema, then
        in ``main``. ``columns`` renames the first columns. Raises ``InputError`` for a query that cannot run.
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

        def work(tx: Transaction) -> None:
            if if_exists and tx.objects.get_view(ref.schema, ref.name) is None:
                return
            tx.objects.drop(tx.objects.find_view(ref.schema, ref.name))

        self.handle.run(work)

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

        def work(tx: Transaction) -> None:
            if if_exists and tx.objects.get_macro(ref.schema, ref.name, is_table=table) is None:
                return
            tx.objects.drop(tx.objects.find_macro(ref.schema, ref.name, is_table=table))

        self.handle.run(work)

    def undrop(self, name: str, *, as_: str | None = None) -> UndoReport:
        """Restore the most recently dropped table, view or macro of that name as it was just before the drop.

        ``as_`` gives it another name in its schema, if the old one is taken. A table keeps its id and its history; if
        its schema was dropped too, it comes back as a copy in a new schema of that name. Raises ``AlreadyExistsError``
        when the name is in use, and ``NotFoundError`` when nothing was dropped or its snapshots have expired.
        """
        return undrop(self.handle, name, as_)


def _schema_of(columns: Any, store: Store) -> tuple[TableSchema, Input | None]:
    """Return the schema to create, and the rows given with it, if any."""
    schema = to_schema(columns)
    if schema is not None:
        return schema, None
    source = to_source(columns, store)
    return from_arrow(source.opened().schema), source
