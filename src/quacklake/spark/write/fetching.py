"""Rows of Spark that come to the driver, where they are few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quacklake.spark.runtime.compat import to_arrow
from quacklake.spark.runtime.failures import writing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["Fetch"]

_FIRST = 1_000
"""How many rows are fetched at most while it is not known how large they are."""
_BYTES = 64 << 20
"""How many bytes of rows are fetched at most: memory of the driver."""


@dataclass
class Fetch:
    """Fetches the rows of small frames, mostly with one job of Spark.

    ``limit`` is how many rows are few. ``row_bytes``, how large a row was, and ``last``, how many the last frame had,
    are what is expected of the next one: kept for all batches of a stream, they save the look at one that is large.
    """

    limit: int = 0
    row_bytes: float | None = None
    last: int = 0

    def few(self, frame: DataFrame, always: int = 0, *, more: bool = True) -> pa.Table | None:
        """All rows when they are few, or at most ``always``, which is all without ``more``.

        One row above that is all that is ever fetched. Raises as a write of Spark does.
        """
        guessed, most = self.row_bytes is None, max(always, self._most() if more else 0)
        if self.last and not most:
            return None
        rows = self._rows(frame, most)
        if rows is None and guessed and more and self._most() > most:
            rows = self._rows(frame, self._most())
        return rows

    def _most(self) -> int:
        room = _FIRST if self.row_bytes is None else int(_BYTES / max(self.row_bytes, 1))
        most = min(self.limit, room)
        return most if self.last <= most else 0

    def _rows(self, frame: DataFrame, most: int) -> pa.Table | None:
        with writing():
            rows = to_arrow(frame.limit(most + 1))
        if rows.num_rows:
            self.row_bytes = rows.nbytes / rows.num_rows
        return rows if rows.num_rows <= most else None
