"""Group commit: the rows of many requests go into the pond in one transaction, and each request hears of its own.

A request is answered when its rows are committed. What is not committed when the process dies was never confirmed, and
what the sender then sends again is left out if the series has it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import pyarrow as pa

from quacklake import telemetry
from quacklake.errors import ConnectorUnavailableError, InputError, InternalError, QuacklakeError
from quacklake.extend import reporting
from quacklake.extend.writes import GroupCommit
from quacklake.pond.collectors.base import Run
from quacklake.pond.fs import FS
from quacklake.pond.inputs import ImportOptions
from quacklake.pond.paths import join
from quacklake.pond.series import Imported, Origin, append_series

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


class SeriesWriter:
    """Commits the rows of requests to series in a folder; at most ``max_waiting`` requests wait."""

    def __init__(
        self, run: Run, folder: str, given: ImportOptions, *, max_waiting: int, max_delay: float, max_rows: int
    ) -> None:
        self._run, self._folder, self._given = run, folder, given
        self.rows = self.commits = 0
        self._group = GroupCommit(
            self._commit,
            _answer,
            most=max_waiting,
            most_waiting=max_waiting,
            size=attrgetter("rows"),
            most_size=max_rows,
            delay=max_delay,
            waits_alone=True,
            log=_log,
            name="pond-commit",
        )

    def write(self, tables: Mapping[str, pa.Table], timeout: float) -> None:
        """Return when the rows are in the pond.

        Raise what refused them, and ``ConnectorUnavailableError`` when too many wait.
        """
        batch = Batch(tables)
        if not self._group.put(batch):
            raise ConnectorUnavailableError("too many requests wait to be committed", hint="send it again later")
        if not batch.done.wait(timeout):
            raise ConnectorUnavailableError(
                f"the rows were not committed in {timeout:.0f} seconds", hint="send it again"
            )
        if batch.error is not None:
            raise batch.error

    def close(self) -> None:
        """Commit what waits, and take no more."""
        self._group.close()

    def _commit(self, batches: Sequence[Batch]) -> None:
        """Commit all batches as one version of each series."""
        try:
            imported = self._run.transact(lambda fs: self._append(fs, _merge_batches(batches)))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InputError(f"the rows do not fit together: {str(error).splitlines()[0]}") from error
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


def _answer(answers: Sequence[tuple[Batch, QuacklakeError | None]]) -> None:
    for batch, error in answers:
        if isinstance(error, InternalError):
            telemetry.count("pond.listener.failures")
        batch.error = error
        batch.done.set()


def _merge_batches(batches: Sequence[Batch]) -> dict[str, pa.Table]:
    found: dict[str, list[pa.Table]] = {}
    for batch in batches:
        for name, table in batch.tables.items():
            found.setdefault(name, []).append(table)
    return {name: pa.concat_tables(tables, promote_options="default") for name, tables in found.items()}
