"""Fetch small results of Spark to the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quacklake.spark.runtime.compat import to_arrow
from quacklake.spark.runtime.failures import writing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_FIRST = 1_000
"""The most rows that are fetched while their size is unknown."""
_BYTES = 64 << 20
"""The most bytes of rows that are fetched, which take memory of the driver."""


@dataclass
class Fetch:
    """Fetches the rows of small DataFrames, mostly with one Spark job.

    ``limit`` is the most rows that count as few. ``row_bytes``, the size of a row, and ``last``, the number of rows in
    the last DataFrame, predict the next one. They are kept for all batches of a stream, which saves a job for large
    batches.
    """

    limit: int = 0
    row_bytes: float | None = None
    last: int = 0

    def few(self, frame: DataFrame, always: int = 0, *, more: bool = True) -> pa.Table | None:
        """Return all rows if they are few or at most ``always``, else None. Without ``more``, only ``always`` counts.

        Fetches at most one row more than that. Raises the errors of a Spark write.
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
