"""Reading what was dropped, and what is needed to bring it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from quacklake.catalog.reading.files import FileReader
from quacklake.format.names import fold, full_names, parts_of
from quacklake.format.objects import SchemaInfo
from quacklake.format.snapshots import Snapshot

__all__ = ["DroppedReader", "Gone"]


@dataclass(frozen=True, slots=True)
class Gone:
    """A table or view that was dropped: its id and the snapshot that dropped it."""

    id: int
    dropped_at: int


class DroppedReader(FileReader):
    """Tables and views that are no more."""

    def dropped(self, kind: str, schema: str, name: str) -> Gone | None:
        """The ``table`` or ``view`` of that name that was dropped last, ignoring case, or None."""
        t, s = self._t[kind], self._t["schema"]
        id_, named = t.c[f"{kind}_id"], t.c[f"{kind}_name"]
        later = t.alias("later")
        again = sa.or_(later.c.end_snapshot.is_(None), later.c.end_snapshot > t.c.end_snapshot)
        statement = (
            sa.select(id_, t.c.end_snapshot, named, s.c.schema_name, s.c.schema_id)
            .join_from(t, s, s.c.schema_id == t.c.schema_id)
            .where(
                sa.func.lower(named) == fold(name),
                sa.func.lower(s.c.schema_name) == fold(parts_of(schema)[-1]),
                t.c.end_snapshot.is_not(None),
                ~sa.exists().where(later.c[f"{kind}_id"] == id_, again),
            )
            .order_by(t.c.end_snapshot.desc(), id_.desc())
        )
        rows = self.run(f"dropped_{kind}", statement).all()
        full = self._schema_names() if rows else {}
        for found, end, its_name, its_schema, schema_id in rows:
            if (fold(its_name), fold(full.get(schema_id, its_schema))) == (fold(name), fold(schema)):
                return Gone(found, end)
        return None

    def _schema_names(self) -> Mapping[int, str]:
        """The full names of all schemas there ever were, where they may be inside others."""
        if ("schema", "parent_schema_id") not in self._t.parts:
            return {}
        s = self._t["schema"]
        statement = sa.select(s.c.schema_id, s.c.schema_name, s.c.parent_schema_id)
        return full_names([tuple(row) for row in self.run("schema_names", statement)])

    def drop_of(self, table_id: int) -> int | None:
        """The snapshot that dropped a table, None when it lives or is forgotten."""
        t = self._t["table"]
        statement = sa.select(t.c.end_snapshot).where(t.c.table_id == table_id)
        ends = [row[0] for row in self.run("drop_of", statement)]
        return max(ends) if ends and None not in ends else None

    def schema_by_id(self, snapshot: Snapshot, schema_id: int) -> SchemaInfo | None:
        """A schema by its id, or None when it was not there at the snapshot."""
        return next((info for info in self.schemas(snapshot) if info.id == schema_id), None)

    def files_ended(self, table_id: int, snapshot: int) -> tuple[int, int]:
        """How many data files and delete files of a table ended with a snapshot."""
        counts = []
        for name in ("data_file", "delete_file"):
            t = self._t[name]
            statement = sa.select(sa.func.count()).where(t.c.table_id == table_id, t.c.end_snapshot == snapshot)
            counts.append(int(self.run(f"ended_{name}s", statement).scalar_one()))
        return counts[0], counts[1]

    def file_ends(self, data_files: Sequence[int], delete_files: Sequence[int]) -> list[int | None]:
        """When files ended, None for each that has not."""
        ends: list[int | None] = []
        for name, ids in (("data_file", data_files), ("delete_file", delete_files)):
            if ids:
                t = self._t[name]
                statement = sa.select(t.c.end_snapshot).where(t.c[f"{name}_id"].in_(list(ids)))
                ends += [row[0] for row in self.run(f"{name}_ends", statement)]
        return ends

    def newest_types(self, table_id: int, column_ids: Sequence[int]) -> dict[int, str]:
        """The last type that each of these columns, or nodes inside them, ever had."""
        if not column_ids:
            return {}
        c = self._t["column"]
        statement = (
            sa.select(c.c.column_id, c.c.column_type)
            .where(c.c.table_id == table_id, c.c.column_id.in_(list(column_ids)))
            .order_by(c.c.begin_snapshot)
        )
        return {row[0]: row[1] for row in self.run("newest_types", statement)}
