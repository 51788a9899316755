"""Values of Python as constants of DuckDB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb

__all__ = ["constant"]


def constant(value: Any) -> duckdb.Expression:
    """Return a value as an expression. NaN stays NaN, also inside of lists and dictionaries: DuckDB would make it NULL.

    Scalars of numpy are taken as what they hold.
    """
    value = _plain(value)
    if not _holds_nan(value):
        return duckdb.ConstantExpression(value)
    if isinstance(value, Mapping):
        return duckdb.FunctionExpression("struct_pack", *(constant(item).alias(key) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return duckdb.FunctionExpression("list_value", *map(constant, value))
    return duckdb.SQLExpression("'nan'::DOUBLE")


def _plain(value: Any) -> Any:
    """A scalar of numpy as one of Python."""
    if type(value).__module__ != "numpy" or getattr(value, "ndim", None) != 0 or value.dtype.kind not in "biufSU":
        return value
    return value.item()


def _holds_nan(value: Any) -> bool:
    value = _plain(value)
    if isinstance(value, Mapping):
        return all(isinstance(key, str) for key in value) and any(map(_holds_nan, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_nan, value))
    return isinstance(value, float) and value != value
