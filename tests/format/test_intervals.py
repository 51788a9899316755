"""Durations of Arrow as intervals and back, compared with whole numbers of Python."""

from __future__ import annotations

import pyarrow as pa
import pytest

from quacklake.core.format.intervals import INTERVAL, from_durations, holds_intervals, nanoseconds, to_durations
from tests.seeds import chance

MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}
DAY = 86_400_000_000


@pytest.mark.parametrize("unit", MICROS)
def test_durations_are_intervals_of_days_and_microseconds_and_come_back(unit: str) -> None:
    random = chance("durations", unit)
    most = (2**63 - 1) // 1000 // MICROS[unit]
    values = [random.choice([None, 0, -1, 1, 86_400, random.randint(-most, most)]) for _ in range(200)]
    array = pa.array(values, pa.duration(unit))
    for part in (array, array.slice(3, 50), array.slice(7, 0), pa.nulls(3, array.type)):
        micros = [None if each is None else each * MICROS[unit] for each in part.cast(pa.int64()).to_pylist()]
        made = from_durations(part)
        made.validate(full=True)
        whole = [None if each is None else abs(each) // DAY * (1 if each >= 0 else -1) for each in micros]
        expected = [
            None if each is None else (0, days, (each - days * DAY) * 1000)
            for each, days in zip(micros, whole, strict=True)
        ]
        assert made.to_pylist() == expected
        assert nanoseconds(made).to_pylist() == [None if each is None else each[2] for each in expected]
        for back in (to_durations(made), to_durations(pa.concat_arrays([pa.nulls(2, INTERVAL), made]).slice(2))):
            assert back is not None and back.cast(pa.int64()).to_pylist() == micros


@pytest.mark.parametrize("value", [(1, 0, 0), (-1, 30, 0), (0, 2**31 - 1, 0)])
def test_intervals_that_are_no_durations_are_told(value: tuple[int, int, int]) -> None:
    assert to_durations(pa.array([(0, 1, 0), value, None], INTERVAL)) is None


def test_intervals_are_found_inside_of_other_types() -> None:
    assert holds_intervals(pa.list_(pa.struct([("a", INTERVAL)])))
    assert not holds_intervals(pa.map_(pa.string(), pa.duration("us")))
