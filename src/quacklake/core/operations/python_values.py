"""Convert Arrow columns to Python values.

>>> python_values(pa.array([86_399_000_000, 86_400_000_000], pa.time64("us")))
[datetime.time(23, 59, 59), '24:00:00']
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_MIDNIGHT = "24:00:00"


def python_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Return a column as Python values: text where Python has none, a tuple for a row without names.

    >>> python_values(pa.array([1, None]))
    [1, None]
    """
    if not _has_rows(column.type) and not _has_midnight(column):
        try:
            values: list[Any] = column.to_pylist()
        except (ValueError, OverflowError):
            pass
        else:
            return values
    return [_value(scalar) for scalar in column]


def _has_rows(arrow: pa.DataType) -> bool:
    """Return whether a type contains a row whose fields have no names or repeated names."""
    if pa.types.is_struct(arrow) and len({field.name for field in arrow} - {""}) < arrow.num_fields:
        return True
    return pa.types.is_nested(arrow) and any(_has_rows(arrow.field(index).type) for index in range(arrow.num_fields))


def _has_midnight(column: pa.ChunkedArray | pa.Array) -> bool:
    """Return whether a column may hold the time 24:00, which Arrow makes 00:00 in Python."""
    arrow = column.type
    if pa.types.is_time(arrow):
        import pyarrow.compute as pc  # which few results need

        number = column.cast(pa.int32() if arrow.bit_width == 32 else pa.int64())
        return bool(pc.max(number).as_py() == _DAY[arrow.unit])
    return pa.types.is_nested(arrow) and _has_times(arrow)


def _has_times(arrow: pa.DataType) -> bool:
    if pa.types.is_nested(arrow):
        return any(_has_times(arrow.field(index).type) for index in range(arrow.num_fields))
    return bool(pa.types.is_time(arrow))


def _value(scalar: Any) -> Any:
    if not scalar.is_valid:
        return None
    arrow = scalar.type
    if pa.types.is_struct(arrow):
        values = [_value(scalar[index]) for index in range(arrow.num_fields)]
        names = [field.name for field in arrow]
        return dict(zip(names, values, strict=True)) if len(set(names) - {""}) == len(names) else tuple(values)
    if pa.types.is_map(arrow):
        return [(_value(entry[0]), _value(entry[1])) for entry in scalar.values]
    if pa.types.is_nested(arrow) and not pa.types.is_union(arrow):
        return [_value(each) for each in scalar.values]
    if pa.types.is_time(arrow) and scalar.value == _DAY[arrow.unit]:
        return _MIDNIGHT
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return _text(scalar)


def _text(scalar: Any) -> Any:
    """Return the text of a value that Python lacks, as DuckDB writes it."""
    arrow = scalar.type
    if not pa.types.is_timestamp(arrow) and not pa.types.is_date(arrow):
        return scalar.cast(pa.string()).as_py()
    import duckdb

    values = pa.table({"value": pa.array([scalar.value], pa.int32() if arrow.bit_width == 32 else pa.int64())})
    values = values.cast(pa.schema([("value", arrow)]))
    with duckdb.connect() as connection:
        connection.register("given", values)
        rows = connection.execute("SELECT CAST(value AS VARCHAR) FROM given").fetchall()
    return rows[0][0]
