"""Print the statistics of a column in DuckDB's format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from quacklake.format.extras import GEOMETRY_KINDS
from quacklake.format.schema import Column
from quacklake.format.types import StatsKind, scalar

_SHORT = 8
"""The number of bytes of a text that its statistics hold."""
_FLAGS = "Has Empty Geom: true, Has No Empty Geom: true, Has Empty Part: true, Has No Empty Part: true"

Stored = Mapping[int, Mapping[str, Any]]


def shown(column: Column, stored: Stored) -> str:
    """Return the statistics of a column and its fields. Without statistics, every value is possible."""
    if column.type == "struct":
        return f"{_fields(column, stored)}[Has Null: true, Has No Null: true]"
    if column.type == "list":
        return f"[{shown(column.children[0], stored)}][Has Null: true, Has No Null: true]"
    if column.type == "map":
        return f"[{_fields(column, stored)}[Has Null: true, Has No Null: true]][Has Null: true, Has No Null: true]"
    row = stored.get(column.id, {})
    nulls = "false" if row.get("contains_null") is False else "true"
    return f"{_values(column, row)}[Has Null: {nulls}, Has No Null: true]"


def _fields(column: Column, stored: Stored) -> str:
    return f" {{{', '.join(f'{child.name}: {shown(child, stored)}' for child in column.children)}}}"


def _values(column: Column, row: Mapping[str, Any]) -> str:
    kind = scalar(column.type).stats
    if kind is StatsKind.GEOMETRY:
        return _extent(row.get("extra_stats"))
    least, most = row.get("min_value"), row.get("max_value")
    if kind is StatsKind.TEXT:
        return f"[Min: {_short(least)}, Max: {_short(most)}, Has Unicode: true, Max String Length: ?]"
    if column.type == "boolean":
        least, most = (None if text is None else str(text in ("1", "true")).lower() for text in (least, most))
    return f"[Min: {'NULL' if least is None else least}, Max: {'NULL' if most is None else most}]"


def _short(text: str | None) -> str:
    return "NULL" if text is None else text.encode()[:_SHORT].decode(errors="ignore")


def _extent(text: str | None) -> str:
    known = json.loads(text) if text else {"bbox": {}, "types": []}
    axes = []
    for axis in "xyzm":
        least, most = (known["bbox"].get(f"{axis}{end}") for end in ("min", "max"))
        low, high = ("inf", "-inf") if least is None or most is None else (f"{least:.6f}", f"{most:.6f}")
        axes.append(f"{axis.upper()}: [{low}, {high}]")
    types = ", ".join(sorted(known["types"], key=_place))
    return f"[Extent: [{', '.join(axes)}], Types: [{types}], Flags: [{_FLAGS}]]"


def _place(type_: str) -> tuple[int, int]:
    """Return the sort key of a geometry type: its dimensions, then its number."""
    kind, _, suffix = type_.partition("_")
    known = kind in GEOMETRY_KINDS
    return len(suffix) + (suffix == "m"), GEOMETRY_KINDS.index(kind) if known else -1
