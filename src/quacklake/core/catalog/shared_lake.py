"""The place of a shared lake in its database, the files that its catalogs lend, and views over the metadata."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from quacklake.core.catalog import scoped
from quacklake.core.catalog.reading.reader import Reader
from quacklake.core.catalog.shared_tables import SharedTables
from quacklake.core.catalog.statements import parts
from quacklake.core.catalog.tables import KINDS
from quacklake.core.format.names import literal, quote
from quacklake.errors import InputError

READ_POLICY = "quacklake_read"
"""The row-level policy that every secured table has."""
_OURS = "^(duck|quack)lake_"


@dataclass(frozen=True, slots=True)
class SharedPlace:
    """The schema of a shared lake's tables, their owner, and the role that all granted roles belong to.

    ``writers`` is the role of those that may write; lakes that an older version secured do not have it. ``secured`` are
    the tables that have row-level security already, ``open_parts`` parts of tables that have none.
    """

    schema: str
    owner: str
    group: str
    group_exists: bool
    writers_exist: bool
    secured: frozenset[str]
    open_parts: tuple[str, ...]

    @property
    def writers(self) -> str:
        """The role that all granted roles belong to that may write."""
        return f"{self.group}_write"

    def name(self, table: str) -> str:
        """Return a table or function with its schema, quoted."""
        return f"{quote(self.schema)}.{quote(table)}"


def find_place(connection: Connection, metadata_schema: str | None) -> SharedPlace:
    """Read from the database where a shared lake is, and how it is secured."""
    database, here = rows_of(connection, "SELECT current_database(), current_schema()")[0]
    schema = metadata_schema or str(here)
    where = f"schemaname = {literal(schema)}"
    owner = rows_of(connection, f"SELECT tableowner FROM pg_tables WHERE {where} AND tablename = 'ducklake_catalog'")
    policies = (
        f"SELECT tablename, roles[1]::text FROM pg_policies WHERE {where} AND policyname = {literal(READ_POLICY)}"
    )
    known = {str(table): str(group) for table, group in rows_of(connection, policies)}
    parts = (
        "SELECT c.relname FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid JOIN pg_class p ON p.oid ="
        f" i.inhparent WHERE c.relkind = 'r' AND NOT c.relrowsecurity AND p.relname ~ {literal(_OURS)}"
        f" AND c.relnamespace = {literal(quote(schema))}::regnamespace ORDER BY 1"
    )
    open_parts = tuple(str(part) for (part,) in rows_of(connection, parts))
    made = f"quacklake_{hashlib.sha256(f'{database}/{schema}'.encode()).hexdigest()[:16]}"
    group = next(iter(known.values()), made)
    names = f"SELECT rolname FROM pg_roles WHERE rolname IN ({literal(group)}, {literal(f'{group}_write')})"
    roles = {str(name) for (name,) in rows_of(connection, names)}
    there = (group in roles, f"{group}_write" in roles)
    return SharedPlace(schema, str(owner[0][0]), group, *there, frozenset(known), open_parts)


def is_owner(connection: Connection, place: SharedPlace) -> bool:
    """Return whether the current user owns the tables of a lake, directly or as a member of their owner."""
    return bool(rows_of(connection, f"SELECT pg_has_role({literal(place.owner)}, 'MEMBER')")[0][0])


def execute(connection: Connection, statements: list[str]) -> None:
    """Run statements, which are sent as they are."""
    for statement in statements:
        connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def rows_of(connection: Connection, statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement, which is sent as it is."""
    rows = connection.exec_driver_sql(statement, execution_options={"no_parameters": True}).all()
    return [tuple(row) for row in rows]


def exposure_schema(metadata_schema: str | None, catalog_id: int) -> str:
    """Return the name of the schema that stock DuckDB opens; it is different for each lake of one database."""
    prefix = "" if metadata_schema is None else f"{metadata_schema.encode()[:40].decode(errors='ignore')}_"
    return f"{prefix}tenant_{catalog_id:d}"


def is_exposure(connection: Connection, lake: str, schema: str) -> bool:
    """Return whether a schema shows rows of the lake in another: its view of snapshots reads the lake's table."""
    view, table = (f"{quote(name)}.ducklake_snapshot" for name in (schema, lake))
    query = (
        "SELECT 1 FROM pg_rewrite r JOIN pg_depend d ON d.objid = r.oid AND d.classid = 'pg_rewrite'::regclass"
        " AND d.refclassid = 'pg_class'::regclass"
        f" WHERE r.ev_class = to_regclass({literal(view)}) AND d.refobjid = to_regclass({literal(table)}) LIMIT 1"
    )
    return bool(rows_of(connection, query))


def other_lakes(connection: Connection, lake: str) -> list[str]:
    """Return the schemas with the metadata of other lakes, without the exposed catalogs of the lake in ``lake``.

    Reading a relation of somebody else can run code of theirs with the rights of the reader, unless it is a table
    without policies whose columns are plain texts.
    """
    table = literal(f"{quote(lake)}.ducklake_snapshot")
    exposed = (
        "SELECT 1 FROM pg_class v JOIN pg_rewrite r ON r.ev_class = v.oid JOIN pg_depend d ON d.objid = r.oid"
        " AND d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass"
        " WHERE v.relnamespace = n.oid AND v.relname = 'ducklake_snapshot' AND v.relowner = c.relowner"
        f" AND d.refobjid = to_regclass({table})"
    )
    ours = (
        "c.relowner = (SELECT oid FROM pg_roles WHERE rolname = current_user)"
        f" OR c.relowner = (SELECT relowner FROM pg_class WHERE oid = to_regclass({table}))"
    )
    other_type = (
        "SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname IN ('key', 'value')"
        " AND a.atttypid NOT IN ('text'::regtype, 'varchar'::regtype)"
    )
    plain = f"c.relkind IN ('r', 'p') AND NOT c.relrowsecurity AND NOT EXISTS ({other_type})"
    query = (
        "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relname = 'ducklake_metadata' AND c.relpersistence <> 't' AND has_table_privilege(c.oid, 'SELECT')"
        " AND has_schema_privilege(n.oid, 'USAGE')"
        f" AND NOT EXISTS ({exposed}) AND ({ours} OR {plain}) ORDER BY 1"
    )
    return [str(schema) for (schema,) in rows_of(connection, query)]


@dataclass(frozen=True, slots=True)
class Share:
    """Files of a catalog that must stay: for another catalog, or for a lake at ``place``."""

    owner_id: int
    borrower_id: int | None
    place: str | None
    below_file_id: int


def lent_below(reader: Reader) -> int:
    """Return the file id below which files of this catalog may be in use by others and must stay; 0 if none are."""
    if not reader.meta.shared:
        return 0
    t = SharedTables.of(reader.meta.metadata.schema).shares
    statement = sa.select(sa.func.max(t.c.below_file_id)).where(t.c.owner_id == scoped.bind)
    return int(reader.run("lent_below", statement).scalar() or 0)


def named_by_borrowers(reader: Reader, paths: Iterable[str]) -> set[str]:
    """Return which absolute paths are named by catalogs that share files of this one.

    The ids that ``lent_below`` compares are in rows of the lender, which may be given other ids. Only the owner of the
    lake sees who shares files; a role of the lender, which may write its folder anyway, gets none.
    """
    if not reader.meta.shared or not _sees_borrowers(reader):
        return set()
    schema = reader.meta.metadata.schema
    shares = SharedTables.of(schema).shares
    borrowers = sa.select(shares.c.borrower_id).where(shares.c.owner_id == scoped.bind)
    ids = [row[0] for row in reader.run("borrowers", borrowers) if row[0] is not None]
    wanted = list(paths) if ids else []
    found: set[str] = set()
    for name in ("ducklake_data_file", "ducklake_delete_file"):
        columns = (sa.Column(scoped.CATALOG_ID, sa.BigInteger()), sa.Column("path", KINDS["text"]()))
        t = scoped.registry(sa.Table(name, sa.MetaData(), *columns, schema=schema))
        for some in parts(wanted):
            chosen = sa.select(t.c.path).where(t.c.catalog_id.in_(ids), t.c.path.in_(some))
            found.update(row[0] for row in reader.run("named_by_borrowers", chosen))
    return found


def _sees_borrowers(reader: Reader) -> bool:
    if reader.backend.name != "postgres":
        return True
    table = SharedTables.of(reader.meta.metadata.schema).shares
    name = reader.connection.dialect.identifier_preparer.format_table(table)
    query = f"SELECT has_column_privilege({literal(name)}, 'borrower_id', 'SELECT')"
    return bool(rows_of(reader.connection, query)[0][0])


_LOG = logging.getLogger("quacklake.catalog")
_SCHEMA = "lakehouse"
_DEFAULT = "public"
_INVOKER = "security_invoker=true"
_INVOKER_SINCE = (15,)
"""The first version of PostgreSQL whose views can run with the rights of the user who reads them."""
_HERE = (
    "SELECT coalesce((SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.oid = to_regclass('ducklake_metadata')), current_schema())"
)
"""The schema in which statements without one find the tables."""

#: View -> its query. ``{lake}`` stands before the names of tables, ``{key}`` before the columns of a join.
VIEWS = {
    "catalogs": "SELECT {who}m.value AS data_path FROM {lake}ducklake_metadata m{of}"
    " m.key = 'data_path' AND m.scope IS NULL",
    "schemas": "SELECT {who}s.schema_id, s.schema_uuid, s.schema_name, s.path, s.begin_snapshot, s.end_snapshot"
    " FROM {lake}ducklake_schema s{of} true",
    "tables": "SELECT {who}t.table_id, t.table_uuid, s.schema_name, t.table_name, t.path, t.begin_snapshot,"
    " t.end_snapshot FROM {lake}ducklake_table t JOIN {lake}ducklake_schema s USING ({key}schema_id){of} true",
    "snapshots": "SELECT {who}s.snapshot_id, s.snapshot_time, s.schema_version, c.changes_made, c.author,"
    " c.commit_message, c.commit_extra_info FROM {lake}ducklake_snapshot s"
    " LEFT JOIN {lake}ducklake_snapshot_changes c USING ({key}snapshot_id){of} true",
    "manifests": "SELECT {who}f.data_file_id, f.table_id, f.begin_snapshot, f.end_snapshot, f.path, f.record_count,"
    " f.file_size_bytes, d.path AS delete_path, d.delete_count FROM {lake}ducklake_data_file f"
    " LEFT JOIN (SELECT * FROM {lake}ducklake_delete_file WHERE end_snapshot IS NULL) d USING ({key}data_file_id)"
    "{of} true",
    "partitions": "SELECT {who}v.table_id, v.data_file_id, v.partition_key_index, v.partition_value, c.column_id,"
    " c.transform FROM {lake}ducklake_file_partition_value v JOIN {lake}ducklake_data_file f USING ({key}data_file_id)"
    " LEFT JOIN {lake}ducklake_partition_column c USING ({key}partition_id, partition_key_index){of} true",
}
_PLAIN = {"key": "", "of": " WHERE"}
_SHARED = {
    "key": "catalog_id, ",
    "who": "catalog_id, g.catalog_name, ",
    # hide dropped catalogs
    "of": " JOIN {lake}ducklake_catalog g USING (catalog_id) WHERE g.dropped_ms IS NULL AND",
}


@dataclass(frozen=True, slots=True)
class _LakeViews:
    """The schema of a lake's views, and the relations with their names: whether each is a view over this lake."""

    lake: str
    home_exists: bool
    may_create: bool
    relations: Mapping[tuple[str, str], bool]

    @property
    def home(self) -> str:
        """The schema of the views."""
        return _home(self.lake)

    def names(self) -> dict[str, tuple[str, str]]:
        """Return the schema and name of each view."""
        return {view: (self.home, view if self.lake == _DEFAULT else f"{_SCHEMA}_{view}") for view in VIEWS}

    def ours(self) -> list[tuple[str, str]]:
        """Return the views of the lake that are there, also where an older version made them."""
        return sorted(name for name, mine in self.relations.items() if mine)


# Views over the metadata, for people who look with SQL. A lake in the schema ``public`` has them in the schema
# ``lakehouse``; a lake in another schema has them beside its tables, as ``lakehouse_tables`` and so on. So two lakes of
# one database never need the same names. In a shared lake every row names its catalog, every join is by ``catalog_id``,
# and rows are read with the rights of the reader: a role sees what row-level security shows it.


def create_views(connection: Connection, metadata_schema: str | None, *, shared: bool = False) -> None:
    """Create the views that a lake lacks, unless their names are taken or the rights to make them are missing."""
    execute(connection, missing_views(connection, metadata_schema, shared=shared))


def missing_views(
    connection: Connection, metadata_schema: str | None, *, shared: bool, readers: str | None = None
) -> list[str]:
    """Return the statements that create the views a lake lacks, if they can be made, for ``readers`` of own rows."""
    existing = _find(connection, metadata_schema)
    names = existing.names()
    missing = {view: name for view, name in names.items() if not existing.relations.get(name)}
    if not missing or not existing.may_create:
        return []
    if any(name in existing.relations for name in missing.values()):
        _LOG.info("no views over the metadata: the schema %s has relations with their names", existing.home)
        return []
    statements = [] if existing.home_exists else [f"CREATE SCHEMA IF NOT EXISTS {quote(existing.home)}"]
    options = ""
    if shared:
        invoker = (connection.dialect.server_version_info or ()) >= _INVOKER_SINCE
        options = f" WITH (security_barrier=true{f', {_INVOKER}' if invoker else ''})"
    for view, name in missing.items():
        query = _query(view, existing.lake, shared=shared)
        statements.append(f"CREATE VIEW {_quote_name(name)}{options} AS {query}")
        if shared:
            statements.append(f"REVOKE ALL ON {_quote_name(name)} FROM PUBLIC")
    return statements + (_grant_views(list(missing.values()), readers) if readers and _INVOKER in options else [])


def drop_views(connection: Connection, metadata_schema: str | None) -> None:
    """Remove the views of a lake, before the tables under them; an ``InputError`` for views of others on them."""
    ours = [_quote_name(name) for name in _find(connection, metadata_schema).ours()]
    names = ", ".join(f"{literal(name)}::regclass" for name in ours)
    query = (
        "SELECT DISTINCT r.ev_class::regclass::text FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid"
        f" AND d.classid = 'pg_rewrite'::regclass WHERE d.refobjid IN ({names}) AND r.ev_class NOT IN ({names})"
        " ORDER BY 1"
    )
    others = [str(name) for (name,) in rows_of(connection, query)] if ours else []
    if others:
        raise InputError(
            f"other views depend on the views over the metadata, which must be replaced: {', '.join(others)}",
            hint="drop these views, and create them again afterwards",
        )
    execute(connection, [f"DROP VIEW {name}" for name in ours])


def readable_views(connection: Connection, place: SharedPlace) -> list[str]:
    """Return what lets the roles of a shared lake read its views, where they see their own rows there and no others."""
    existing = _find(connection, place.schema)
    given = (
        "SELECT 1 FROM aclexplode(c.relacl) a JOIN pg_roles r ON r.oid = a.grantee"
        f" WHERE r.rolname = {literal(place.group)} AND a.privilege_type = 'SELECT'"
    )
    query = (
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        f" WHERE n.nspname = {literal(existing.home)} AND {literal(_INVOKER)} = ANY (c.reloptions)"
        f" AND NOT EXISTS ({given}) ORDER BY 2"
    )
    ours = set(existing.ours())
    hidden = [name for name in rows_of(connection, query) if name in ours]
    return _grant_views(hidden, place.group) if hidden else []


def _grant_views(views: Sequence[tuple[Any, ...]], readers: str) -> list[str]:
    names, role = ", ".join(_quote_name(name) for name in views), quote(readers)
    return [f"GRANT USAGE ON SCHEMA {quote(views[0][0])} TO {role}", f"GRANT SELECT ON {names} TO {role}"]


def _quote_name(name: tuple[Any, ...]) -> str:
    return ".".join(map(quote, name))


def _home(lake: str) -> str:
    return _SCHEMA if lake == _DEFAULT else lake


def _query(view: str, lake: str, *, shared: bool) -> str:
    words = dict(_SHARED) if shared else {**_PLAIN, "who": ""}
    if not shared and view == "catalogs":
        words["who"] = "0::bigint AS catalog_id, 'main'::text AS catalog_name, "
    prefix = f"{quote(lake)}."
    return VIEWS[view].format(lake=prefix, **words | {"of": words["of"].format(lake=prefix)})


def _find(connection: Connection, metadata_schema: str | None) -> _LakeViews:
    """Find the existing views of a lake."""
    lake = metadata_schema or str(rows_of(connection, _HERE)[0][0])
    places = [(_SCHEMA, view) for view in VIEWS] + [(lake, f"{_SCHEMA}_{view}") for view in VIEWS]
    names = ", ".join(f"({literal(schema)}, {literal(name)})" for schema, name in places)
    reads = (
        "SELECT 1 FROM pg_rewrite r JOIN pg_depend d ON d.objid = r.oid AND d.classid = 'pg_rewrite'::regclass"
        " AND d.refclassid = 'pg_class'::regclass JOIN pg_class b ON b.oid = d.refobjid"
        " JOIN pg_namespace m ON m.oid = b.relnamespace"
        f" WHERE r.ev_class = c.oid AND m.nspname = {literal(lake)} AND b.relname ~ '^ducklake_'"
    )
    relations = (
        f"SELECT n.nspname, c.relname, c.relkind = 'v' AND EXISTS ({reads})"
        f" FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE (n.nspname, c.relname) IN ({names})"
    )
    rights = (
        "SELECT oid IS NOT NULL, CASE WHEN oid IS NULL THEN has_database_privilege(current_database(), 'CREATE')"
        f" ELSE has_schema_privilege(oid, 'CREATE') END FROM (SELECT to_regnamespace({literal(quote(_home(lake)))})"
        " AS oid) n"
    )
    home_exists, may_create = rows_of(connection, rights)[0]
    there = {(schema, name): bool(mine) for schema, name, mine in rows_of(connection, relations)}
    return _LakeViews(lake, bool(home_exists), bool(may_create), there)
