"""Downsampling: from the readings of a range to the points that a picture of some width shows.

DuckDB reduces the readings to two buckets for each pixel, with the first, last, lowest and highest point of each
(:func:`buckets_query`). :func:`choose` takes points from these: the lowest and highest of each pixel, and the one that
MinMaxLTTB prefers, which looks at the shape of the line. Memory depends on the width alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PER_PIXEL = 2
"""The buckets of a pixel."""
_GAP = 3
"""Readings that are apart by more than so many of the usual intervals have a gap between them."""

Point = tuple[int, float]
"""A time in microseconds since 1970, and a value."""


@dataclass(frozen=True, slots=True)
class Range:
    """A range of time, both ends included, in microseconds since 1970, and the pixels it has."""

    start: int
    end: int
    width: int

    @property
    def step(self) -> int:
        """The time of a bucket."""
        return max(-(-(self.end - self.start + 1) // (self.width * PER_PIXEL)), 1)


def buckets_query(
    source: str, time: str, value: str, over: Range, low: str | None = None, high: str | None = None
) -> str:
    """Return SQL for the buckets of a relation. ``time`` is in microseconds, ``low`` and ``high`` bound a value.

    Not-a-number counts as missing. The arguments are SQL.
    """
    rows = (
        f"SELECT {time} AS t, CASE WHEN isnan(CAST({value} AS DOUBLE)) THEN NULL ELSE CAST({value} AS DOUBLE) END AS v,"
        f" CAST({low or 'NULL'} AS DOUBLE) AS lo, CAST({high or 'NULL'} AS DOUBLE) AS hi FROM {source}"
    )
    there, missing = "FILTER (v IS NOT NULL)", "FILTER (v IS NULL)"
    return (
        f"SELECT (t - {over.start}) // {over.step} AS bucket, count(v) AS n,"
        f" min(t) {there} AS first_t, arg_min(v, t) {there} AS first_v,"
        f" max(t) {there} AS last_t, arg_max(v, t) {there} AS last_v,"
        f" arg_min(t, v) {there} AS low_t, min(v) AS low_v, arg_max(t, v) {there} AS high_t, max(v) AS high_v,"
        f" min(t) {missing} AS first_missing, max(t) {missing} AS last_missing, min(lo) AS lo, max(hi) AS hi"
        f" FROM ({rows}) WHERE t BETWEEN {over.start} AND {over.end} GROUP BY 1 ORDER BY 1"
    )


@dataclass(frozen=True, slots=True)
class Bucket:
    """The readings of half a pixel. Those without a value only have times."""

    bucket: int
    n: int
    first_t: int | None
    first_v: float | None
    last_t: int | None
    last_v: float | None
    low_t: int | None
    low_v: float | None
    high_t: int | None
    high_v: float | None
    first_missing: int | None
    last_missing: int | None
    lo: float | None = None
    hi: float | None = None

    @property
    def first(self) -> Point:
        """The first point."""
        assert self.first_t is not None
        assert self.first_v is not None
        return self.first_t, self.first_v

    @property
    def last(self) -> Point:
        """The last point."""
        assert self.last_t is not None
        assert self.last_v is not None
        return self.last_t, self.last_v

    @property
    def extremes(self) -> tuple[Point, Point]:
        """The lowest and the highest point."""
        assert self.low_t is not None
        assert self.low_v is not None
        assert self.high_t is not None
        assert self.high_v is not None
        return (self.low_t, self.low_v), (self.high_t, self.high_v)


@dataclass(frozen=True, slots=True)
class Line:
    """Points in the order of time. A value of None is a gap: the line ends there and begins anew.

    ``low`` and ``high`` say between what values the readings around a point are, where that is known.
    """

    times: list[int]
    values: list[float | None]
    low: list[float | None] | None = None
    high: list[float | None] | None = None

    def __len__(self) -> int:
        return len(self.times)


def of_rows(rows: Mapping[str, Sequence[Any]]) -> list[Bucket]:
    """Return the buckets of the columns that :func:`buckets_query` gives."""
    return [Bucket(*values) for values in zip(*(rows[name] for name in Bucket.__slots__), strict=True)]


def choose(buckets: Sequence[Bucket], over: Range, *, interval: int | None = None, gap: int | None = None) -> Line:
    """Return the points to draw. There is a gap where values are missing, or readings farther apart than ``gap``.

    Without ``gap``, that is three times the usual distance of readings, or half more than ``interval``. A gap that is
    narrower than a pixel is left out.
    """
    if gap is None:
        gap = interval * 3 // 2 if interval is not None else _GAP * _usual(buckets)
    kept: list[Point | None] = []
    bands: dict[int, tuple[float | None, float | None]] = {}
    for part in _parts(buckets, gap, over.step * PER_PIXEL):
        if kept:
            kept.append(None)
        kept += _segment(part)
        for each in part:
            pixel = each.bucket // PER_PIXEL
            lo, hi = bands.get(pixel, (None, None))
            bands[pixel] = _least(lo, each.lo), _most(hi, each.hi)
    times, values = [], list[float | None]()
    for number, point in enumerate(kept):
        before, after = kept[number - 1], kept[min(number + 1, len(kept) - 1)]
        if point is not None:
            times.append(point[0])
            values.append(point[1])
        elif before is not None and after is not None:
            times.append((before[0] + after[0]) // 2)
            values.append(None)
    line = Line(times, values)
    if not any(lo is not None for lo, _ in bands.values()):
        return line
    pixels = over.step * PER_PIXEL
    numbers = [None if value is None else (t - over.start) // pixels for t, value in zip(times, values, strict=True)]
    low, high = ([None if n is None else bands[n][side] for n in numbers] for side in (0, 1))
    return Line(times, values, low, high)


def _least(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else min(a, b)


def _most(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else max(a, b)


def _usual(buckets: Sequence[Bucket]) -> int:
    """Return the usual distance between readings: the median, as far as buckets tell."""
    found: list[tuple[int, int]] = []
    before: int | None = None
    for each in buckets:
        if not each.n:
            continue
        if before is not None:
            found.append((each.first[0] - before, 1))
        if each.n > 1:
            found.append(((each.last[0] - each.first[0]) // (each.n - 1), each.n - 1))
        before = each.last[0]
    left = sum(weight for _, weight in found) / 2
    for distance, weight in sorted(found):
        left -= weight
        if left <= 0:
            return max(distance, 1)
    return 1


def _parts(buckets: Sequence[Bucket], gap: int, pixel: int) -> Iterator[list[Bucket]]:
    """Yield the buckets between gaps."""
    part: list[Bucket] = []
    missing: int | None = None
    for each in buckets:
        if each.n and part:
            end, begin = part[-1].last[0], each.first[0]
            first = each.first_missing
            hole = (missing is not None and missing > end) or (first is not None and first < begin)
            if begin - end >= pixel and (hole or begin - end > gap):
                yield part
                part = []
        if each.n:
            part.append(each)
        missing = each.last_missing if each.last_missing is not None else missing
    if part:
        yield part


def _segment(part: Sequence[Bucket]) -> list[Point]:
    """Return the points of buckets without a gap: ends, extremes of each pixel, and the choice of MinMaxLTTB."""
    pixels: dict[int, list[Point]] = {}
    for each in part:
        pixels.setdefault(each.bucket // PER_PIXEL, []).extend(each.extremes)
    columns = list(pixels.values())
    previous, last = part[0].first, part[-1].last
    kept = {previous, last}
    for number, points in enumerate(columns):
        kept.add(min(points, key=lambda point: point[1]))
        kept.add(max(points, key=lambda point: point[1]))
        ahead = columns[number + 1] if number + 1 < len(columns) else [last]
        there = sum(t for t, _ in ahead) / len(ahead), sum(v for _, v in ahead) / len(ahead)
        previous = max(points, key=lambda point: _area(previous, point, there))
        kept.add(previous)
    return sorted(kept)


def _area(a: Point, b: Point, c: tuple[float, float]) -> float:
    """Return twice the area of a triangle."""
    return abs((a[0] - c[0]) * (b[1] - a[1]) - (a[0] - b[0]) * (c[1] - a[1]))
