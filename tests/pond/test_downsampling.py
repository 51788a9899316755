"""Downsampling against a model: what a picture must keep, whatever the readings are."""

from __future__ import annotations

from itertools import pairwise

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quacklake.core.duckdb_versions import arrow_table
from quacklake.pond.downsampling import Line, Range, buckets_query, choose, of_rows

Readings = list[tuple[int, float | None]]


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def line(connection: duckdb.DuckDBPyConnection, readings: Readings, over: Range, gap: int | None = None) -> Line:
    table = pa.table(
        {"t": pa.array([t for t, _ in readings], pa.int64()), "x": pa.array([v for _, v in readings], pa.float64())}
    )
    connection.register("readings", table)
    found = arrow_table(connection, buckets_query("readings", "t", "x", over))
    return choose(of_rows(found.to_pydict()), over, gap=gap)


def model_gaps(readings: Readings, pixel: int, gap: int) -> list[tuple[int, int]]:
    """The gaps that must be seen, the obvious way."""
    found = []
    known = [n for n, (_, v) in enumerate(readings) if v is not None]
    for a, b in pairwise(known):
        apart = readings[b][0] - readings[a][0]
        if apart >= pixel and (b - a > 1 or apart > gap):
            found.append((readings[a][0], readings[b][0]))
    return found


values = st.one_of(st.none(), st.floats(-1e6, 1e6, width=32))


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.integers(0, 5_000), values, max_size=120),
    st.integers(1, 40),
    st.integers(50, 2_000),
)
def test_a_picture_keeps_ends_extremes_and_gaps(
    connection: duckdb.DuckDBPyConnection, given: dict[int, float | None], width: int, gap: int
) -> None:
    readings, over = sorted(given.items()), Range(0, 5_000, width)
    pixel = over.step * 2
    found = line(connection, readings, over, gap)
    drawn = [(t, v) for t, v in zip(found.times, found.values, strict=True) if v is not None]
    known = [(t, v) for t, v in readings if v is not None]
    assert set(drawn) <= set(known) and found.times == sorted(found.times)
    assert drawn[:1] + drawn[-1:] == known[:1] + known[-1:]
    for number in range(width + 1):
        all_of, kept = ({v for t, v in each if t // pixel == number} for each in (known, drawn))
        assert (min(all_of, default=0), max(all_of, default=0)) == (min(kept, default=0), max(kept, default=0))
    gaps = model_gaps(readings, pixel, gap)
    breaks = [t for t, v in zip(found.times, found.values, strict=True) if v is None]
    assert len(breaks) == len(gaps) and all(a < t < b for (a, b), t in zip(gaps, breaks, strict=True))
    assert len(drawn) <= 3 * (width + 1) + 2 * (len(gaps) + 1)


def test_the_usual_distance_of_readings_says_what_a_gap_is(connection: duckdb.DuckDBPyConnection) -> None:
    steady = [(n * 60, float(n)) for n in range(1_000)]
    holed = [each for each in steady if not 30_000 <= each[0] < 36_000]
    over = Range(0, 60_000, 100)
    assert None not in line(connection, steady, over).values
    found = line(connection, holed, over)
    assert found.values.count(None) == 1
    assert 29_940 < found.times[found.values.index(None)] < 36_000


def test_numbers_that_are_none_are_missing(connection: duckdb.DuckDBPyConnection) -> None:
    readings = [(0, 1.0), (100, float("nan")), (200, 2.0)]
    assert line(connection, readings, Range(0, 200, 50)).values == [1.0, None, 2.0]


def test_the_choice_follows_the_shape(connection: duckdb.DuckDBPyConnection) -> None:
    """A peak of one reading among a hundred thousand is seen, in a picture of a few hundred points."""
    readings: Readings = [(n, 50.0 if n == 77_777 else n % 7) for n in range(100_000)]
    found = line(connection, readings, Range(0, 99_999, 100))
    assert (77_777, 50.0) in zip(found.times, found.values, strict=True)
    assert len(found) <= 302


def test_nothing_is_an_empty_line(connection: duckdb.DuckDBPyConnection) -> None:
    assert len(line(connection, [], Range(0, 10, 5))) == 0
    assert len(line(connection, [(1, None)], Range(0, 10, 5))) == 0
