"""Where a shared lake is in its database, and which of its files catalogs lend to each other.

Row-level security, exposed catalogs and forks are built on this by ``quacklake.tenancy``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from quacklake.catalog import scoped
from quacklake.catalog.reading.reader import Reader
from quacklake.catalog.shared_tables import SharedTables
from quacklake.format.names import literal, quote

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
    """Return whether whoever asks owns the tables of a lake, or belongs to those who do."""
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


@dataclass(frozen=True, slots=True)
class Share:
    """Files of a catalog that must stay: for another catalog, or for a lake at ``place``."""

    owner_id: int
    borrower_id: int | None
    place: str | None
    below_file_id: int


def lent_below(reader: Reader) -> int:
    """Return the file id below which files of this catalog may be in use by others and must stay; 0 if none are."""
    if not reader._t.shared:
        return 0
    t = SharedTables.of(reader._t.metadata.schema).shares
    statement = sa.select(sa.func.max(t.c.below_file_id)).where(t.c.owner_id == scoped.bind)
    return int(reader.run("lent_below", statement).scalar() or 0)
