"""Arrow's durations as the intervals of a lake, and intervals without months as durations."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

INTERVAL = pa.month_day_nano_interval()
_MICROS = pa.duration("us")
_PER_MICRO = 1_000
_PER_SECOND = {"s": 1_000_000, "ms": 1_000, "us": 1}
_DAY = 86_400_000_000
_WORDS = {pa.int32(): 4, pa.int64(): 2}
"""The numbers of each size that one interval is made of."""


def from_durations(array: pa.Array) -> pa.Array:
    """Return durations as intervals of days and microseconds; those of an array that ``check_values`` accepts.

    >>> from_durations(pa.array([90_061, -1], pa.duration("s"))).to_pylist()
    [MonthDayNano(months=0, days=1, nanoseconds=3661000000000), MonthDayNano(months=0, days=0, nanoseconds=-1000000000)]
    """
    numbers = array.view(pa.int64())
    if array.type.unit == "ns":
        micros = pc.divide(numbers, _PER_MICRO)
    else:
        micros = pc.multiply_checked(numbers, _PER_SECOND[array.type.unit])
    micros = pc.fill_null(micros, 0)
    days = pc.divide(micros, _DAY)
    nanos = pc.multiply(pc.subtract(micros, pc.multiply(days, _DAY)), _PER_MICRO)
    # the months are the first four bytes, and the days are the next
    pairs = pa.RecordBatch.from_arrays([pc.shift_left(days, 32), nanos], ["days", "nanos"]).to_tensor()
    valid = None if not array.null_count else array.is_valid().buffers()[1]
    return pa.Array.from_buffers(INTERVAL, len(array), [valid, pa.py_buffer(pairs)])


def to_durations(array: pa.Array) -> pa.Array | None:
    """Return intervals as durations of microseconds; None where there are months, or too many days for these.

    >>> to_durations(pa.array([(0, 1, 3_661_000_000_000), None], INTERVAL)).to_pylist()
    [datetime.timedelta(days=1, seconds=3661), None]
    """
    if array.null_count == len(array):
        return pa.nulls(len(array), _MICROS)
    if pc.any(pc.not_equal(_numbers(array, pa.int32(), 0), 0)).as_py():
        return None
    days = _numbers(array, pa.int32(), 1).cast(pa.int64())
    try:
        micros = pc.add_checked(pc.multiply_checked(days, _DAY), pc.divide(nanoseconds(array), _PER_MICRO))
    except pa.ArrowInvalid:
        return None
    return micros.view(_MICROS)


def nanoseconds(array: pa.Array) -> pa.Array:
    """Return the nanoseconds of intervals, which count besides their days and months."""
    return _numbers(array, pa.int64(), 1)


def _numbers(array: Any, type_: pa.DataType, place: int) -> pa.Array:
    """Return one of the numbers that each interval is made of; NULL for NULL."""
    size, offset = _WORDS[type_], array.offset
    words = pa.Array.from_buffers(type_, size * (offset + len(array)), [None, array.buffers()[1]])
    found = pc.list_element(pa.FixedSizeListArray.from_arrays(words.slice(size * offset), size), place)
    return pc.if_else(array.is_valid(), found, pa.scalar(None, type_)) if array.null_count else found


def holds_intervals(arrow: pa.DataType) -> bool:
    """Return True for a type of intervals, or of nested values with intervals."""
    return arrow == INTERVAL or any(holds_intervals(arrow.field(place).type) for place in range(arrow.num_fields))
