"""Views, macros, comments and tags as a transaction sees and changes them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from quacklake.core import forks
from quacklake.core.catalog import Catalog, Reader, objects
from quacklake.core.catalog.objects import TagRow, Tags
from quacklake.core.format.evolution import PRIMARY_KEY, key_columns
from quacklake.core.format.inline import PREFIX
from quacklake.core.format.layout import EPOCH, PartitionSpec
from quacklake.core.format.names import check_name, fold, uuid7
from quacklake.core.format.objects import EXPRESSION, MacroInfo, MacroVariant, SchemaInfo, TableInfo, ViewInfo
from quacklake.core.format.schema import TableSchema
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.format.types import NEW_TYPES
from quacklake.core.transaction.changeset import ObjectChanges
from quacklake.errors import AlreadyExistsError, InvalidNameError, NotFoundError, UnsupportedFeatureError, nearest

if TYPE_CHECKING:
    from quacklake.core.transaction.transaction import Transaction


T = TypeVar("T")

_MAX_COLUMNS = 10_000
"""The columns of all tables together up to which the list of tables is remembered."""


class TableCache:
    """Schemas and tables by name, remembered for as long as the schema version lasts. Safe to share between threads.

    Every change of a table, schema or view makes a new schema version, so what was read holds at all its snapshots.
    """

    def __init__(self, catalog: Catalog, size: int = 1024) -> None:
        self._catalog = catalog
        self._size = size
        self._entries: OrderedDict[Any, Any] = OrderedDict()
        self._listed: tuple[int | None, Sequence[TableInfo]] = (None, ())
        self._lock = threading.Lock()
        forks.watch(self, forks.new_lock)

    def schemas(self, snapshot: Snapshot) -> list[SchemaInfo]:
        """Return the schemas of a snapshot."""
        return self._get((snapshot.schema_version,), lambda reader: reader.tables.schemas(snapshot))

    def views(self, snapshot: Snapshot) -> list[ViewInfo]:
        """Return the views of a snapshot."""
        return self._get((snapshot.schema_version, "views"), lambda reader: objects.views(reader, snapshot))

    def macros(self, snapshot: Snapshot) -> list[MacroInfo]:
        """Return the macros of a snapshot."""
        return self._get((snapshot.schema_version, "macros"), lambda reader: objects.macros(reader, snapshot))

    def tags(self, snapshot: Snapshot, object_id: int) -> objects.Tags:
        """Return the tags of a table or view, and of a table's columns."""
        return self._get(
            (snapshot.schema_version, "tags", object_id), lambda reader: objects.tags(reader, snapshot, object_id)
        )

    def tagged(self, snapshot: Snapshot, key: str) -> dict[int, str]:
        """Return the values of a tag, by the ids of the tables and views that have it."""
        return self._get((snapshot.schema_version, "tagged", key), lambda reader: objects.tagged(reader, snapshot, key))

    def tables(self, snapshot: Snapshot) -> Sequence[TableInfo]:
        """Return all tables of a snapshot; those of one schema version are remembered, unless they are very many."""
        with self._lock:
            version, known = self._listed
            if version == snapshot.schema_version:
                return known
        with self._catalog.read() as reader:
            tables = reader.tables.all(snapshot)
        if sum(len(info.schema.columns) for info in tables) <= _MAX_COLUMNS:
            with self._lock:
                self._listed = snapshot.schema_version, tables
        return tables

    def names(self, snapshot: Snapshot) -> list[tuple[str, str]]:
        """Return the schema and name of all tables of a snapshot, without reading more of them."""
        with self._lock:
            version, known = self._listed
        if version == snapshot.schema_version:
            return sorted((info.schema_name, info.name) for info in known)
        with self._catalog.read() as reader:
            return reader.tables.names(snapshot)

    def table(self, snapshot: Snapshot, schema: str, name: str) -> TableInfo | None:
        """Return a table of a snapshot, or None."""
        key = (snapshot.schema_version, fold(schema), fold(name))
        return self._get(key, lambda reader: reader.tables.find(snapshot, schema, name))

    def by_id(self, snapshot: Snapshot, id_: int) -> TableInfo | None:
        """Return a table of a snapshot by its id, or None."""
        return self._get((snapshot.schema_version, "id", id_), lambda reader: reader.tables.by_id(snapshot, id_))

    def clear(self) -> None:
        """Forget everything, after a migration."""
        with self._lock:
            self._entries.clear()
            self._listed = None, ()

    def _get(self, key: tuple[object, ...], load: Callable[[Reader], T]) -> T:
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return cast(T, self._entries[key])
        with self._catalog.read() as reader:
            value = load(reader)
        with self._lock:
            self._entries[key] = value
            if len(self._entries) > self._size:
                self._entries.popitem(last=False)
        return value


class PendingObjects:
    """The views, macros and tags as a transaction sees them, and its changes to them."""

    def __init__(self, tx: Transaction, cache: TableCache) -> None:
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
        views = {view.id for view in self.views()} if self._tags else set()
        return ObjectChanges(
            created_views=tuple(self._created_views.values()),
            renamed_views=tuple(self._renamed_views.values()),
            dropped_views=tuple(self._dropped_views.values()),
            created_macros=tuple(self._created_macros.values()),
            dropped_macros=tuple(self._dropped_macros.values()),
            table_tags=tuple(tag for tag in self._tags.values() if tag.object_id not in views),
            view_tags=tuple(tag for tag in self._tags.values() if tag.object_id in views),
        )

    # -- looking -----------------------------------------------------------------------------------------------------

    def views(self) -> list[ViewInfo]:
        """Return the views that the principal may see, by schema and name."""
        rules = self._tx.rules
        return [view for view in self._views() if rules is None or rules.sees(view)]

    def _views(self) -> list[ViewInfo]:
        committed = [
            self._renamed_views.get(view.id, view)
            for view in self._cache.views(self._tx.base)
            if view.id not in self._dropped_views
        ]
        return sorted([*committed, *self._created_views.values()], key=lambda view: (view.schema_name, view.name))

    def macros(self) -> list[MacroInfo]:
        """Return the macros that the principal may see, by schema and name."""
        rules = self._tx.rules
        committed = [m for m in self._cache.macros(self._tx.base) if m.id not in self._dropped_macros]
        known = sorted([*committed, *self._created_macros.values()], key=lambda macro: (macro.schema_name, macro.name))
        return [macro for macro in known if rules is None or rules.sees(macro)]

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
        """Return a macro by name, or None; macros that yield rows have a separate namespace."""
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

    def check_no_view(self, schema: SchemaInfo, name: str) -> None:
        """Raise when a view has a name: tables and views share theirs."""
        wanted = (fold(schema.name), fold(name))
        if any((fold(view.schema_name), fold(view.name)) == wanted for view in self._views()):
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
        check_macro(self._tx.catalog, variants)
        owner = self._tx.find_schema(schema)
        before = self.get_macro(schema, name, is_table=is_table)
        if before is not None:
            if not replacing:
                kind = "Table Macro" if is_table else "Macro"
                raise AlreadyExistsError(
                    f'{kind} Function with name "{name}" already exists in the schema "{owner.name}"',
                    hint="pass replace=True, or use OR REPLACE in SQL",
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
        if self._tx.known_table(schema, name) is not None:
            raise AlreadyExistsError(f'there is a table "{owner.name}.{name}" already')
        return owner

    # -- comments and tags -------------------------------------------------------------------------------------------

    def primary_key(self, table: TableInfo) -> tuple[str, ...]:
        """Return the columns of a table's primary key; none without one."""
        return key_columns(table.schema, self.tags(table).own.get(PRIMARY_KEY))

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
        """Set tags of a table or view, or of a column by its id in a table, its name in a view; None removes one."""
        self._tx.check_writable()
        if column_name is not None:
            require_next(self._tx.catalog, "a tag on a column of a view")
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


def require_next(catalog: Catalog, what: str) -> None:
    """Raise ``UnsupportedFeatureError`` unless the lake has the format version 1.1."""
    if not catalog.is_next:
        raise UnsupportedFeatureError(
            f"{what} needs version 1.1 of the format, which this lake does not have",
            hint='lake.migrate("1.1") brings it there',
        )


def check_columns(catalog: Catalog, columns: TableSchema, before: TableSchema | None = None) -> None:
    """Raise for new columns whose type 1.0 lacks, or whose name 1.1 keeps for itself."""
    known = set() if before is None else {(node.id, node.type) for node in before.walk()}
    for node in columns.walk():
        if node.type in NEW_TYPES and (node.id, node.type) not in known:
            require_next(catalog, f"the type {node.type}")
            if node.type == "timestamptz_ns":
                raise UnsupportedFeatureError(f"columns of the type {node.type} can be read, but not created")
    old = set() if before is None else {fold(name) for name in before.names}
    for name in (column.name for column in columns.columns if catalog.is_next):
        if fold(name).startswith(PREFIX) and fold(name) not in old:
            raise InvalidNameError(
                f'the column name "{name}" is reserved by DuckLake: names that begin with "{PREFIX}" are not allowed',
                hint="give the column another name",
            )


def check_partition(catalog: Catalog, spec: PartitionSpec | None) -> None:
    """Raise for a partitioning by epochs in a lake of 1.0."""
    epoch = next((key.transform for key in (spec.keys if spec else ()) if key.transform in EPOCH), None)
    if epoch is not None:
        require_next(catalog, f"the partition function {epoch}")


def check_macro(catalog: Catalog, variants: Iterable[MacroVariant]) -> None:
    """Raise for a default that is an expression in a lake of 1.0."""
    for variant in variants:
        for parameter in variant.parameters:
            if parameter.default_type == EXPRESSION:
                require_next(catalog, f'an expression as the default of the parameter "{parameter.name}"')
