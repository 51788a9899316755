"""The folders that the catalogs (tenants) of a shared lake have in use."""

from __future__ import annotations

from collections.abc import Iterable

from quacklake.config import Config
from quacklake.format.tenants import tenant_key
from quacklake.lake.stores import open_store
from quacklake.storage.apart import overlap

__all__ = ["TakenFolders"]


class TakenFolders:
    """The data paths of catalogs, most of which have one folder each below ``root``, the data path of the lake."""

    def __init__(self, root: str, paths: Iterable[str], config: Config) -> None:
        self._root = open_store(root, config)
        self._config = config
        self._below: set[str] = set()
        self._elsewhere = []
        for path in paths:
            key = self._key(path)
            if key is None:
                self._elsewhere.append(open_store(path, config))
            else:
                self._below.add(key)

    def holds(self, path: str) -> bool:
        """Return whether a data path is one of these, inside or around one of them."""
        key, store = self._key(path), open_store(path, self._config)
        if key is not None:
            return key in self._below or any(overlap(store, other) for other in self._elsewhere)
        below = bool(self._below) and overlap(store, self._root)
        return below or any(overlap(store, other) for other in self._elsewhere)

    def _key(self, path: str) -> str | None:
        """The folder below the data path of the lake in which a path is; None when it is elsewhere."""
        if not path.startswith(self._root.root):
            return None
        first = path[len(self._root.root) :].strip("/").partition("/")[0]
        return tenant_key(first) if first else None
