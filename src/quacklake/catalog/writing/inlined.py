"""Writing inlined rows and deletes into the metadata database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex

from quacklake.catalog.columns import NamedType
from quacklake.catalog.inlined import InlinedTable, delete_table
from quacklake.catalog.reading.inlined import InlinedQueries
from quacklake.catalog.reading.tables import TableQueries
from quacklake.catalog.statements import WriteStatements
from quacklake.errors import CommitConflict
from quacklake.format.inline import data_table_name
from quacklake.format.objects import TableInfo
from quacklake.format.schema import TableSchema, stored_alike


class InlinedUpdates(InlinedQueries):
    """Writes the inlined rows and deletes of a commit."""

    _sql: WriteStatements

    def __init__(self, sql: WriteStatements, tables: TableQueries) -> None:
        super().__init__(sql, tables)

    def version_for(self, table: TableInfo) -> int | None:
        """Return the version of the inlined table that takes a table's new rows, or None when none has its columns."""
        key = ("inlined_exists", table.id, table.schema_version)
        version: int | None = self._sql._cache.get(key)
        if version is None:
            newest = max(self.tables(table.id), default=None)
            if newest is not None and newest >= table.schema_version:
                version = self._sql._cache[key] = newest
            elif newest is not None and self._fits(table, newest):
                version = newest  # not cached: another client may create the table of this version, and drop the older
        return version

    def drop_emptied_tables(self, table_id: int) -> None:
        """Drop the inlined tables of older versions that have no rows any more.

        Only where that is part of the transaction, and a reader that began before it goes on seeing them: the newest
        table stays, which is the one that writers may be about to use.
        """
        if self._t.shared or self._database.name not in ("sqlite", "duckdb"):
            return
        versions = sorted(self.tables(table_id))
        for version in versions[:-1]:
            table = sa.Table(data_table_name(table_id, version), sa.MetaData(), schema=self._t.metadata.schema)
            if self._sql.run("emptied", sa.select(sa.literal(1)).select_from(table).limit(1)).first() is None:
                t = self._t["inlined_data_tables"]
                mine = sa.and_(t.c.table_id == table_id, t.c.schema_version == version)
                self._sql.run("forget_inlined_table", sa.delete(t).where(mine))
                self._sql.run("drop_inlined_table", sa.schema.DropTable(table))

    def need_table(self, table_id: int, version: int) -> None:
        """Raise ``CommitConflict`` when the inlined table of a version is gone: others have moved all its rows."""
        if version not in self.tables(table_id):
            raise CommitConflict("the inlined rows to be changed were moved by another commit")

    def _fits(self, table: TableInfo, version: int) -> bool:
        """Return whether nothing but defaults and constraints has changed since a version."""
        return stored_alike(self.schema_of(table.id, version), table.schema)

    def add_table(self, table_id: int, schema_version: int, schema: TableSchema) -> None:
        """Make the inlined table of a schema version, which must be new: others remember what a version has.

        It counts once ``register_tables`` names it.
        """
        self.expect_new_table(table_id, schema_version)
        inlined = self.table(table_id, schema_version, schema)
        if inlined.packed:
            return
        if self._database.name == "mysql":
            # a table outlives its transaction there, and a failed commit may have left one with other columns
            self._sql.run("drop_inlined_table", sa.schema.DropTable(inlined.table, if_exists=True))
        self._sql.run("create_inlined_table", _create(inlined))
        if self._database.name != "duckdb":
            index = sa.Index(f"quacklake_{inlined.table.name}", inlined.table.c.row_id)
            self._sql.run("index_inlined_table", CreateIndex(index))

    def register_tables(self, table_ids: Sequence[int], schema_version: int) -> None:
        """Let everybody know of the new inlined tables of a schema version."""
        self._sql.insert(
            "inlined_data_tables",
            [
                {"table_id": id_, "table_name": data_table_name(id_, schema_version), "schema_version": schema_version}
                for id_ in table_ids
            ],
        )

    def add_rows(
        self, inlined: InlinedTable, rows: Sequence[Sequence[Any]], row_ids: Sequence[int], snapshot: int
    ) -> None:
        """Insert inlined rows; ``rows`` are encoded values in schema order."""
        columns, stored = inlined.stored(rows)
        keys = ("row_id", "begin_snapshot", *columns)
        values = [(row_id, snapshot, *row) for row_id, row in zip(row_ids, stored, strict=True)]
        self._sql.insert_many("insert_inlined_rows", inlined.table, keys, values)

    def end_rows(self, inlined: InlinedTable, row_ids: Sequence[int], snapshot: int) -> None:
        """End inlined rows. Raise ``CommitConflict`` when another commit has deleted one or moved it."""
        table = inlined.table
        statement = (
            sa.update(table)
            .where(table.c.row_id.in_(list(row_ids)), table.c.end_snapshot.is_(None), table.c.begin_snapshot < snapshot)
            .values(end_snapshot=snapshot)
        )
        if self._sql.update("end_inlined_rows", statement) != len(row_ids):
            raise CommitConflict("an inlined row to be deleted was changed by another commit")

    def remove_rows(self, inlined: InlinedTable, through: int, count: int, base: int) -> None:
        """Remove the rows that came up to snapshot ``through``; files hold them now.

        Raise ``CommitConflict`` when they are not the ``count`` rows that were there at snapshot ``base``.
        """
        table = inlined.table
        mine = table.c.begin_snapshot <= through
        changed = sa.func.sum(sa.case((table.c.end_snapshot > base, 1), else_=0))
        statement = sa.select(sa.func.count(), sa.func.coalesce(changed, 0)).select_from(table).where(mine)
        counts = self._sql.run("flushed_rows", statement).one()
        if int(counts[0]) != count or int(counts[1]):
            raise CommitConflict("an inlined row to be flushed was changed by another commit")
        self._sql.run("remove_inlined_rows", sa.delete(table).where(mine))

    def add_deletes(self, table_id: int, deletes: Sequence[tuple[int, int]], snapshot: int) -> None:
        """Insert inlined deletes: (data file, position) each."""
        table = delete_table(table_id, self._t)
        rows = [(file, position, snapshot) for file, position in deletes]
        self._sql.insert_many("insert_inlined_deletes", table, ("file_id", "row_id", "begin_snapshot"), rows)

    def remove_deletes(self, table_id: int, file_ids: Sequence[int]) -> None:
        """Remove the inlined deletes of data files; delete files hold them now."""
        if file_ids:
            table = delete_table(table_id, self._t)
            self._sql.run("remove_inlined_deletes", sa.delete(table).where(table.c.file_id.in_(list(file_ids))))

    def need_delete_table(self, table_id: int) -> None:
        """Make the table of a table's inlined deletes unless it is there."""
        if not self._t.shared and not self.has_deletes(table_id):
            table = delete_table(table_id, self._t)
            self._sql.run("create_inlined_deletes", sa.schema.CreateTable(table))

    def deletes_since(self, table_id: int, file_ids: Sequence[int], version: int) -> bool:
        """Return whether another commit after ``version`` inlined a delete on one of these files."""
        if not self.has_deletes(table_id):
            return False
        table = delete_table(table_id, self._t)
        statement = (
            sa.select(table.c.file_id)
            .where(table.c.file_id.in_(list(file_ids)), table.c.begin_snapshot > version)
            .limit(1)
        )
        return self._sql.run("inlined_deletes_since", statement).first() is not None


def _create(inlined: InlinedTable) -> sa.DDLElement:
    """Return the DDL of an inlined table, with the column types as stock DuckLake declares them."""
    columns = [sa.Column(name, NamedType(sql), quote=True) for name, sql in inlined.ddl]
    table = sa.Table(inlined.table.name, sa.MetaData(), *columns, schema=inlined.table.schema)
    return sa.schema.CreateTable(table)
