"""Views, macros, comments and tags as a transaction sees and changes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from quacklake.catalog import Catalog
from quacklake.catalog.objects import TagRow, Tags
from quacklake.errors import AlreadyExistsError, NotFoundError, nearest
from quacklake.format.names import check_name, fold, uuid7
from quacklake.format.objects import MacroInfo, MacroVariant, SchemaInfo, TableInfo, ViewInfo
from quacklake.format.snapshots import Snapshot
from quacklake.transaction import features
from quacklake.transaction.object_changes import ObjectChanges
from quacklake.transaction.tables import TableCache


class _Owner(Protocol):
    """The transaction that the objects belong to."""

    catalog: Catalog
    base: Snapshot

    def check_writable(self) -> None: ...
    def local_id(self) -> int: ...
    def find_schema(self, name: str) -> SchemaInfo: ...
    def get_table(self, schema: str, name: str) -> TableInfo | None: ...


class PendingObjects:
    """The views, macros and tags as a transaction sees them, and its changes to them."""

    def __init__(self, tx: _Owner, cache: TableCache) -> None:
        self._tx = tx
        self._cache = cache
        self._created_views: dict[int, ViewInfo] = {}
        self._renamed_views: dict[int, ViewInfo] = {}
        self._dropped_views: dict[int, ViewInfo] = {}
        self._created_macros: dict[int, MacroInfo] = {}
        self._dropped_macros: dict[int, MacroInfo] = {}
        self._tags: dict[tuple[int, int | str | None, str], TagRow] = {}

    def changes(self) -> ObjectChanges:
        """Return everything so far, as immutable data."""
        views = {view.id for view in self.views()}
        return ObjectChanges(
            tuple(self._created_views.values()),
            tuple(self._renamed_views.values()),
            tuple(self._dropped_views.values()),
            tuple(self._created_macros.values()),
            tuple(self._dropped_macros.values()),
            tuple(tag for tag in self._tags.values() if tag.object_id not in views),
            tuple(tag for tag in self._tags.values() if tag.object_id in views),
        )

    # -- looking -----------------------------------------------------------------------------------------------------

    def views(self) -> list[ViewInfo]:
        """Return the views, by schema and name."""
        committed = [
            self._renamed_views.get(view.id, view)
            for view in self._cache.views(self._tx.base)
            if view.id not in self._dropped_views
        ]
        return sorted([*committed, *self._created_views.values()], key=lambda view: (view.schema_name, view.name))

    def macros(self) -> list[MacroInfo]:
        """Return the macros, by schema and name."""
        committed = [m for m in self._cache.macros(self._tx.base) if m.id not in self._dropped_macros]
        return sorted([*committed, *self._created_macros.values()], key=lambda macro: (macro.schema_name, macro.name))

    def get_view(self, schema: str, name: str) -> ViewInfo | None:
        """Return a view by name, or None."""
        wanted = (fold(schema), fold(name))
        return next((view for view in self.views() if (fold(view.schema_name), fold(view.name)) == wanted), None)

    def find_view(self, schema: str, name: str) -> ViewInfo:
        """Return a view by name. Raise ``NotFoundError`` with the nearest names."""
        found = self.get_view(schema, name)
        if found is None:
            known = [view.qualified_name for view in self.views()]
            raise NotFoundError(f'there is no view "{schema}.{name}"', hint=nearest(f"{schema}.{name}", known))
        return found

    def get_macro(self, schema: str, name: str, *, is_table: bool) -> MacroInfo | None:
        """Return a macro by name, or None; those that yield rows have names of their own."""
        wanted = (fold(schema), fold(name), is_table)
        return next((m for m in self.macros() if (fold(m.schema_name), fold(m.name), m.is_table) == wanted), None)

    def find_macro(self, schema: str, name: str, *, is_table: bool) -> MacroInfo:
        """Return a macro by name. Raise ``NotFoundError`` with the nearest names."""
        found = self.get_macro(schema, name, is_table=is_table)
        if found is None:
            known = [macro.qualified_name for macro in self.macros() if macro.is_table == is_table]
            what = "table macro" if is_table else "macro"
            raise NotFoundError(f'there is no {what} "{schema}.{name}"', hint=nearest(f"{schema}.{name}", known))
        return found

    def in_schema(self, schema: SchemaInfo) -> list[ViewInfo | MacroInfo]:
        """Return the views and macros of a schema."""
        every: list[ViewInfo | MacroInfo] = [*self.views(), *self.macros()]
        return [item for item in every if item.schema_id == schema.id]

    def check_no_view(self, schema: SchemaInfo, name: str) -> None:
        """Raise when a view has a name: tables and views share theirs."""
        if self.get_view(schema.name, name) is not None:
            raise AlreadyExistsError(f'there is a view "{schema.name}.{name}" already')

    # -- changing ----------------------------------------------------------------------------------------------------

    def create_view(
        self,
        schema: str,
        name: str,
        sql: str,
        aliases: tuple[str, ...] = (),
        *,
        replacing: bool = False,
        dialect: str = "duckdb",
    ) -> ViewInfo:
        """Add a view; ``replacing`` drops one of that name first."""
        owner = self._check_free(schema, name, "view")
        before = self.get_view(schema, name)
        if before is not None:
            if not replacing:
                raise AlreadyExistsError(f'the view "{owner.name}.{name}" exists already', hint="pass replace=True")
            self.drop(before)
        view = ViewInfo(self._tx.local_id(), str(uuid7()), owner.id, owner.name, name, sql, aliases, dialect)
        self._created_views[view.id] = view
        return view

    def rename_view(self, view: ViewInfo, name: str) -> ViewInfo:
        """Give a view another name in its schema."""
        self._check_free(view.schema_name, name, "view")
        other = self.get_view(view.schema_name, name)
        if other is not None and other.id != view.id:
            raise AlreadyExistsError(f'the view "{other.qualified_name}" exists already')
        after = replace(view, name=name)
        target = self._created_views if view.id < 0 else self._renamed_views
        target[view.id] = after
        return after

    def create_macro(
        self, schema: str, name: str, variants: tuple[MacroVariant, ...], *, is_table: bool, replacing: bool = False
    ) -> MacroInfo:
        """Add a macro; ``replacing`` drops one of that name first."""
        self._tx.check_writable()
        check_name(name, "macro")
        features.check_macro(self._tx.catalog, variants)
        owner = self._tx.find_schema(schema)
        before = self.get_macro(schema, name, is_table=is_table)
        if before is not None:
            if not replacing:
                kind = "Table Macro" if is_table else "Macro"
                raise AlreadyExistsError(
                    f'{kind} Function with name "{name}" already exists in the schema "{owner.name}"',
                    hint="pass replace=True, or say OR REPLACE in SQL",
                )
            self.drop(before)
        macro = MacroInfo(self._tx.local_id(), owner.id, owner.name, name, is_table, variants)
        self._created_macros[macro.id] = macro
        return macro

    def drop(self, item: ViewInfo | MacroInfo) -> None:
        """Drop a view or macro; older snapshots keep it."""
        self._tx.check_writable()
        if isinstance(item, ViewInfo):
            self.forget_tags(item.id)
            self._renamed_views.pop(item.id, None)
            if self._created_views.pop(item.id, None) is None:
                self._dropped_views[item.id] = item
        elif self._created_macros.pop(item.id, None) is None:
            self._dropped_macros[item.id] = item

    def _check_free(self, schema: str, name: str, what: str) -> SchemaInfo:
        self._tx.check_writable()
        check_name(name, what)
        owner = self._tx.find_schema(schema)
        if self._tx.get_table(schema, name) is not None:
            raise AlreadyExistsError(f'there is a table "{owner.name}.{name}" already')
        return owner

    # -- comments and tags -------------------------------------------------------------------------------------------

    def tags(self, owner: TableInfo | ViewInfo) -> Tags:
        """Return the tags of a table or view and of a table's columns."""
        known = self._cache.tags(self._tx.base, owner.id) if owner.id >= 0 else Tags()
        own, columns = dict(known.own), {id_: dict(tags) for id_, tags in known.columns.items()}
        named = {name: dict(tags) for name, tags in known.named.items()}
        for tag in self._tags.values():
            if tag.object_id == owner.id:
                target = own if tag.column_id is None else columns.setdefault(tag.column_id, {})
                target = target if tag.column_name is None else named.setdefault(tag.column_name, {})
                target.pop(tag.key, None)
                if tag.value is not None:
                    target[tag.key] = tag.value
        return Tags(own, columns, named)

    def set_tags(
        self,
        owner: TableInfo | ViewInfo,
        tags: Mapping[str, str | None],
        *,
        column_id: int | None = None,
        column_name: str | None = None,
    ) -> None:
        """Set tags of a table, a view or a column, or take them away (None). What is so already is left alone.

        Columns of tables are told by their ids, those of views by their names.
        """
        self._tx.check_writable()
        if column_name is not None:
            features.require_next(self._tx.catalog, "a tag on a column of a view")
        known = self.tags(owner)
        present = known.own if column_id is None else known.columns.get(column_id, {})
        present = present if column_name is None else known.named.get(column_name, {})
        for key, value in tags.items():
            if present.get(key) != value:
                place = column_id if column_name is None else column_name
                self._tags[(owner.id, place, key)] = TagRow(owner.id, column_id, key, value, column_name)

    def noted(self) -> tuple[TagRow, ...]:
        """Return the tags that the transaction has set or taken away."""
        return tuple(self._tags.values())

    def forget_tags(self, object_id: int) -> None:
        """Drop what was noted for something that is dropped."""
        self._tags = {key: tag for key, tag in self._tags.items() if tag.object_id != object_id}
