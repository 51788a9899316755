"""The names of what is granted, also of what has been dropped since: a grant keeps only ids."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import sqlalchemy as sa

from quacklake.core.catalog.reading.reader import Reader
from quacklake.core.catalog.statements import SOME, parts
from quacklake.core.format.access import Grant, Scope

__all__ = ["NamedGrant", "named_grants"]


@dataclass(frozen=True, slots=True)
class NamedGrant:
    """A grant with the last names of its schema, table or view and of its column; ``dropped`` if one is gone."""

    grant: Grant
    schema: str | None
    table: str | None
    column: str | None
    dropped: bool

    @property
    def object(self) -> str | None:
        """The name of what is granted; None for the lake."""
        return self.schema if self.table is None else f"{self.schema}.{self.table}"


K = TypeVar("K")
_Last = tuple[bool, int, tuple[str, ...]]
"""A last name: true if something still has it, the snapshot in which it got it, and the name."""


def named_grants(reader: Reader, grants: Iterable[Grant]) -> list[NamedGrant]:
    """Return grants with names. Those of objects that no snapshot has any more are left out: they allow nothing."""
    grants = list(grants)
    of_schemas = {grant.object_id for grant in grants if grant.scope == Scope.SCHEMA and grant.object_id is not None}
    of_tables = {grant.object_id for grant in grants if grant.scope == Scope.TABLE and grant.object_id is not None}
    of_columns = {grant.object_id for grant in grants if grant.column_id is not None and grant.object_id is not None}
    schemas, tables = _schemas(reader, of_schemas), _tables(reader, of_tables)
    columns = _columns(reader, of_columns)
    found = []
    for grant in grants:
        if grant.object_id is None:
            found.append(NamedGrant(grant, None, None, None, False))
            continue
        last = (schemas if grant.scope == Scope.SCHEMA else tables).get(grant.object_id)
        column = None if grant.column_id is None else columns.get((grant.object_id, grant.column_id))
        if last is None or (grant.column_id is not None and column is None):
            continue
        schema, table = (*last[2], None)[:2]
        dropped = not last[0] or (column is not None and not column[0])
        found.append(NamedGrant(grant, schema, table, None if column is None else column[2][0], dropped))
    return found


def _schemas(reader: Reader, ids: set[int]) -> dict[int, _Last]:
    s = reader.meta["schema"]
    found: dict[int, _Last] = {}
    for some in parts(sorted(ids), SOME):
        names = sa.select(s.c.schema_id, s.c.begin_snapshot, s.c.end_snapshot, s.c.schema_name)
        for id_, begin, end, name in reader.run("granted_schemas", names.where(s.c.schema_id.in_(some))):
            _keep(found, id_, begin, end, (name,))
    return found


def _tables(reader: Reader, ids: set[int]) -> dict[int, _Last]:
    """Return the last names of tables and views."""
    s = reader.meta["schema"]
    found: dict[int, _Last] = {}
    for kind in ("table", "view"):
        t = reader.meta[kind]
        id_of, name_of = t.c[f"{kind}_id"], t.c[f"{kind}_name"]
        names = sa.select(id_of, t.c.begin_snapshot, t.c.end_snapshot, s.c.schema_name, name_of)
        names = names.join_from(t, s, s.c.schema_id == t.c.schema_id)
        for some in parts(sorted(ids), SOME):
            for id_, begin, end, schema, name in reader.run(f"granted_{kind}s", names.where(id_of.in_(some))):
                _keep(found, id_, begin, end, (schema, name))
    return found


def _columns(reader: Reader, ids: set[int]) -> dict[tuple[int, int], _Last]:
    c = reader.meta["column"]
    found: dict[tuple[int, int], _Last] = {}
    for some in parts(sorted(ids), SOME):
        names = sa.select(c.c.table_id, c.c.column_id, c.c.begin_snapshot, c.c.end_snapshot, c.c.column_name)
        for table, column, begin, end, name in reader.run("granted_columns", names.where(c.c.table_id.in_(some))):
            _keep(found, (table, column), begin, end, (name,))
    return found


def _keep(found: dict[K, _Last], key: K, begin: int | None, end: int | None, name: tuple[str, ...]) -> None:
    """Keep the name that is the last one so far."""
    entry = (end is None, begin or 0, name)
    if key not in found or entry[:2] > found[key][:2]:
        found[key] = entry
