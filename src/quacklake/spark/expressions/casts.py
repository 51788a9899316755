"""Translate DuckDB's casts into Spark SQL, and refuse those that give other values in Spark.

A cast that fails in DuckDB fails in Spark too, provided that the session has ``spark.sql.ansi.enabled``.
"""

from __future__ import annotations

from decimal import Decimal

from quacklake.errors import UnsupportedFeatureError
from quacklake.format.schema import Column
from quacklake.format.types import parse_type
from quacklake.spark.runtime.types import RAISED, literal, shown_type

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = ("float32", "float64")
TEXTS = ("varchar", "json")
STAMPS = ("timestamp", "timestamp_s", "timestamp_ms")
_EXACT = 1 << 53
"""Up to this value, a double represents every whole number exactly."""


def is_number(type_: str) -> bool:
    """Return True for a number type that Spark has with all its digits."""
    return type_ in INTEGERS or type_ in FLOATS or parse_type(type_).base == "decimal"


def type_name(type_: str) -> str:
    """Return the Spark type that values of a type have in expressions."""
    return shown_type(Column(0, "v", type_), time=True)


def precision(type_: str) -> tuple[int, int]:
    """Return the most digits of a whole number or decimal, and the number of digits after the point."""
    found = parse_type(type_)
    if found.base == "decimal":
        return found.precision or 0, found.scale or 0
    return {"int8": 3, "uint8": 3, "int16": 5, "uint16": 5, "int32": 10, "uint32": 10, "int64": 19}.get(type_, 20), 0


def failing(message: str) -> str:
    """Return SQL that ends the statement with an error message."""
    return f"raise_error({literal(f'{RAISED}{message}{chr(10)}')})"


def checked(value: str, type_: str) -> str:
    """Return the SQL of a whole number that must fit an unsigned type, which Spark lacks."""
    bits = UNSIGNED.get(type_)
    if bits is None:
        return value
    most = (1 << bits) - 1
    wrong = failing(f"a value is out of range: it is no {type_}")
    return f"CAST(CASE WHEN {value} NOT BETWEEN 0 AND {most} THEN {wrong} ELSE {value} END AS {type_name(type_)})"


def converted(value: str, source: str, target: str) -> str:
    """Return a value as another type. Raises ``UnsupportedFeatureError`` when Spark would give another value."""
    if source == target:
        return value
    have, want = parse_type(source), parse_type(target)
    plain = f"CAST({value} AS {type_name(target) if target not in ('json', 'uuid') else 'STRING'})"
    if have.base == "decimal" and target in INTEGERS:
        return _whole(f"round({value})", target)
    if source in FLOATS and target in INTEGERS:
        return _whole(f"bround(CAST({value} AS DOUBLE))", target)
    if have.base == "decimal" and target == "float64":
        return _float_of(value, plain, have.precision or 0, have.scale or 0)
    if source in INTEGERS and target in INTEGERS:
        return checked(value, target) if source in SIGNED and target in UNSIGNED else _whole(value, target)
    if source in INTEGERS and target == "boolean":
        return f"({value} <> 0)"
    if source == "json" and target == "varchar":
        return value
    if (source, target) in _PLAIN or (source in STAMPS and target == "timestamp"):
        return plain
    numbers = source in INTEGERS and (target in FLOATS or want.base == "decimal")
    texts = source == "varchar" and (target in INTEGERS or want.base == "decimal")
    if numbers or (texts and target not in UNSIGNED) or (have.base == want.base == "decimal"):
        return plain
    if target == "varchar" and (source in INTEGERS or have.base == "decimal"):
        return plain
    raise UnsupportedFeatureError(f"a cast from {source} to {target} is not the same in Spark")


_PLAIN = frozenset(
    {
        ("boolean", "varchar"),
        ("uuid", "varchar"),
        ("varchar", "boolean"),
        ("varchar", "float64"),
        ("varchar", "date"),
        ("float32", "float64"),
        ("date", "timestamp"),
        ("timestamp", "date"),
        *(("boolean", name) for name in INTEGERS),
    }
)


def _whole(value: str, target: str) -> str:
    return checked(value, target) if target in UNSIGNED else f"CAST({value} AS {type_name(target)})"


def _float_of(value: str, plain: str, precision: int, scale: int) -> str:
    """Return a decimal as a double, like DuckDB: a whole number divided by a power of ten, rounded once if both fit."""
    if precision <= 15:
        return plain
    wrong = failing("a decimal has more digits than a double")
    most = f"{Decimal(_EXACT).scaleb(-scale):f}BD"
    return f"CASE WHEN {value} NOT BETWEEN -{most} AND {most} THEN {wrong} ELSE {plain} END"
