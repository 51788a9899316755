"""Predicates over the statistics of files: as a condition in SQL, and over arrays of bounds that are known already.

Both rule out the same way: NULL means "unknown", and what is unknown keeps its file.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from quacklake.core.catalog.databases.database import Database
from quacklake.core.format.bounds import Compare, IsNull, Predicate, Some, widened
from quacklake.core.format.types import StatsKind, scalar

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
    """Return the condition that holds for every file that may match, over outer joined statistics of each column.

    NULL in SQL means "unknown" here, and unknown always keeps the file. The SQL depends only on the shape of a
    predicate; its values are parameters, so that a statement is built once.
    """
    numbers = itertools.count()

    def build(part: Predicate) -> sa.ColumnElement[bool]:
        if isinstance(part, Compare):
            return sa.true() if _limits(part) is None else compare(part)
        if isinstance(part, IsNull):
            own = stats[part.column_id].c
            # stock DuckLake writes 0 and 0 for types that it does not count
            unknown = sa.or_(own.null_count.is_(None), own.value_count.is_(None), own.value_count == 0)
            return sa.or_(unknown, own.null_count > 0)
        parts = [build(each) for each in part.parts]
        return sa.or_(sa.false(), *parts) if isinstance(part, Some) else sa.and_(sa.true(), *parts)

    def compare(part: Compare) -> sa.ColumnElement[bool]:
        own, kind = stats[part.column_id].c, _KINDS[scalar(part.type).stats]
        type_ = _TYPES.get(kind, sa.String())
        smallest, largest = (sa.bindparam(f"v{next(numbers)}", type_=type_) for _ in range(2))
        low_ok = _unless_known(database.bound(own.min_value, kind) <= largest)
        high_ok = _unless_known(database.bound(own.max_value, kind) >= smallest)
        if part.type.startswith("float"):
            # NaN sorts above every number and is not part of the bounds
            high_ok = sa.or_(own.contains_nan.is_(None), own.contains_nan == sa.true(), high_ok)
        if part.operator in ("<", "<="):
            return low_ok
        return high_ok if part.operator in (">", ">=") else sa.and_(low_ok, high_ok)

    return build(predicate)


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


def _unless_known(test: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Return the test, true where its bound is unknown; written so that the bound is decoded only once."""
    return sa.func.coalesce(test, sa.true(), type_=sa.Boolean())


# -- over arrays -------------------------------------------------------------------------------------------------------

NULLS, NAN = "nulls", "nan"
Facet = tuple[int, str]
"""A column, and what is known of it: bounds of a kind, whether it may hold NULL (``NULLS``) or NaN (``NAN``)."""
Arrays = Mapping[Facet, tuple[pa.Array, ...]]
"""Facets of the same files: typed low and high bounds, or one array of booleans; NULL where nothing is known."""

#: The texts of each kind that become values, the strictest form last: all of these can be cast.
_FORMS: Mapping[str, tuple[str, ...]] = {
    "integer": ("^-?[0-9]{1,19}$", "^-?[0-9]{1,18}$"),
    "real": (
        r"^-?[0-9]{0,200}\.?[0-9]{1,200}(e[+-]?[0-9]{1,3})?$",
        r"^-?[0-9]{0,100}\.?[0-9]{1,100}(e[+-]?[0-9]{1,2})?$",
    ),
    "date": ("^[0-9]{4}-[0-9]{2}-[0-9]{2}$",),
    "timestamp": ("^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}",),
}
_VALUES: Mapping[str, pa.DataType] = {"integer": pa.int64(), "real": pa.float64()}


def facets_of(predicate: Predicate) -> frozenset[Facet]:
    """Return what has to be known of files to judge them by a predicate."""
    if isinstance(predicate, IsNull):
        return frozenset([(predicate.column_id, NULLS)])
    if isinstance(predicate, Compare):
        if _limits(predicate) is None:
            return frozenset()
        bounds = (predicate.column_id, _KINDS[scalar(predicate.type).stats])
        return frozenset([bounds, (predicate.column_id, NAN)] if predicate.type.startswith("float") else [bounds])
    return frozenset().union(*(facets_of(part) for part in predicate.parts))


def typed(texts: pa.Array, kind: str) -> pa.Array:
    """Return bounds as values of a kind that compare as the database would compare them; NULL for any other text."""
    for form in _FORMS.get(kind, ()):
        known = pc.if_else(pc.match_substring_regex(texts, form), texts, pa.scalar(None, pa.string()))
        if kind not in _VALUES:
            return known
        try:
            return known.cast(_VALUES[kind])
        except pa.ArrowInvalid:
            continue  # a number that is out of range: the next form has none
    return texts if kind == "text" else pa.nulls(len(texts), _VALUES.get(kind, pa.string()))


def summary(facet: pa.Array, size: int, *, lowest: bool) -> pa.Array:
    """Return the lowest or highest value of each block of so many files that is full; NULL where one is unknown.

    Of flags, the highest says whether any is set. ``may_match`` keeps a block that has a file it would keep.
    """
    least_or_most = pc.min if lowest else pc.max
    starts = range(0, len(facet) - size + 1, size)
    return pa.array([least_or_most(facet.slice(at, size), skip_nulls=False).as_py() for at in starts], facet.type)


def may_match(predicate: Predicate, known: Arrays, files: int) -> pa.Array:
    """Return for each of some files whether it may hold a matching row, as ``condition`` does.

    ``known`` has every facet of ``facets_of``.
    """
    if isinstance(predicate, IsNull):
        return pc.fill_null(known[predicate.column_id, NULLS][0], True)
    if isinstance(predicate, Compare):
        return _compare(predicate, known, files)
    some = isinstance(predicate, Some)
    join = pc.or_ if some else pc.and_
    found = pa.repeat(pa.scalar(not some), files)
    for part in predicate.parts:
        found = join(found, may_match(part, known, files))
    return found


def _compare(part: Compare, known: Arrays, files: int) -> pa.Array:
    limits = _limits(part)
    if limits is None:
        return pa.repeat(pa.scalar(True), files)
    lows, highs = known[part.column_id, _KINDS[scalar(part.type).stats]]
    smallest, largest = (pa.scalar(limit, lows.type) for limit in limits)
    if part.operator not in (">", ">="):
        low_ok = pc.fill_null(pc.less_equal(lows, largest), True)
        if part.operator in ("<", "<="):
            return low_ok
    high_ok = pc.fill_null(pc.greater_equal(highs, smallest), True)
    if part.type.startswith("float"):
        # NaN sorts above every number and is not part of the bounds
        high_ok = pc.or_(high_ok, pc.fill_null(known[part.column_id, NAN][0], True))
    return high_ok if part.operator in (">", ">=") else pc.and_(low_ok, high_ok)
