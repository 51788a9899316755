"""Columns as fields of Iceberg: what each type becomes, which values have to be written anew, and what is refused.

A type whose values Iceberg's readers take wrongly from the lake's files (unsigned integers, milliseconds) is served as
the next type that holds them all; the files of such a table are copied. A type that Iceberg lacks is refused.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from quacklake.core.format.bounds import decode
from quacklake.core.format.types import INFINITY, parse_type, timestamp_text
from quacklake.core.format.types import duckdb_type as own_duckdb_type
from quacklake.errors import UnsupportedFeatureError
from quacklake.extend.names import quote
from quacklake.extend.schemas import Column, TableSchema
from quacklake.service.iceberg.bounds import unscaled

__all__ = ["READERS", "ServedSchema", "copied_type", "full_names", "iceberg_type", "serve"]

READERS = ("pyiceberg", "duckdb", "spark")
"""The readers of which it is known what they can read."""

_SAME: Mapping[str, str] = {
    "boolean": "boolean", "int8": "int", "int16": "int", "int32": "int", "int64": "long", "float32": "float",
    "float64": "double", "date": "date", "time": "time", "timestamp": "timestamp", "timestamp_s": "timestamp",
    "timestamp_ns": "timestamp_ns", "timestamptz": "timestamptz", "varchar": "string", "json": "string",
    "blob": "binary", "uuid": "uuid",
}  # fmt: skip
#: Types whose values are written anew: the type of Iceberg, and that of DuckDB in the copy.
_COPIED: Mapping[str, tuple[str, str]] = {
    "uint8": ("int", "INTEGER"),
    "uint16": ("int", "INTEGER"),
    "uint32": ("long", "BIGINT"),
    "uint64": ("decimal(20, 0)", "DECIMAL(20,0)"),
    "timestamp_ms": ("timestamp", "TIMESTAMP"),
}
#: What Spark's reader of Iceberg 1.12 refuses; it refuses the table with an error, never silently.
_NOT_IN_SPARK = ("time", "timestamp_ns")
_DATES = range(-719_162 * 86_400_000_000_000, 2_932_897 * 86_400_000_000_000)  # the years 1 to 9999


@dataclass(frozen=True)
class ServedSchema:
    """The columns of a table as Iceberg has them.

    ``copied`` says why data files must be written anew, None if they can be read in place. ``readers`` says for each
    known reader what it cannot read, an empty text for nothing.
    """

    fields: tuple[dict[str, Any], ...]
    copied: str | None
    readers: Mapping[str, str]

    def json(self, schema_id: int) -> dict[str, Any]:
        """Return the schema as table metadata has it."""
        return {"type": "struct", "schema-id": schema_id, "fields": list(self.fields)}


@lru_cache(maxsize=256)
def serve(schema: TableSchema, version: int) -> ServedSchema:
    """Return the columns of a table for a format version. Raise ``UnsupportedFeatureError`` for what cannot be served.

    The result depends on nothing else, so that it is made once.
    """
    names = [name for column in schema.columns for name in full_names(column)]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) != len(names) else None
    if twice is not None:
        raise UnsupportedFeatureError(
            f'Iceberg cannot tell two columns apart that are both "{twice}" when the names of structs are put before'
            " those of their fields",
            hint="rename one of them",
        )
    reasons: list[str] = []
    fields = tuple(_field(column, version, reasons) for column in schema.columns)
    return ServedSchema(fields, reasons[0] if reasons else None, _readers(schema))


def full_names(column: Column, above: str = "") -> Iterator[str]:
    """Yield the name of a column and of all below it, each with those above it, as Iceberg looks them up."""
    yield above + column.name
    for child in column.children:
        yield from full_names(child, f"{above}{column.name}.")


def _field(column: Column, version: int, reasons: list[str]) -> dict[str, Any]:
    field: dict[str, Any] = {
        "id": column.id,
        "name": column.name,
        # a column that was added to older files is never required there
        "required": False,
        "type": iceberg_type(column, version, reasons),
    }
    if column.initial_default is not None:
        value = _default(column) if version >= 3 else None
        if value is None:
            reasons.append(f'older files lack the column "{column.name}", whose default format {version} cannot hold')
        else:
            field["initial-default"] = value
    return field


def iceberg_type(column: Column, version: int, reasons: list[str]) -> Any:
    """Return the type of a column, and add to ``reasons`` why files must be written anew."""
    match column.type:
        case "struct":
            return {"type": "struct", "fields": [_field(child, version, reasons) for child in column.children]}
        case "list":
            (element,) = column.children
            return {
                "type": "list",
                "element-id": element.id,
                "element": iceberg_type(element, version, reasons),
                "element-required": False,
            }
        case "map":
            key, value = column.children
            return {
                "type": "map",
                "key-id": key.id,
                "key": iceberg_type(key, version, reasons),
                "value-id": value.id,
                "value": iceberg_type(value, version, reasons),
                "value-required": False,
            }
    name = parse_type(column.type)
    if name.base in _COPIED:
        reasons.append(f'the column "{column.name}" has the type {name}, which readers take wrongly from its files')
        return _COPIED[name.base][0]
    if name.base == "decimal":
        return f"decimal({name.precision}, {name.scale})"
    if name.base not in _SAME:
        raise UnsupportedFeatureError(
            f'the column "{column.name}" has the type {name}, which Iceberg lacks', hint="read the table another way"
        )
    if name.base == "timestamp_ns" and version < 3:
        raise UnsupportedFeatureError(
            f'the column "{column.name}" has the type timestamp_ns, which Iceberg has since format 3',
            hint="serve format 3",
        )
    return _SAME[name.base]


def copied_type(column: Column) -> str:
    """Return the DuckDB type that a column has in a copy."""
    match column.type:
        case "list":
            return f"{copied_type(column.children[0])}[]"
        case "map":
            return f"MAP({copied_type(column.children[0])}, {copied_type(column.children[1])})"
        case "struct":
            fields = ", ".join(f"{quote(child.name)} {copied_type(child)}" for child in column.children)
            return f"STRUCT({fields})"
    base = parse_type(column.type).base
    if base in ("json", "timestamp_s"):
        return "VARCHAR" if base == "json" else "TIMESTAMP"
    return _COPIED[base][1] if base in _COPIED else own_duckdb_type(column.type)


def _readers(schema: TableSchema) -> dict[str, str]:
    """Return what each known reader cannot read of a table."""
    lacking = [f'"{leaf.name}" ({leaf.type})' for leaf in schema.leaves() if leaf.type in _NOT_IN_SPARK]
    spark = f"Spark has no type for {', '.join(lacking)} and refuses the table" if lacking else ""
    emptied = [f'"{column.name}"' for column in schema.columns if any(map(_holds_structs, column.walk()))]
    pyiceberg = f"pyiceberg takes NULL for an empty list or map in {', '.join(emptied)}" if emptied else ""
    return dict.fromkeys(READERS, "") | {"spark": spark, "pyiceberg": pyiceberg}


def _holds_structs(column: Column) -> bool:
    """Return whether a column is a list or map of structs: pyiceberg 0.12 loses which of them are NULL."""
    return column.type in ("list", "map") and any(child.type == "struct" for child in column.children)


def _default(column: Column) -> Any:
    """Return the initial default of a column as table metadata has it; None if it cannot be said there."""
    if column.nested:
        return None
    name = parse_type(column.type)
    value = decode(column.initial_default, column.type)
    if value is None or name.base in ("blob", *_COPIED):
        return None  # the text of a blob may be its bytes or their digits
    match name.base:
        case "boolean" | "int8" | "int16" | "int32" | "int64" | "varchar" | "json":
            return value
        case "float32" | "float64":
            return value if isinstance(value, float) and math.isfinite(value) else None
        case "decimal":
            assert isinstance(value, Decimal)
            scale = name.scale or 0
            number = unscaled(value, scale)
            if number is None:
                return None
            digits = str(abs(number)).rjust(scale + 1, "0")
            point = len(digits) - scale
            return f"{'-' if number < 0 else ''}{digits[:point]}{'.' if scale else ''}{digits[point:]}"
        case "uuid":
            assert isinstance(value, int)
            return str(uuid.UUID(int=value))
    assert isinstance(value, int)
    return _temporal(value, name.base)


def _temporal(nanos: int, base: str) -> str | None:
    if base == "time":
        seconds, rest = divmod(nanos, 1_000_000_000)
        return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest // 1000:06d}"
    if abs(nanos) == INFINITY or nanos not in _DATES:
        return None
    text = timestamp_text(nanos - nanos % 1_000_000_000)
    if base == "date":
        return text[:10]
    fraction = nanos % 1_000_000_000
    digits = f"{fraction:09d}" if base == "timestamp_ns" else f"{fraction // 1000:06d}"
    zone = "+00:00" if base == "timestamptz" else ""
    return f"{text.replace(' ', 'T')}.{digits}{zone}"
