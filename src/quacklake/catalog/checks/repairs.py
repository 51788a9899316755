"""Repairing the rows of a catalog: the statements of a repair, inside its one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from quacklake.catalog.statements import delete_table
from quacklake.catalog.writing.writer import Writer
from quacklake.errors import InternalError


class Repairs(Writer):
    """A writer that repairs. Each action takes the values of its finding."""

    @classmethod
    def of(cls, writer: Writer) -> Repairs:
        """Return the repairs of a commit transaction."""
        return cls(writer.connection, writer.meta, writer.backend, writer._cache)

    def apply(self, action: str, values: Sequence[Any]) -> None:
        """Do one action by its name."""
        actions: Mapping[str, Callable[..., None]] = {
            "counter": self._counter,
            "totals": self._totals,
            "next_row_id": self._next_row_id,
            "remove_file_rows": self._remove_file_rows,
            "drop_file_bounds": self._drop_file_bounds,
            "drop_file_counts": self._drop_file_counts,
            "drop_file_nan": self._drop_file_nan,
            "drop_table_bounds": self._drop_table_bounds,
            "remove_inlined_deletes": self._remove_inlined_deletes,
            "unschedule": self._unschedule,
        }
        if action not in actions:
            raise InternalError(f"there is no repair {action}")
        actions[action](*values)

    def _counter(self, snapshot_id: int, name: str, value: int) -> None:
        t = self.meta["snapshot"]
        self.run("repair_counter", sa.update(t).where(t.c.snapshot_id == snapshot_id).values({name: value}))

    def _totals(self, table_id: int, rows: int, next_row_id: int, size: int) -> None:
        """Write one row of totals that is not below what is there; the next row id never goes back."""
        t = self.meta["table_stats"]
        known = sa.select(sa.func.max(t.c.next_row_id), sa.func.max(t.c.record_count), sa.func.max(t.c.file_size_bytes))
        row = self.run("repair_known_totals", known.where(t.c.table_id == table_id)).one()
        following, records, held = (max(new, old or 0) for new, old in zip((next_row_id, rows, size), row, strict=True))
        self.run("repair_remove_totals", sa.delete(t).where(t.c.table_id == table_id))
        columns = "table_id record_count next_row_id file_size_bytes"
        self.insert("table_stats", columns, [(table_id, records, following, held)])

    def _next_row_id(self, table_id: int, following: int) -> None:
        t = self.meta["table_stats"]
        low = sa.or_(t.c.next_row_id.is_(None), t.c.next_row_id < following)
        self.run("repair_next_row_id", sa.update(t).where(t.c.table_id == table_id, low).values(next_row_id=following))

    def _remove_file_rows(self, name: str, file_id: int, table_id: int) -> None:
        t = self.meta[name]
        self.run("repair_file_rows", sa.delete(t).where(t.c.data_file_id == file_id, t.c.table_id == table_id))

    def _drop_file_bounds(self, file_id: int, column_id: int) -> None:
        self._update_stats(file_id, column_id, {"min_value": None, "max_value": None})

    def _drop_file_counts(self, file_id: int, column_id: int) -> None:
        self._update_stats(file_id, column_id, {"null_count": None, "value_count": None})

    def _drop_file_nan(self, file_id: int, column_id: int) -> None:
        self._update_stats(file_id, column_id, {"contains_nan": None})

    def _update_stats(self, file_id: int, column_id: int, values: dict[str, Any]) -> None:
        t = self.meta["file_column_stats"]
        mine = (t.c.data_file_id == file_id, t.c.column_id == column_id)
        self.run("repair_file_stats", sa.update(t).where(*mine).values(values))

    def _drop_table_bounds(self, table_id: int, column_id: int) -> None:
        t = self.meta["table_column_stats"]
        unknown = dict.fromkeys(("contains_null", "contains_nan", "min_value", "max_value"))
        mine = (t.c.table_id == table_id, t.c.column_id == column_id)
        self.run("repair_table_stats", sa.update(t).where(*mine).values(unknown))

    def _remove_inlined_deletes(self, table_id: int, file_id: int) -> None:
        t = delete_table(table_id, self.meta)
        self.run("repair_inlined_deletes", sa.delete(t).where(t.c.file_id == file_id))

    def _unschedule(self, file_id: int) -> None:
        t = self.meta["files_scheduled_for_deletion"]
        self.run("repair_schedule", sa.delete(t).where(t.c.data_file_id == file_id))
