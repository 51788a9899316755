"""Find the paths used by all catalogs of a shared lake and other lakes of its database, before a folder is removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import sqlalchemy as sa

from quacklake.catalog.file_names import lake_data_paths
from quacklake.catalog.registry import Registry
from quacklake.config import Config
from quacklake.format.names import tenant_key
from quacklake.operations.stores import open_store
from quacklake.storage.store_pairs import overlap, spellings

_TABLES = ("data_file", "delete_file", "table", "schema")
"""The tables whose paths may be absolute."""


def data_paths(registry: Registry) -> list[str]:
    """Return the data paths of all catalogs that are not dropped, and of the other lakes of the database."""
    t, catalog = registry.meta["metadata"], registry.meta.catalog
    own = sa.select(t.c.value).join(catalog, catalog.c.catalog_id == t.c.catalog_id)
    own = own.where(t.c.key == "data_path", t.c.scope.is_(None), catalog.c.dropped_ms.is_(None))
    found = [row[0] for row in registry.run("catalog_data_paths", own)]
    schema = registry.meta.metadata.schema
    return [*found, *lake_data_paths(registry.connection, registry.backend, schema)]


def named_paths(registry: Registry) -> Iterator[str]:
    """Yield the absolute paths named by catalogs that are not dropped; only these lead out of a folder."""
    catalog = registry.meta.catalog
    for name in _TABLES:
        t = registry.meta[name]
        absolute = t.c.path_is_relative == sa.literal(False, t.c.path_is_relative.type)
        statement = sa.select(t.c.path).join(catalog, catalog.c.catalog_id == t.c.catalog_id)
        for row in registry.run("named_paths", statement.where(absolute, catalog.c.dropped_ms.is_(None))):
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
            store = open_store(path, self._config)
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
