"""Load the rows of Arrow files into the lake: each file once, even if the work is interrupted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from quacklake import Lake, LakeTransaction
from quacklake.errors import CorruptFileError, InputError, PathError, StreamBatchDoneError
from quacklake.extend import reporting
from quacklake.extend.marks import Mark
from quacklake.extend.reporting import Progress, silent
from quacklake_ekko.migration import state
from quacklake_ekko.migration.folder import ArrowFile, ArrowFolder, CheckedFile, SkippedFile
from quacklake_ekko.table import TABLE
from quacklake_ekko.transactions import merge_newest

REFUSED = (InputError, CorruptFileError, PathError)
"""Errors that a single file may cause; a store that cannot be reached is not the fault of a file."""


@dataclass(frozen=True)
class BackfillReport:
    """The report of a backfill or a dry run: files and their rows, and the rows added to the table."""

    files: int
    rows: int
    inserted: int
    updated: int
    skipped: tuple[SkippedFile, ...]
    dry_run: bool


def backfill(
    lake: Lake,
    folder: ArrowFolder,
    *,
    again: bool = False,
    dry_run: bool = False,
    batch_rows: int = 100_000,
    progress: Progress = silent,
) -> BackfillReport:
    """Merge the rows of all files that are not in the lake yet, oldest file first; with ``again``, of all files.

    A commit has about ``batch_rows`` rows, and with them the names of their files and the place in a file that is not
    done. So a backfill can be ended at any time and started again. A file that is damaged, or that does not have what
    its path or metadata says, is left out as a whole and reported. Of two backfills of a folder the newer goes on, and
    the other raises ``StreamFencedError``.
    """
    if batch_rows < 1:
        raise InputError(f"batch_rows must be at least 1, not {batch_rows}")
    listed, skipped = folder.files()
    known = {} if again else state.files(lake, folder.url, "backfilled")
    todo = [file for file in listed if file.path not in known or known[file.path]["bytes"] != file.size]
    if dry_run:
        return _rehearse(folder, todo, skipped, progress)
    state.prepare(lake)
    work = _Backfill(lake, folder, batch_rows)
    todo.sort(key=lambda file: file.path != work.begun.path)
    for place, file in enumerate(todo):
        progress("taking files over", place, len(todo))
        try:
            checked = folder.check(file)
        except REFUSED as error:
            skipped.append(SkippedFile(file.path, error.message))
            continue
        work.take(file, checked)
    work.commit()
    progress("taking files over", len(todo), len(todo))
    return BackfillReport(work.files, work.rows, work.inserted, work.updated, tuple(skipped), False)


@dataclass(frozen=True)
class _StartedFile:
    """A file of which the first rows are in the lake."""

    path: str | None = None
    sha256: str | None = None
    rows: int = 0


@dataclass
class _Backfill:
    """Collects rows and commits them with the names of their files."""

    lake: Lake
    folder: ArrowFolder
    batch_rows: int
    files: int = 0
    rows: int = 0
    inserted: int = 0
    updated: int = 0
    _waiting: list[pa.Table] = field(default_factory=list)
    _done: list[CheckedFile] = field(default_factory=list)

    def __post_init__(self) -> None:
        name = f"migrate-arrow {hashlib.sha256(self.folder.url.encode()).hexdigest()[:16]}"
        self._mark: Mark = self.lake.streams.claim(name, self.folder.url)
        self._epoch = self._mark.epoch
        self.begun = _StartedFile(**json.loads(self._mark.position)) if self._mark.position else _StartedFile()

    def take(self, file: ArrowFile, checked: CheckedFile) -> None:
        """Collect the rows of a file; commit whenever there are enough."""
        begun = self.begun
        taken = begun.rows if (begun.path, begun.sha256) == (checked.path, checked.sha256) else 0
        passed = 0
        for table in self.folder.rows(file, checked):
            start = min(max(0, taken - passed), len(table))
            passed += len(table)
            while start < len(table):
                part = table.slice(start, self.batch_rows - self._count)
                self._waiting.append(part)
                start += len(part)
                self.rows += len(part)
                place = passed - len(table) + start
                if self._count >= self.batch_rows and place < checked.rows:
                    self.commit(_StartedFile(checked.path, checked.sha256, place))
        self._done.append(checked)
        self.files += 1
        if self._count >= self.batch_rows:
            self.commit()

    @property
    def _count(self) -> int:
        return sum(len(table) for table in self._waiting)

    def commit(self, begun: _StartedFile | None = None) -> None:
        """Commit what was collected, with the place in a file that is not done."""
        if not self._waiting and not self._done:
            return
        rows = pa.concat_tables(self._waiting) if self._waiting else None
        position = json.dumps(vars(begun)) if begun else None
        inserted = updated = 0

        def work(transaction: LakeTransaction) -> None:
            nonlocal inserted, updated
            if rows is not None:
                merged = merge_newest(transaction.table(TABLE), rows)
                inserted, updated = merged.inserted, merged.updated
            state.add_files(transaction, self.folder.url, "backfilled", self._done)
            transaction.mark(self._mark.name, self._epoch + 1, self._mark.run, position)

        reporting.reach("migration.backfill.before")
        with suppress(StreamBatchDoneError):  # the answer to an earlier try was lost
            self.lake.run(work, "migrate-arrow: backfill")
        reporting.reach("migration.backfill.after")
        self._epoch += 1
        self.begun = begun or _StartedFile()
        self.inserted += inserted
        self.updated += updated
        self._waiting.clear()
        self._done.clear()


def _rehearse(
    folder: ArrowFolder, todo: Sequence[ArrowFile], skipped: list[SkippedFile], progress: Progress
) -> BackfillReport:
    files = rows = 0
    for place, file in enumerate(todo):
        progress("checking files", place, len(todo))
        try:
            checked = folder.check(file)
        except REFUSED as error:
            skipped.append(SkippedFile(file.path, error.message))
            continue
        files += 1
        rows += checked.rows
    return BackfillReport(files, rows, 0, 0, tuple(skipped), True)
