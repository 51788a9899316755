"""Python values in the form in which DuckDB takes them without loss.

>>> exact_value([Decimal("2E+3"), 1, float("nan")])
[Decimal('2000'), 1.0, Decimal('NaN')]
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

__all__ = ["exact_value", "exact_values"]


def exact_value(value: Any) -> Any:
    """Return a value that DuckDB reads as what it is.

    DuckDB takes ``Decimal("2E+3")`` for 2, and NaN inside of a list or a struct for NULL.
    """
    match value:
        case Decimal() if value.is_finite() and value.as_tuple().exponent > 0:  # type: ignore[operator]
            return Decimal(int(value))
        case list() | tuple():
            return _exact_items(value)
        case dict():
            return {key: _inner(item) for key, item in value.items()}
    return value


def exact_values(values: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the values of parameters by name, each as ``exact_value`` does."""
    return values and {name: exact_value(value) for name, value in values.items()}


def _exact_items(values: list[Any] | tuple[Any, ...]) -> list[Any] | tuple[Any, ...]:
    items = [_inner(item) for item in values]
    if any(isinstance(item, Decimal) and item.is_nan() for item in items):  # beside NaN, DuckDB rounds whole numbers
        items = [float(item) if type(item) is int else item for item in items]
    return items if isinstance(values, list) else tuple(items)


def _inner(value: Any) -> Any:
    return Decimal("NaN") if isinstance(value, float) and math.isnan(value) else exact_value(value)
