"""Share files between catalogs of a shared lake, and find the paths that its catalogs and other lakes use.

A file belongs to the catalog in whose folder it is, and only this catalog removes it. A fork names the files of its
source by absolute paths. A row of ``quacklake_shares`` protects these files: while it exists, the owner keeps all files
that it had at that time, those below a file id, and is not purged. The row is removed with the borrower, or when the
borrower no longer names any of these files. So no catalog ever has to read another one's rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa

from quacklake.config import Config
from quacklake.core.catalog import scoped
from quacklake.core.catalog.file_names import lake_data_paths
from quacklake.core.catalog.registry import Registry
from quacklake.core.catalog.shared_lake import Share
from quacklake.core.catalog.shared_tables import CatalogRow, folder_path
from quacklake.core.format.names import tenant_key
from quacklake.core.format.options import EXPOSED
from quacklake.core.operations.stores import open_store
from quacklake.core.storage.store_pairs import overlap, spellings
from quacklake.errors import ConfigError

_LEFT_OUT = frozenset(
    {
        "quacklake_commits",
        "quacklake_leases",
        "quacklake_streams",  # a stream continues in one place only
        "quacklake_checkpoints",
        "quacklake_tokens",  # a token is for one catalog only
        "ducklake_files_scheduled_for_deletion",  # the other catalog removes these files
    }
)


class Sharing(Registry):
    """Forks catalogs and tracks shared files, inside one transaction."""

    def fork(self, source: CatalogRow, row: CatalogRow, root: str, path: str) -> CatalogRow:
        """Create a catalog at ``path`` that shares files below ``root``; its source must not commit meanwhile."""
        for name, table in self.meta.definitions.items():
            if name not in _LEFT_OUT:
                self._copy(name, table, source.id, row.id, root, path)
        newest, next_file = self._newest(source.id)
        made = replace(row, borrows=tuple(dict.fromkeys((root, *source.borrows))))
        self.lend(Share(source.id, row.id, None, next_file))
        for share in self.shares(borrower=source.id):
            self.lend(replace(share, borrower_id=row.id))
        self.enter([made], newest)
        return made

    def _newest(self, id_: int) -> tuple[int, int]:
        t = self.meta["snapshot"]
        statement = sa.select(t.c.snapshot_id, t.c.next_file_id).where(t.c.catalog_id == id_)
        row = self.run("fork_snapshot", statement.order_by(t.c.snapshot_id.desc()).limit(1)).one()
        return int(row[0]), int(row[1])

    def _copy(self, name: str, table: sa.Table, old: int, new: int, root: str, path: str) -> None:
        """Copy the rows of a catalog for another; files get absolute paths."""
        values: dict[str, Any] = {column.name: column for column in table.c}
        values[scoped.CATALOG_ID] = sa.literal(new, sa.BigInteger())
        source: Any = table
        if name in ("ducklake_data_file", "ducklake_delete_file"):
            folders = self._folders(old, root)
            source = table.outerjoin(folders, folders.c.table_id == table.c.table_id)
            below = sa.func.coalesce(folders.c.folder, sa.literal(root, table.c.path.type)) + table.c.path
            values["path"] = sa.case((_elsewhere(table), table.c.path), else_=below)
            values["path_is_relative"] = sa.literal(False, table.c.path_is_relative.type)
        elif name in ("ducklake_schema", "ducklake_table"):
            # The new catalog must not write to folders outside the other's data path.
            uid = table.c[f"{name.removeprefix('ducklake_')}_uuid"]
            values["path"] = sa.case((_elsewhere(table), sa.cast(uid, sa.String) + "/"), else_=table.c.path)
            values["path_is_relative"] = sa.literal(True, table.c.path_is_relative.type)
        elif name == "ducklake_metadata":
            own = sa.and_(table.c.key == "data_path", table.c.scope.is_(None))
            values["value"] = sa.case((own, sa.literal(path, table.c.value.type)), else_=table.c.value)
        rows = sa.select(*values.values()).select_from(source).where(table.c.catalog_id == old)
        if name == "ducklake_metadata":
            rows = rows.where(table.c.key != EXPOSED)
        self.run(f"fork_{name}", sa.insert(table).from_select(list(values), rows))

    def _folders(self, id_: int, root: str) -> sa.Subquery:
        """Return the folder of each table of a catalog as an absolute path."""
        tables, schemas = self.meta["table"], self.meta["schema"]
        last = sa.select(tables.c.table_id, sa.func.max(tables.c.begin_snapshot).label("begin_snapshot"))
        mine = last.where(tables.c.catalog_id == id_).group_by(tables.c.table_id).subquery()
        above = sa.case((_elsewhere(schemas), ""), else_=root) + sa.func.coalesce(schemas.c.path, "")
        folder = sa.case((_elsewhere(tables), tables.c.path), else_=above + sa.func.coalesce(tables.c.path, ""))
        return (
            sa.select(tables.c.table_id, folder.label("folder"))
            .join(mine, sa.and_(tables.c.table_id == mine.c.table_id, tables.c.begin_snapshot == mine.c.begin_snapshot))
            .join(schemas, sa.and_(schemas.c.schema_id == tables.c.schema_id, schemas.c.catalog_id == id_))
            .where(tables.c.catalog_id == id_)
            .subquery()
        )

    # -- shares ------------------------------------------------------------------------------------------------------

    def lend(self, share: Share) -> None:
        """Record that files must be kept."""
        self.run("lend", sa.insert(self.meta.shares).values(asdict(share)))

    def lend_to(self, owner: CatalogRow, place: str) -> None:
        """Record that a lake elsewhere names the files that a catalog has now."""
        self.take_back(owner.id, place)
        self.lend(Share(owner.id, None, place, self._newest(owner.id)[1]))
        for share in self.shares(borrower=owner.id):
            self.take_back(share.owner_id, place)
            self.lend(replace(share, borrower_id=None, place=place))

    def take_back(self, owner: int, place: str) -> int:
        """Forget that a lake elsewhere names files of a catalog; return how many entries there were."""
        t = self.meta.shares
        statement = sa.delete(t).where(t.c.owner_id == owner, t.c.borrower_id.is_(None), t.c.place == place)
        return self.run("take_back", statement).rowcount

    def shares(self, *, owner: int | None = None, borrower: int | None = None) -> list[Share]:
        """Return the shares that a catalog has lent or borrowed."""
        t = self.meta.shares
        chosen = t.c.owner_id == owner if owner is not None else t.c.borrower_id == borrower
        statement = sa.select(t.c.owner_id, t.c.borrower_id, t.c.place, t.c.below_file_id).where(chosen)
        return [Share(*row) for row in self.run("shares", statement)]

    def names(self, ids: Sequence[int]) -> dict[int, str]:
        """Return the names of catalogs."""
        t = self.meta.catalog
        statement = sa.select(t.c.catalog_id, t.c.catalog_name).where(t.c.catalog_id.in_(ids))
        return {row[0]: row[1] for row in self.run("names", statement)} if ids else {}

    def settle(self, owner: CatalogRow, root: str) -> list[Share]:
        """Forget users that no longer name a file of a catalog below ``root``; return the others."""
        left = []
        for share in self.shares(owner=owner.id):
            if share.borrower_id is None or self._names_files(share.borrower_id, root):
                left.append(share)
            else:
                t = self.meta.shares
                gone = sa.delete(t).where(t.c.owner_id == owner.id, t.c.borrower_id == share.borrower_id)
                self.run("settle", gone)
        return left

    def _names_files(self, id_: int, root: str) -> bool:
        for name in ("data_file", "delete_file"):
            t = self.meta[name]
            below = t.c.path.startswith(root, autoescape=True)
            statement = sa.select(t.c.path).where(t.c.catalog_id == id_, _elsewhere(t), below)
            if self.run("names_files", statement.limit(1)).first() is not None:
                return True
        return False


def _elsewhere(table: sa.Table) -> sa.ColumnElement[bool]:
    """Return the condition for rows with an absolute path."""
    return table.c.path_is_relative == sa.literal(False, table.c.path_is_relative.type)


_TABLES = ("data_file", "delete_file", "table", "schema")
"""The tables whose paths may be absolute."""


def data_paths(registry: Registry) -> list[str]:
    """Return the data paths of all catalogs that are not dropped, and of the other lakes of the database."""
    facts, t = registry.facts(), registry.meta.catalog
    folders = registry.run("catalog_folders", sa.select(t.c.folder).where(t.c.dropped_ms.is_(None)))
    found = [] if facts is None else [folder_path(facts.data_path, row[0]) for row in folders]
    schema = registry.meta.metadata.schema
    return [*found, *lake_data_paths(registry.connection, registry.backend, schema)]


def named_paths(registry: Registry) -> Iterator[str]:
    """Yield the absolute paths named by catalogs that are not dropped; only these lead out of a folder."""
    catalog = registry.meta.catalog
    for name in _TABLES:
        t = registry.meta[name]
        statement = sa.select(t.c.path).join(catalog, catalog.c.catalog_id == t.c.catalog_id)
        for row in registry.run("named_paths", statement.where(_elsewhere(t), catalog.c.dropped_ms.is_(None))):
            yield row[0] or ""


def whole_folders(registry: Registry) -> list[str]:
    """Return the folders of catalogs outside the lake's data path: those of converted lakes."""
    t = registry.meta.catalog
    elsewhere = sa.or_(t.c.folder.startswith("/"), t.c.folder.contains("://"))
    return [row[0] for row in registry.run("whole_folders", sa.select(t.c.folder).where(elsewhere))]


class Occupancy:
    """Tells which data paths are in use. Most are single folders below ``root``, the data path of the lake."""

    def __init__(self, root: str, wanted: Iterable[str], config: Config) -> None:
        self._config = config
        self._store = open_store(root, config)
        self._roots = spellings(self._store)
        self._wanted = {path: self._key(path) for path in wanted}
        self._elsewhere = {path: open_store(path, config) for path, key in self._wanted.items() if key is None}
        self._prefixes = {path: spellings(store) for path, store in self._elsewhere.items()}
        self._used: set[str] = set()
        self._taken: set[str] = set()

    def add(self, registry: Registry) -> None:
        """Mark every data path and absolute path of the lake and its database as in use."""
        for path in data_paths(registry):
            self.add_folder(path)
        for path in named_paths(registry):
            self.add_path(path)

    def add_folder(self, path: str) -> None:
        """Mark a folder as in use, with everything inside and around it."""
        key = self._key(path)
        if key is not None:
            self._used.add(key)
        elif self._wanted:
            try:
                store = open_store(path, self._config)
            except ConfigError:
                return  # no folder: another lake of the database says so, and can say anything
            if overlap(store, self._store):
                self._taken.update(self._wanted.keys() - self._elsewhere)
            self._taken.update(each for each, mine in self._elsewhere.items() if overlap(store, mine))

    def add_path(self, path: str) -> None:
        """Mark a file or folder with an absolute path as in use."""
        key = self._key(path)
        if key is not None:
            self._used.add(key)
        self._taken.update(each for each, prefixes in self._prefixes.items() if path.startswith(prefixes))

    def is_free(self, path: str) -> bool:
        """Return whether nothing in a data path is in use."""
        return path not in self._taken and self._wanted[path] not in self._used

    def _key(self, path: str) -> str | None:
        """Return the folder below the lake's data path that contains a path; None if it is elsewhere."""
        root = next((root for root in self._roots if path.startswith(root)), None)
        first = "" if root is None else path[len(root) :].strip("/").partition("/")[0]
        return tenant_key(first) if first else None
