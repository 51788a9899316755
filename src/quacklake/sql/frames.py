"""Python's variables as relations."""

from __future__ import annotations

from types import FrameType
from typing import Any

import pyarrow as pa

__all__ = ["find_frame"]


def find_frame(frame: FrameType | None, name: str) -> Any:
    """The rows of the variable of a name, of the caller or of one of its callers; None when there is none."""
    while frame is not None:
        for variables in (frame.f_locals, frame.f_globals):
            if name in variables:
                rows = _rows(variables[name])
                if rows is not None:
                    return rows
        frame = frame.f_back
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
