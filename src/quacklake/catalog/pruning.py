"""A predicate over column bounds as SQL over the file statistics.

NULL in SQL means "unknown" here, and unknown always keeps the file: a bound that is missing, written in another
encoding or of a type the database cannot compare never rules a file out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from quacklake.catalog.database import Database
from quacklake.format.predicate import Compare, IsNull, Predicate, Some, widened
from quacklake.format.types import StatsKind, scalar

__all__ = ["condition"]

_KINDS = {
    StatsKind.INTEGER: "integer",
    StatsKind.FLOAT: "real",
    StatsKind.DECIMAL: "real",
    StatsKind.TEXT: "text",
    StatsKind.DATE: "date",
    StatsKind.TIMESTAMP: "timestamp",
}
_INT64 = range(-(2**63), 2**63)
_DECIMAL_SLACK = 1e-12


def condition(predicate: Predicate, stats: Mapping[int, sa.FromClause], database: Database) -> sa.ColumnElement[bool]:
    """True for every file that may match; ``stats`` holds the (outer joined) statistics of each column."""
    if isinstance(predicate, Compare):
        return _compare(predicate, stats[predicate.column_id], database)
    if isinstance(predicate, IsNull):
        found = stats[predicate.column_id].c
        # stock DuckLake writes 0 and 0 for types it keeps no counts of
        unknown = sa.or_(found.null_count.is_(None), found.value_count.is_(None), found.value_count == 0)
        return sa.or_(unknown, found.null_count > 0)
    parts = [condition(part, stats, database) for part in predicate.parts]
    if isinstance(predicate, Some):
        return sa.or_(sa.false(), *parts)
    return sa.and_(sa.true(), *parts)


def _compare(predicate: Compare, stats: sa.FromClause, database: Database) -> sa.ColumnElement[bool]:
    kind = _KINDS.get(scalar(predicate.type).stats)
    limits = None if kind is None else _parameters(predicate, kind)
    if kind is None or limits is None:
        return sa.true()
    smallest, largest = limits
    low, high = database.bound(stats.c.min_value, kind), database.bound(stats.c.max_value, kind)
    low_ok = sa.or_(low.is_(None), low <= largest)
    high_ok = sa.or_(high.is_(None), high >= smallest)
    if predicate.type.startswith("float"):
        # NaN sorts above every number and is not part of the bounds
        high_ok = sa.or_(stats.c.contains_nan.is_(None), stats.c.contains_nan == sa.true(), high_ok)
    if predicate.operator in ("<", "<="):
        return low_ok
    return high_ok if predicate.operator in (">", ">=") else sa.and_(low_ok, high_ok)


def _parameters(predicate: Compare, kind: str) -> tuple[Any, Any] | None:
    """The smallest and largest value a bound may have to be on the right side, or None when SQL cannot say."""
    if kind in ("text", "date", "timestamp"):
        return (predicate.text, predicate.text) if "\0" not in predicate.text else None
    low, high = widened(predicate)
    if kind == "integer":
        return (low, high) if not isinstance(low, int) or low in _INT64 else None
    low, high = float(low), float(high)
    slack = max(abs(low), abs(high)) * _DECIMAL_SLACK
    return low - slack, high + slack
