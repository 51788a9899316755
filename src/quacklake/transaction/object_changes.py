"""The changes of one transaction to views, macros and tags, and how a commit writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from quacklake.catalog import Writer
from quacklake.catalog.objects import TagRow
from quacklake.catalog.writing import writer as rows
from quacklake.format.objects import MacroInfo, ViewInfo
from quacklake.format.snapshots import Change, ChangeKind


@dataclass(frozen=True, slots=True)
class ObjectChanges:
    """The changes of one transaction to views, macros and tags. Ids of new objects are negative."""

    created_views: tuple[ViewInfo, ...] = ()
    renamed_views: tuple[ViewInfo, ...] = ()
    dropped_views: tuple[ViewInfo, ...] = ()
    created_macros: tuple[MacroInfo, ...] = ()
    dropped_macros: tuple[MacroInfo, ...] = ()
    table_tags: tuple[TagRow, ...] = ()
    view_tags: tuple[TagRow, ...] = ()

    def __bool__(self) -> bool:
        return self != NO_OBJECTS

    def new_ids(self) -> list[int]:
        """Return the local ids of what is made."""
        return [view.id for view in self.created_views] + [macro.id for macro in self.created_macros]

    def changes(self) -> list[Change]:
        """Return the changes in the words of the format."""
        kind = ChangeKind
        changes = [Change(kind.DROPPED_VIEW, id=view.id) for view in self.dropped_views]
        changes += [
            Change(kind.CREATED_VIEW, schema=view.schema_name, name=view.name)
            for view in (*self.created_views, *self.renamed_views)
        ]
        changes += [
            Change(
                kind.CREATED_TABLE_MACRO if macro.is_table else kind.CREATED_SCALAR_MACRO,
                schema=macro.schema_name,
                name=macro.name,
            )
            for macro in self.created_macros
        ]
        changes += [
            Change(kind.DROPPED_TABLE_MACRO if macro.is_table else kind.DROPPED_SCALAR_MACRO, id=macro.id)
            for macro in self.dropped_macros
        ]
        changes += [Change(kind.ALTERED_TABLE, id=tag.object_id) for tag in self.table_tags if tag.object_id >= 0]
        changes += [Change(kind.ALTERED_VIEW, id=tag.object_id) for tag in self.view_tags if tag.object_id >= 0]
        return changes

    def end(self, writer: Writer, base: int, snapshot: int) -> None:
        """End what is dropped or gets another name."""
        rows.end_view_rows(writer, [view.id for view in self.renamed_views], base, snapshot)
        rows.end_views(writer, [view.id for view in self.dropped_views], snapshot)
        rows.end_macros(writer, [macro.id for macro in self.dropped_macros], snapshot)

    def insert(self, writer: Writer, ids: Mapping[int, int], snapshot: int) -> None:
        """Insert what is new, with the real ids."""

        def real(id_: int) -> int:
            return ids.get(id_, id_)

        views = (*self.created_views, *self.renamed_views)
        rows.add_views(
            writer, [replace(view, id=real(view.id), schema_id=real(view.schema_id)) for view in views], snapshot
        )
        rows.add_macros(
            writer,
            [replace(macro, id=real(macro.id), schema_id=real(macro.schema_id)) for macro in self.created_macros],
            snapshot,
        )
        tags = [replace(tag, object_id=real(tag.object_id)) for tag in (*self.table_tags, *self.view_tags)]
        rows.add_tags(writer, tags, snapshot)


NO_OBJECTS = ObjectChanges()
"""No change."""
