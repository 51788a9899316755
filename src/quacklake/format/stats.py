"""Column statistics: of one file, of a whole table, and how the first become the second.

Bounds are text, and they bound: nothing below ``min``, nothing above ``max``, NaN and NULL left out. A bound
that is not known is ``None``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from quacklake.format.bounds import Comparable, comparable, decode, encode, encode_comparable
from quacklake.format.geometry import merge_extra
from quacklake.format.measure import ColumnStats, of_array
from quacklake.format.types import NESTED, StatsKind, scalar
from quacklake.format.variants import merge_fields

__all__ = [
    "ColumnStats",
    "Comparable",
    "TableColumnStats",
    "comparable",
    "decode",
    "encode",
    "is_always_exact",
    "keeps_bounds",
    "merge",
    "of_array",
    "stored_bound",
    "stored_exact",
]


@dataclass(frozen=True, slots=True)
class TableColumnStats:
    """The statistics of one column over every row a table ever held; ``None`` where nothing is known."""

    column_id: int
    contains_null: bool | None = None
    contains_nan: bool | None = None
    min: str | None = None
    max: str | None = None
    extra: str | None = None
    min_exact: bool | None = None
    max_exact: bool | None = None


def stored_exact(text: str | None, exact: bool | None) -> bool | None:
    """Return what a catalog stores for the exactness of a bound: nothing without a bound."""
    return None if stored_bound(text) is None else bool(exact)


def is_always_exact(type: str) -> bool:
    """Return True for types whose bounds are never cut."""
    return _kind(type) not in (StatsKind.TEXT, StatsKind.BLOB)


def keeps_bounds(old: str, new: str) -> bool:
    """Return True when bounds of one type are bounds of another: from integer to integer, from decimal to decimal.

    >>> keeps_bounds("int32", "int64"), keeps_bounds("float32", "float64")
    (True, False)
    """
    if old == new:
        return True
    return _kind(old) is _kind(new) and _kind(new) in (StatsKind.INTEGER, StatsKind.DECIMAL)


def stored_bound(text: str | None) -> str | None:
    """Return what a catalog keeps of a bound: as in stock DuckLake, nothing of one with a NUL."""
    return None if text is not None and "\0" in text else text


def merge(old: TableColumnStats | None, new: ColumnStats, type: str, *, first: bool) -> TableColumnStats:
    """Return the table's statistics after rows with the statistics ``new`` have been added.

    ``first`` says that the table held no rows before, so that ``new`` alone decides. Otherwise a statistic
    that either side lacks, or that cannot be read, is lost; rows without values leave the bounds alone.
    """
    has_null = None if new.null_count is None else new.null_count > 0
    if first:
        return TableColumnStats(
            new.column_id, has_null, new.contains_nan, new.min, new.max, new.extra, new.min_exact, new.max_exact
        )
    if old is None:
        return TableColumnStats(new.column_id)
    low, high, extra = old.min, old.max, old.extra
    low_exact, high_exact = old.min_exact, old.max_exact
    if new.value_count != 0 or new.min is not None or new.max is not None:
        low = _outer(old.min, new.min, type, upper=False)
        high = _outer(old.max, new.max, type, upper=True)
        low_exact = _exactness(low, (old.min, old.min_exact), (new.min, new.min_exact), type)
        high_exact = _exactness(high, (old.max, old.max_exact), (new.max, new.max_exact), type)
        extra = _merge_extra(old.extra, new.extra, _kind(type))
    has_null, has_nan = _either(old.contains_null, has_null), _either(old.contains_nan, new.contains_nan)
    return TableColumnStats(new.column_id, has_null, has_nan, low, high, extra, low_exact, high_exact)


def _exactness(
    text: str | None, one: tuple[str | None, bool | None], two: tuple[str | None, bool | None], type: str
) -> bool | None:
    """Return whether the winning bound is exact: of two that are equal both must be."""
    if text is None:
        return None
    value = _decoded(text, type)
    flags = [exact for bound, exact in (one, two) if bound is not None and _decoded(bound, type) == value]
    return bool(flags) and all(flags)


def _merge_extra(old: str | None, new: str | None, kind: StatsKind) -> str | None:
    if kind is StatsKind.GEOMETRY:
        return merge_extra(old, new)
    return merge_fields(old, new, _outer) if kind is StatsKind.VARIANT else None


def _either(one: bool | None, two: bool | None) -> bool | None:
    return None if one is None or two is None else one or two


def _kind(type: str) -> StatsKind:
    return StatsKind.NONE if type in NESTED else scalar(type).stats


def _outer(old: str | None, new: str | None, type: str, *, upper: bool) -> str | None:
    """Return the wider of two bounds, in the documented encoding."""
    if old is None or new is None:
        return None
    one, two = _decoded(old, type), _decoded(new, type)
    if one is None or two is None:
        return None
    # Two bounds of one type are always of one Python type.
    wins = (two > one) if upper else (two < one)  # type: ignore[operator]
    return _documented(new if wins else old, type)


# The bounds of a table are met again with every commit.
_decoded = lru_cache(maxsize=16_384)(decode)


@lru_cache(maxsize=16_384)
def _documented(text: str, type: str) -> str | None:
    """Return a bound in the documented encoding."""
    value = _decoded(text, type)
    return None if value is None else encode_comparable(value, type)
