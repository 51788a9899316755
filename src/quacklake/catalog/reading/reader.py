"""Reading a lake's metadata: every method is a constant number of statements inside one consistent transaction."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from quacklake.catalog.databases.database import Database
from quacklake.catalog.reading.files import FileQueries
from quacklake.catalog.reading.inlined import InlinedQueries
from quacklake.catalog.reading.snapshots import SnapshotQueries
from quacklake.catalog.reading.tables import TableQueries
from quacklake.catalog.statements import CatalogStatements
from quacklake.catalog.tables import Tables
from quacklake.format.options import OptionRow


class Reader(CatalogStatements):
    """One read transaction, by subject. All answers describe the same state of the database."""

    def __init__(self, connection: Connection, tables: Tables, database: Database, cache: dict[Any, Any]) -> None:
        super().__init__(connection, tables, database, cache)
        self.snapshots = SnapshotQueries(self)
        self.tables = TableQueries(self)
        self.inlined = InlinedQueries(self, self.tables)
        self.files = FileQueries(self, self.inlined)

    def options(self) -> list[OptionRow]:
        """Return every option of the lake with its scope."""
        t, column = self._t["metadata"], self._t.column

        def build() -> Any:
            return sa.select(t.c.key, t.c.value, column("metadata", "scope"), column("metadata", "scope_id"))

        return [OptionRow(*row) for row in self.run("options", self.cached("options", build))]
