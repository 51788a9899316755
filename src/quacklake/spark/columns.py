"""Filters as columns of Spark: comparisons of columns with values, which mean the same in the SQL of the lake."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from quacklake.errors import UnsupportedFeatureError
from quacklake.extend.names import literal, quote

_BETWEEN = {**{sign: sign for sign in ("=", "<", "<=", ">", ">=", "and", "or")}, "<=>": "IS NOT DISTINCT FROM"}
_BEHIND = {"isnull": "IS NULL", "isnotnull": "IS NOT NULL"}


def from_column(column: Any) -> str:
    """Return a column as SQL. Raise ``UnsupportedFeatureError`` for one that only Spark can compute."""
    try:
        return _sql(column._jc.node())
    except UnsupportedFeatureError:
        raise
    except Exception:  # a column of Spark Connect or of Spark 3.5, which has no such tree
        raise _unsupported_error(column) from None


def _sql(node: Any) -> str:
    match node.getClass().getSimpleName():
        case "UnresolvedAttribute" if (parts := _items(node.nameParts())) and len(parts) == 1:
            return quote(parts[0])
        case "Literal":
            return _value(node.value())
        case "UnresolvedFunction":
            name, arguments = node.functionName().lower(), [_sql(each) for each in _items(node.arguments())]
            if name in _BETWEEN:
                return f"({f' {_BETWEEN[name]} '.join(arguments)})"
            if name in _BEHIND:
                return f"({arguments[0]} {_BEHIND[name]})"
            if name in ("!", "not"):
                return f"(NOT {arguments[0]})"
            if name == "in" and len(arguments) > 1:
                return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
    raise _unsupported_error(node.sql())


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _value(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool() | int():
            return str(value).lower()
        case float():
            return f"CAST({literal(repr(value))} AS DOUBLE)"
        case Decimal():
            return f"{value:f}"
        case str():
            return literal(value)
    if value.getClass().getName() in ("java.sql.Date", "java.time.LocalDate"):
        return f"DATE {literal(value.toString())}"
    raise _unsupported_error(value.toString())


def _unsupported_error(what: object) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{what} cannot be said in the SQL of the lake with the same meaning",
        hint="write the filter as SQL text, or filter a DataFrame of quacklake.spark(lake)",
    )
