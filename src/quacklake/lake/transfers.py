"""The options and reports of imports and exports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from quacklake.core.lazy import provided
from quacklake.core.progress import Progress, Report

if TYPE_CHECKING:
    from quacklake.inputs.csv_files import CsvOptions
    from quacklake.lake.lake import Lake, LakeAt


class ImportOptions(TypedDict, total=False):
    """The options of ``Lake.import_from``; ``commit_rows`` is the size at which a commit ends, with its file."""

    schema: str | None
    include: Sequence[str]
    exclude: Sequence[str]
    in_place: bool
    map_types: Mapping[str, str] | None
    options: Mapping[str, Any] | None
    csv: CsvOptions | None
    commit_rows: int
    dry_run: bool
    progress: Progress


class ExportOptions(TypedDict, total=False):
    """The options of ``Lake.export_to``."""

    include: Sequence[str]
    exclude: Sequence[str]
    partition_by: str | Sequence[str]
    replace: bool
    options: Mapping[str, Any] | None
    dry_run: bool
    progress: Progress


@dataclass(frozen=True)
class LeftOut:
    """Something that was not taken over: the table, view or part of one, and the reason."""

    what: str
    reason: str


@dataclass(frozen=True)
class TransferredTable:
    """A table of a report.

    ``rows`` were copied now, ``rows_before`` by an earlier run that was interrupted or had finished. ``bytes`` is the
    size of the files on the side that was written; None where there are no files, or where they were not written yet.
    """

    table: str
    rows: int
    rows_before: int = 0
    bytes: int | None = None
    state: str = "done"


@dataclass(frozen=True)
class ImportReport(Report):
    """The report of an import: the tables and views taken over, and what was not."""

    source: str
    tables: tuple[TransferredTable, ...]
    views: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    dry_run: bool

    @property
    def rows(self) -> int:
        """The rows that were copied now."""
        return sum(table.rows for table in self.tables)


@dataclass(frozen=True)
class ExportReport(Report):
    """The report of an export: the snapshot, the tables and views written, and what was not."""

    target: str
    snapshot_id: int
    tables: tuple[TransferredTable, ...]
    views: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    dry_run: bool

    @property
    def rows(self) -> int:
        """The rows that were written."""
        return sum(table.rows for table in self.tables)


@provided
def import_from(lake: Lake, source: str, table: str | None = None, **options: Unpack[ImportOptions]) -> ImportReport:
    """Copy the tables of a source into a lake; see ``Lake.import_from``."""
    raise NotImplementedError


@provided
def export_to(
    lake: Lake | LakeAt, target: str, tables: Sequence[str] | str = (), **options: Unpack[ExportOptions]
) -> ExportReport:
    """Write tables of a lake to a target that others read; see ``Lake.export_to``."""
    raise NotImplementedError
