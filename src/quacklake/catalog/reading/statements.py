"""What every reader and writer of metadata does: run named statements inside one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from quacklake import faults, telemetry
from quacklake.catalog.databases.database import Database, Rows
from quacklake.catalog.tables import Tables
from quacklake.errors import NotFoundError, SnapshotExpiredError
from quacklake.format.limits import NO_LIMITS

__all__ = ["Statements", "arrow_table"]


class Statements:
    """One transaction of the metadata database."""

    def __init__(self, connection: Connection, tables: Tables, database: Database, cache: dict[Any, Any]) -> None:
        self._connection = connection
        self._t = tables
        self._database = database
        self._cache = cache
        self.ahead: Rows | None = None
        """The answer to what was asked when the turn to commit came; whoever uses it takes it away."""
        self.limits = NO_LIMITS
        """What a catalog of a shared lake may take; known after a snapshot was read."""

    def run(self, name: str, statement: Any, parameters: Any = None) -> sa.CursorResult[*tuple[Any, ...]]:
        """Execute one named statement; its name is a fault point before and after."""
        faults.reach(f"catalog.{name}.before")
        with telemetry.logged(f"catalog.{name}", statement):
            result = self._connection.execute(statement, parameters)
        telemetry.count("catalog.statements")
        faults.reach(f"catalog.{name}.after")
        return result

    def _cached(self, key: Any, build: Any) -> Any:
        """A statement that is built once per catalog."""
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = build()
        return found

    def expired(self, message: str) -> NotFoundError:
        """The error for snapshots that are gone; it names the oldest that is left."""
        table = self._t["snapshot"]
        oldest = self.run("oldest_snapshot", sa.select(sa.func.min(table.c.snapshot_id))).scalar()
        if oldest is None and self._t.shared:
            return self.catalog_dropped()
        return SnapshotExpiredError(
            message, hint=f"the oldest snapshot left is {oldest}; lake.snapshots() lists those that exist"
        )

    def catalog_dropped(self) -> NotFoundError:
        """The error for a catalog of a shared lake that is there no more: it has no snapshots."""
        return NotFoundError("the catalog does not exist any more: it was dropped while it was open")

    def _visible(self, table: sa.Table, snapshot: Any) -> sa.ColumnElement[bool]:
        return sa.and_(
            table.c.begin_snapshot <= snapshot, sa.or_(table.c.end_snapshot.is_(None), table.c.end_snapshot > snapshot)
        )


def arrow_table(result: sa.CursorResult[*tuple[Any, ...]], types: Mapping[str, pa.DataType]) -> pa.Table:
    """The rows of a statement as Arrow."""
    rows = result.all()
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(types)
    return pa.table({name: pa.array(values, types[name]) for name, values in zip(types, columns, strict=True)})
