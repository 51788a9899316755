"""Parquet's own bounds, which are stored in physical types, as values that compare like the column's."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from quacklake.format.bounds import Comparable
from quacklake.format.geometry import EVERYTHING
from quacklake.format.temporal import from_physical
from quacklake.format.types import StatsKind, parse_type, scalar

__all__ = ["FileType", "fitting", "geometry_extent"]

_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_BITS = {"INT32": 32, "INT64": 64}
_TEXT = frozenset({"Enum", "JSON", "String"})
_SHAPES = ("point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection")
_DIMENSIONS = ("", "_z", "_m", "_zm")


@dataclass(frozen=True, slots=True)
class FileType:
    """The type of a Parquet leaf: how its values compare (``None``: not at all) and what it takes to read them."""

    physical: str
    kind: StatsKind | None = None
    signed: bool = True
    scale: int = 0
    unit: str = "us"
    utc: bool = False

    @classmethod
    def of(cls, column: Any) -> FileType:
        """The type of a ``pyarrow.parquet.ColumnSchema``."""
        physical = str(column.physical_type)
        logical: dict[str, Any] = json.loads(column.logical_type.to_json())
        match (logical["Type"], physical):
            case ("Int", _):
                return cls(physical, StatsKind.INTEGER, signed=bool(logical["isSigned"]))
            case ("Decimal", _):
                return cls(physical, StatsKind.DECIMAL, scale=int(logical["scale"]))
            case ("Date", _):
                return cls(physical, StatsKind.DATE, unit="D")
            case ("Time", _):
                return cls(physical, StatsKind.TIME, unit=_UNITS[logical["timeUnit"]])
            case ("Timestamp", _):
                unit = _UNITS[logical["timeUnit"]]
                return cls(physical, StatsKind.TIMESTAMP, unit=unit, utc=bool(logical["isAdjustedToUTC"]))
            case ("UUID", _):
                return cls(physical, StatsKind.UUID)
            case ("Geometry", _):
                return cls(physical, StatsKind.GEOMETRY)
            case (name, "BYTE_ARRAY") if name in _TEXT:
                return cls(physical, StatsKind.TEXT)
            case ("None", "BOOLEAN"):
                return cls(physical, StatsKind.BOOLEAN)
            case ("None", "INT32" | "INT64"):
                return cls(physical, StatsKind.INTEGER)
            case ("None", "FLOAT" | "DOUBLE"):
                return cls(physical, StatsKind.FLOAT)
            case ("None", "BYTE_ARRAY" | "FIXED_LEN_BYTE_ARRAY"):
                return cls(physical, StatsKind.BLOB)
            case _:
                return cls(physical)

    def comparable(self, raw: Any) -> Comparable | None:
        """A raw bound as ``format.bounds`` compares such values, or ``None`` when it says nothing certain."""
        match self.kind:
            case StatsKind.BOOLEAN:
                return bool(raw)
            case StatsKind.INTEGER:
                # Arrow hands out unsigned bounds as the signed integer of the same bits.
                return int(raw) if self.signed else int(raw) % (1 << _BITS[self.physical])
            case StatsKind.FLOAT:
                return None if math.isnan(raw) else float(raw)
            case StatsKind.DECIMAL:
                unscaled = int.from_bytes(raw, signed=True) if isinstance(raw, bytes) else int(raw)
                return Decimal(unscaled).scaleb(-self.scale)
            case StatsKind.TIME | StatsKind.DATE | StatsKind.TIMESTAMP:
                return from_physical(int(raw), self.unit, bits=_BITS[self.physical])
            case StatsKind.TEXT:
                try:
                    return bytes(raw).decode()
                except UnicodeDecodeError:
                    return None
            case StatsKind.BLOB:
                return bytes(raw)
            case StatsKind.UUID:
                return int.from_bytes(raw)
            case _:
                return None


def fitting(bound: Comparable | None, file: FileType, column: str) -> Comparable | None:
    """A file's bound as one of a column of type ``column``; ``None`` where reading the file changes the order.

    A file may be older than its column's type, or come from a writer that has other types.
    """
    if bound is None:
        return None
    name, kind = parse_type(column), scalar(column).stats
    match (file.kind, kind):
        case (StatsKind.TIMESTAMP, StatsKind.TIMESTAMP):
            return bound if file.utc == (name.base == "timestamptz") else None
        case (StatsKind.DATE, StatsKind.TIMESTAMP):
            return bound if name.base != "timestamptz" else None
        case (StatsKind.FLOAT, StatsKind.FLOAT):
            return bound if name.base == "float64" or file.physical == "FLOAT" else None
        case (StatsKind.DECIMAL, StatsKind.DECIMAL):
            return bound if file.scale <= (name.scale or 0) else None
        case (StatsKind.DECIMAL, StatsKind.INTEGER):
            return int(bound) if file.scale == 0 and isinstance(bound, Decimal) else None
        case (StatsKind.INTEGER, StatsKind.DECIMAL):
            return Decimal(bound) if isinstance(bound, int) else None
        case (StatsKind.BLOB, StatsKind.TEXT):
            # Older writers leave out that their binary is text; both are ordered by bytes.
            return FileType(file.physical, StatsKind.TEXT).comparable(bound)
        case (one, two) if one is two:
            return bound
        case _:
            return None


def geometry_extent(statistics: Any) -> str:
    """The extra statistics of a geometry leaf from its ``pyarrow.parquet.GeoStatistics``, if it has any."""
    if statistics is None:
        return EVERYTHING
    box = {f"{axis}{end}": getattr(statistics, f"{axis}{end}") for axis in "xyzm" for end in ("min", "max")}
    codes = statistics.geospatial_types
    known = codes and all(1 <= code % 1000 <= len(_SHAPES) and code // 1000 < len(_DIMENSIONS) for code in codes)
    # A box may wrap around the date line; DuckLake's cannot.
    if not known or box["xmin"] is None or box["ymin"] is None or box["xmin"] > box["xmax"]:
        return EVERYTHING
    types = sorted(_SHAPES[code % 1000 - 1] + _DIMENSIONS[code // 1000] for code in codes)
    numbers = {key: None if value is None else float(value) for key, value in box.items()}
    return json.dumps({"bbox": numbers, "types": types})
