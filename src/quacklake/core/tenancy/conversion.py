"""Convert a plain lake, or one of a DuckLake fork with catalogs, to a shared lake in place.

Version ``0.4-dev1`` of that fork identified catalogs by text, ``0.5-dev1`` by number; only some tables have a
``catalog_id``, other rows belong to the catalog of their table. In one transaction, the old tables are renamed, new
ones are filled from them by statements, and the old ones are dropped. Files do not move. MySQL, which commits whenever
a table is created, needs another procedure.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from quacklake.core import faults
from quacklake.core.catalog import scoped, shared_lake
from quacklake.core.catalog.databases.database import Database
from quacklake.core.catalog.indexes import INDEXES
from quacklake.core.catalog.name_keys import NAME_INDEXES
from quacklake.core.catalog.registry import CONVERTING, LAYOUT, Registry
from quacklake.core.catalog.shared_tables import CatalogRow, SharedTables
from quacklake.core.catalog.tables import KINDS, OWN_TABLES, VERSION, WIDE_SPEC, WRITABLE_VERSIONS, partial_max
from quacklake.core.format.inline import parse_table_name
from quacklake.core.format.names import check_tenant_name
from quacklake.errors import CommitConflict, UnsupportedFeatureError, UnsupportedVersionError

FORK_VERSIONS = ("0.4-dev1", "0.5-dev1")
ASIDE = "quacklake_old_"
"""The prefix of the old tables until they are dropped."""
BESIDE = "quacklake_new_"
"""The prefix of the new tables until they get the names of the old ones."""
OLD_NAMES = {name: f"ducklake_{name}" for name in (*WIDE_SPEC, "catalog")} | {
    name: f"quacklake_{name}" for name in OWN_TABLES
}
_INDEXES = (*INDEXES, *NAME_INDEXES, "idx_snapshot_catalog", "idx_schema_catalog", "idx_table_catalog")
_ASSUMED = {"path": "", "path_is_relative": True, "default_value_type": "literal", "is_partition": False}
_OWNERS = {  # the column that links rows to another table, for tables with neither catalog nor table id
    "snapshot_changes": ("snapshot_id", "snapshot"),
    "name_mapping": ("mapping_id", "column_mapping"),
    "macro_impl": ("macro_id", "macro"),
    "macro_parameters": ("macro_id", "macro"),
}


@dataclass(frozen=True, slots=True)
class _Origin:
    """A catalog to create; ``key`` is its old ``catalog_id``, or None if it had none."""

    row: CatalogRow
    key: Any


class Conversion(Registry):
    """Converts a lake inside one transaction."""

    _old: dict[str, sa.Table]
    _inlined: list[sa.Table]

    def version(self) -> str:
        """Return the current format version of the lake."""
        table = sa.table("ducklake_metadata", sa.column("key"), sa.column("value"), schema=self.meta.metadata.schema)
        statement = sa.select(table.c.value).where(table.c.key == "version")
        return str(self.run("version", statement).scalar())

    def convert(
        self, name: str | None, data_path: str | None, path_of: Callable[[str, str], str], folder: str | None = None
    ) -> list[CatalogRow]:
        """Create the shared lake. ``name`` is the name of the catalog that a plain lake becomes.

        ``data_path`` holds the folders of catalogs, by default where the files of the lake are; ``path_of`` returns the
        path of a folder. ``folder`` is the full path of a plain lake's files, of which the lake's own entry may be
        relative to a directory. Raise ``UnsupportedFeatureError`` or ``UnsupportedVersionError``.
        """
        version = self.version()
        if version not in (FORK_VERSIONS if name is None else WRITABLE_VERSIONS):
            raise UnsupportedVersionError(f"a lake of format version {version} cannot be converted")
        self._put_aside()
        origins = self._build(name, data_path, path_of, folder)
        self._finish()
        return [origin.row for origin in origins]

    def _build(
        self, name: str | None, data_path: str | None, path_of: Callable[[str, str], str], folder: str | None
    ) -> list[_Origin]:
        """Create the new tables and fill them from the old ones."""
        old = self._old["metadata"]
        scope = [old.c.scope.is_(None)] if "scope" in old.c else []
        rows = self.run("old_facts", sa.select(old.c.key, old.c.value).where(*scope))
        facts: dict[str, str] = {row[0]: row[1] for row in rows}
        self.create_lake(data_path or facts["data_path"], encrypted=facts.get("encrypted") == "true")
        origins = self._origins(name, folder or facts["data_path"])
        for origin in origins:
            path = path_of(data_path or facts["data_path"], origin.row.folder)
            for table in WIDE_SPEC:
                if table in self._old:
                    self._fill(table, origin, path)
            self._fill_versions(origin)
            for table in OWN_TABLES:
                if table in self._old and table != "leases":
                    self._move(f"quacklake_{table}", self._old[table], origin.row.id, {}, [])
        self.enter([origin.row for origin in origins])
        last = max((origin.row.id for origin in origins), default=-1)
        self.run("count_catalogs", sa.update(self.meta.shared).values(next_catalog_id=last + 1))
        return origins

    def _finish(self) -> None:
        for old in (*self._old.values(), *self._inlined):
            self.run("drop_old", sa.schema.DropTable(old))

    # -- the old tables ----------------------------------------------------------------------------------------------

    def _put_aside(self) -> None:
        schema, quote = self.meta.metadata.schema, self.connection.dialect.identifier_preparer
        if self.backend.name == "postgres":
            shared_lake.drop_views(self.connection, schema)
        prefix = "" if schema is None else f"{quote.quote_schema(schema)}."
        for index in _INDEXES:
            self.connection.execute(sa.text(f"DROP INDEX IF EXISTS {prefix}{quote.quote(index)}"))
        self._old = {}
        for name, table in OLD_NAMES.items():
            if self.backend.has_table(self.connection, table, schema):
                old = f"{ASIDE}{name}"
                self.connection.execute(sa.text(f"ALTER TABLE {prefix}{table} RENAME TO {old}"))
                self._old[name] = self._look(old)
        self._inlined = self._empty_inlined()

    def _look(self, name: str) -> sa.Table:
        """Return a table with the columns that it has in the database."""
        bare = scoped.registry(sa.Table(name, sa.MetaData(), schema=self.meta.metadata.schema))
        every: sa.Select[Any] = sa.select(sa.literal_column("*")).select_from(bare).limit(0)
        kinds = {column.name: KINDS[column.kind] for columns in WIDE_SPEC.values() for column in columns}
        names = list(self.run("old_columns", every).keys())
        columns = (sa.Column(column, kinds.get(column, sa.types.NullType)()) for column in names)
        return scoped.registry(sa.Table(name, sa.MetaData(), *columns, schema=self.meta.metadata.schema))

    def _empty_inlined(self) -> list[sa.Table]:
        """Return the tables for inlined rows. Raise ``UnsupportedFeatureError`` if one has a row."""
        schema, found = self.meta.metadata.schema, []
        for name in sa.inspect(self.connection).get_table_names(schema):
            if parse_table_name(name) is None:
                continue
            table = scoped.registry(sa.Table(name, sa.MetaData(), schema=schema))
            if self._has_rows(table):
                raise UnsupportedFeatureError(
                    "the lake has inlined rows, which cannot be converted to a shared lake",
                    hint="write them to files with flush_inlined_data(); for a dropped table, expire all snapshots that"
                    " have it with expire_snapshots()",
                )
            found.append(table)
        return found

    def _has_rows(self, table: sa.Table) -> bool:
        row: sa.Select[Any] = sa.select(sa.literal(1)).select_from(table).limit(1)
        return self.run("old_inlined_rows", row).first() is not None

    def _origins(self, name: str | None, data_path: str) -> list[_Origin]:
        def row(id_: int, name: str, folder: str) -> CatalogRow:
            now = time.time_ns() // 1_000_000
            return CatalogRow(id_, check_tenant_name(name), str(uuid.uuid4()), folder, now)

        if name is not None:
            return [_Origin(row(0, name, data_path), None)]
        t = self._old["catalog"]
        statement = sa.select(t.c.catalog_id, t.c.catalog_name).order_by(t.c.catalog_id)
        found = []
        for number, (key, text) in enumerate(self.run("old_catalogs", statement).all()):
            id_ = key if isinstance(key, int) else number
            found.append(_Origin(row(id_, str(text), str(text)), key))
        return found

    # -- the new rows ------------------------------------------------------------------------------------------------

    def _fill(self, name: str, origin: _Origin, path: str) -> None:
        old, values = self._old[name], {}
        if name == "metadata":
            fixed = {"data_path": path} if origin.key is None else {"version": VERSION, "data_path": path}
            own = sa.case(
                *((old.c.key == key, sa.literal(value, KINDS["text"]())) for key, value in fixed.items()),
                else_=old.c.value,
            )
            values["value"] = own if "scope" not in old.c else sa.case((old.c.scope.is_(None), own), else_=old.c.value)
        if name == "schema" and origin.key is not None and "path" in old.c:
            folder = f"{origin.row.folder}/"  # some lakes have the catalog's folder in the path of the schema
            shorter = sa.func.substr(old.c.path, len(folder) + 1)
            values["path"] = sa.case((old.c.path.startswith(folder, autoescape=True), shorter), else_=old.c.path)
        if name == "schema_versions" and "table_id" not in old.c:
            return
        if name == "inlined_data_tables":
            return  # these tables hold no rows
        self._move(f"ducklake_{name}", old, origin.row.id, values, self._mine(name, origin))

    def _move(self, name: str, old: sa.Table, id_: int, values: dict[str, Any], where: Sequence[Any]) -> None:
        target = self.meta.definitions[name]
        columns: dict[str, Any] = {scoped.CATALOG_ID: sa.literal(id_, sa.BigInteger())}
        for column in target.c:
            if column.name not in columns:
                columns[column.name] = values.get(column.name, self._column(old, column))
        rows = sa.select(*columns.values()).select_from(old).where(*where)
        self.run(f"convert_{name}", sa.insert(target).from_select(list(columns), rows))

    def _column(self, old: sa.Table, column: sa.Column[Any]) -> Any:
        if column.name in old.c:
            return old.c[column.name]
        if column.name == "partial_max" and "partial_file_info" in old.c:
            return partial_max(old.c.partial_file_info)
        if column.name in _ASSUMED:
            return sa.literal(_ASSUMED[column.name], column.type)
        return sa.cast(sa.null(), column.type)

    def _mine(self, name: str, origin: _Origin) -> list[Any]:
        """Return the condition for the rows of a catalog."""
        old = self._old[name]
        if origin.key is None:
            return []
        if scoped.CATALOG_ID in old.c:
            return [old.c.catalog_id == origin.key]
        if name == "metadata":
            if "scope" not in old.c:
                return []
            of_table = sa.and_(old.c.scope == "table", old.c.scope_id.in_(self._ids("table", origin)))
            of_schema = sa.and_(old.c.scope == "schema", old.c.scope_id.in_(self._ids("schema", origin)))
            return [sa.or_(old.c.scope.is_(None), of_table, of_schema)]
        if name == "tag":
            kinds = ("table", "view", "schema", "macro")
            return [sa.or_(*(old.c.object_id.in_(self._ids(kind, origin)) for kind in kinds if kind in self._old))]
        if name in _OWNERS:
            key, owner = _OWNERS[name]
            return [old.c[key].in_(sa.select(self._old[owner].c[key]).where(*self._mine(owner, origin)))]
        return [old.c.table_id.in_(self._ids("table", origin))]

    def _ids(self, name: str, origin: _Origin) -> sa.Select[Any]:
        return sa.select(self._old[name].c[f"{name}_id"]).where(*self._mine(name, origin))

    def _fill_versions(self, origin: _Origin) -> None:
        """Give each table the schema versions in which one of its columns began; they used to be lake-wide."""
        old = self._old.get("schema_versions")
        if old is not None and "table_id" in old.c:
            return
        column, snapshot, id_ = self.meta["column"], self.meta["snapshot"], origin.row.id
        rows = (
            sa.select(
                sa.literal(id_, sa.BigInteger()), column.c.begin_snapshot, snapshot.c.schema_version, column.c.table_id
            )
            .join(snapshot, snapshot.c.snapshot_id == column.c.begin_snapshot)
            .where(column.c.catalog_id == id_, snapshot.c.catalog_id == id_)
            .distinct()
        )
        names = [scoped.CATALOG_ID, "begin_snapshot", "schema_version", "table_id"]
        self.run("convert_versions", sa.insert(self.meta["schema_versions"]).from_select(names, rows))


class MySQLConversion(Conversion):
    """Converts a lake on MySQL or MariaDB while holding the queues for commits and for creating catalogs.

    The new tables are created and filled next to the old ones, under temporary names. One atomic ``RENAME TABLE`` then
    moves the old tables aside and gives the new ones their names. A mark in the new lake, its layout, keeps clients out
    until the old tables, which nobody can reach any more, are verified to be unchanged since they were copied. Then the
    mark is removed and the old tables are dropped. Any client that finds an interrupted conversion finishes it:

    =====================  ===================================================  ========================================
    interrupted            state                                                ``resume``
    =====================  ===================================================  ========================================
    before the rename      the old lake, complete, and some new tables          drops the new tables
    before the mark goes   the new lake with the mark, the old tables aside     removes the mark, or renames all back
    after that             the new lake, some old tables aside                  drops the old tables
    =====================  ===================================================  ========================================
    """

    def __init__(self, connection: Connection, database: Database, metadata_schema: str | None) -> None:
        super().__init__(connection, database, metadata_schema)
        self._live = self.meta
        self.meta = SharedTables.of(metadata_schema, BESIDE)

    def convert(
        self, name: str | None, data_path: str | None, path_of: Callable[[str, str], str], folder: str | None = None
    ) -> list[CatalogRow]:
        """Create a shared lake; see ``Conversion.convert``. Raise ``CommitConflict`` if another client wrote."""
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
        layout = None
        if self._live.shared.name in names:
            layout = self.run("shared_layout", sa.select(self._live.shared.c.layout)).scalar()
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

    def _finish(self) -> None:
        mark = f"{CONVERTING} {self._count_snapshots(self._old['snapshot'])}"
        self.run("mark_lake", sa.update(self.meta.shared).values(layout=mark))
        self._commit()
        aside = {old.name: f"{ASIDE}{name}" for name, old in self._old.items()}
        aside |= {table.name: f"{ASIDE}{table.name.removeprefix('ducklake_')}" for table in self._inlined}
        placed = {table.name: table.name.removeprefix(BESIDE) for table in self.meta.all()}
        self._rename(aside | placed)
        if not self._settle(mark):
            raise CommitConflict(
                "another client wrote to the lake during the conversion; the lake was not converted", hint="try again"
            )

    def _settle(self, mark: str) -> bool:
        """Remove the mark, or rename everything back if the old tables have changed since they were copied."""
        names = self._names(ASIDE)
        snapshots = self._bare(f"{ASIDE}snapshot")
        rows = [name for name in names if parse_table_name(_former(name)) is not None]
        same = mark == f"{CONVERTING} {self._count_snapshots(snapshots)}"
        if not same or any(self._has_rows(self._bare(name)) for name in rows):
            back = {table.name: f"{BESIDE}{table.name}" for table in self._live.all()}
            self._rename(back | {name: _former(name) for name in names})
            self._drop(back.values())
            return False
        self.run("unmark_lake", sa.update(self._live.shared).values(layout=LAYOUT))
        self._commit()
        self._drop(names)
        return True

    # -- tables ------------------------------------------------------------------------------------------------------

    def _names(self, prefix: str = "") -> list[str]:
        known = sa.table("tables", sa.column("table_schema"), sa.column("table_name"), schema="information_schema")
        mine = known.c.table_schema == (self.meta.metadata.schema or sa.func.database())
        found = self.run("table_names", sa.select(known.c.table_name).where(mine))
        return sorted(name for (name,) in found if name.startswith(prefix))

    def _bare(self, name: str) -> sa.Table:
        columns = sa.Column("snapshot_id", sa.BigInteger()), sa.Column("next_file_id", sa.BigInteger())
        return scoped.registry(sa.Table(name, sa.MetaData(), *columns, schema=self.meta.metadata.schema))

    def _count_snapshots(self, table: sa.Table) -> str:
        """Return SQL for the values that every commit changes: number of snapshots, newest snapshot, next file id."""
        newest = sa.func.max(table.c.snapshot_id), sa.func.max(table.c.next_file_id)
        row = self.run("old_snapshots", sa.select(sa.func.count(), *newest).select_from(table)).one()
        return " ".join(str(value or 0) for value in row)

    def _rename(self, names: Mapping[str, str]) -> None:
        """Rename tables, all or none."""
        renamed = ", ".join(f"{self._quote_table(old)} TO {self._quote_table(new)}" for old, new in names.items())
        self._patiently("rename_tables", f"RENAME TABLE {renamed}")

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            self._patiently("drop_table", f"DROP TABLE IF EXISTS {self._quote_table(name)}")

    def _quote_table(self, name: str) -> str:
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
