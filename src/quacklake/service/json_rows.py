"""A few rows as JSON objects, made here: for DuckDB, a question costs more than an answer of a few rows.

The text means what DuckDB's text for the same rows means (``encoding``): values that are not of plain types, or beyond
what Python holds, are left to DuckDB.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

__all__ = ["few_objects"]

_MAX_VALUES = 2_000
"""The most values that are faster made here."""
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def few_objects(batch: pa.RecordBatch, names: Sequence[str]) -> list[str] | None:
    """Return the rows of a small batch as JSON objects with these names; None for rows that are DuckDB's to show.

    >>> few_objects(pa.RecordBatch.from_pydict({"c0": [1, None], "c1": [0.5, float("nan")]}), ["a", "b"])
    ['{"a":1,"b":0.5}', '{"a":null,"b":"NaN"}']
    """
    if batch.num_rows * batch.num_columns > _MAX_VALUES:
        return None
    columns = []
    for column in batch.columns:
        shown = _find_converter(column.type)
        if shown is None:
            return None
        try:
            values = _plain(column).to_pylist()
        except (ValueError, OverflowError):  # a date that Python does not have, text that is none
            return None
        columns.append([None if value is None else shown(value) for value in values])
    return [_encode(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]


def _plain(column: pa.Array) -> pa.Array:
    """Return a column whose times are those of UTC, without saying so."""
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return column.cast(pa.timestamp(column.type.unit, "UTC")).cast(pa.int64()).cast(pa.timestamp(column.type.unit))
    return column


def _find_converter(type_: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the function that makes JSON of a value, None for a type that DuckDB shows."""
    kinds = pa.types
    if kinds.is_integer(type_) or kinds.is_boolean(type_) or kinds.is_string(type_) or kinds.is_large_string(type_):
        return _same
    if kinds.is_float32(type_) or kinds.is_float64(type_):
        return _number
    if kinds.is_decimal128(type_):
        return _decimal
    if kinds.is_binary(type_) or kinds.is_large_binary(type_):
        return _hex
    if kinds.is_date32(type_):
        return dt.date.isoformat
    if kinds.is_timestamp(type_) and type_.unit != "ns":
        return _time if type_.tz is None else _time_of_utc
    return None


def _same(value: Any) -> Any:
    return value


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decimal(value: Decimal) -> str:
    return format(value, "f")


def _hex(value: bytes) -> str:
    return value.hex()


def _time(value: dt.datetime) -> str:
    text = value.isoformat()
    return text.rstrip("0") if value.microsecond else text


def _time_of_utc(value: dt.datetime) -> str:
    return f"{_time(value)}+00:00"
