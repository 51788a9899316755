"""The order of a table's rows as DuckDB SQL. The metadata tells it, so every text is checked first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quacklake.engines.duckdb.expressions import plain_expression
from quacklake.errors import InputError
from quacklake.format.sorting import SortKey, SortSpec, readable_keys

__all__ = ["OrderMacro", "order_keys"]

_DIRECTIONS = ("ASC", "DESC")
_NULLS = {"NULLS_FIRST": "NULLS FIRST", "NULLS_LAST": "NULLS LAST"}


@dataclass(frozen=True, slots=True)
class OrderMacro:
    """A macro that an order of rows calls, and the statement that makes it."""

    name: str
    statement: str


def order_keys(spec: SortSpec | None, macros: Sequence[OrderMacro]) -> list[str]:
    """Return the keys for an ``ORDER BY``; those in another dialect are passed over.

    Raises ``InputError`` for a key that another client has stored and that is more than an expression over a row.
    """
    names = [macro.name for macro in macros]
    return [] if spec is None else [_key(key, names) for key in readable_keys(spec)]


def _key(key: SortKey, names: Sequence[str]) -> str:
    if key.direction not in _DIRECTIONS or key.null_order not in _NULLS:
        raise InputError(f"the table is sorted by {key!s}, which is no order", hint="set_sorted_by gives it another")
    try:
        expression = plain_expression(key.expression, names)
    except InputError as error:
        raise InputError(
            f"the order of the table cannot be used: {error.message}", hint="set_sorted_by gives it another"
        ) from None
    return f"{expression} {key.direction} {_NULLS[key.null_order]}"
