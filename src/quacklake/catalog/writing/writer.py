"""Writing a lake's metadata: the primitives of one commit.

Every method is one statement (an ``executemany`` counts as one), whatever the number of rows, so that a commit has a
constant number of statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from quacklake.catalog.databases.database import Database
from quacklake.catalog.reading.reader import Reader
from quacklake.catalog.statements import WriteStatements
from quacklake.catalog.tables import Tables
from quacklake.catalog.writing.files import FileUpdates
from quacklake.catalog.writing.inlined import InlinedUpdates
from quacklake.catalog.writing.snapshots import SnapshotUpdates
from quacklake.catalog.writing.tables import TableUpdates
from quacklake.format.options import OptionRow


class Writer(Reader, WriteStatements):
    """The commit transaction: a reader that also writes. It sees everything committed before its turn."""

    snapshots: SnapshotUpdates
    tables: TableUpdates
    inlined: InlinedUpdates
    files: FileUpdates

    def __init__(self, connection: Connection, tables: Tables, database: Database, cache: dict[Any, Any]) -> None:
        super().__init__(connection, tables, database, cache)
        self.snapshots = SnapshotUpdates(self)
        self.tables = TableUpdates(self)
        self.inlined = InlinedUpdates(self, self.tables)
        self.files = FileUpdates(self, self.inlined)

    def add_options(self, options: Sequence[OptionRow]) -> None:
        """Insert options."""
        rows = [{"key": o.key, "value": o.value, "scope": o.scope, "scope_id": o.scope_id} for o in options]
        self.insert("metadata", rows)

    def put_option(self, option: OptionRow) -> None:
        """Set an option in its scope, replacing what it was."""
        self.drop_option(option)
        self.add_options([option])

    def drop_option(self, option: OptionRow) -> None:
        """Take an option out of its scope."""
        t = self._t["metadata"]
        scope = t.c.scope.is_(None) if option.scope is None else t.c.scope == option.scope
        owner = t.c.scope_id.is_(None) if option.scope_id is None else t.c.scope_id == option.scope_id
        self.run("delete_option", sa.delete(t).where(t.c.key == option.key, scope, owner))

    def run_sql(self, text: str) -> int:
        """Run a statement as it is; return how many rows it changed, as far as the database tells."""
        return max(self._connection.exec_driver_sql(text).rowcount, 0)
