"""Convert to a shared lake in place on MySQL and MariaDB, which commit whenever a table is created.

The new tables are created and filled next to the old ones, under temporary names. One atomic ``RENAME TABLE`` then
moves the old tables aside and gives the new ones their names. A mark in the new lake, its layout, keeps clients out
until the old tables, which nobody can reach any more, are verified to be unchanged since they were copied. Then the
mark is removed and the old tables are dropped. Any client that finds an interrupted conversion finishes it:

=====================  ===================================================  ==========================================
interrupted            state                                                ``resume``
=====================  ===================================================  ==========================================
before the rename      the old lake, complete, and some new tables          drops the new tables
before the mark goes   the new lake with the mark, the old tables aside     removes the mark, or renames all back
after that             the new lake, some old tables aside                  drops the old tables
=====================  ===================================================  ==========================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from quacklake import faults
from quacklake.catalog import scoped
from quacklake.catalog.databases.database import Database
from quacklake.catalog.registry import CONVERTING, LAYOUT
from quacklake.catalog.shared_tables import CatalogRow, SharedTables
from quacklake.errors import CommitConflict
from quacklake.format.inline import parse_table_name
from quacklake.tenancy.conversion import ASIDE, OLD_NAMES, Conversion

BESIDE = "quacklake_new_"
"""The prefix of the new tables until they get the names of the old ones."""


class MySQLConversion(Conversion):
    """Converts a lake while holding the queues for commits and for creating catalogs."""

    def __init__(self, connection: Connection, database: Database, metadata_schema: str | None) -> None:
        super().__init__(connection, database, metadata_schema)
        self._live = self.meta
        self.meta = SharedTables.of(metadata_schema, BESIDE)

    def convert(
        self, name: str | None, data_path: str | None, path_of: Callable[[str, str], str], folder: str | None = None
    ) -> list[CatalogRow]:
        """Create a shared lake; see ``Conversion.convert``. Raises ``CommitConflict`` if another client wrote."""
        try:
            return super().convert(name, data_path, path_of, folder)
        except Exception:
            with suppress(sa.exc.SQLAlchemyError):  # the next conversion or maintenance does it
                self._drop(self._names(BESIDE))
            raise

    def is_interrupted(self) -> bool:
        """Return whether there are traces of a conversion, which may still be running."""
        return any(name.startswith((ASIDE, BESIDE)) for name in self._names())

    def resume(self) -> bool:
        """Finish an interrupted conversion; return True if it has turned the lake into a shared one."""
        names = self._names()
        layout = self._layout() if self._live.shared.name in names else None
        if layout is None:
            self._drop(name for name in names if name.startswith(BESIDE))
            return False
        if layout == LAYOUT:
            self._drop(name for name in names if name.startswith((ASIDE, BESIDE)))
            return False
        return layout.startswith(CONVERTING) and self._settle(layout)

    # -- the steps ---------------------------------------------------------------------------------------------------

    def _put_aside(self) -> None:
        """Use the old tables where they are."""
        there = set(self._names())
        self._old = {name: self._look(table) for name, table in OLD_NAMES.items() if table in there}
        self._inlined = self._empty_inlined()

    def _new_indexes(self) -> list[sa.Index]:
        return self.meta.indexes(self.backend.name)

    def _finish(self) -> None:
        mark = f"{CONVERTING} {self._count_snapshots(self._old['snapshot'])}"
        self.run("mark_lake", sa.update(self.meta.shared).values(layout=mark))
        self._commit()
        aside = {old.name: f"{ASIDE}{name}" for name, old in self._old.items()}
        aside |= {table.name: _aside_of(table.name) for table in self._inlined}
        placed = {table.name: table.name.removeprefix(BESIDE) for table in self.meta.all()}
        self._rename(aside | placed)
        if not self._settle(mark):
            raise CommitConflict(
                "another client wrote to the lake while it was made a shared one; it is as it was", hint="try again"
            )

    def _settle(self, mark: str) -> bool:
        """Remove the mark, or rename everything back if the old tables have changed since they were copied."""
        names = self._names(ASIDE)
        snapshots = self._bare(f"{ASIDE}snapshot")
        rows = [name for name in names if parse_table_name(_former(name)) is not None]
        same = mark == f"{CONVERTING} {self._count_snapshots(snapshots)}"
        if not same or any(self._has_rows(name) for name in rows):
            self._undo(names)
            return False
        self.run("unmark_lake", sa.update(self._live.shared).values(layout=LAYOUT))
        self._commit()
        self._drop(names)
        return True

    def _undo(self, names: Iterable[str]) -> None:
        back = {table.name: f"{BESIDE}{table.name}" for table in self._live.all()}
        self._rename(back | {name: _former(name) for name in names})
        self._drop(back.values())

    # -- tables ------------------------------------------------------------------------------------------------------

    def _names(self, prefix: str = "") -> list[str]:
        known = sa.table("tables", sa.column("table_schema"), sa.column("table_name"), schema="information_schema")
        mine = known.c.table_schema == (self.meta.metadata.schema or sa.func.database())
        found = self.run("table_names", sa.select(known.c.table_name).where(mine))
        return sorted(name for (name,) in found if name.startswith(prefix))

    def _bare(self, name: str) -> sa.Table:
        columns = sa.Column("snapshot_id", sa.BigInteger()), sa.Column("next_file_id", sa.BigInteger())
        return scoped.registry(sa.Table(name, sa.MetaData(), *columns, schema=self.meta.metadata.schema))

    def _layout(self) -> str | None:
        found = self.run("shared_layout", sa.select(self._live.shared.c.layout)).first()
        return None if found is None else str(found[0])

    def _has_rows(self, name: str) -> bool:
        row: sa.Select[Any] = sa.select(sa.literal(1)).select_from(self._bare(name)).limit(1)
        return self.run("old_inlined_rows", row).first() is not None

    def _count_snapshots(self, table: sa.Table) -> str:
        """Return SQL for the values that every commit changes: number of snapshots, newest snapshot, next file id."""
        newest = sa.func.max(table.c.snapshot_id), sa.func.max(table.c.next_file_id)
        row = self.run("old_snapshots", sa.select(sa.func.count(), *newest).select_from(table)).one()
        return " ".join(str(value or 0) for value in row)

    def _rename(self, names: Mapping[str, str]) -> None:
        """Rename tables, all or none."""
        renamed = ", ".join(f"{self._quoted(old)} TO {self._quoted(new)}" for old, new in names.items())
        self._patiently("rename_tables", f"RENAME TABLE {renamed}")

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            self._patiently("drop_table", f"DROP TABLE IF EXISTS {self._quoted(name)}")

    def _quoted(self, name: str) -> str:
        return self.connection.dialect.identifier_preparer.format_table(self._bare(name))

    def _patiently(self, name: str, statement: str) -> None:
        """Run a statement that waits for transactions on its tables, for as long as any client waits here."""
        seconds = max(1, self.backend.busy_timeout_ms // 1000)
        self.connection.exec_driver_sql(f"SET SESSION lock_wait_timeout = {seconds:d}")
        faults.reach(f"catalog.{name}.before")
        self.connection.exec_driver_sql(statement.replace("%", "%%"))
        faults.reach(f"catalog.{name}.after")

    def _commit(self) -> None:
        faults.reach("catalog.conversion_commit.before")
        self.connection.exec_driver_sql("COMMIT")
        faults.reach("catalog.conversion_commit.after")


def _former(name: str) -> str:
    """Return the name that a table had before it was put aside."""
    short = name.removeprefix(ASIDE)
    return OLD_NAMES.get(short, f"ducklake_{short}")


def _aside_of(name: str) -> str:
    return f"{ASIDE}{name.removeprefix('ducklake_')}"
