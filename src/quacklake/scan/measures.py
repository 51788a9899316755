"""What an engine finds in files when it looks at all of their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ColumnMeasure", "FileMeasure", "PositionMeasure"]


@dataclass(frozen=True, slots=True)
class ColumnMeasure:
    """What a column really has: values outside of its bounds, NULLs, NaN."""

    outside: bool
    nulls: int
    nan: bool


@dataclass(frozen=True, slots=True)
class FileMeasure:
    """What a file really has; ``file_id`` is None for a whole table. Snapshots and row ids are the outermost."""

    file_id: int | None
    rows: int
    first_snapshot: int | None
    last_snapshot: int | None
    last_row_id: int | None
    columns: Mapping[int, ColumnMeasure]


@dataclass(frozen=True, slots=True)
class PositionMeasure:
    """What a delete file really has."""

    rows: int
    lowest: int | None
    highest: int | None
    ordered: bool
