"""A predicate over column bounds as SQL over the file statistics.

NULL in SQL means "unknown" here, and unknown always keeps the file: a bound that is missing, written in another
encoding or of a type the database cannot compare never rules a file out.

The SQL depends only on the shape of a predicate; its values are parameters, so that a statement is built once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from quacklake.catalog.databases.database import Database
from quacklake.format.bounds import Compare, IsNull, Predicate, Some, widened
from quacklake.format.types import StatsKind, scalar

_KINDS = {
    StatsKind.INTEGER: "integer",
    StatsKind.FLOAT: "real",
    StatsKind.DECIMAL: "real",
    StatsKind.TEXT: "text",
    StatsKind.DATE: "date",
    StatsKind.TIMESTAMP: "timestamp",
}
_TYPES: Mapping[str, sa.types.TypeEngine[Any]] = {"integer": sa.BigInteger(), "real": sa.Double()}
_INT64 = range(-(2**63), 2**63)
_DECIMAL_SLACK = 1e-12
_FOUR_DIGITS = re.compile(r"[0-9]{4}-(?!.*\(BC\))")


def shape(predicate: Predicate) -> Any:
    """Return what the SQL of a predicate depends on: everything but its values."""
    if isinstance(predicate, Compare):
        return ("compare", predicate.column_id, predicate.type, predicate.operator, _limits(predicate) is not None)
    if isinstance(predicate, IsNull):
        return ("null", predicate.column_id)
    return (type(predicate).__name__, *(shape(part) for part in predicate.parts))


def values(predicate: Predicate) -> dict[str, Any]:
    """Return the parameters of ``condition`` for a predicate of the same shape."""
    limits = [limit for part in _compares(predicate) for limit in _limits(part) or ()]
    return {f"v{index}": value for index, value in enumerate(limits)}


def condition(predicate: Predicate, stats: Mapping[int, sa.FromClause], database: Database) -> sa.ColumnElement[bool]:
    """Return the condition that holds for every file that may match.

    ``stats`` holds the (outer joined) statistics of each column.
    """
    return _Builder(stats, database).build(predicate)


def _compares(predicate: Predicate) -> Iterator[Compare]:
    if isinstance(predicate, Compare):
        yield predicate
    elif not isinstance(predicate, IsNull):
        for part in predicate.parts:
            yield from _compares(part)


def _limits(predicate: Compare) -> tuple[Any, Any] | None:
    """Return the smallest and largest value a bound may have to be on the right side, or None when SQL cannot say."""
    kind = _KINDS.get(scalar(predicate.type).stats)
    if kind is None:
        return None
    if kind in ("date", "timestamp"):
        # as text, only years of four digits sort by time
        return (predicate.text, predicate.text) if _FOUR_DIGITS.match(predicate.text) else None
    if kind == "text":
        return (predicate.text, predicate.text) if "\0" not in predicate.text else None
    low, high = widened(predicate)
    if kind == "integer":
        return (low, high) if isinstance(low, int) and low in _INT64 else None
    low, high = float(low), float(high)
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    slack = max(abs(low), abs(high)) * _DECIMAL_SLACK
    return low - slack, high + slack


class _Builder:
    def __init__(self, stats: Mapping[int, sa.FromClause], database: Database) -> None:
        self._stats = stats
        self._database = database
        self._next = 0

    def build(self, predicate: Predicate) -> sa.ColumnElement[bool]:
        if isinstance(predicate, Compare):
            return self._compare(predicate)
        if isinstance(predicate, IsNull):
            stats = self._stats[predicate.column_id].c
            # stock DuckLake writes 0 and 0 for types that it does not count
            unknown = sa.or_(stats.null_count.is_(None), stats.value_count.is_(None), stats.value_count == 0)
            return sa.or_(unknown, stats.null_count > 0)
        parts = [self.build(part) for part in predicate.parts]
        return sa.or_(sa.false(), *parts) if isinstance(predicate, Some) else sa.and_(sa.true(), *parts)

    def _parameter(self, kind: str) -> sa.BindParameter[Any]:
        self._next += 1
        return sa.bindparam(f"v{self._next - 1}", type_=_TYPES.get(kind, sa.String()))

    def _compare(self, predicate: Compare) -> sa.ColumnElement[bool]:
        if _limits(predicate) is None:
            return sa.true()
        kind = _KINDS[scalar(predicate.type).stats]
        stats = self._stats[predicate.column_id].c
        smallest, largest = self._parameter(kind), self._parameter(kind)
        low_ok = _unless_known(self._database.bound(stats.min_value, kind) <= largest)
        high_ok = _unless_known(self._database.bound(stats.max_value, kind) >= smallest)
        if predicate.type.startswith("float"):
            # NaN sorts above every number and is not part of the bounds
            high_ok = sa.or_(stats.contains_nan.is_(None), stats.contains_nan == sa.true(), high_ok)
        if predicate.operator in ("<", "<="):
            return low_ok
        return high_ok if predicate.operator in (">", ">=") else sa.and_(low_ok, high_ok)


def _unless_known(test: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Return the test, true where its bound is unknown; written so that the bound is decoded only once."""
    return sa.func.coalesce(test, sa.true(), type_=sa.Boolean())
