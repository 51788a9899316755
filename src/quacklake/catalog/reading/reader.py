"""Reading a lake's metadata: every method is a constant number of statements inside one consistent transaction."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from quacklake.catalog.reading.dropped import DroppedReader
from quacklake.catalog.reading.health import HealthReader
from quacklake.catalog.reading.raw import RawReader
from quacklake.catalog.reading.snapshots import SnapshotReader
from quacklake.format.options import OptionRow

__all__ = ["Reader"]


class Reader(SnapshotReader, HealthReader, DroppedReader, RawReader):
    """One read transaction. All answers describe the same state of the database."""

    def options(self) -> list[OptionRow]:
        """Every option of the lake with its scope."""
        t, column = self._t["metadata"], self._t.column

        def build() -> Any:
            return sa.select(t.c.key, t.c.value, column("metadata", "scope"), column("metadata", "scope_id"))

        return [OptionRow(*row) for row in self.run("options", self._cached("options", build))]
