"""The types of DuckDB's expressions, casts and calls of functions, in Spark SQL.

A cast with other values in Spark is refused. One that fails in DuckDB fails in Spark too, provided that the session has
``spark.sql.ansi.enabled``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from quacklake.errors import UnsupportedFeatureError
from quacklake.extend.schemas import Column, parse_type
from quacklake.spark.runtime.types import RAISED, literal, shown_type

if TYPE_CHECKING:
    from quacklake.spark.expressions.translator import Node, Translator, Typed

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = ("float32", "float64")
TEXTS = ("varchar", "json")
STAMPS = ("timestamp", "timestamp_s", "timestamp_ms")
_EXACT = 1 << 53  # up to this value, a double represents every whole number exactly


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
    """Return the SQL of a whole number as a type. It must fit an unsigned type, which Spark lacks."""
    if type_ not in UNSIGNED:
        return f"CAST({value} AS {type_name(type_)})"
    most = (1 << UNSIGNED[type_]) - 1
    wrong = failing(f"a value is out of range: it is not a valid {type_}")
    return f"CAST(CASE WHEN {value} NOT BETWEEN 0 AND {most} THEN {wrong} ELSE {value} END AS {type_name(type_)})"


def converted(value: str, source: str, target: str) -> str:
    """Return a value as another type. Raise ``UnsupportedFeatureError`` when Spark would give another value."""
    if source == target:
        return value
    have, want = parse_type(source), parse_type(target)
    plain = f"CAST({value} AS {type_name(target) if target not in ('json', 'uuid') else 'STRING'})"
    if have.base == "decimal" and target in INTEGERS:
        return checked(f"round({value})", target)
    if source in FLOATS and target in INTEGERS:
        return checked(f"bround(CAST({value} AS DOUBLE))", target)
    if have.base == "decimal" and target == "float64":
        if (have.precision or 0) <= 15:
            return plain
        # like DuckDB: a whole number divided by a power of ten, rounded once if both fit
        wrong = failing("a decimal has more digits than a double")
        most = f"{Decimal(_EXACT).scaleb(-(have.scale or 0)):f}BD"
        return f"CASE WHEN {value} NOT BETWEEN -{most} AND {most} THEN {wrong} ELSE {plain} END"
    if source in INTEGERS and target in INTEGERS:
        return checked(value, target)
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


TEXT = Column(0, "v", "varchar")


class TranslatedCall:
    """A function call: its arguments, and its type in DuckDB."""

    def __init__(self, translator: Translator, node: Node, arguments: Sequence[Typed]) -> None:
        self.translator = translator
        self.node = node
        self.arguments = arguments
        self.type: Column = translator.binder.type_of(node)
        self.name = str(node["function_name"]).lower()
        self.types: list[str] = [each.type for each in arguments]
        self.count = len(arguments)

    def sql(self, number: int) -> str:
        return self.arguments[number].sql

    def cast(self, number: int, type_: Column) -> str:
        return self.translator.cast(self.arguments[number], type_).sql

    def all(self, type_: Column) -> list[str]:
        return [self.cast(number, type_) for number in range(self.count)]

    def constant(self, number: int) -> str | None:
        """Return the value of a constant argument as text, or None for any other argument."""
        if number >= self.count or not self.arguments[number].constant:
            return None
        return self.translator.binder.constant(self.arguments[number].node)[0]

    def number(self, number: int) -> int | None:
        """Return the value of an argument that is a constant whole number, or None."""
        text = self.constant(number)
        return int(text) if text is not None and self.types[number] in INTEGERS else None

    def are_texts(self) -> bool:
        return all(type_ in TEXTS or self.arguments[i].loose for i, type_ in enumerate(self.types))


Maker = Callable[[TranslatedCall], "str | None"]  # returns the SQL of a call, or None when Spark has no equivalent
