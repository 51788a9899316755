"""Python's variables as relations."""

from __future__ import annotations

from types import FrameType
from typing import Any

import pyarrow as pa

from quacklake.errors import InputError
from quacklake.format.value_ranges import check_values
from quacklake.operations.arrow_forms import readable, readable_schema
from quacklake.operations.frames import to_source
from quacklake.operations.input_paths import is_path

__all__ = ["find_frame", "registrable"]


def registrable(value: Any) -> Any:
    """Rows under a name, which can be read again and again. Raises ``SchemaMismatchError`` for what has none."""
    found = _rows(value)
    if found is not None and not isinstance(found, pa.RecordBatchReader):
        return found
    if is_path(value):
        raise InputError(f"{str(value)!r} is a path", hint=f"SQL reads files itself: FROM '{value}'")
    source = to_source(value).opened()
    with source.lend() as rows:
        return rows if isinstance(rows, pa.Table) else rows.read_all()


def find_frame(frame: FrameType | None, name: str) -> Any:
    """The rows of the caller's variable of a name, a local one first; None when there is none."""
    for variables in () if frame is None else (frame.f_locals, frame.f_globals):
        rows = _rows(variables[name]) if name in variables else None
        if rows is not None:
            return rows
    return None


def _rows(value: Any) -> Any:
    """What DuckDB can register: a table, or a pandas frame or a dataset as it is."""
    module = type(value).__module__.split(".")[0]
    if isinstance(value, pa.Table):
        return _safe(value)
    if isinstance(value, pa.RecordBatchReader):
        return value
    if isinstance(value, pa.RecordBatch):
        return _safe(pa.Table.from_batches([value]))
    if module == "pandas" and hasattr(value, "columns"):
        return value
    if type(value).__module__.startswith("pyarrow._dataset") and hasattr(value, "scanner"):
        return value
    if module == "polars" and hasattr(value, "collect_batches"):
        return pa.table(value.collect())
    if module in ("polars", "quacklake", "duckdb", "_duckdb") and hasattr(value, "__arrow_c_stream__"):
        return pa.table(value)
    return None


def _safe(rows: pa.Table) -> pa.Table:
    """Rows whose types and values do not end DuckDB. Raises ``SchemaMismatchError`` and ``ConstraintError``."""
    check_values(rows, exact=False)
    return readable(rows, readable_schema(rows.schema))
