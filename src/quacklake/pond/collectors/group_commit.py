"""Group commit: the rows of many requests go into the pond in one transaction, and each request hears of its own.

A request is answered when its rows are committed. What is not committed when the process dies was never confirmed, and
what the sender then sends again is left out if the series has it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from quacklake import telemetry
from quacklake.errors import CancelledError, ConnectorUnavailableError, InternalError, QuacklakeError
from quacklake.extend import reporting
from quacklake.pond.collectors.base import Item, Run, commit
from quacklake.pond.fs import FS
from quacklake.pond.inputs import ImportOptions
from quacklake.pond.paths import join
from quacklake.pond.series import Imported, Origin, append_series

_LOOK = 0.2
_log = logging.getLogger("quacklake.pond")


@dataclass
class Batch:
    """The rows of a request by series name. ``done`` is set when they are committed, or refused with ``error``."""

    tables: Mapping[str, pa.Table]
    done: threading.Event = field(default_factory=threading.Event)
    error: QuacklakeError | None = None

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(table.num_rows for table in self.tables.values())


class GroupCommit:
    """A thread that commits batches; at most ``max_waiting`` of them wait."""

    def __init__(
        self, run: Run, folder: str, given: ImportOptions, *, max_waiting: int, max_delay: float, max_rows: int
    ) -> None:
        self._run, self._folder, self._given = run, folder, given
        self._max_delay, self._max_rows = max_delay, max_rows
        self._queue: queue.Queue[Batch] = queue.Queue(max_waiting)
        self._stopped = threading.Event()
        self.rows = self.commits = 0
        self._thread = threading.Thread(target=self._work, name="pond-commit", daemon=True)
        self._thread.start()

    def write(self, tables: Mapping[str, pa.Table], timeout: float) -> None:
        """Return when the rows are in the pond.

        Raises what refused them, and ``ConnectorUnavailableError`` when too many wait.
        """
        batch = Batch(tables)
        if self._stopped.is_set():
            raise CancelledError("the listener stops", hint="send it again")
        try:
            self._queue.put_nowait(batch)
        except queue.Full:
            raise ConnectorUnavailableError(
                "too many requests wait to be committed", hint="send it again later"
            ) from None
        if not batch.done.wait(timeout):
            raise ConnectorUnavailableError(
                f"the rows were not committed in {timeout:.0f} seconds", hint="send it again"
            )
        if batch.error is not None:
            raise batch.error

    def close(self) -> None:
        """Commit what waits, and end the thread."""
        self._stopped.set()
        self._thread.join()

    def _work(self) -> None:
        while True:
            try:
                first = self._queue.get(timeout=_LOOK)
            except queue.Empty:
                if self._stopped.is_set():
                    return
                continue
            batches = self._gather(first)
            try:
                self._commit(batches)
            except QuacklakeError as error:
                _log.warning("rows could not be committed: %s", error.message, extra=telemetry.error_facts(error))
                _fail(batches, error)
            except Exception as error:  # the thread goes on for the requests that follow
                _log.exception("rows could not be committed")
                telemetry.count("pond.listener.failures")
                _fail(batches, InternalError(f"the rows could not be committed: {type(error).__name__}"))
            for batch in batches:
                batch.done.set()

    def _gather(self, first: Batch) -> list[Batch]:
        batches, rows = [first], first.rows
        until = time.monotonic() + self._max_delay
        while rows < self._max_rows and (left := until - time.monotonic()) > 0:
            try:
                batches.append(self._queue.get(timeout=left))
                rows += batches[-1].rows
            except queue.Empty:
                break
        return batches

    def _commit(self, batches: list[Batch]) -> None:
        """Commit all batches as one version of each series; one by one when that is refused."""
        if len(batches) > 1:
            try:
                self._count(self._run.transact(lambda fs: self._append(fs, _merged(batches))))
                return
            except (QuacklakeError, pa.ArrowInvalid, pa.ArrowTypeError):
                telemetry.count("pond.listener.split")
        items = [
            Item(str(number), lambda fs, batch=batch: self._append(fs, batch.tables))  # type: ignore[misc]
            for number, batch in enumerate(batches)
        ]
        report = commit(self._run, items)
        for failure in report.failures:
            batches[int(failure.item)].error = failure.error
        self._count(list(report.imported))

    def _count(self, imported: list[Imported]) -> None:
        self.commits += 1
        self.rows += sum(each.rows for each in imported)

    def _append(self, fs: FS, tables: Mapping[str, pa.Table]) -> list[Imported]:
        fs.make_directory(self._folder, parents=True)
        done = []
        for name, table in tables.items():
            path = join(self._folder, f"{name}.series")
            done.append(append_series(fs, path, table, self._given, Origin(f"{name} over HTTP")))
            reporting.reach("pond.listener.appended")
        return done


def _fail(batches: list[Batch], error: QuacklakeError) -> None:
    for batch in batches:
        batch.error = batch.error or error


def _merged(batches: list[Batch]) -> dict[str, pa.Table]:
    found: dict[str, list[pa.Table]] = {}
    for batch in batches:
        for name, table in batch.tables.items():
            found.setdefault(name, []).append(table)
    return {name: pa.concat_tables(tables, promote_options="default") for name, tables in found.items()}
