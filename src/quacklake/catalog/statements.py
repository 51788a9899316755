"""Named statements inside one transaction of the metadata database, the base of every reader and writer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from quacklake import faults, telemetry
from quacklake.catalog.databases.database import Database, Rows
from quacklake.catalog.inlined import DELETES, ROWS, delete_table, of_all_tables
from quacklake.catalog.tables import Tables
from quacklake.errors import NotFoundError, SnapshotExpiredError
from quacklake.format.inline import data_table_name, delete_table_name, parse_table_name
from quacklake.format.objects import NO_LIMITS

_RUNS = 20
"""Up to this many runs of ids are named by their ends."""


class CatalogStatements:
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

    def cached(self, key: Any, build: Any) -> Any:
        """Return a statement that is built once per catalog."""
        statement = self._cache.get(key)
        if statement is None:
            statement = self._cache[key] = build()
        return statement

    def expired(self, message: str) -> NotFoundError:
        """Return the error for expired snapshots; it names the oldest that is left."""
        table = self._t["snapshot"]
        oldest = self.run("oldest_snapshot", sa.select(sa.func.min(table.c.snapshot_id))).scalar()
        if oldest is None and self._t.shared:
            return self.catalog_dropped()
        return SnapshotExpiredError(
            message, hint=f"the oldest snapshot left is {oldest}; lake.snapshots() lists those that exist"
        )

    def catalog_dropped(self) -> NotFoundError:
        """Return the error for a catalog of a shared lake that was dropped: it has no snapshots."""
        return NotFoundError("the catalog does not exist any more: it was dropped while it was open")

    def has_table(self, name: str) -> bool:
        """Return whether the database has a table of that name, or in a shared lake what stands for it."""
        if self._t.shared:
            return self._stands_for(name)
        return self._database.has_table(self._connection, name, self._t.metadata.schema)

    def _stands_for(self, name: str) -> bool:
        named = parse_table_name(name)
        if named is None or named[1] is not None:
            return True  # a shared lake has all its tables from the start
        table = self.delete_table(named[0])
        return self.run("any_inlined_delete", sa.select(table.c.file_id).limit(1)).first() is not None

    def stored_tables(self) -> list[str]:
        """Return the tables of the database.

        In a shared lake also what stands for those of inlined rows and deletes.
        """
        if not self._t.shared:
            return list(sa.inspect(self._connection).get_table_names(schema=self._t.metadata.schema))
        rows, deletes = of_all_tables(ROWS, self._t), of_all_tables(DELETES, self._t)
        versions = self.run("inlined_versions", sa.select(rows.c.table_id, rows.c.schema_version).distinct())
        names = [data_table_name(*row) for row in versions]
        names += [delete_table_name(row[0]) for row in self.run("deletes", sa.select(deletes.c.table_id).distinct())]
        return [*names, *(table.name for table in (*self._t.stock(), *self._t.own.values()))]

    def delete_table(self, table_id: int) -> sa.Table:
        """Return the table of inlined deletes, always the same object: compiled statements are found again by it."""
        build = partial(delete_table, table_id, self._t)
        table: sa.Table = self.cached(("delete_table", table_id), build)
        return table


class WriteStatements(CatalogStatements):
    """A write transaction of the metadata database: it inserts, updates and ends rows in bulk."""

    def insert(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows into a stock table, without the columns that the version of this lake does not have."""
        if rows:
            table = self._t[name]
            keys = [key for key in rows[0] if key in table.c]
            self.insert_many(f"insert_{name}", table, keys, [[row[key] for key in keys] for row in rows])

    def insert_many(self, name: str, table: sa.Table, keys: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows in bulk; one statement, whatever their number."""
        with self._step(name):
            self._database.insert_many(self._connection, table, keys, rows)

    def update_many(
        self, name: str, table: sa.Table, where: Sequence[str], keys: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        """Update rows in bulk, each found by its values of ``where``, which come first."""
        with self._step(name):
            self._database.update_many(self._connection, table, where, keys, rows)

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        """Count and log a block as one statement of that name."""
        faults.reach(f"catalog.{name}.before")
        with telemetry.logged(f"catalog.{name}"):
            yield
        telemetry.count("catalog.statements")
        faults.reach(f"catalog.{name}.after")

    def end(self, name: str, key: str, ids: Sequence[int], snapshot: int) -> int:
        """Give every live row with these ids its end; return how many there were."""
        if not ids:
            return 0
        table = self._t[name]

        def build() -> Any:
            return (
                sa.update(table)
                .where(table.c[key].in_(sa.bindparam("ids", expanding=True)), table.c.end_snapshot.is_(None))
                .values(end_snapshot=sa.bindparam("snapshot"))
            )

        statement = self.cached(("end", name, key), build)
        return self.update(f"end_{name}", statement, {"ids": list(ids), "snapshot": snapshot})

    def update(self, name: str, statement: sa.Update, parameters: dict[str, Any] | None = None) -> int:
        """Run an update; return how many rows it changed."""
        if self._database.name != "duckdb":
            return self.run(name, statement, parameters).rowcount
        # duckdb's Python client reports no row count
        table: Any = statement.table
        count = sa.select(sa.func.count()).select_from(table).where(*statement._where_criteria)
        changed = int(self.run(f"{name}_count", count, parameters).scalar_one())
        self.run(name, statement, parameters)
        return changed

    def batch(self) -> AbstractContextManager[None]:
        """Return a block of small statements that need nothing of each other.

        On a network they share one round trip.
        """
        return self._database.batch(self._connection)

    @property
    def batch_rows(self) -> int:
        """How many rows an insert may have inside a batch."""
        return self._database.batch_rows


def among(column: sa.ColumnElement[int], ids: Sequence[int]) -> sa.ColumnElement[bool]:
    """Return the condition that a column is one of these ids.

    Files that came one after the other have ids without a gap, which makes it short.
    """
    runs: list[list[int]] = []
    for id_ in sorted(ids):
        if runs and id_ <= runs[-1][1] + 1:
            runs[-1][1] = id_
        else:
            runs.append([id_, id_])
    if not 0 < len(runs) <= _RUNS:
        return column.in_(list(ids))
    return sa.or_(*(column.between(first, last) for first, last in runs))


def visible(table: sa.Table, snapshot: Any) -> sa.ColumnElement[bool]:
    """Return the condition for the rows that a snapshot sees."""
    return sa.and_(
        table.c.begin_snapshot <= snapshot, sa.or_(table.c.end_snapshot.is_(None), table.c.end_snapshot > snapshot)
    )


def arrow_table(result: sa.CursorResult[*tuple[Any, ...]], types: Mapping[str, pa.DataType]) -> pa.Table:
    """Return the rows of a statement as Arrow."""
    rows = result.all()
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(types)
    return pa.table({name: pa.array(values, types[name]) for name, values in zip(types, columns, strict=True)})
