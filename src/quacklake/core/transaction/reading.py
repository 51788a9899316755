"""The reading side of a transaction: names, and plans of tables, as its principal may see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from quacklake.core.catalog import Catalog
from quacklake.core.catalog.reading.known_bounds import Window
from quacklake.core.format.bounds import ANYTHING, Predicate
from quacklake.core.format.names import fold
from quacklake.core.format.objects import MATERIALIZED_VIEW, SchemaInfo, TableInfo
from quacklake.core.format.schema import TableSchema
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.scan import ScanPlan, plan_scan
from quacklake.core.scan.plan import FILES
from quacklake.core.scan.remembered import Plans
from quacklake.core.scan.visibility import Rules, Visible
from quacklake.core.storage import Store
from quacklake.core.transaction.changeset import AlteredTable, RevivedTable, TableChange
from quacklake.core.transaction.commit import overtaken
from quacklake.core.transaction.objects import PendingObjects, TableCache
from quacklake.core.transaction.pending import PendingTable, with_flushed
from quacklake.errors import NotFoundError, nearest


class Reading:
    """The tables of a snapshot, under the changes that a transaction has noted."""

    catalog: Catalog
    store: Store
    base: Snapshot
    objects: PendingObjects
    rules: Rules | None
    _ask: Callable[[], Rules] | None
    _cache: TableCache
    _plans: Plans | None
    _wholes: dict[int, TableInfo]
    _pending: dict[int, PendingTable]
    _created_schemas: dict[str, SchemaInfo]
    _dropped_schemas: dict[int, SchemaInfo]
    _created: dict[tuple[str, str], TableInfo]
    _altered: dict[int, AlteredTable]
    _dropped: dict[int, TableInfo]
    _compactions: list[TableChange]
    _revived: dict[int, RevivedTable]
    _reshaped: dict[int, list[TableSchema]]
    _schema_ids: dict[str, int]

    # -- access --------------------------------------------------------------------------------------------------------

    def renew(self) -> None:
        """Read again what the principal may see. Called before each statement, so that a revoked grant ends at once."""
        if self._ask is not None:
            self.rules = self._ask()

    def _apply_rules(self, table: TableInfo | None) -> TableInfo | None:
        """Return a table as its principal sees it."""
        if table is None or self.rules is None:
            return table
        self._wholes[table.id] = table
        return self.rules.table(table, derived=self.is_derived(table))

    def is_derived(self, table: TableInfo) -> bool:
        """Return whether a table is the storage of a materialized view."""
        return table.id in self._cache.tagged(self.base, MATERIALIZED_VIEW)

    def whole(self, table: TableInfo) -> TableInfo:
        """Return a table with the columns that are hidden from the principal, for planning and checks."""
        return table if self.rules is None else self._wholes.get(table.id, table)

    def visible(self, table: TableInfo) -> Visible | None:
        """Return what the principal may read of a table; None for all of it."""
        return None if self.rules is None else self.rules.visible(self.whole(table), derived=self.is_derived(table))

    # -- names -------------------------------------------------------------------------------------------------------

    def schemas(self) -> list[SchemaInfo]:
        """Return the schemas as this transaction sees them."""
        committed = [info for info in self._cache.schemas(self.base) if info.id not in self._dropped_schemas]
        known = sorted([*committed, *self._created_schemas.values()], key=lambda info: info.name)
        return known if self.rules is None else [info for info in known if self.rules.sees_schema(info)]

    def find_schema(self, name: str) -> SchemaInfo:
        """Return a schema by name. Raise ``NotFoundError`` with the nearest names."""
        schema = next((info for info in self.schemas() if fold(info.name) == fold(name)), None)
        if schema is None:
            near = nearest(name, (info.name for info in self.schemas()))
            raise NotFoundError(
                f'Schema with name "{name}" not found', hint=near or f'lake.create_schema("{name}") makes it'
            )
        self._schema_ids[fold(name)] = schema.id
        return schema

    def tables(self) -> list[TableInfo]:
        """Return the tables as this transaction sees them."""
        committed = [
            self._altered[info.id].after if info.id in self._altered else info
            for info in self._cache.tables(self.base)
            if info.id not in self._dropped
        ]
        revived = [entry.table for entry in self._revived.values()]
        known = sorted([*committed, *self._created.values(), *revived], key=lambda info: (info.schema_name, info.name))
        return [seen for info in known if (seen := self._apply_rules(info)) is not None]

    def table_names(self) -> list[tuple[str, str]]:
        """Return the schema and name of each table as this transaction sees them, in that order."""
        if self.rules is not None or self._created or self._altered or self._dropped or self._revived:
            return [(info.schema_name, info.name) for info in self.tables()]
        return self._cache.names(self.base)

    def get_table(self, schema: str, name: str) -> TableInfo | None:
        """Return a table by name, or None; also None for one that is hidden from the principal."""
        return self._apply_rules(self.known_table(schema, name))

    def known_table(self, schema: str, name: str) -> TableInfo | None:
        """Return a table by name, even if it is hidden, or None: no two tables can have one name."""
        key = (fold(schema), fold(name))
        created = self._created.get(key)
        if created is not None:
            return created
        altered = [table.after for table in self._altered.values()]
        altered += [revived.table for revived in self._revived.values()]
        known = next((t for t in altered if (fold(t.schema_name), fold(t.name)) == key), None)
        if known is not None:
            return known
        committed = self._cache.table(self.base, schema, name)
        if committed is None or committed.id in self._dropped or committed.id in self._altered:
            return None
        return None if committed.schema_id in self._dropped_schemas else committed

    def find_table(self, schema: str, name: str) -> TableInfo:
        """Return a table by name. Raise ``NotFoundError`` with the nearest names."""
        table = self.get_table(schema, name)
        if table is None:
            known = [f"{info.schema_name}.{info.name}" for info in self.tables()]
            hint = nearest(f"{schema}.{name}", known)
            if self.objects.get_view(schema, name) is not None:
                hint = f'"{schema}.{name}" is a view: lake.view("{schema}.{name}") reads it'
            raise NotFoundError(f'there is no table "{schema}.{name}"', hint=hint)
        return table

    # -- reading -----------------------------------------------------------------------------------------------------

    def plan(self, table: TableInfo, predicate: Predicate = ANYTHING, *, max_files: int | None = None) -> ScanPlan:
        """Return the scan plan of a table as this transaction sees it, and as its principal may.

        Raise ``NotPermittedError`` for a table that the principal may not read, otherwise as ``plan_whole``.
        """
        visible = self.visible(table)
        if self.rules is not None:
            self.rules.noted(table, (table.schema if visible is None else visible.schema).names, self.base.id)
        if visible is None:
            return self.plan_whole(table, predicate, max_files=max_files)
        return visible.plan(self.plan_whole(table, visible.narrowed(predicate), max_files=max_files))

    def plan_new(self, table: TableInfo) -> ScanPlan:
        """Return the scan plan of the rows that this transaction adds to a table."""
        names, root, none = (table.schema_name, table.name), self.store.root, FILES.empty_table()
        return self._overlay(ScanPlan(table.id, *names, self.base.id, root, table.schema, files=none))

    def plan_whole(
        self, table: TableInfo, predicate: Predicate = ANYTHING, *, max_files: int | None = None
    ) -> ScanPlan:
        """Return the scan plan of a table with what is hidden from the principal, for those who write.

        Raise ``CommitConflict`` when rows that were deleted here have been moved by a compaction since.
        """
        table = self.whole(table)
        if table.id < 0:
            return self.plan_new(table)
        if self._plans is not None:
            make, judge = partial(self._plan_anew, table), self.catalog.bounds.judge
            return self._plans.scan(self.base, table, predicate, max_files, make, judge)
        return self._plan_anew(table, predicate, max_files)

    def _plan_anew(
        self, table: TableInfo, predicate: Predicate, max_files: int | None, windows: Sequence[Window] | None = None
    ) -> ScanPlan:
        revived = self._revived.get(table.id)
        with self.catalog.read() as reader:
            plan = plan_scan(
                reader,
                self.catalog,
                self.store,
                self.base if revived is None else revived.state,
                table,
                predicate=predicate,
                max_files=max_files,
                windows=windows,
                remains=revived is not None,
                known=None if self._plans is None or revived is not None else self._plans.rows,
            )
            pending = self._pending.get(table.id) if revived is None else None
            if pending is not None:
                unplanned = pending.unplanned(plan)
                compacted = bool(unplanned) and len(reader.files.live(table.id, unplanned)) < len(unplanned)
                if compacted or pending.flushed(plan):
                    raise overtaken(pending.table, "rows of it were moved")
        return self._overlay(plan)

    def _overlay(self, plan: ScanPlan) -> ScanPlan:
        pending = self._pending.get(plan.table_id)
        if plan.table_id in self._reshaped:
            local = ((self.base.id + 1, schema) for schema in self._reshaped[plan.table_id])
            # every file may be older than the change
            plan = replace(plan, shaped_at=self.base.id, reshaped=True, past=(*plan.past, *local))
        for change in self._compactions:
            if change.table.id == plan.table_id:
                plan = with_flushed(plan, change)
        return plan if pending is None else pending.overlay(plan)
