"""The visible part of a lake: the rules that a transaction asks, and plans that show only a part of a table.

A restricted plan lists no files, deletes or inlined rows. Those are in the plan of the whole table inside it, which
only an engine opens: code that does not know of restrictions finds an empty table, and never a hidden row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from quacklake.core.format.bounds import ANYTHING, Predicate, every
from quacklake.core.format.objects import MacroInfo, SchemaInfo, TableInfo, ViewInfo
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.scan.feed import FeedPlan
from quacklake.core.scan.plan import FILES, POSITIONS, Restriction, ScanPlan


def value_name(column: Column) -> str:
    """Return the name under which conditions and masks find a column of the whole table."""
    return f"_ql_w{column.id}"


@dataclass(frozen=True)
class Visible:
    """A part of a table: some columns, those of ``masks`` with other values, in the rows that satisfy a condition.

    Conditions and masks are SQL over the columns of the whole table, by ``value_name``. ``predicate`` is what the
    condition says about bounds.
    """

    schema: TableSchema
    condition: str | None = None
    masks: Mapping[int, str] = field(default_factory=dict)
    predicate: Predicate = ANYTHING

    def narrowed(self, predicate: Predicate) -> Predicate:
        """Return the predicate by which files may be skipped. A mask hides true values, so bounds say nothing then."""
        return self.predicate if self.masks else every((self.predicate, predicate))

    def values(self) -> dict[str, str]:
        """Return what each visible column shows, as SQL by its name."""
        return {column.name: self.masks.get(column.id, value_name(column)) for column in self.schema.columns}

    def plan(self, whole: ScanPlan) -> ScanPlan:
        """Return a plan that shows this part."""
        shown = Restriction(whole, self.condition, self.values(), masked=bool(self.masks))
        nothing = replace(whole, files=FILES.empty_table(), deletes=POSITIONS.empty_table(), inlined=None, mappings=())
        return replace(nothing, schema=self.schema, past=(), pruned=True, restriction=shown)

    def feed(self, whole: FeedPlan) -> FeedPlan:
        """Return a plan of the changes that shows this part."""
        shown = self.plan(whole.rows)
        return FeedPlan(whole.since, whole.until, shown, whole=whole)


class Rules(Protocol):
    """The rules of one principal, as they were when the statement began."""

    @property
    def principal(self) -> str:
        """The name of the principal."""

    def sees_schema(self, schema: SchemaInfo) -> bool:
        """Return whether a schema, or anything in it, is visible."""

    def sees(self, item: ViewInfo | MacroInfo) -> bool:
        """Return whether a view or macro is visible."""

    def table(self, table: TableInfo, *, derived: bool) -> TableInfo | None:
        """Return a table with its visible columns, or None for a hidden one. ``derived`` is a materialized view."""

    def visible(self, table: TableInfo, *, derived: bool) -> Visible | None:
        """Return what may be read of a whole table; None for all of it. Raise ``NotPermittedError`` for nothing."""

    def shows_files(self, table: TableInfo, *, derived: bool) -> bool:
        """Return whether the files of a table may be read as they are, with all rows and columns that they ever had."""

    def noted(self, table: TableInfo, columns: Sequence[str], snapshot_id: int) -> None:
        """Record that columns of a table are read."""

    def check_create(self, schema_id: int, schema_name: str) -> None:
        """Raise ``NotPermittedError`` unless tables may be created in a schema, whatever is in it."""

    def check_change(self, table: TableInfo, whole: TableInfo) -> None:
        """Raise ``NotPermittedError`` unless rows of a table may be changed in some way."""
