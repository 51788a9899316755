"""The values that a column of a temporary table has, as conditions and predicates that let scans skip files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quacklake.core.format.bounds import Predicate, compare, decode, every, some
from quacklake.core.format.names import literal, quote
from quacklake.core.format.schema import Column
from quacklake.core.materialized.collations import EXACT

#: Types that cannot be compared: their texts are. Others are compared as DuckDB does, also where equal values differ,
#: such as 0.0 and -0.0: the dictionary of a Parquet file keeps one of them.
_BY_TEXT = ("VARIANT", "GEOMETRY")
_UNORDERED = ("FLOAT", "DOUBLE", "INTERVAL", "TIME WITH TIME ZONE", "BLOB", "JSON", "UUID", "BIT", "NULL")


@dataclass(frozen=True, slots=True)
class Key:
    """A column of a temporary table, and the width of the buckets that its values name, as SQL, if they do."""

    name: str
    type: str
    width: str | None = None
    collation: str = EXACT
    """The collation by which the values are compared: those of a file have other spellings."""

    @property
    def ordered(self) -> bool:
        """True when the least and the greatest value say which files may hold values between them."""
        return self.collation == EXACT and is_ordered(self.type)

    @property
    def ends(self) -> str:
        """The end of a value's bucket, or the value itself."""
        return quote(self.name) if self.width is None else f"TRY({quote(self.name)} + {self.width})"


@dataclass(frozen=True, slots=True)
class Span:
    """The values of a key: the least and the greatest, where buckets end, and all of them when they are few.

    All are texts. ``low`` is None for a type without an order, for a column with NULL, and for no rows at all.
    """

    nulls: bool
    low: str | None = None
    high: str | None = None
    end: str | None = None
    end_type: str = ""
    values: tuple[tuple[str, str], ...] = ()

    def conditions(self, key: Key, expression: str) -> list[str]:
        """Return conditions on an expression that hold for all values; those of a bucket are from its start to end."""
        if self.low is None or self.end is None:
            return []
        found = [
            f"{expression} >= CAST({literal(self.low)} AS {key.type})",
            f"{expression} <= CAST({literal(self.end)} AS {self.end_type})",
        ]
        if self.values:
            found.append(_any_of(self.values, expression, key.type, self.end_type, key.width is not None))
        return found

    def predicate(self, column: Column) -> Predicate:
        """Return what a column that has only these values must have in a file."""
        if self.low is None:
            return every(())
        if self.values:
            known = [value for value, _ in self.values]
            # few shapes of conditions: the catalog builds a statement for each
            known += known[-1:] * ((1 << (len(known) - 1).bit_length()) - len(known))
            return some(compare(column, "=", decode(value, column.type)) for value in known)
        least, most = decode(self.low, column.type), decode(self.high, column.type)
        return every((compare(column, ">=", least), compare(column, "<=", most)))


Spans = dict[str, Span]


def by_text(type_: str) -> bool:
    """Return whether values of a type are compared by their texts."""
    return any(odd in type_ for odd in _BY_TEXT)


def apart(name: str, type_: str) -> str | None:
    """Return SQL that tells equal values of a type apart, such as 0.0 and -0.0; None where equal values are the same.

    >>> apart("c0", "DOUBLE"), apart("c0", "INTERVAL"), apart("c0", "BIGINT")
    ('signbit(c0)', 'CAST(c0 AS VARCHAR)', None)
    """
    if type_ in ("FLOAT", "DOUBLE"):
        return f"signbit({name})"
    return f"CAST({name} AS VARCHAR)" if any(odd in type_ for odd in ("FLOAT", "DOUBLE", "INTERVAL")) else None


def is_ordered(type_: str) -> bool:
    """Return whether the least and the greatest value of a type say which files may hold values between them."""
    plain = not any(mark in type_ for mark in ("[", "(", "STRUCT", "MAP")) or type_.startswith("DECIMAL(")
    return plain and not by_text(type_) and type_ not in _UNORDERED


def _any_of(values: Sequence[tuple[Any, ...]], expression: str, type_: str, end_type: str, ranges: bool) -> str:
    if not ranges:
        listed = ", ".join(f"CAST({literal(value)} AS {type_})" for value, _ in values)
        return f"{expression} IN ({listed})"
    return " OR ".join(
        f"({expression} >= CAST({literal(first)} AS {type_}) AND {expression} <= CAST({literal(last)} AS {end_type}))"
        for first, last in values
    )
