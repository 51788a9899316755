"""Write transactions to the Arrow files and to the lake at once, for as long as both are in use."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from quacklake import Lake, LakeTransaction
from quacklake.errors import QuacklakeError
from quacklake.extend import reporting
from quacklake.pipelines import BufferedWriter
from quacklake.telemetry import error_facts
from quacklake_ekko.migration import state
from quacklake_ekko.migration.folder import ArrowFolder, CheckedFile
from quacklake_ekko.migration.layout import check_node
from quacklake_ekko.settings import WriterSettings
from quacklake_ekko.table import KEY, TABLE
from quacklake_ekko.transactions import ROWS, DuckLakeWriter, merge_newest

_log = logging.getLogger("quacklake.migration")


@dataclass
class SideReport:
    """The counts and times of one side: failures with the last error, and rows that wait to be written again."""

    batches: int = 0
    rows: int = 0
    seconds: float = 0.0
    failures: int = 0
    error: QuacklakeError | None = None
    waiting: int = 0


class DualWriter(DuckLakeWriter):
    """Writes each batch of transactions as Arrow files, and then into the lake.

    A side that fails does not hold up the other, and is reported in ``arrow`` and ``lake_side``. Rows that the lake did
    not take are in the Arrow files, from where a backfill brings them; so does one after a crash between the two. Rows
    that the Arrow files did not take are kept in memory and written with the next batch; when ``max_rows`` of them
    wait, or when both sides fail, ``write_transaction`` raises the error.
    """

    def __init__(
        self,
        lake: Lake,
        folder: ArrowFolder,
        *,
        settings: WriterSettings | None = None,
        batch_size: int | None = None,
        flush_interval: timedelta | str | None = None,
        max_rows: int | None = None,
    ) -> None:
        state.prepare(lake)
        self._folder, self._max_rows = folder, max_rows
        super().__init__(lake, settings=settings, batch_size=batch_size, flush_interval=flush_interval)

    def _open(self, lake: Lake, batch_size: int, flush_interval: timedelta | str) -> BufferedWriter:
        self._both = _BothSides(
            lake, self._folder, batch_rows=batch_size, flush_interval=flush_interval, max_rows=self._max_rows
        )
        return self._both

    @property
    def arrow(self) -> SideReport:
        """The result of the Arrow files."""
        return self._both.arrow

    @property
    def lake_side(self) -> SideReport:
        """The result of the lake."""
        return self._both.lake_side


class _BothSides(BufferedWriter):
    """A buffer whose batches go to both sides."""

    def __init__(self, lake: Lake, folder: ArrowFolder, **options: Any) -> None:
        self._folder = folder
        self.arrow, self.lake_side = SideReport(), SideReport()
        self._owed: list[tuple[pa.Table, datetime]] = []
        self._paying = threading.Lock()
        self._created = datetime.min.replace(tzinfo=UTC)
        super().__init__(lake, **options)

    def write(self, table: str, row: Mapping[str, Any]) -> None:
        """Do as :meth:`BufferedWriter.write`. Raise ``InputError`` for a node that cannot name a folder."""
        check_node(row["network"], row["subnet"], row["vm_type"])
        super().write(table, row)

    def _commit(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        created = self._created = max(datetime.now(UTC), self._created + timedelta(microseconds=1))
        # the last of a transaction counts; files say once for all rows when they were ingested
        last = {row[KEY]: {**row, "ingested_at": created} for row in rows}
        batch = pa.Table.from_pylist(list(last.values()), ROWS)
        self._pay_debt()
        files, refused = self._to_files(batch, created)
        failed = self._to_lake(batch, files)
        if refused is not None and failed is not None:
            raise refused
        if refused is not None:
            if self.arrow.waiting + len(batch) > self._limit:
                raise refused
            with self._paying:
                self._owed.append((batch, created))
                self.arrow.waiting += len(batch)

    def close(self) -> None:
        """Write what is kept, to both sides, and end. Raise what keeps a side from getting it."""
        super().close()
        self._pay_debt()
        if self._owed and self.arrow.error is not None:
            raise self.arrow.error

    def flush_all(self) -> int:
        """Write all rows and return their number; batches that the Arrow files did not take are tried again."""
        flushed = super().flush_all()
        self._pay_debt()
        return flushed

    def _pay_debt(self) -> None:
        """Write the batches that the Arrow files did not take, in their order."""
        with self._paying:
            while self._owed:
                batch, created = self._owed[0]
                if self._to_files(batch, created)[1] is not None:
                    return
                del self._owed[0]
                self.arrow.waiting -= len(batch)

    def _to_files(self, batch: pa.Table, created: datetime) -> tuple[list[CheckedFile], QuacklakeError | None]:
        began = time.monotonic()
        try:
            files = self._folder.write(batch, created)
        except QuacklakeError as error:
            _failed(self.arrow, "Arrow files", error)
            return [], error
        _succeeded(self.arrow, batch, began)
        return files, None

    def _to_lake(self, batch: pa.Table, files: list[CheckedFile]) -> QuacklakeError | None:
        def work(transaction: LakeTransaction) -> None:
            merge_newest(transaction.table(TABLE), batch)
            state.add_files(transaction, self._folder.url, "backfilled", files)

        reporting.reach("migration.dual.between")
        began = time.monotonic()
        try:
            self._lake.run(work, "migrate-arrow: dual write")
        except QuacklakeError as error:
            _failed(self.lake_side, "the lake", error)
            return error
        _succeeded(self.lake_side, batch, began)
        return None


def _failed(side: SideReport, name: str, error: QuacklakeError) -> None:
    side.failures += 1
    side.error = error
    _log.warning("a batch could not be written to %s: %s", name, error.message, extra=error_facts(error, target=name))


def _succeeded(side: SideReport, batch: pa.Table, began: float) -> None:
    side.batches += 1
    side.rows += len(batch)
    side.seconds += time.monotonic() - began
