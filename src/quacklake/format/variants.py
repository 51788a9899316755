"""Statistics of variant columns: one entry for every field that each value of a file has in the same type.

Such fields are *shredded*: the file keeps them as columns of their own. A field that has another type in some value is
left out, because bounds of the others would say nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quacklake.errors import QuacklakeError
from quacklake.format.column_paths import parse_path
from quacklake.format.names import fold, quote
from quacklake.format.schema import Column
from quacklake.format.type_text import parse_column

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
        if path[-1] != _TYPED or not _only_null(entries.get((*path[:-1], _UNTYPED))):
            continue
        name, type_ = _named(shape, path)
        if type_ is not None:
            fields.append(_field(name, type_, entry))
    return fields


def _only_null(untyped: Mapping[str, str] | None) -> bool:
    if untyped is None:
        return False
    nulls = untyped.get("null_count")
    if nulls is not None and nulls == untyped.get("num_values"):
        return True
    return untyped.get("min") == untyped.get("max") == _NULL


def _named(shape: Column, path: Sequence[str]) -> tuple[str, str | None]:
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


def _field(path: str, type_: str, entry: Mapping[str, str]) -> ShreddedField:
    nan = entry.get("has_nan")
    return ShreddedField(
        path,
        type_,
        int(entry.get("column_size_bytes", 0)),
        _number(entry.get("num_values")),
        _number(entry.get("null_count")),
        entry.get("min"),
        entry.get("max"),
        None if nan is None else nan == "true",
    )


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def render_fields(fields: Sequence[ShreddedField]) -> str | None:
    """Return the text that the catalog stores for a column, or None for no fields."""
    if not fields:
        return None
    return json.dumps([_object(field) for field in fields], separators=(",", ":"), ensure_ascii=False)


def _object(field: ShreddedField) -> dict[str, Any]:
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
    return {name: value for name, value in known.items() if value is not None}


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
    """Return the stored text for rows of both; a field that either side lacks, or has in another type, is lost.

    ``widest(one, two, type, upper=…)`` gives the wider of two bounds.
    """
    others = {field.path: field for field in parse_fields(new)}
    merged = []
    for field in parse_fields(old):
        other = others.get(field.path)
        if other is not None and other.type == field.type:
            merged.append(_merged(field, other, widest))
    return render_fields(merged)


def _merged(one: ShreddedField, two: ShreddedField, widest: Any) -> ShreddedField:
    empty = next((pair for pair in ((one, two), (two, one)) if pair[0].value_count == 0), None)
    bounds = (
        (empty[1].min, empty[1].max)
        if empty is not None
        else (widest(one.min, two.min, one.type, upper=False), widest(one.max, two.max, one.type, upper=True))
    )
    nans = (one.contains_nan, two.contains_nan)
    return replace(
        one,
        size_bytes=one.size_bytes + two.size_bytes,
        entries=_sum(one.entries, two.entries),
        null_count=_sum(one.null_count, two.null_count),
        min=bounds[0],
        max=bounds[1],
        contains_nan=None if None in nans else any(nans),
    )


def _sum(one: int | None, two: int | None) -> int | None:
    return None if one is None or two is None else one + two
