"""INSERT statements of one row of parameters, which take many rows at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from quacklake.errors import SqlError
from quacklake.format.names import quote
from quacklake.sql.words import words_of

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

        A 5 would become 5.0 beside a 1.5, which is another text.
        """
        if not all(isinstance(row, list | tuple) and len(row) == self._width for row in rows):
            return None
        given = [list(column) for column in zip(*rows, strict=True)]
        return None if any(len(set(_kinds(column))) > 1 for column in given) else given

    def table(self, rows: list[Any]) -> pa.Table | None:
        """Return rows as a table, or None as ``columns`` does."""
        given = self.columns(rows)
        if given is None:
            return None
        try:
            columns = [pa.array(column) for column in given]
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            return None
        return pa.table(columns, names=[f"c{number}" for number in range(self._width)])


def _kinds(value: Any) -> Iterator[tuple[type, bool]]:
    """Yield the types of the values in a value, without that of NULL, and whether they are local times."""
    if isinstance(value, list | tuple | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _kinds(each)
    elif value is not None:
        yield type(value), getattr(value, "tzinfo", None) is None


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
