"""The catalogs (tenants) of a shared lake: creating the lake, and creating, finding, renaming and removing catalogs.

This module crosses catalogs, so it uses the tables as they are and names every ``catalog_id`` itself.
"""

from __future__ import annotations

import functools
import json
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.schema import CreateTable

from quacklake.core import faults
from quacklake.core.catalog import scoped, shared_lake
from quacklake.core.catalog.databases.database import Database, PreparedSelect, Rows
from quacklake.core.catalog.shared_tables import CatalogRow, SharedFacts, SharedTables, create_statements
from quacklake.core.catalog.statements import DELETES, ROWS, SOME, parts
from quacklake.core.catalog.tables import ADDED_LATER, VERSION
from quacklake.core.format.names import check_tenant_name, may_be_in_name, tenant_key, tombstone
from quacklake.core.format.snapshots import Change, ChangeKind, render_changes
from quacklake.errors import AlreadyExistsError, InvalidNameError, NotFoundError, UnsupportedVersionError

CATALOG_REQUIRED = "CATALOG is required. Please provide CATALOG when attaching the database."
LAYOUT = "shared-1"
"""The form of the tables; another form would be another word."""
CONVERTING = "converting"
"""The beginning of the layout while a conversion on MySQL, step by step, has not ended."""

_NOBODY = -1
_MANY = f"{VERSION} with many catalogs"
"""A version that belongs to no catalog. Stock DuckDB looks at every version that the metadata names and stops at one
that it does not know; it would take all catalogs for one lake, and expire or remove what each of them has."""

_COLUMNS = ("catalog_id", "catalog_name", "catalog_uuid", "folder", "created_ms", "dropped_ms", "borrows")
"""The columns of a ``CatalogRow``."""
_TOGETHER = 5_000
"""The most catalogs that one round of statements makes."""


def no_such_catalog(name: str, *, listed: bool = False) -> NotFoundError:
    """Return the printable error for a name that no catalog has; ``listed`` for a caller who may list them."""
    shown = name.encode(errors="backslashreplace").decode()
    hint = "tenants.list() lists those that exist" if listed else "pass create=True to create it"
    return NotFoundError(f"Catalog '{shown}' does not exist in this DuckLake instance", hint=hint)


def shared_facts(connection: Connection, database: Database, metadata_schema: str | None) -> SharedFacts | None:
    """Return the facts of a shared lake; None when there is none. Raise ``UnsupportedVersionError``."""
    if not database.has_table(connection, "ducklake_catalog", metadata_schema):
        return None
    if not database.has_table(connection, "quacklake_shared", metadata_schema):
        raise UnsupportedVersionError(
            "the shared lake has an older layout, and migrate_if_required is set to false",
            hint="open it with migrate=True to bring it to the present layout",
        )
    facts = Registry(connection, database, metadata_schema).facts()
    if facts is not None and facts.layout.startswith(CONVERTING):
        raise UnsupportedVersionError(
            "the conversion of the lake to a shared one was interrupted, or has not ended yet",
            hint="open it writable with migrate=True to finish the conversion",
        )
    if facts is not None and facts.layout != LAYOUT:
        raise UnsupportedVersionError(
            f"the shared lake has the layout {facts.layout}",
            hint=f"this version of quacklake reads the layout {LAYOUT}",
        )
    return facts


@dataclass(frozen=True, slots=True)
class TenantToken:
    """A token of a user of a catalog, as the database has them; ``now_ms`` is the time by its clock."""

    catalog_id: int
    catalog_name: str
    user: str
    state: str
    hash: str
    expires_ms: int | None
    now_ms: int


class Registry:
    """The catalogs of a shared lake, inside one transaction."""

    def __init__(
        self, connection: Connection, database: Database, metadata_schema: str | None, ahead: Rows | None = None
    ) -> None:
        self.connection = connection
        self.backend = database
        self.meta = SharedTables.of(metadata_schema)
        self._ahead = ahead

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        faults.reach(f"catalog.{name}.before")
        yield
        faults.reach(f"catalog.{name}.after")

    def run(self, name: str, statement: Any) -> sa.CursorResult[*tuple[Any, ...]]:
        """Execute one named statement; its name is a fault point before and after."""
        with self._step(name):
            return self.connection.execute(statement)

    # -- the lake ----------------------------------------------------------------------------------------------------

    def create_lake(self, data_path: str, *, encrypted: bool, partitions: int | None = None) -> None:
        """Make the tables, without any catalog; those of catalogs in ``partitions`` parts."""
        if self.meta.metadata.schema is not None:
            self.run("create_metadata_schema", sa.schema.CreateSchema(self.meta.metadata.schema, if_not_exists=True))
        mysql = self.backend.name == "mysql"  # a failed creation may have left tables behind
        of_catalogs = set(self.meta.definitions.values())
        for table in self.meta.all():
            parts = partitions if table in of_catalogs else None
            for statement in create_statements(table, self.connection.dialect, parts, if_not_exists=mysql):
                self.run("create_table", statement)
        for index in self.missing_indexes() if mysql else self.meta.indexes(self.backend.name):
            self.run("create_index", sa.schema.CreateIndex(index))
        if self.backend.name == "postgres":
            with self._step("create_views"):
                shared_lake.create_views(self.connection, self.meta.metadata.schema, shared=True)
        self._put("metadata", "key value", [(_NOBODY, "version", _MANY)])
        row = {"id": 0, "next_catalog_id": 0, "layout": LAYOUT, "data_path": data_path, "encrypted": int(encrypted)}
        self.run("insert_shared", sa.insert(self.meta.shared).values(row))

    def missing_tables(self) -> list[sa.Table]:
        """Return the tables that the lake lacks, because an older version made it."""
        tables = (self.meta.definitions[f"quacklake_{name}"] for name in ADDED_LATER)
        schema = self.meta.metadata.schema
        return [table for table in tables if not self.backend.has_table(self.connection, table.name, schema)]

    def missing_indexes(self) -> list[sa.Index]:
        """Return the indexes that the lake lacks."""
        wanted = self.meta.indexes(self.backend.name)
        if not wanted:
            return []
        have = self.backend.index_names(self.connection, self.meta.metadata.schema)
        return [index for index in wanted if index.name not in have]

    def mend(self) -> None:
        """Make the tables and indexes that a lake of an older version lacks, and remove what they replace."""
        for table in self.missing_tables():
            self.run("create_table", CreateTable(table, if_not_exists=True))
        for index in self.missing_indexes():
            self.run("create_index", sa.schema.CreateIndex(index))
        have = self.backend.index_names(self.connection, self.meta.metadata.schema)
        for index in self.meta.retired():
            if index.name in have:
                self.run("drop_index", sa.schema.DropIndex(index))

    def facts(self) -> SharedFacts | None:
        """Return the facts of the lake; None when its creation never finished."""
        t = self.meta.shared
        row = self.run("shared", sa.select(t.c.layout, t.c.data_path, t.c.encrypted)).first()
        return None if row is None else SharedFacts(row[0], row[1], bool(row[2]))

    # -- catalogs ----------------------------------------------------------------------------------------------------

    def _select(self) -> sa.Select[Any]:
        t = self.meta.catalog
        return sa.select(*(t.c[name] for name in _COLUMNS))

    def find(self, name: str) -> CatalogRow | None:
        """Return the catalog of a name, whatever the case of its letters."""
        if not may_be_in_name(name):
            return None
        t = self.meta.catalog
        statement = self._select().where(t.c.catalog_key == tenant_key(name), t.c.dropped_ms.is_(None))
        row = self.run("catalog", statement).first()
        return None if row is None else CatalogRow.of(row)

    def has_users(self) -> bool:
        """Return whether the lake has the tables of users, which one of an older version may lack."""
        names, schema = ("tokens", "principals"), self.meta.metadata.schema
        return all(self.backend.has_table(self.connection, self._own(name).name, schema) for name in names)

    def tokens(self, token_id: str, name: str | None) -> list[TenantToken]:
        """Return the tokens with an id, of the catalog of a name or of every catalog, with their users."""
        mine = self._of_catalog(name)
        if mine is None:
            return []
        t, p, c = self._own("tokens"), self._own("principals"), self.meta.catalog
        user = sa.and_(p.c.catalog_id == t.c.catalog_id, p.c.name == t.c.principal)
        source = t.join(c, c.c.catalog_id == t.c.catalog_id).join(p, user)
        columns = (c.c.catalog_id, c.c.catalog_name, p.c.name, p.c.state, t.c.hash, t.c.expires_ms)
        statement = sa.select(*columns, self.backend.now_ms()).select_from(source)
        rows = self.run("tenant_tokens", statement.where(t.c.token_id == token_id, *mine))
        return [TenantToken(int(id_), *others) for id_, *others in rows]

    def users(self, user: str, name: str | None) -> list[TenantToken]:
        """Return the users with a name, of one catalog or of every, as tokens that have no hash and never end."""
        mine = self._of_catalog(name)
        if mine is None:
            return []
        p, c = self._own("principals"), self.meta.catalog
        columns = (c.c.catalog_id, c.c.catalog_name, p.c.name, p.c.state)
        source = p.join(c, c.c.catalog_id == p.c.catalog_id)
        rows = self.run("tenant_users", sa.select(*columns).select_from(source).where(p.c.name == user, *mine))
        return [TenantToken(int(id_), catalog, known, state, "", None, 0) for id_, catalog, known, state in rows]

    def _of_catalog(self, name: str | None) -> list[sa.ColumnElement[bool]] | None:
        """Return the conditions on the catalogs of a name, or on all; None for a text that is no name."""
        if name is not None and not may_be_in_name(name):
            return None
        t = self.meta.catalog
        there = t.c.dropped_ms.is_(None)
        return [there] if name is None else [there, t.c.catalog_key == tenant_key(name)]

    def _own(self, name: str) -> sa.Table:
        return self.meta.definitions[f"quacklake_{name}"]

    def need(self, name: str) -> CatalogRow:
        """Return the catalog of a name. Raise ``NotFoundError`` when there is none."""
        row = self.find(name)
        if row is None:
            raise no_such_catalog(name, listed=True)
        return row

    def catalogs(self, prefix: str, after: str | None, limit: int) -> list[CatalogRow]:
        """Return the next catalogs by their names."""
        t = self.meta.catalog
        statement = self._select().where(t.c.dropped_ms.is_(None)).order_by(t.c.catalog_key).limit(limit)
        for text in (prefix, after):
            if text and not may_be_in_name(text):
                raise InvalidNameError(f"no catalog has {text!a} in its name")
        if prefix:
            start = tenant_key(prefix)
            # only tombstones have the greatest character of ASCII in their names
            statement = statement.where(t.c.catalog_key >= start, t.c.catalog_key < f"{start}\x7f")
        if after is not None:
            statement = statement.where(t.c.catalog_key > tenant_key(after))
        return [CatalogRow.of(row) for row in self.run("catalogs", statement)]

    def version_of(self, id_: int) -> str:
        """Return the format version of a catalog."""
        t = self.meta["metadata"]
        mine = (t.c.catalog_id == id_, t.c.key == "version", t.c.scope.is_(None))
        return str(self.run("catalog_version", sa.select(t.c.value).where(*mine)).scalar_one())

    def create(
        self,
        keys: Mapping[str, str],
        *,
        if_not_exists: bool,
        path_of: Callable[[str], str],
        version: str = VERSION,
        folder: str | None = None,
    ) -> list[CatalogRow]:
        """Make catalogs, each with its first snapshot and the schema ``main``; ``path_of`` is the path of a folder.

        ``folder`` is a whole data path, for a single catalog that has its files apart from the others. ``keys`` are
        those of ``new_catalogs``; those that exist are an ``AlreadyExistsError``, or given instead.
        """
        existing = self._find_known(keys)
        known = existing.named
        if known and not if_not_exists:
            raise _name_taken_error(next(iter(known.values())))
        new = [name for key, name in keys.items() if key not in known]
        if new:
            made = [row if folder is None else replace(row, folder=folder) for row in _rows(new, existing)]
            for some in parts(made, _TOGETHER):
                self._insert(some, path_of, encrypted=existing.encrypted, version=version)
            known |= zip((key for key in keys if key not in known), made, strict=True)
        return [known[key] for key in keys]

    def reserve(self, name: str) -> CatalogRow:
        """Return a new catalog, which exists only after ``enter``, or raise ``AlreadyExistsError``."""
        self.check_free(check_tenant_name(name))
        row = _rows([name], self._find_known([tenant_key(name)]))[0]
        self._count(1)
        return row

    def check_free(self, name: str) -> None:
        """Raise ``AlreadyExistsError`` when a catalog has this name."""
        other = self.find(name)
        if other is not None:
            raise _name_taken_error(other)

    @staticmethod
    def ask_known(keys: Collection[str], database: Database, metadata_schema: str | None) -> PreparedSelect | None:
        """Return the select that ``create`` needs first, if one select is enough."""
        if not 0 < len(keys) <= SOME:
            return None
        statement = _naming(SharedTables.of(metadata_schema), type(database))
        return PreparedSelect(statement, {"keys": list(keys)}, fresh=True)

    def _find_known(self, keys: Collection[str]) -> _KnownCatalogs:
        """Return the catalogs with these names, and the next free id."""
        wanted = list(keys)
        rows, self._ahead = self._ahead, None
        if rows is None:
            statement, rows = _naming(self.meta, type(self.backend)), []
            with self._step("catalogs_named"):
                for some in parts(wanted):
                    question = PreparedSelect(statement, {"keys": some}, fresh=True)
                    rows.extend(self.backend.ask(self.connection, question))
        known = _KnownCatalogs()
        for first, encrypted, *catalog in rows:
            known.first, known.encrypted = int(first), bool(encrypted)
            if catalog[0] is not None:
                row = CatalogRow.of(catalog)
                known.named[tenant_key(row.name)] = row
                known.taken.add(tenant_key(row.folder))
        known.named = {key: known.named[key] for key in wanted if key in known.named}
        return known

    def _count(self, count: int) -> None:
        with self._step("count_catalogs"):
            self.backend.write(self.connection, _counting(self.meta), [{"more": count}])

    def _insert(
        self, made: Sequence[CatalogRow], path_of: Callable[[str], str], *, encrypted: bool, version: str
    ) -> None:
        """Insert the first rows of some catalogs, in as few messages to the database as possible."""
        facts = (("version", version), ("created_by", "quacklake"), ("encrypted", str(encrypted).lower()))
        options = [(row.id, *fact) for row in made for fact in (*facts, ("data_path", path_of(row.folder)))]
        now = datetime.now(UTC)
        changes = render_changes([Change(ChangeKind.CREATED_SCHEMA, schema="main")])
        few = len(options) <= self.backend.batch_rows
        with self.backend.batch(self.connection) if few else nullcontext():
            self._count(len(made))
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
            self._put("metadata", "key value", options)
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
        self.backend.insert_many(self.connection, self.meta.catalog, names.split(), rows)

    def _put(self, name: str, columns: str, rows: Sequence[Sequence[Any]]) -> None:
        faults.reach(f"catalog.seed_{name}.before")
        keys = (scoped.CATALOG_ID, *columns.split())
        self.backend.insert_many(self.connection, self.meta[name], keys, rows)

    def rename(self, name: str, new_name: str) -> CatalogRow:
        """Give a catalog another name; its folder stays."""
        row = self.need(name)
        other = self.find(check_tenant_name(new_name))
        if other is not None and other.id != row.id:
            raise _name_taken_error(other)
        self._set(row.id, catalog_name=new_name, catalog_key=tenant_key(new_name))
        return replace(row, name=new_name)

    def drop(self, row: CatalogRow) -> CatalogRow:
        """Take a catalog away; nobody sees it any more, and its name is free. ``purge`` removes what it holds."""
        current = self.find(row.name)
        if current is None or current.id != row.id:
            raise no_such_catalog(row.name, listed=True)
        now, gone = time.time_ns() // 1_000_000, tombstone(row.name, row.id)
        self._set(row.id, catalog_name=gone, catalog_key=tenant_key(gone), dropped_ms=now)
        return replace(row, name=gone, dropped_ms=now)

    def _set(self, id_: int, **values: Any) -> None:
        t = self.meta.catalog
        self.run("update_catalog", sa.update(t).where(t.c.catalog_id == id_).values(**values))

    # -- limits ------------------------------------------------------------------------------------------------------

    def limits(self, row: CatalogRow | None) -> tuple[str | None, str | None]:
        """Return the stored limits of a catalog, and the default limits of all; both as texts."""
        t, shared = self.meta.catalog, self.meta.shared
        default = self.run("default_limits", sa.select(shared.c.limits)).scalar()
        if row is None:
            return None, default
        return self.run("limits", sa.select(t.c.limits).where(t.c.catalog_id == row.id)).scalar(), default

    def set_limits(self, row: CatalogRow | None, text: str | None) -> None:
        """Set the limits of a catalog, or the default limits of those without any."""
        if row is not None:
            self._set(row.id, limits=text)
        else:
            self.run("set_default_limits", sa.update(self.meta.shared).values(limits=text))

    # -- care --------------------------------------------------------------------------------------------------------

    def last_maintained(self) -> int:
        """Return the catalog that maintenance looked at last; -1 when there is none."""
        id_ = self.run("last_maintained", sa.select(self.meta.shared.c.maintained_id)).scalar()
        return -1 if id_ is None else int(id_)

    def set_maintained(self, id_: int) -> None:
        """Note that maintenance has come to a catalog."""
        self.run("set_maintained", sa.update(self.meta.shared).values(maintained_id=id_))

    # -- removing ----------------------------------------------------------------------------------------------------

    def dropped(self, limit: int) -> list[CatalogRow]:
        """Return the catalogs that were dropped and not purged yet."""
        t = self.meta.catalog
        waiting = self._select().where(t.c.dropped_ms.is_not(None), t.c.purged_ms.is_(None))
        return [CatalogRow.of(row) for row in self.run("dropped", waiting.order_by(t.c.catalog_key).limit(limit))]

    def purgeable(self, limit: int, before_ms: int) -> list[tuple[CatalogRow, bool]]:
        """Return the dropped catalogs, purged ones only if dropped up to a time, and whether each was purged."""
        t = self.meta.catalog
        late = t.c.dropped_ms <= before_ms
        statement = self._select().add_columns(t.c.purged_ms).where(t.c.dropped_ms.is_not(None))
        statement = statement.where(sa.or_(t.c.purged_ms.is_(None), late))
        order = (sa.case((t.c.purged_ms.is_(None), 0), else_=1), t.c.catalog_key)
        rows = self.run("purgeable", statement.order_by(*order).limit(limit))
        return [(CatalogRow.of(row[:-1]), row[-1] is not None) for row in rows]

    def tables(self) -> list[str]:
        """Return the tables that ``purge`` takes rows from, in this order."""
        return list(self.meta.definitions)

    def purge(self, name: str, id_: int, limit: int) -> int:
        """Remove about ``limit`` rows of a catalog from a table; return how many, 0 when there were none left."""
        t = self.meta.definitions[name]
        mine = t.c.catalog_id == id_
        key = next((t.c[column] for column in _PAGED if column in t.c), None)
        if key is not None:
            bound = self.run(
                "purge_bound", sa.select(key).where(mine).order_by(key).offset(limit - 1).limit(1)
            ).scalar()
            if bound is not None:
                mine = sa.and_(mine, sa.or_(key <= bound, key.is_(None)))
        count = int(self.run("purge_count", sa.select(sa.func.count()).select_from(t).where(mine)).scalar_one())
        if count:
            self.run(f"purge_{name}", sa.delete(t).where(mine))
        return count

    def bury(self, id_: int, *, forget: bool) -> None:
        """Note that a dropped catalog holds nothing any more, or ``forget`` it. Its id never comes back."""
        shares, t = self.meta.shares, self.meta.catalog
        self.run("forget_shares", sa.delete(shares).where(shares.c.borrower_id == id_))
        if forget:
            self.run("forget_catalog", sa.delete(t).where(t.c.catalog_id == id_, t.c.dropped_ms.is_not(None)))
        else:
            self._set(id_, purged_ms=time.time_ns() // 1_000_000)

    # -- numbers -----------------------------------------------------------------------------------------------------

    def totals(self, ids: Sequence[int]) -> list[tuple[int, int, int, int, int, int]]:
        """Return what catalogs hold at their newest snapshots: id, snapshots, tables, files, rows, bytes."""
        s, f, t = self.meta["snapshot"], self.meta["data_file"], self.meta["table"]
        d, rows, gone = self.meta["delete_file"], self.meta.definitions[ROWS], self.meta.definitions[DELETES]
        count, alive = sa.func.count(), f.c.end_snapshot.is_(None)
        of_file = sa.and_(f.c.catalog_id == gone.c.catalog_id, f.c.data_file_id == gone.c.file_id, alive)
        here = sa.exists(sa.select(sa.literal(1)).select_from(f).where(of_file).correlate(gone))
        sums = (count, sa.func.sum(f.c.file_size_bytes), sa.func.sum(f.c.record_count))
        snapshots = self._by_catalog("snapshots", s, ids, count)
        tables = self._by_catalog("tables", t, ids, count, where=[t.c.end_snapshot.is_(None)])
        files = self._by_catalog("files", f, ids, *sums, where=[alive])
        deleted = self._by_catalog("deleted", d, ids, sa.func.sum(d.c.delete_count), where=[d.c.end_snapshot.is_(None)])
        inlined = self._by_catalog("inlined", rows, ids, count, where=[rows.c.end_snapshot.is_(None)])
        deletes = self._by_catalog("inlined_deletes", gone, ids, count, where=[here])
        totals = []
        for id_ in ids:
            file_count, size, records = files.get(id_, (0, 0, 0))
            plus, minus, both = (sums_of.get(id_, (0,))[0] for sums_of in (inlined, deleted, deletes))
            live = records - minus + plus - both
            kept, table_count = (sums_of.get(id_, (0,))[0] for sums_of in (snapshots, tables))
            totals.append((id_, kept, table_count, file_count, live, size))
        return totals

    def _by_catalog(
        self, name: str, table: sa.Table, ids: Sequence[int], *values: Any, where: Sequence[Any] = ()
    ) -> dict[int, tuple[int, ...]]:
        sums: dict[int, tuple[int, ...]] = {}
        for some in parts(ids):
            chosen = sa.and_(table.c.catalog_id.in_(some), *where)
            statement = sa.select(table.c.catalog_id, *values).where(chosen).group_by(table.c.catalog_id)
            for row in self.run(f"totals_{name}", statement):
                sums[row[0]] = tuple(int(value or 0) for value in row[1:])
        return sums


def _name_taken_error(row: CatalogRow) -> AlreadyExistsError:
    return AlreadyExistsError(f"the catalog '{row.name}' exists already")


def new_catalogs(names: Sequence[str]) -> dict[str, str]:
    """Return the names of new catalogs by their keys. Raise ``InvalidNameError`` and ``AlreadyExistsError``."""
    keys = {tenant_key(check_tenant_name(name)): name for name in names}
    if len(keys) < len(names):
        raise AlreadyExistsError("two of the catalogs have the same name")
    return keys


@dataclass(slots=True)
class _KnownCatalogs:
    """The catalogs that have some names, and the folders that are taken; ``first`` is the next free id."""

    named: dict[str, CatalogRow] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    first: int = 0
    encrypted: bool = False


@functools.cache
def _naming(tables: SharedTables, database: type[Database]) -> sa.Select[Any]:
    """Return the select for the next id and each catalog with some names, at least one row."""
    t, shared = tables.catalog, tables.shared
    # a renamed or dropped catalog keeps its folder
    mine = sa.or_(*(database.among(column, "keys") for column in (t.c.catalog_key, t.c.folder_key)))
    columns = (t.c[name] for name in _COLUMNS)
    return sa.select(shared.c.next_catalog_id, shared.c.encrypted, *columns).select_from(shared.outerjoin(t, mine))


@functools.cache
def _counting(tables: SharedTables) -> sa.Update:
    t = tables.shared
    return sa.update(t).values(next_catalog_id=t.c.next_catalog_id + sa.bindparam("more"))


def _rows(names: Sequence[str], known: _KnownCatalogs) -> list[CatalogRow]:
    """Return rows for new catalogs; an older catalog may have the folder of a name."""
    now, rows = time.time_ns() // 1_000_000, []
    for id_, name in enumerate(names, known.first):
        folder = tombstone(name, id_) if tenant_key(name) in known.taken else name
        rows.append(CatalogRow(id_, name, str(uuid.uuid4()), folder, now))
    return rows


_PAGED = ("data_file_id", "delete_file_id", "snapshot_id", "row_id", "table_id", "object_id", "mapping_id", "macro_id")
"""Columns by which the rows of a table are removed in parts: the first that it has."""
