"""Python's variables as relations."""

from __future__ import annotations

from types import FrameType
from typing import Any

import pyarrow as pa

__all__ = ["find_frame"]


def find_frame(frame: FrameType | None, name: str) -> Any:
    """The rows of the caller's variable of a name, a local one first; None when there is none."""
    for variables in () if frame is None else (frame.f_locals, frame.f_globals):
        rows = _rows(variables[name]) if name in variables else None
        if rows is not None:
            return rows
    return None


def _rows(value: Any) -> Any:
    """What DuckDB can register: a table, or a pandas frame as it is."""
    module = type(value).__module__.split(".")[0]
    if isinstance(value, pa.Table | pa.RecordBatchReader):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if module == "pandas" and hasattr(value, "columns"):
        return value
    if module in ("polars", "quacklake", "duckdb", "_duckdb") and hasattr(value, "__arrow_c_stream__"):
        return pa.table(value)
    return None
