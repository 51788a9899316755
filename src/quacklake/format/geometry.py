"""Bounding boxes of geometries: the statistics that a geometry column has instead of a minimum and maximum."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping

_AXES = ("x", "y", "z", "m")
GEOMETRY_KINDS = (
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
)
_SUFFIXES = ("", "_z", "_m", "_zm")
_MAX_DEPTH = 32
_LARGEST = 1.7976931348623157e308

_Box = dict[str, float | None]


def rendered(box: Mapping[str, float | None], types: Iterable[str]) -> str:
    """Return the extra statistics of a box and the types in it."""
    # Numbers keep their decimal point: the reference implementation reads a JSON integer as 0.
    numbers = ", ".join(f'"{key}": {_number(value)}' for key, value in box.items())
    return f'{{"bbox": {{{numbers}}}, "types": {json.dumps(sorted(types))}}}'


def _number(value: float | None) -> str:
    """Return a number with six decimals, as the reference implementation writes them, or with more if it has them."""
    if value is None:
        return "null"
    short = f"{value:.6f}"
    return short if float(short) == value and abs(value) < 1e15 else repr(value)


def _empty_box() -> _Box:
    return {f"{axis}{end}": None for axis in _AXES for end in ("min", "max")}


EVERYTHING = rendered(
    {f"{axis}{end}": sign * _LARGEST for axis in _AXES for end, sign in (("min", -1.0), ("max", 1.0))},
    [kind + suffix for kind in ("unknown", *GEOMETRY_KINDS) for suffix in _SUFFIXES],
)
"""The statistics of geometries nothing is known of. The reference implementation takes missing statistics for an
empty box, which excludes every row; this one excludes none."""


def extent(values: Iterable[bytes | None]) -> str:
    """Return the extra statistics of geometries in WKB (ISO or extended).

    :data:`EVERYTHING` when one cannot be read.
    """
    box, types = _empty_box(), set[str]()
    try:
        for value in values:
            if value is not None:
                _Reader(value, box, types).geometry(0, top=True)
    except (struct.error, ValueError):
        return EVERYTHING
    return rendered(box, types)


def written_extent(statistics: Mapping[str, str]) -> str:
    """Return the extra statistics of geometries from those that DuckDB returns of a file it has written."""
    box = _empty_box()
    for key in box:
        if (text := statistics.get(f"bbox_{key}")) is not None:
            box[key] = float(text)
    types = statistics.get("geo_types", "").strip("[]")
    return rendered(box, types.split(", ") if types else ())


def merge_extra(old: str | None, new: str | None) -> str:
    """Return the extra statistics of geometries of both; :data:`EVERYTHING` when either is unknown."""
    box, types = _empty_box(), set[str]()
    for text in (old, new):
        try:
            part = json.loads(text or "")
            for key in box:
                _stretch(box, key, part["bbox"].get(key))
            types.update(map(str, part["types"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            return EVERYTHING
    return rendered(box, types)


def _stretch(box: _Box, key: str, value: float | None) -> None:
    if value is None:
        return
    value, known = float(value), box[key]
    if known is None:
        box[key] = value
    else:
        box[key] = min(known, value) if key.endswith("min") else max(known, value)


class _Reader:
    """Reads one WKB value and stretches a box around its coordinates."""

    def __init__(self, data: bytes, box: _Box, types: set[str]) -> None:
        self.data, self.box, self.types, self.position = bytes(data), box, types, 0

    def take(self, layout: str) -> tuple[float, ...]:
        values = struct.unpack_from(layout, self.data, self.position)
        self.position += struct.calcsize(layout)
        return values

    def geometry(self, depth: int, *, top: bool = False) -> None:
        if depth > _MAX_DEPTH:
            raise ValueError("a geometry is nested too deeply")
        order = "<" if self.take("B")[0] else ">"
        code = int(self.take(order + "I")[0])
        has_z, has_m = bool(code & 0x80000000), bool(code & 0x40000000)
        if code & 0x20000000:
            self.take(order + "I")  # the spatial reference id of extended WKB
        dimension, kind = divmod(code & 0x0FFFFFFF, 1000)
        has_z, has_m = has_z or dimension in (1, 3), has_m or dimension in (2, 3)
        if not 1 <= kind <= len(GEOMETRY_KINDS) or dimension > 3:
            raise ValueError("an unknown kind of geometry")
        if top:
            self.types.add(GEOMETRY_KINDS[kind - 1] + _SUFFIXES[has_z + 2 * has_m])
        axes = "xy" + "z" * has_z + "m" * has_m
        if kind == 1:
            self.points(order, axes, 1)
        elif kind == 2:
            self.points(order, axes, self.count(order))
        elif kind == 3:
            for _ in range(self.count(order)):
                self.points(order, axes, self.count(order))
        else:
            for _ in range(self.count(order)):
                self.geometry(depth + 1)

    def count(self, order: str) -> int:
        return int(self.take(order + "I")[0])

    def points(self, order: str, axes: str, count: int) -> None:
        if count * len(axes) * 8 > len(self.data) - self.position:
            raise ValueError("a geometry is cut short")
        values = self.take(f"{order}{count * len(axes)}d")
        for index, axis in enumerate(axes):
            known = [value for value in values[index :: len(axes)] if not math.isnan(value)]
            if known:
                _stretch(self.box, f"{axis}min", max(min(known), -_LARGEST))
                _stretch(self.box, f"{axis}max", min(max(known), _LARGEST))
