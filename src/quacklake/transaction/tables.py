"""Schemas and tables by name, remembered for as long as the schema version lasts.

Every change of a table, schema or view makes a new schema version, so what was read at one version holds at every
snapshot of that version.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from quacklake import forks
from quacklake.catalog import Catalog, Reader, objects
from quacklake.format.names import fold
from quacklake.format.objects import MacroInfo, SchemaInfo, TableInfo, ViewInfo
from quacklake.format.snapshots import Snapshot


class TableCache:
    """A bounded cache over one catalog; safe to share between threads."""

    def __init__(self, catalog: Catalog, size: int = 1024) -> None:
        self._catalog = catalog
        self._size = size
        self._entries: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.Lock()
        forks.watch(self, forks.new_lock)

    def schemas(self, snapshot: Snapshot) -> list[SchemaInfo]:
        """Return the schemas of a snapshot."""
        schemas: list[SchemaInfo] = self._get(
            (snapshot.schema_version,), lambda reader: reader.tables.schemas(snapshot)
        )
        return schemas

    def views(self, snapshot: Snapshot) -> list[ViewInfo]:
        """Return the views of a snapshot."""
        views: list[ViewInfo] = self._get(
            (snapshot.schema_version, "views"), lambda reader: objects.views(reader, snapshot)
        )
        return views

    def macros(self, snapshot: Snapshot) -> list[MacroInfo]:
        """Return the macros of a snapshot."""
        macros: list[MacroInfo] = self._get(
            (snapshot.schema_version, "macros"), lambda reader: objects.macros(reader, snapshot)
        )
        return macros

    def tags(self, snapshot: Snapshot, object_id: int) -> objects.Tags:
        """Return the tags of a table or view, and of a table's columns."""
        tags: objects.Tags = self._get(
            (snapshot.schema_version, "tags", object_id), lambda reader: objects.tags(reader, snapshot, object_id)
        )
        return tags

    def tables(self, snapshot: Snapshot) -> list[TableInfo]:
        """Return all tables of a snapshot; not remembered, for there may be very many."""
        with self._catalog.read() as reader:
            return reader.tables.all(snapshot)

    def table(self, snapshot: Snapshot, schema: str, name: str) -> TableInfo | None:
        """Return a table of a snapshot, or None."""
        key = (snapshot.schema_version, fold(schema), fold(name))
        table: TableInfo | None = self._get(key, lambda reader: reader.tables.find(snapshot, schema, name))
        return table

    def clear(self) -> None:
        """Forget everything, after a migration."""
        with self._lock:
            self._entries.clear()

    def _get(self, key: Any, load: Callable[[Reader], Any]) -> Any:
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
        with self._catalog.read() as reader:
            value = load(reader)
        with self._lock:
            self._entries[key] = value
            if len(self._entries) > self._size:
                self._entries.popitem(last=False)
        return value
