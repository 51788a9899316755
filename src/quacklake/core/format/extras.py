"""The extra statistics of columns without a minimum and maximum: bounding boxes of geometries, fields of variants.

Of a variant there is one entry for every field that each value of a file has in the same type, *shredded* into a column
of its own.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quacklake.core.format.names import fold, parse_path, quote
from quacklake.core.format.schema import Column
from quacklake.core.format.texts import parse_column
from quacklake.errors import QuacklakeError

_AXES = ("x", "y", "z", "m")
GEOMETRY_KINDS = (
    "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
)  # fmt: skip
DIMENSIONS = ("", "_z", "_m", "_zm")
_MAX_DEPTH = 32
_MAX_VALUE = 1.7976931348623157e308

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
    {f"{axis}{end}": sign * _MAX_VALUE for axis in _AXES for end, sign in (("min", -1.0), ("max", 1.0))},
    [kind + suffix for kind in ("unknown", *GEOMETRY_KINDS) for suffix in DIMENSIONS],
)
"""The statistics of geometries nothing is known of. The reference implementation takes missing statistics for an
empty box, which excludes every row; this one excludes none."""


def extent(values: Iterable[bytes | None]) -> str:
    """Return the extra statistics of geometries in WKB (ISO or extended), ``EVERYTHING`` when one cannot be read."""
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
            self.types.add(GEOMETRY_KINDS[kind - 1] + DIMENSIONS[has_z + 2 * has_m])
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
                _stretch(self.box, f"{axis}min", max(min(known), -_MAX_VALUE))
                _stretch(self.box, f"{axis}max", min(max(known), _MAX_VALUE))


_METADATA, _TYPED, _UNTYPED = "metadata", "typed_value", "value"
_ROOT, _ELEMENT = "root", "element"
_NULL = "00"  # the variant NULL, in hexadecimal


@dataclass(frozen=True, slots=True)
class ShreddedField:
    """The statistics of a field; ``path`` is ``root``, or quoted names and ``element`` joined by dots."""

    path: str
    type: str
    size_bytes: int
    entries: int | None = None
    null_count: int | None = None
    min: str | None = None
    max: str | None = None
    contains_nan: bool | None = None

    @property
    def value_count(self) -> int | None:
        """The values that are not NULL."""
        known = self.entries is not None and self.null_count is not None
        return self.entries - self.null_count if known else None  # type: ignore[operator]


def shredded_fields(found: Mapping[str, Mapping[str, str]]) -> list[ShreddedField]:
    """Return the shredded fields of a written column by path below it, from DuckDB's statistics of the file."""
    try:
        entries = {parse_path(path): entry for path, entry in found.items()}
        shape = parse_column("variant", entries[(_METADATA,)]["variant_type"])
    except (KeyError, QuacklakeError):
        return []  # what cannot be told apart is not known
    fields = []
    for path, entry in entries.items():
        untyped = entries.get((*path[:-1], _UNTYPED))
        if path[-1] != _TYPED or untyped is None:
            continue
        nulls = untyped.get("null_count")
        all_null = nulls is not None and nulls == untyped.get("num_values")
        if not all_null and not untyped.get("min") == untyped.get("max") == _NULL:
            continue
        name, type_ = _find_scalar(shape, path)
        if type_ is None:
            continue
        count, missing, nan = (entry.get(key) for key in ("num_values", "null_count", "has_nan"))
        fields.append(
            ShreddedField(
                name,
                type_,
                int(entry.get("column_size_bytes", 0)),
                None if count is None else int(count),
                None if missing is None else int(missing),
                entry.get("min"),
                entry.get("max"),
                None if nan is None else nan == "true",
            )
        )
    return fields


def _find_scalar(shape: Column, path: Sequence[str]) -> tuple[str, str | None]:
    """Return the path of a field as statistics spell it, and its type; None when the file has no such scalar field."""
    names: list[str] = []
    node = _child(shape, _TYPED)
    for name in path[1:-1:2]:
        if node is None:
            return "", None
        if node.type == "list":
            names.append(_ELEMENT)
            node = _child(node.children[0], _TYPED)
        else:
            names.append(quote(name))
            field = _child(node, name)
            node = None if field is None else _child(field, _TYPED)
    if node is None or node.nested:
        return "", None
    return ".".join(names) or _ROOT, node.type


def _child(column: Column, name: str) -> Column | None:
    exact = next((child for child in column.children if child.name == name), None)
    return exact or next((child for child in column.children if fold(child.name) == fold(name)), None)


def render_fields(fields: Sequence[ShreddedField]) -> str | None:
    """Return the text that the catalog stores for a column, or None for no fields."""
    objects = []
    for field in fields:
        known = {
            "field_name": field.path,
            "shredded_type": field.type,
            "null_count": field.null_count,
            "min": field.min,
            "max": field.max,
            "num_values": field.entries,
            "contains_nan": field.contains_nan,
            "column_size_bytes": field.size_bytes,
            "any_valid": field.min is not None or field.max is not None or field.value_count != 0,
        }
        objects.append({name: value for name, value in known.items() if value is not None})
    return json.dumps(objects, separators=(",", ":"), ensure_ascii=False) if objects else None


def parse_fields(text: str | None) -> list[ShreddedField]:
    """Return the fields of a stored text; none when it cannot be read."""
    try:
        return [
            ShreddedField(
                str(entry["field_name"]),
                str(entry["shredded_type"]),
                int(entry.get("column_size_bytes", 0)),
                entry.get("num_values"),
                entry.get("null_count"),
                entry.get("min"),
                entry.get("max"),
                entry.get("contains_nan"),
            )
            for entry in json.loads(text or "[]")
        ]
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return []


def merge_fields(old: str | None, new: str | None, widest: Any) -> str | None:
    """Return the stored text for rows of both; a field that either side lacks, or has in another type, is lost."""
    others = {field.path: field for field in parse_fields(new)}
    merged = []
    for one in parse_fields(old):
        two = others.get(one.path)
        if two is None or two.type != one.type:
            continue
        if one.value_count == 0 or two.value_count == 0:
            low, high = (two.min, two.max) if one.value_count == 0 else (one.min, one.max)
        else:
            low = widest(one.min, two.min, one.type, upper=False)
            high = widest(one.max, two.max, one.type, upper=True)
        nans = (one.contains_nan, two.contains_nan)
        merged.append(
            replace(
                one,
                size_bytes=one.size_bytes + two.size_bytes,
                entries=_sum(one.entries, two.entries),
                null_count=_sum(one.null_count, two.null_count),
                min=low,
                max=high,
                contains_nan=None if None in nans else any(nans),
            )
        )
    return render_fields(merged)


def _sum(one: int | None, two: int | None) -> int | None:
    return None if one is None or two is None else one + two
