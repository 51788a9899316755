"""What every writer of metadata does: insert, end and update rows in bulk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import sqlalchemy as sa

from quacklake import faults, telemetry
from quacklake.catalog.reading.reader import Reader

__all__ = ["Inserts", "among"]

Rows = list[dict[str, Any]]

_RUNS = 20
"""Up to this many runs of ids are named by their ends."""


def among(column: sa.ColumnElement[int], ids: Sequence[int]) -> sa.ColumnElement[bool]:
    """True for any of these ids. Files that came one after the other have ids without a gap, which makes it short."""
    runs: list[list[int]] = []
    for id_ in sorted(ids):
        if runs and id_ <= runs[-1][1] + 1:
            runs[-1][1] = id_
        else:
            runs.append([id_, id_])
    if not 0 < len(runs) <= _RUNS:
        return column.in_(list(ids))
    return sa.or_(*(column.between(first, last) for first, last in runs))


class Inserts(Reader):
    """A reader that also inserts."""

    def _insert(self, name: str, rows: Rows) -> None:
        """Insert rows into a stock table, without the columns that the version of this lake does not have."""
        if rows:
            table = self._t[name]
            keys = [key for key in rows[0] if key in table.c]
            self._insert_many(f"insert_{name}", table, keys, [[row[key] for key in keys] for row in rows])

    def _insert_many(self, name: str, table: sa.Table, keys: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows in bulk; one statement, whatever their number."""
        with self._step(name):
            self._database.insert_many(self._connection, table, keys, rows)

    def _update_many(
        self, name: str, table: sa.Table, where: Sequence[str], keys: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        """Update rows in bulk, each found by its values of ``where``, which come first."""
        with self._step(name):
            self._database.update_many(self._connection, table, where, keys, rows)

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        """What counts as a statement of that name."""
        faults.reach(f"catalog.{name}.before")
        with telemetry.logged(f"catalog.{name}"):
            yield
        telemetry.count("catalog.statements")
        faults.reach(f"catalog.{name}.after")

    def _end(self, name: str, key: str, ids: Sequence[int], snapshot: int) -> int:
        """Give every live row with these ids its end; returns how many there were."""
        if not ids:
            return 0
        table = self._t[name]

        def build() -> Any:
            return (
                sa.update(table)
                .where(table.c[key].in_(sa.bindparam("ids", expanding=True)), table.c.end_snapshot.is_(None))
                .values(end_snapshot=sa.bindparam("snapshot"))
            )

        statement = self._cached(("end", name, key), build)
        return self._update(f"end_{name}", statement, {"ids": list(ids), "snapshot": snapshot})

    def _update(self, name: str, statement: sa.Update, parameters: dict[str, Any] | None = None) -> int:
        """Run an update; returns how many rows it changed."""
        if self._database.name != "duckdb":
            return self.run(name, statement, parameters).rowcount
        # duckdb's Python client reports no row count
        table: Any = statement.table
        count = sa.select(sa.func.count()).select_from(table).where(*statement._where_criteria)
        changed = int(self.run(f"{name}_count", count, parameters).scalar_one())
        self.run(name, statement, parameters)
        return changed

    def batch(self) -> AbstractContextManager[None]:
        """A block of small statements that need nothing of each other; on a network they share one round trip."""
        return self._database.batch(self._connection)

    @property
    def batch_rows(self) -> int:
        """How many rows an insert may have inside a batch."""
        return self._database.batch_rows
