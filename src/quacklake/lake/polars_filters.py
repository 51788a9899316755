"""Predicates of polars as SQL that keeps at least the same rows; polars applies its predicate to them again.

A part is translated only where both compare the same values in the same way: a column with literals of its very type.
The form of a polars expression is not fixed, so whatever looks unfamiliar is left to polars.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from quacklake.core.format.bounds import FLIPPED
from quacklake.core.format.names import literal, quote
from quacklake.core.format.schema import Column, TableSchema

_COMPARISONS = {"Eq": "=", "EqValidity": "=", "NotEq": "<>", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_FLIPPED = {**FLIPPED, "<>": "<>"}
_NEGATED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_CLOSED = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}
_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
_MAX_IN = 1000
"""The most values of ``is_in`` that are listed; of more, only the smallest and largest are used."""

_MAX_PARTS, _MAX_DEPTH = 100, 20
"""The most parts of an AND or OR, and the most levels of them, that are translated."""

_LAST, _SURROGATES = 0x10FFFF, (0xD7FF, 0xE000)


def to_sql(predicate: Any, schema: TableSchema, types: Mapping[str, Any]) -> str | None:
    """Return SQL that is true wherever a polars expression is, or None if nothing is known of it.

    ``types`` are the polars types of the columns.
    """
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
        return _PolarsTranslator(schema, types, type(predicate)).translate(tree)
    except Exception:  # whatever goes wrong here, polars applies its predicate itself
        return None


class _PolarsTranslator:
    def __init__(self, schema: TableSchema, types: Mapping[str, Any], expression: Any) -> None:
        self._schema = schema
        self._types = types
        self._expression = expression

    def translate(self, node: Any, depth: int = 0) -> str | None:
        if depth > _MAX_DEPTH:
            return None
        match node:
            case {"Column": str()}:
                column = self._column(node)
                return quote(column.name) if column is not None and column.type == "boolean" else None
            case {"BinaryExpr": {"op": "And" | "LogicalAnd"}}:
                parts = [self.translate(part, depth + 1) for part in _flat(node, ("And", "LogicalAnd"))]
                return " AND ".join(f"({part})" for part in parts if part is not None) or None
            case {"BinaryExpr": {"op": "Or" | "LogicalOr"}}:
                parts = [self.translate(part, depth + 1) for part in _flat(node, ("Or", "LogicalOr"))]
                known = [f"({part})" for part in parts if part is not None]
                return " OR ".join(known) if len(known) == len(parts) <= _MAX_PARTS else None
            case {"BinaryExpr": {"left": left, "op": str(operator), "right": right}} if operator in _COMPARISONS:
                return self._compare(left, _COMPARISONS[operator], right)
            case {"Function": {"input": [*inputs], "function": {"Boolean": function}}}:
                return self._boolean(function, inputs)
            case {"Function": {"input": [value, prefix], "function": {"StringExpr": "StartsWith"}}}:
                return self._starts_with(value, prefix)
        return None

    def _boolean(self, function: Any, inputs: list[Any]) -> str | None:
        match function, inputs:
            case "Not", [inner]:
                return self._negate(inner)
            case "IsNull" | "IsNotNull", [value]:
                column = self._column(value)
                negation = "NOT " if function == "IsNotNull" else ""
                return None if column is None else f"{quote(column.name)} IS {negation}NULL"
            case {"IsBetween": {"closed": str(closed)}}, [value, low, high] if closed in _CLOSED:
                above, below = _CLOSED[closed]
                parts = [self._compare(value, above, low), self._compare(value, below, high)]
                return " AND ".join(part for part in parts if part is not None) or None
            case {"IsIn": {"nulls_equal": bool(nulls_equal)}}, [value, values]:
                return self._is_in(value, values, nulls_equal=nulls_equal)
        return None

    def _negate(self, node: Any) -> str | None:
        match node:
            case {"Column": str()}:
                inner = self.translate(node)
                return None if inner is None else f"NOT {inner}"
            case {"BinaryExpr": {"left": left, "op": str(operator), "right": right}} if operator in _COMPARISONS:
                # what takes NULL as a value is true for NULL when it is negated
                known = operator != "EqValidity"
                return self._compare(left, _NEGATED[_COMPARISONS[operator]], right) if known else None
        return None

    def _compare(self, left: Any, operator: str, right: Any) -> str | None:
        column, constant = self._column(left), right
        if column is None:
            column, constant, operator = self._column(right), left, _FLIPPED[operator]
        if column is None:
            return None
        values = self._values(constant, column)
        value = values[0] if values is not None and len(values) == 1 else None
        text = _sql(value, column)
        if text is None:
            return None
        return _zeros(column) if operator == "=" and _is_zero(value) else f"{quote(column.name)} {operator} {text}"

    def _is_in(self, value: Any, values: Any, *, nulls_equal: bool) -> str | None:
        column = self._column(value)
        found = None if column is None else self._values(values, column, listed=True)
        if column is None or found is None or (nulls_equal and None in found):
            return None
        chosen = [each for each in found if each is not None]
        if not chosen:
            return "false"
        if len(chosen) > _MAX_IN:
            if any(isinstance(each, float) and math.isnan(each) for each in chosen):
                return None
            low, high = _sql(min(chosen), column), _sql(max(chosen), column)
            return None if low is None or high is None else f"{quote(column.name)} BETWEEN {low} AND {high}"
        texts = [text for text in (_sql(each, column) for each in chosen) if text is not None]
        zeros = f" OR {_zeros(column)}" if any(map(_is_zero, chosen)) else ""
        return f"{quote(column.name)} IN ({', '.join(texts)}){zeros}" if len(texts) == len(chosen) else None

    def _starts_with(self, value: Any, prefix: Any) -> str | None:
        column = self._column(value)
        found = None if column is None else self._values(prefix, column)
        if column is None or not found or not isinstance(found[0], str):
            return None
        low = _sql(found[0], column)
        if low is None or not found[0]:
            return None
        name, last = quote(column.name), ord(found[0][-1])
        after = _SURROGATES[1] if last == _SURROGATES[0] else last + 1
        end = "" if last == _LAST else f" AND {name} < {_sql(found[0][:-1] + chr(after), column)}"
        return f"{name} >= {low}{end}"

    def _column(self, node: Any) -> Column | None:
        match node:
            case {"Column": str(name)} if name in self._types:
                column = self._schema.get(name)
                return None if column is None or column.nested else column
        return None

    def _values(self, node: Any, column: Column, *, listed: bool = False) -> list[Any] | None:
        """Return the values of a literal, if they have the column's type in polars."""
        match node:
            case {"Alias": [inner, str()]}:
                return self._values(inner, column, listed=listed)
            case {"Literal": _}:
                import polars

                encoded = io.StringIO(json.dumps(node))
                series = polars.select(self._expression.deserialize(encoded, format="json")).to_series()
            case _:
                return None
        if listed:
            if not isinstance(series.dtype, polars.List) or len(series) != 1 or series.is_null().any():
                return None
            series = series.explode(empty_as_null=False)
        wanted = self._types[column.name]
        same = series.dtype == wanted or (
            isinstance(wanted, polars.Decimal) and isinstance(series.dtype, polars.Decimal)
        )
        return series.to_list() if same else None


def _flat(node: Any, operators: tuple[str, str]) -> list[Any]:
    """Return the parts of a chain of operators, at most one more than are translated."""
    parts: list[Any] = []
    left = [node]
    while left and len(parts) <= _MAX_PARTS:
        match left.pop():
            case {"BinaryExpr": {"left": first, "op": str(operator), "right": second}} if operator in operators:
                left += [second, first]
            case part:
                parts.append(part)
    return parts


def _is_zero(value: Any) -> bool:
    return isinstance(value, float) and value == 0


def _zeros(column: Column) -> str:
    # DuckDB 1.5 looks an equal value up in the bloom filters of files, where -0.0 is not 0.0
    return f"{quote(column.name)} BETWEEN -0.0e0 AND 0.0e0"


def _sql(value: Any, column: Column) -> str | None:
    """Return a value as a literal that DuckDB compares with the column as polars does, or None."""
    write = _WRITERS.get("integer" if column.type in _INTEGERS else column.type.partition("(")[0])
    return None if write is None or value is None else write(value, column)


def _integer(value: Any, _: Column) -> str | None:
    return f"{value:d}" if isinstance(value, int) and not isinstance(value, bool) else None


def _float(value: Any, column: Column) -> str | None:
    if not isinstance(value, float) or not math.isfinite(value):
        return None
    if column.type == "float32":
        value = struct.unpack("f", struct.pack("f", value))[0]
    text = repr(value)
    return text if "e" in text else f"{text}e0"  # without an exponent, it would be a decimal


def _decimal(value: Any, column: Column) -> str | None:
    if not isinstance(value, Decimal) or not value.is_finite():
        return None
    arrow = column.arrow_field().type
    text = f"{value:f}"
    whole, _, fraction = text.lstrip("-").partition(".")
    fits = len(fraction.rstrip("0")) <= arrow.scale and len(whole.lstrip("0")) <= arrow.precision - arrow.scale
    return text if fits and len(whole) + len(fraction) <= 38 else None


def _text(value: Any, _: Column) -> str | None:
    return literal(value) if isinstance(value, str) and "\0" not in value else None


def _date(value: Any, _: Column) -> str | None:
    return f"DATE '{value.isoformat()}'" if type(value) is dt.date else None


def _timestamp(value: Any, _: Column) -> str | None:
    known = isinstance(value, dt.datetime) and value.tzinfo is None
    return f"TIMESTAMP '{value.isoformat(' ')}'" if known else None


def _instant(value: Any, _: Column) -> str | None:
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        return None
    return f"TIMESTAMPTZ '{value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(' ')}+00'"


_WRITERS: Mapping[str, Callable[[Any, Column], str | None]] = {
    "integer": _integer,
    "float32": _float,
    "float64": _float,
    "decimal": _decimal,
    "varchar": _text,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_us": _timestamp,
    "timestamptz": _instant,
}
