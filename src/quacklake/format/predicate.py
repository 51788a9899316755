"""Predicates that can rule out whole files: a small tree over column bounds.

The tree is what remains of a filter once everything that statistics cannot answer has been replaced by "anything"
(``ANYTHING``). It only ever rules files *out*: the filter itself is always applied to the rows by the engine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from quacklake.format import stats
from quacklake.format.bounds import encode_comparable
from quacklake.format.schema import Column

#: Relative error of a 32-bit float's shortest text, doubled.
FLOAT_SLACK = 2.4e-7
#: The same for 32-bit floats next to zero.
FLOAT_TINY = 1.5e-45
OPERATORS = ("=", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Compare:
    """``column <operator> value``; ``value`` is in the form of ``bounds.decode``, ``text`` is its text."""

    column_id: int
    type: str
    operator: str
    value: Any
    text: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """``column IS NULL``."""

    column_id: int


@dataclass(frozen=True, slots=True)
class Every:
    """All parts hold; no parts at all means "anything"."""

    parts: tuple[Predicate, ...] = ()


@dataclass(frozen=True, slots=True)
class Some:
    """At least one part holds; no parts at all means "nothing"."""

    parts: tuple[Predicate, ...] = ()


Predicate = Compare | IsNull | Every | Some
ANYTHING = Every()


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of one column in one file; None means unknown."""

    low: Any = None
    high: Any = None
    null_count: int | None = None
    value_count: int | None = None
    contains_nan: bool | None = None

    @classmethod
    def of(cls, column: stats.ColumnStats, type_: str) -> Bounds:
        """Return the bounds that a file's stored statistics give; what does not decode is unknown."""
        low = None if column.min is None else stats.decode(column.min, type_)
        high = None if column.max is None else stats.decode(column.max, type_)
        return cls(low, high, column.null_count, column.value_count, column.contains_nan)


def compare(column: Column, operator: str, value: Any) -> Predicate:
    """Return a comparison with a value in the form of ``bounds.decode``; no value, or no text form, says nothing."""
    text = None if value is None else encode_comparable(value, column.type)
    return ANYTHING if text is None else Compare(column.id, column.type, operator, value, text)


def every(parts: Iterable[Predicate]) -> Predicate:
    """Return the conjunction, flattened; "anything" parts vanish."""
    flat: list[Predicate] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Every) else (part,))
    return flat[0] if len(flat) == 1 else Every(tuple(flat))


def some(parts: Iterable[Predicate]) -> Predicate:
    """Return the disjunction; one "anything" part makes it "anything"."""
    found = tuple(parts)
    if any(part == ANYTHING for part in found):
        return ANYTHING
    return found[0] if len(found) == 1 else Some(found)


def coarse(predicate: Predicate, most: int = 64) -> Predicate:
    """Return a predicate of few comparisons that holds wherever this one does, for what takes long over many.

    Of many values of one column neighbours become ranges; what is still too much becomes "anything".
    """
    if isinstance(predicate, Compare | IsNull):
        return predicate
    parts = [coarse(part, most) for part in predicate.parts]
    if isinstance(predicate, Every):
        found = every(parts)
        return found if _leaves(found) <= most else every(part for part in parts if _leaves(part) == 1)
    if sum(map(_leaves, parts)) > most:
        parts = _ranges(parts, most // 4)
    return some(parts) if sum(map(_leaves, parts)) <= most else ANYTHING


def _leaves(predicate: Predicate) -> int:
    return 1 if isinstance(predicate, Compare | IsNull) else sum(map(_leaves, predicate.parts))


def _ranges(parts: Iterable[Predicate], number: int) -> list[Predicate]:
    """Return the parts of a disjunction, with at most so many ranges in place of the values of each column."""
    others: list[Predicate] = []
    equal: dict[tuple[int, str], list[Compare]] = {}
    for part in parts:
        if isinstance(part, Compare) and part.operator == "=" and part.value == part.value:
            equal.setdefault((part.column_id, part.type), []).append(part)
        else:
            others.append(part)
    for found in equal.values():
        found.sort(key=lambda part: part.value)
        length = -(-len(found) // number)
        chunks = [found[at : at + length] for at in range(0, len(found), length)]
        others += [every((replace(one[0], operator=">="), replace(one[-1], operator="<="))) for one in chunks]
    return others


def columns_of(predicate: Predicate) -> frozenset[int]:
    """Return the ids of all columns a predicate speaks of."""
    if isinstance(predicate, Compare | IsNull):
        return frozenset((predicate.column_id,))
    return frozenset().union(*(columns_of(part) for part in predicate.parts))


def may_match(predicate: Predicate, bounds: Mapping[int, Bounds]) -> bool:
    """Return False only when no row with these bounds can satisfy the predicate."""
    if isinstance(predicate, Every):
        return all(may_match(part, bounds) for part in predicate.parts)
    if isinstance(predicate, Some):
        return any(may_match(part, bounds) for part in predicate.parts)
    known = bounds.get(predicate.column_id)
    if known is None:
        return True
    if isinstance(predicate, IsNull):
        # stock DuckLake writes 0 and 0 for types it keeps no counts of
        return known.null_count != 0 or known.value_count == 0
    return _may_compare(predicate, known)


def _may_compare(predicate: Compare, known: Bounds) -> bool:
    low, high = widened(predicate)
    low_ok = known.low is None or known.low <= high
    # NaN sorts above every number and is not part of the bounds
    unbounded = predicate.type.startswith("float") and known.contains_nan is not False
    high_ok = unbounded or known.high is None or known.high >= low
    if predicate.operator in ("<", "<="):
        return low_ok
    return high_ok if predicate.operator in (">", ">=") else low_ok and high_ok


def widened(predicate: Compare) -> tuple[Any, Any]:
    """Return the value as a range: room for bounds written as 32-bit floats, whose text is not their exact value."""
    if isinstance(predicate.value, float) and math.isfinite(predicate.value):
        slack = abs(predicate.value) * FLOAT_SLACK + FLOAT_TINY
        return predicate.value - slack, predicate.value + slack
    return predicate.value, predicate.value
