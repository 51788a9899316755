"""Convert a plain lake, or one of a DuckLake fork with catalogs, to a shared lake in place.

Version ``0.4-dev1`` of that fork identified catalogs by text, ``0.5-dev1`` by number. In both, only some tables have a
``catalog_id``; other rows belong to the catalog of their table. In one transaction, the old tables are renamed, new
tables are filled from them by statements in the database, and the old ones are dropped. Files do not move. MySQL, which
commits whenever a table is created, needs another procedure: see ``mysql_conversion``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from quacklake.catalog import scoped, shared_lake
from quacklake.catalog.registry import Registry
from quacklake.catalog.shared_tables import CatalogRow
from quacklake.catalog.tables import INDEXES, KINDS, OWN_TABLES, VERSION, WIDE_SPEC, WRITABLE_VERSIONS, partial_max
from quacklake.errors import UnsupportedFeatureError, UnsupportedVersionError
from quacklake.format.inline import parse_table_name
from quacklake.format.names import check_tenant_name

FORK_VERSIONS = ("0.4-dev1", "0.5-dev1")
ASIDE = "quacklake_old_"
"""The prefix of the old tables until they are dropped."""
OLD_NAMES = {name: f"ducklake_{name}" for name in (*WIDE_SPEC, "catalog")} | {
    name: f"quacklake_{name}" for name in OWN_TABLES
}
_INDEXES = (*INDEXES, "idx_snapshot_catalog", "idx_schema_catalog", "idx_table_catalog")
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
        path of a folder. ``folder`` is the full path of a plain lake's files: the lake's own entry may be relative to
        the directory in which its client was started, and would lead into the folder of another catalog. Raises
        ``UnsupportedFeatureError`` or ``UnsupportedVersionError``.
        """
        version = self.version()
        if version not in (FORK_VERSIONS if name is None else WRITABLE_VERSIONS):
            raise UnsupportedVersionError(f"a lake of the version {version} cannot be converted")
        self._put_aside()
        origins = self._build(name, data_path, path_of, folder)
        self._finish()
        return [origin.row for origin in origins]

    def _build(
        self, name: str | None, data_path: str | None, path_of: Callable[[str, str], str], folder: str | None
    ) -> list[_Origin]:
        """Create the new tables and fill them from the old ones."""
        facts = self._facts()
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
        """Return the tables for inlined rows. Raises ``UnsupportedFeatureError`` if one has a row."""
        schema, found = self.meta.metadata.schema, []
        for name in sa.inspect(self.connection).get_table_names(schema):
            if parse_table_name(name) is None:
                continue
            table = scoped.registry(sa.Table(name, sa.MetaData(), schema=schema))
            row: sa.Select[Any] = sa.select(sa.literal(1)).select_from(table).limit(1)
            if self.run("old_inlined_rows", row).first() is not None:
                raise UnsupportedFeatureError(
                    "the lake has inlined rows, which have another form in a shared lake",
                    hint="flush_inlined_data() writes them into files; those of a dropped table go with"
                    " expire_snapshots(), when no snapshot is left that has the table",
                )
            found.append(table)
        return found

    def _facts(self) -> dict[str, str]:
        table = self._old["metadata"]
        scope = [table.c.scope.is_(None)] if "scope" in table.c else []
        return {row[0]: row[1] for row in self.run("old_facts", sa.select(table.c.key, table.c.value).where(*scope))}

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
