"""Python variables as relations."""

from __future__ import annotations

from types import FrameType
from typing import Any

import pyarrow as pa

from quacklake.errors import InputError
from quacklake.format.stats import check_values
from quacklake.operations.frames import readable, readable_schema, to_source
from quacklake.operations.input_paths import is_path


def registrable(value: Any) -> Any:
    """Return rows that can be read repeatedly under a name. Raises ``SchemaMismatchError`` for a value without rows."""
    found = _rows(value)
    if found is not None and not isinstance(found, pa.RecordBatchReader):
        return found
    if is_path(value):
        raise InputError(f"{str(value)!r} is a path", hint=f"SQL reads files itself: FROM '{value}'")
    source = to_source(value).opened()
    with source.lend() as rows:
        return rows if isinstance(rows, pa.Table) else rows.read_all()


def find_frame(frame: FrameType | None, name: str) -> Any:
    """Return the rows of the caller's variable with this name, local before global, or None."""
    for variables in () if frame is None else (frame.f_locals, frame.f_globals):
        rows = _rows(variables[name]) if name in variables else None
        if rows is not None:
            return rows
    return None


def _rows(value: Any) -> Any:
    """Return a value that DuckDB can register: a table, or a pandas frame or dataset unchanged."""
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
    """Return rows that cannot crash DuckDB. Raises ``SchemaMismatchError`` and ``ConstraintError``."""
    check_values(rows, exact=False)
    return readable(rows, readable_schema(rows.schema))
