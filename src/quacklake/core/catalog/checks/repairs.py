"""Repairing the rows of a catalog: the statements of a repair, inside its one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from quacklake.core.catalog.statements import delete_table
from quacklake.core.catalog.writing.writer import Writer
from quacklake.errors import InternalError

#: The statistics of a column that each action drops, in the files or in the whole table.
_FORGOTTEN: Mapping[str, tuple[str, str, str]] = {
    "drop_file_bounds": ("file_column_stats", "data_file_id", "min_value max_value"),
    "drop_file_counts": ("file_column_stats", "data_file_id", "null_count value_count"),
    "drop_file_nan": ("file_column_stats", "data_file_id", "contains_nan"),
    "drop_table_bounds": ("table_column_stats", "table_id", "contains_null contains_nan min_value max_value"),
}


class Repairs(Writer):
    """A writer that repairs. Each action takes the values of its finding."""

    def apply(self, action: str, values: Sequence[Any]) -> None:
        """Do one action by its name."""
        match action, values:
            case "counter", (snapshot_id, name, value):
                t = self.meta["snapshot"]
                self.run("repair_counter", sa.update(t).where(t.c.snapshot_id == snapshot_id).values({name: value}))
            case "totals", (table_id, rows, next_row_id, size):
                self._totals(table_id, rows, next_row_id, size)
            case "next_row_id", (table_id, following):
                t = self.meta["table_stats"]
                low = sa.or_(t.c.next_row_id.is_(None), t.c.next_row_id < following)
                mine = sa.update(t).where(t.c.table_id == table_id, low)
                self.run("repair_next_row_id", mine.values(next_row_id=following))
            case "remove_file_rows", (name, file_id, table_id):
                t = self.meta[name]
                mine_too = (t.c.data_file_id == file_id, t.c.table_id == table_id)
                self.run("repair_file_rows", sa.delete(t).where(*mine_too))
            case "remove_inlined_deletes", (table_id, file_id):
                t = delete_table(table_id, self.meta)
                self.run("repair_inlined_deletes", sa.delete(t).where(t.c.file_id == file_id))
            case "data_path", (path,):
                t = self.meta["metadata"]
                self.run("repair_claims", sa.delete(t).where(t.c.key == "data_path", t.c.scope.is_(None)))
                self.insert("metadata", "key value", [("data_path", path)])
            case "unschedule", (file_id,):
                t = self.meta["files_scheduled_for_deletion"]
                self.run("repair_schedule", sa.delete(t).where(t.c.data_file_id == file_id))
            case _, (owner_id, column_id) if action in _FORGOTTEN:
                table, owner, columns = _FORGOTTEN[action]
                t = self.meta[table]
                chosen = sa.update(t).where(t.c[owner] == owner_id, t.c.column_id == column_id)
                self.run("repair_stats", chosen.values(dict.fromkeys(columns.split())))
            case _:
                raise InternalError(f"there is no repair {action}")

    def _totals(self, table_id: int, rows: int, next_row_id: int, size: int) -> None:
        """Write one row of totals that is not below what is there; the next row id never goes back."""
        t = self.meta["table_stats"]
        known = sa.select(sa.func.max(t.c.next_row_id), sa.func.max(t.c.record_count), sa.func.max(t.c.file_size_bytes))
        row = self.run("repair_known_totals", known.where(t.c.table_id == table_id)).one()
        following, records, held = (max(new, old or 0) for new, old in zip((next_row_id, rows, size), row, strict=True))
        self.run("repair_remove_totals", sa.delete(t).where(t.c.table_id == table_id))
        columns = "table_id record_count next_row_id file_size_bytes"
        self.insert("table_stats", columns, [(table_id, records, following, held)])
