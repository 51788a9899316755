"""The catalogs (tenants) of a shared lake: making the lake, and making, finding, naming and removing catalogs.

What is done here crosses catalogs, so that it works on the tables as they are and names every ``catalog_id`` itself.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.schema import CreateTable

from quacklake import faults
from quacklake.catalog import scoped
from quacklake.catalog.database import Database
from quacklake.catalog.inlined import DELETES, ROWS
from quacklake.catalog.shared_tables import SharedTables
from quacklake.catalog.tables import VERSION
from quacklake.errors import AlreadyExistsError, NotFoundError, UnsupportedVersionError
from quacklake.format.changes import Change, ChangeKind, render
from quacklake.format.tenants import check_tenant_name, folder_of, tenant_key, tombstone

__all__ = [
    "CATALOG_REQUIRED",
    "CatalogRow",
    "CatalogTotals",
    "Registry",
    "SharedFacts",
    "no_such_catalog",
    "shared_facts",
]

CATALOG_REQUIRED = "CATALOG is required. Please provide CATALOG when attaching the database."
LAYOUT = "shared-1"
"""The form of the tables; another form would be another word."""

_NOBODY = -1
_MANY = f"{VERSION} with many catalogs"
"""A version that belongs to no catalog. Stock DuckDB looks at every version that the metadata names and stops at one
that it does not know; it would take all catalogs for one lake, and expire or remove what each of them has."""

_TOGETHER = 5_000
"""How many catalogs one round of statements makes."""
_IN = 500


def no_such_catalog(name: str) -> NotFoundError:
    """The error for a name that no catalog has."""
    return NotFoundError(
        f"Catalog '{name}' does not exist in this DuckLake instance", hint="pass create=True to make it"
    )


@dataclass(frozen=True, slots=True)
class CatalogRow:
    """A catalog of a shared lake. ``folder`` is that of its files, below the data path of the lake.

    ``borrows`` are folders elsewhere, whose files it may read: those of the lake that it was forked or adopted from.
    """

    id: int
    name: str
    uuid: str
    folder: str
    created_ms: int
    dropped_ms: int | None = None
    borrows: tuple[str, ...] = ()

    @classmethod
    def of(cls, row: Any) -> CatalogRow:
        """From the columns of the database."""
        id_, name, uid, folder, created_ms, dropped_ms, borrows = row
        found = tuple(json.loads(borrows)) if borrows else ()
        return cls(id_, name, uid, folder, created_ms, dropped_ms, found)


@dataclass(frozen=True, slots=True)
class SharedFacts:
    """What a shared lake says of itself."""

    layout: str
    data_path: str
    encrypted: bool


def shared_facts(connection: Connection, database: Database, metadata_schema: str | None) -> SharedFacts | None:
    """What a shared lake says of itself; None when there is none. Raises ``UnsupportedVersionError``."""
    if not database.has_table(connection, "ducklake_catalog", metadata_schema):
        return None
    if not database.has_table(connection, "quacklake_shared", metadata_schema):
        raise UnsupportedVersionError(
            "the shared lake has an older layout, and migrate_if_required is set to false",
            hint="open it with migrate=True, which brings it to the present one",
        )
    facts = Registry(connection, database, metadata_schema).facts()
    if facts is not None and facts.layout != LAYOUT:
        raise UnsupportedVersionError(f"the shared lake has the layout {facts.layout}", hint=f"{LAYOUT} is known here")
    return facts


@dataclass(frozen=True, slots=True)
class CatalogTotals:
    """What a catalog holds at its newest snapshot, and how many snapshots it keeps."""

    id: int
    snapshots: int = 0
    tables: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0


class Registry:
    """The catalogs of a shared lake, inside one transaction."""

    def __init__(self, connection: Connection, database: Database, metadata_schema: str | None) -> None:
        self._connection = connection
        self._database = database
        self._t = SharedTables.of(metadata_schema)

    def run(self, name: str, statement: Any) -> sa.CursorResult[*tuple[Any, ...]]:
        """Execute one named statement; its name is a fault point before and after."""
        faults.reach(f"catalog.{name}.before")
        result = self._connection.execute(statement)
        faults.reach(f"catalog.{name}.after")
        return result

    # -- the lake ----------------------------------------------------------------------------------------------------

    def create_lake(self, data_path: str, *, encrypted: bool) -> None:
        """Make the tables, without any catalog."""
        if self._t.metadata.schema is not None:
            self.run("create_metadata_schema", sa.schema.CreateSchema(self._t.metadata.schema, if_not_exists=True))
        mysql = self._database.name == "mysql"  # where a making that failed may have left some
        for table in self._t.all():
            self.run("create_table", CreateTable(table, if_not_exists=mysql))
        have = self._database.index_names(self._connection, self._t.metadata.schema) if mysql else set()
        for index in self._t.indexes(self._database.name):
            if index.name not in have:
                self.run("create_index", sa.schema.CreateIndex(index))
        self._put("metadata", "key value", [(_NOBODY, "version", _MANY)])
        row = {"id": 0, "next_catalog_id": 0, "layout": LAYOUT, "data_path": data_path, "encrypted": int(encrypted)}
        self.run("insert_shared", sa.insert(self._t.shared).values(row))

    def facts(self) -> SharedFacts | None:
        """What the lake says of itself; None when it was never finished."""
        t = self._t.shared
        row = self.run("shared", sa.select(t.c.layout, t.c.data_path, t.c.encrypted)).first()
        return None if row is None else SharedFacts(row[0], row[1], bool(row[2]))

    # -- catalogs ----------------------------------------------------------------------------------------------------

    def _select(self) -> sa.Select[Any]:
        t = self._t.catalog
        names = "catalog_id catalog_name catalog_uuid folder created_ms dropped_ms borrows"
        return sa.select(*(t.c[name] for name in names.split()))

    def find(self, name: str) -> CatalogRow | None:
        """The catalog of a name, whatever the case of its letters."""
        t = self._t.catalog
        statement = self._select().where(t.c.catalog_key == tenant_key(name), t.c.dropped_ms.is_(None))
        row = self.run("catalog", statement).first()
        return None if row is None else CatalogRow.of(row)

    def need(self, name: str) -> CatalogRow:
        """The same. Raises ``NotFoundError``."""
        found = self.find(name)
        if found is None:
            raise no_such_catalog(name)
        return found

    def catalogs(self, prefix: str, after: str | None, limit: int, *, dropped: bool = False) -> list[CatalogRow]:
        """The next catalogs by their names; ``dropped`` gives those that wait to be purged instead."""
        t = self._t.catalog
        gone = t.c.dropped_ms.is_not(None) if dropped else t.c.dropped_ms.is_(None)
        statement = self._select().where(gone).order_by(t.c.catalog_key).limit(limit)
        if prefix:
            start = tenant_key(prefix)
            # the greatest character of ASCII stands in no name that is not a tombstone
            statement = statement.where(t.c.catalog_key >= start, t.c.catalog_key < f"{start}\x7f")
        if after is not None:
            statement = statement.where(t.c.catalog_key > tenant_key(after))
        return [CatalogRow.of(row) for row in self.run("catalogs", statement)]

    def create(self, names: Sequence[str], *, if_not_exists: bool, path_of: Callable[[str], str]) -> list[CatalogRow]:
        """Make catalogs, each with its first snapshot and the schema ``main``; ``path_of`` is the path of a folder.

        Those that exist are given instead with ``if_not_exists``, and are an ``AlreadyExistsError`` without.
        """
        keys = {tenant_key(check_tenant_name(name)): name for name in names}
        if len(keys) < len(names):
            raise AlreadyExistsError("two of the catalogs have the same name")
        known = {tenant_key(row.name): row for row in self._among(list(keys), "catalog_key")}
        if known and not if_not_exists:
            raise AlreadyExistsError(f"the catalog '{next(iter(known.values())).name}' exists already")
        new = [name for key, name in keys.items() if key not in known]
        if new:
            for row in self._make(new, path_of):
                known[tenant_key(row.name)] = row
        return [known[tenant_key(name)] for name in names]

    def _make(self, names: Sequence[str], path_of: Callable[[str], str]) -> list[CatalogRow]:
        made = self._rows(names)
        encrypted = self._encrypted()
        for start in range(0, len(made), _TOGETHER):
            self._insert(made[start : start + _TOGETHER], path_of, encrypted=encrypted)
        return made

    def reserve(self, name: str) -> CatalogRow:
        """A catalog that does not exist before ``enter``. Raises ``AlreadyExistsError`` and ``InvalidNameError``."""
        self.check_free(check_tenant_name(name))
        return self._rows([name])[0]

    def check_free(self, name: str) -> None:
        """Raises ``AlreadyExistsError`` when a catalog has this name."""
        found = self.find(name)
        if found is not None:
            raise AlreadyExistsError(f"the catalog '{found.name}' exists already")

    def _rows(self, names: Sequence[str]) -> list[CatalogRow]:
        first, now = self._next_ids(len(names)), time.time_ns() // 1_000_000
        # a catalog that was renamed or dropped still has its folder
        taken = {tenant_key(row.folder) for row in self._among([tenant_key(name) for name in names], "folder_key")}
        made = []
        for id_, name in enumerate(names, first):
            folder = folder_of(name, id_, taken=tenant_key(name) in taken)
            made.append(CatalogRow(id_, name, str(uuid.uuid4()), folder, now))
        return made

    def _among(self, values: Sequence[str], column: str) -> Iterator[CatalogRow]:
        t = self._t.catalog
        for start in range(0, len(values), _IN):
            statement = self._select().where(t.c[column].in_(values[start : start + _IN]))
            for row in self.run("catalogs_named", statement):
                yield CatalogRow.of(row)

    def _next_ids(self, count: int) -> int:
        """The first of some ids, none of which any catalog has had or will have."""
        t = self._t.shared
        self.run("count_catalogs", sa.update(t).values(next_catalog_id=t.c.next_catalog_id + count))
        return int(self.run("next_catalog_id", sa.select(t.c.next_catalog_id)).scalar_one()) - count

    def _encrypted(self) -> str:
        facts = self.facts()
        return "true" if facts is not None and facts.encrypted else "false"

    def _insert(self, made: Sequence[CatalogRow], path_of: Callable[[str], str], *, encrypted: str) -> None:
        now = datetime.now(UTC)
        changes = render([Change(ChangeKind.CREATED_SCHEMA, schema="main")])
        self._put(
            "snapshot",
            "snapshot_id snapshot_time schema_version next_catalog_id next_file_id",
            [(row.id, 0, now, 0, 1, 0) for row in made],
        )
        self._put("snapshot_changes", "snapshot_id changes_made", [(row.id, 0, changes) for row in made])
        self._put(
            "schema",
            "schema_id schema_uuid begin_snapshot schema_name path path_is_relative",
            [(row.id, 0, str(uuid.uuid4()), 0, "main", "main/", True) for row in made],
        )
        facts = (("version", VERSION), ("created_by", "quacklake"), ("encrypted", encrypted))
        self._put(
            "metadata",
            "key value",
            [(row.id, *fact) for row in made for fact in (*facts, ("data_path", path_of(row.folder)))],
        )
        self.enter(made)

    def enter(self, made: Sequence[CatalogRow], created_snapshot: int = 0) -> None:
        """Make catalogs visible that hold all they shall hold."""
        names = "catalog_id catalog_name created_snapshot catalog_uuid catalog_key folder folder_key created_ms borrows"
        rows = []
        for row in made:
            keys = (tenant_key(row.name), row.folder, tenant_key(row.folder))
            borrows = json.dumps(row.borrows) if row.borrows else None
            rows.append((row.id, row.name, created_snapshot, row.uuid, *keys, row.created_ms, borrows))
        faults.reach("catalog.insert_catalogs.before")
        self._database.insert_many(self._connection, self._t.catalog, names.split(), rows)

    def _put(self, name: str, columns: str, rows: Sequence[Sequence[Any]]) -> None:
        faults.reach(f"catalog.seed_{name}.before")
        keys = (scoped.CATALOG_ID, *columns.split())
        self._database.insert_many(self._connection, self._t[name], keys, rows)

    def rename(self, name: str, new_name: str) -> CatalogRow:
        """Give a catalog another name; its folder stays."""
        row = self.need(name)
        other = self.find(check_tenant_name(new_name))
        if other is not None and other.id != row.id:
            raise AlreadyExistsError(f"the catalog '{other.name}' exists already")
        self._set(row.id, catalog_name=new_name, catalog_key=tenant_key(new_name))
        return replace(row, name=new_name)

    def drop(self, row: CatalogRow) -> CatalogRow:
        """Take a catalog away; nobody sees it any more, and its name is free. ``purge`` removes what it holds."""
        found = self.find(row.name)
        if found is None or found.id != row.id:
            raise no_such_catalog(row.name)
        now, gone = time.time_ns() // 1_000_000, tombstone(row.name, row.id)
        self._set(row.id, catalog_name=gone, catalog_key=tenant_key(gone), dropped_ms=now)
        return replace(row, name=gone, dropped_ms=now)

    def _set(self, id_: int, **values: Any) -> None:
        t = self._t.catalog
        self.run("update_catalog", sa.update(t).where(t.c.catalog_id == id_).values(**values))

    # -- removing ----------------------------------------------------------------------------------------------------

    def purgeable(self) -> list[str]:
        """The tables that ``purge`` takes rows from, in this order."""
        return list(self._t.definitions)

    def purge(self, name: str, id_: int, limit: int) -> int:
        """Remove about ``limit`` rows of a catalog from a table; returns how many, 0 when there were none left."""
        t = self._t.definitions[name]
        mine = t.c.catalog_id == id_
        key = next((t.c[column] for column in _PAGED if column in t.c), None)
        if key is not None:
            bound = self.run(
                "purge_bound", sa.select(key).where(mine).order_by(key).offset(limit - 1).limit(1)
            ).scalar()
            if bound is not None:
                mine = sa.and_(mine, sa.or_(key <= bound, key.is_(None)))
        found = int(self.run("purge_count", sa.select(sa.func.count()).select_from(t).where(mine)).scalar_one())
        if found:
            self.run(f"purge_{name}", sa.delete(t).where(mine))
        return found

    def forget(self, id_: int) -> None:
        """Remove a catalog that was dropped and that holds nothing any more. Its id never comes back."""
        shares, t = self._t.shares, self._t.catalog
        self.run("forget_shares", sa.delete(shares).where(shares.c.borrower_id == id_))
        self.run("forget_catalog", sa.delete(t).where(t.c.catalog_id == id_, t.c.dropped_ms.is_not(None)))

    # -- numbers -----------------------------------------------------------------------------------------------------

    def totals(self, ids: Sequence[int]) -> list[CatalogTotals]:
        """What catalogs hold at their newest snapshots, in a constant number of statements."""
        s, f, t = self._t["snapshot"], self._t["data_file"], self._t["table"]
        d, rows, gone = self._t["delete_file"], self._t.definitions[ROWS], self._t.definitions[DELETES]
        count, alive = sa.func.count(), f.c.end_snapshot.is_(None)
        of_file = sa.and_(f.c.catalog_id == gone.c.catalog_id, f.c.data_file_id == gone.c.file_id, alive)
        snapshots = self._by_catalog("snapshots", s, ids, count)
        tables = self._by_catalog("tables", t, ids, count, where=t.c.end_snapshot.is_(None))
        sums = (count, sa.func.sum(f.c.file_size_bytes), sa.func.sum(f.c.record_count))
        files = self._by_catalog("files", f, ids, *sums, where=alive)
        deleted = self._by_catalog("deleted", d, ids, sa.func.sum(d.c.delete_count), where=d.c.end_snapshot.is_(None))
        inlined = self._by_catalog("inlined", rows, ids, count, where=rows.c.end_snapshot.is_(None))
        here = sa.exists(sa.select(sa.literal(1)).select_from(f).where(of_file).correlate(gone))
        deletes = self._by_catalog("inlined_deletes", gone, ids, count, where=here)
        nothing = (0, 0, 0)
        return [
            CatalogTotals(
                id_,
                snapshots=snapshots.get(id_, nothing)[0],
                tables=tables.get(id_, nothing)[0],
                files=files.get(id_, nothing)[0],
                rows=files.get(id_, nothing)[2]
                - deleted.get(id_, nothing)[0]
                + inlined.get(id_, nothing)[0]
                - deletes.get(id_, nothing)[0],
                bytes=files.get(id_, nothing)[1],
            )
            for id_ in ids
        ]

    def _by_catalog(
        self, name: str, table: sa.Table, ids: Sequence[int], *values: Any, where: Any = None
    ) -> dict[int, tuple[int, ...]]:
        found: dict[int, tuple[int, ...]] = {}
        for start in range(0, len(ids), _IN):
            mine = table.c.catalog_id.in_(list(ids[start : start + _IN]))
            chosen = mine if where is None else sa.and_(mine, where)
            statement = sa.select(table.c.catalog_id, *values).where(chosen).group_by(table.c.catalog_id)
            for row in self.run(f"totals_{name}", statement):
                found[row[0]] = tuple(int(value or 0) for value in row[1:])
        return found


_PAGED = ("data_file_id", "delete_file_id", "snapshot_id", "row_id", "table_id", "object_id", "mapping_id", "macro_id")
"""Columns by which the rows of a table are removed in parts: the first that it has."""
