"""Find out whether folders of catalogs (tenants) of a shared lake can be removed."""

from __future__ import annotations

from collections.abc import Iterable

from quacklake.config import Config
from quacklake.format.names import tenant_key
from quacklake.operations.stores import open_store
from quacklake.storage.store_pairs import overlap, spellings


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
