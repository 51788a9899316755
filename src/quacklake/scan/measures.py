"""Measurements of files by an engine that reads all of their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ColumnMeasure:
    """The measured contents of a column: values outside of its bounds, NULLs, NaN."""

    outside: bool
    nulls: int
    nan: bool


@dataclass(frozen=True, slots=True)
class FileMeasure:
    """The measured contents of a file; ``file_id`` is None for a whole table. Snapshots and row ids are extremes."""

    file_id: int | None
    rows: int
    first_snapshot: int | None
    last_snapshot: int | None
    last_row_id: int | None
    columns: Mapping[int, ColumnMeasure]


@dataclass(frozen=True, slots=True)
class PositionMeasure:
    """The measured contents of a delete file."""

    rows: int
    lowest: int | None
    highest: int | None
    ordered: bool
