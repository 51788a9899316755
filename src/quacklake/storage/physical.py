"""Parquet's bounds, which are stored in physical types, as values that compare like the column's."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from quacklake.format.bounds import Comparable
from quacklake.format.geometry import EVERYTHING, rendered
from quacklake.format.temporal import INFINITY, NANOS, from_physical
from quacklake.format.types import StatsKind, parse_type, scalar

_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_UNIT_OF = {"timestamp_s": "s", "timestamp_ms": "ms", "timestamp_ns": "ns"}
_BITS = {"INT32": 32, "INT64": 64}
_TEXT = frozenset({"Enum", "JSON", "String"})
_SHAPES = ("point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection")
_DIMENSIONS = ("", "_z", "_m", "_zm")


@dataclass(frozen=True, slots=True)
class FileType:
    """The type of a Parquet leaf: how its values compare (``None``: not at all) and what it takes to read them.

    ``lake_type`` is the type of a lake that holds just such values, if there is one.
    """

    physical: str
    kind: StatsKind | None = None
    signed: bool = True
    scale: int = 0
    unit: str = "us"
    utc: bool = False
    lake_type: str | None = None

    @classmethod
    def of(cls, column: Any) -> FileType:
        """Return the type of a ``pyarrow.parquet.ColumnSchema``."""
        return _file_type(str(column.physical_type), column.logical_type.to_json())

    def comparable(self, raw: Any) -> Comparable | None:
        """Return a raw bound as ``format.bounds`` compares such values, or ``None`` when it says nothing certain."""
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


@lru_cache(maxsize=1024)
def _file_type(physical: str, annotation: str) -> FileType:
    logical: dict[str, Any] = json.loads(annotation)
    match (logical["Type"], physical):
        case ("Int", _):
            signed = bool(logical["isSigned"])
            name = f"{'' if signed else 'u'}int{logical['bitWidth']}"
            return FileType(physical, StatsKind.INTEGER, signed=signed, lake_type=name)
        case ("Decimal", _):
            precision, scale = int(logical["precision"]), int(logical["scale"])
            return FileType(physical, StatsKind.DECIMAL, scale=scale, lake_type=f"decimal({precision},{scale})")
        case ("Date", _):
            return FileType(physical, StatsKind.DATE, unit="D", lake_type="date")
        case ("Time", _):
            unit = _UNITS[logical["timeUnit"]]
            return FileType(physical, StatsKind.TIME, unit=unit, lake_type="time_ns" if unit == "ns" else "time")
        case ("Timestamp", _):
            unit, utc = _UNITS[logical["timeUnit"]], bool(logical["isAdjustedToUTC"])
            name = "timestamptz" if utc else "timestamp" if unit == "us" else f"timestamp_{unit}"
            return FileType(physical, StatsKind.TIMESTAMP, unit=unit, utc=utc, lake_type=name)
        case ("UUID", _):
            return FileType(physical, StatsKind.UUID, lake_type="uuid")
        case ("Geometry", _):
            return FileType(physical, StatsKind.GEOMETRY, lake_type="geometry")
        case ("Interval", _):
            return FileType(physical, lake_type="interval")
        case (name, "BYTE_ARRAY") if name in _TEXT:
            return FileType(physical, StatsKind.TEXT, lake_type="json" if name == "JSON" else "varchar")
        case ("None", "BOOLEAN"):
            return FileType(physical, StatsKind.BOOLEAN, lake_type="boolean")
        case ("None", "INT32" | "INT64"):
            return FileType(physical, StatsKind.INTEGER, lake_type=physical.lower())
        case ("None", "INT96"):
            return FileType(physical, lake_type="timestamp")
        case ("None", "FLOAT" | "DOUBLE"):
            return FileType(physical, StatsKind.FLOAT, lake_type="float32" if physical == "FLOAT" else "float64")
        case ("None", "BYTE_ARRAY" | "FIXED_LEN_BYTE_ARRAY"):
            return FileType(physical, StatsKind.BLOB, lake_type="blob")
        case _:
            return FileType(physical)


def fitting(bound: Comparable | None, file: FileType, column: str) -> Comparable | None:
    """Return a file's bound as one of a column of type ``column``; ``None`` where reading the file changes the order.

    A file may be older than its column's type, or come from a writer that has other types.
    """
    if bound is None:
        return None
    name, kind = parse_type(column), scalar(column).stats
    match (file.kind, kind):
        case (StatsKind.TIMESTAMP, StatsKind.TIMESTAMP):
            # a finer time is rounded when it is read, and then may lie beyond a bound that is not round itself
            whole = isinstance(bound, int) and (
                abs(bound) == INFINITY or bound % NANOS[_UNIT_OF.get(name.base, "us")] == 0
            )
            return bound if file.utc == (name.base == "timestamptz") and whole else None
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
        case (StatsKind.BLOB, StatsKind.UUID):
            # sixteen bytes without a logical type
            return int.from_bytes(bound) if isinstance(bound, bytes) and len(bound) == 16 else None
        case (one, two) if one is two:
            return bound
        case _:
            return None


def geometry_extent(statistics: Any) -> str:
    """Return the extra statistics of a geometry leaf from its ``pyarrow.parquet.GeoStatistics``, if it has any."""
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
    return rendered(numbers, types)
