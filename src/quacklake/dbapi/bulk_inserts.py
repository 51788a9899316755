"""INSERT statements of one row of parameters, which take many rows at once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from quacklake.errors import SqlError
from quacklake.extend.names import quote
from quacklake.extend.sql import words_of

__all__ = ["BulkInsert", "bulk_insert"]


class BulkInsert:
    """An ``INSERT INTO … VALUES (?, …)`` whose values can come from a table."""

    def __init__(self, sql: str, head: str, width: int) -> None:
        self.sql, self._head, self._width = sql, head, width

    def from_table(self, name: str) -> str:
        """Return the statement that inserts the rows of a registered table."""
        return f"{self._head} SELECT * FROM {quote(name)}"

    def from_lists(self) -> str:
        """Return the statement that inserts the rows of a list of values for each column."""
        return f"{self._head} SELECT {', '.join(['unnest(?)'] * self._width)}"

    def columns(self, rows: list[Any]) -> list[list[Any]] | None:
        """Return the values of each column; None where one has no common type, or a row not the right length.

        In a list of values, 5 would become 5.0 beside 1.5, and a dictionary would get the keys of the others: other
        texts than those of the values by themselves. Decimals of several scales are texts already.
        """
        if not all(isinstance(row, list | tuple) and len(row) == self._width for row in rows):
            return None
        given = [_with_texts(list(column)) for column in zip(*rows, strict=True)]
        return given if all(map(_is_uniform, given)) else None

    def table(self, columns: list[list[Any]]) -> pa.Table | None:
        """Return values as a table; None where Arrow would change one or has no type for it."""
        if any(kind in _NOT_IN_ARROW for column in columns for _, kind in set(_kinds(column))):
            return None
        try:
            arrays = [pa.array(column) for column in columns]
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            return None
        return pa.table(arrays, names=[f"c{number}" for number in range(self._width)])


_Kind = tuple[type, object]
"""A type, and what else values in one list have in common."""
_NOT_IN_ARROW: frozenset[_Kind] = frozenset(
    {(dt.timedelta, None), (dt.time, True), (dict, ()), (dict, ("key", "value"))}
)
"""Kinds of values that are others in Arrow: intervals with days, times with a zone, structs without fields, maps."""
_MAX_VALUE = 2**127


def _with_texts(column: list[Any]) -> list[Any]:
    """Return decimals of several scales as texts: in one list, 2 would become 2.0 beside 1.5."""
    decimals = [value for value in column if isinstance(value, Decimal) and value.is_finite()]
    if len({value.as_tuple().exponent for value in decimals}) < 2:
        return column
    return [f"{value:f}" if isinstance(value, Decimal) and value.is_finite() else value for value in column]


def _is_uniform(column: list[Any]) -> bool:
    found: dict[object, _Kind] = {}
    return all(found.setdefault(place, kind) == kind for place, kind in _kinds(column))


def _kinds(column: list[Any]) -> Iterator[tuple[object, _Kind]]:
    """Yield the kinds of the values in a column, and the place of each within the type of the column."""
    for value in column:
        yield from _kinds_of(value, ())


def _kinds_of(value: Any, place: tuple[object, ...]) -> Iterator[tuple[object, _Kind]]:
    match value:
        case None:
            return
        case list() | tuple():
            yield place, (list, None)
            for each in value:
                yield from _kinds_of(each, (*place, None))
        case dict():
            yield place, (dict, tuple(value))
            for key, each in value.items():
                yield from _kinds_of(each, (*place, key))
        case Decimal():
            yield place, (Decimal, value.as_tuple().exponent)
        case int() if not -_MAX_VALUE <= value < _MAX_VALUE:
            yield place, (int, value)
        case dt.timedelta():
            yield place, (dt.timedelta, None)
        case dt.time() | dt.datetime():
            yield place, (type(value), value.tzinfo is not None)
        case _:
            yield place, (type(value), None)


def bulk_insert(sql: str) -> BulkInsert | None:
    """Return the statement if it inserts one row of parameters and does nothing else."""
    try:
        words = words_of(sql)
    except SqlError:
        return None
    while words and words[-1].text == ";":
        words.pop()
    at = next((place for place, word in enumerate(words) if word.upper == "VALUES"), None)
    if at is None or [word.upper for word in words[:2]] != ["INSERT", "INTO"]:
        return None
    texts = [word.text for word in words[at + 1 :]]
    width = len(texts) // 2
    if width == 0 or texts != ["(", *",".join("?" * width), ")"]:
        return None
    return BulkInsert(sql, sql[: words[at].start], width)
