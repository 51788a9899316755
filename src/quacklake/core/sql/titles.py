"""Name the columns of a bound query as DuckDB names those of the user's text.

A column without an alias has its expression as its title. Where binding changes the expression (a macro gets another
name, metadata answers instead of rows), the column gets an alias: the title of the expression as the user wrote it.

>>> items_of("SELECT inc(x), [1, 2] FROM t")
[(7, 13), (15, 21)]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from quacklake.core.format.names import quote
from quacklake.core.sql import tree
from quacklake.core.sql.tree import Node
from quacklake.core.sql.words import Word, words_of
from quacklake.errors import SqlError

_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_ENDS = frozenset(
    {"EXCEPT", "FROM", "GROUP", "HAVING", "INTERSECT", "LIMIT", "OFFSET", "ORDER", "QUALIFY", "UNION", "USING"}
    | {"WHERE", "WINDOW", ";"}
)
"""Words that end a list of columns."""
_NO_ENDS = {"FROM": "DISTINCT", "GROUP": "WITHIN"}
"""Words that belong to an expression after this other one."""


@dataclass(frozen=True, slots=True)
class Naming:
    """A column that needs an alias: its node in the bound tree, its title, and where its text ends, if it is found."""

    item: Node
    title: str
    end: int | None


def name_columns(
    connection: duckdb.DuckDBPyConnection, sql: str, before: Node, after: Node, *, rendered: bool
) -> list[Naming]:
    """Return the columns of the tree ``after`` that would not have the titles of ``before``, the tree of ``sql``.

    ``rendered`` says that DuckDB renders the text of the tree, in which constants look different too.
    """
    titles = _Titles(connection, sql)
    found = [
        (new, titles.find(old))
        for old, new in _columns(before, after)
        if not old["alias"]
        and not new["alias"]
        and (rendered or old != new)
        and not _is_same_column(old, new)
        and not _has_star(old)
    ]
    return [Naming(item, *titled) for item, titled in found if titled is not None]


def with_titles(connection: duckdb.DuckDBPyConnection, sql: str, text: str) -> str:
    """Return a query's other text, whose columns have the titles that they have in ``sql``."""
    titles, others = _Titles(connection, sql), _Titles(connection, text)
    changes: list[tuple[int, str]] = []
    for old, new in _columns(tree.parse(connection, sql), tree.parse(connection, text)):
        if not old["alias"] and not new["alias"] and not _is_same_column(old, new) and not _has_star(old):
            title, other = titles.find(old), others.find(new)
            if title is not None and other is not None and other[1] is not None and title[0] != other[0]:
                changes.append((other[1], f" AS {quote(title[0])}"))
    parts: list[str] = []
    done = 0
    for end, alias in sorted(changes):
        parts += [text[done:end], alias]
        done = end
    return "".join([*parts, text[done:]])


def _has_star(item: Any) -> bool:
    """Return True for an expression that may become several columns."""
    if isinstance(item, list):
        return any(map(_has_star, item))
    if not isinstance(item, dict) or item.get("type") == "SELECT_NODE":
        return False
    return item.get("class") == "STAR" or any(map(_has_star, item.values()))


def _is_same_column(old: Node, new: Node) -> bool:
    if old.get("class") != "COLUMN_REF" or new.get("class") != "COLUMN_REF":
        return False
    return bool(old["column_names"][-1] == new["column_names"][-1])


def _columns(before: Any, after: Any) -> Iterator[tuple[Node, Node]]:
    """Yield the columns of all query blocks that both trees have."""
    pending = [(before, after)]
    while pending:
        old, new = pending.pop()
        if isinstance(old, list) and isinstance(new, list):
            pending += zip(old, new, strict=False)
        elif isinstance(old, dict) and isinstance(new, dict):
            if old.get("type") == new.get("type") == "SELECT_NODE":
                yield from zip(old["select_list"], new["select_list"], strict=False)
            pending += [
                (value, new[key]) for key, value in old.items() if isinstance(value, dict | list) and key in new
            ]


class _Titles:
    """The titles of the columns in a text."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, sql: str) -> None:
        self._connection = connection
        self._sql = sql
        self._items: list[tuple[int, int]] | None = None

    def find(self, item: Node) -> tuple[str, int | None] | None:
        """Return the title of a column, and the end of its text if that is found; None if DuckDB cannot tell it."""
        place = next(_places(item), None)
        if place is not None:
            if self._items is None:
                self._items = items_of(self._sql)
            at = len(self._sql.encode()[:place].decode(errors="ignore"))
            start, end = max((found for found in self._items if found[0] <= at < found[1]), default=(0, 0))
            title = _title(self._sql[start:end])
            if title is not None and item.get("class") == "COLUMN_REF":
                title = item["column_names"][-1]  # 2.x tells its whole path
            if title is not None:
                return title, end
        try:
            text = tree.describe(self._connection, tree.query_of(self._connection, item)).removeprefix("SELECT ")
        except duckdb.Error:
            return None  # a number like 1e400
        title = _title(text)
        return None if title is None else (title, None)


def _places(item: Any) -> Iterator[int]:
    """Yield the positions of an expression in the text, in bytes, without those of its subqueries."""
    if isinstance(item, list):
        for part in item:
            yield from _places(part)
    elif isinstance(item, dict) and item.get("type") != "SELECT_NODE":
        place = item.get("query_location")
        if isinstance(place, int) and place != tree.NOWHERE:
            yield place
        for key, part in item.items():
            if isinstance(part, dict | list) and key not in ("subquery", "cast_type", "value"):
                yield from _places(part)


def _title(text: str) -> str | None:
    try:
        return duckdb.SQLExpression(text).get_name() if text else None
    except duckdb.Error:
        return None


def items_of(sql: str) -> list[tuple[int, int]]:
    """Return where the columns of all lists after SELECT begin and end in a text."""
    try:
        words = words_of(sql)
    except SqlError:
        return []
    found: list[tuple[int, int]] = []
    begun: list[Word | None] = [None]
    """For each open group, the first word of a column, if a list of columns is open."""
    lists = [False]
    for number, word in enumerate(words):
        previous = words[number - 1] if number else None
        if word.kind == "symbol" and word.text in _CLOSING and len(lists) > 1:
            _end(found, begun.pop(), previous)
            lists.pop()
        elif _is_keyword(word, previous, "SELECT"):
            lists[-1], begun[-1] = True, None
        elif lists[-1] and (word.text == "," or _ends(word, previous)):
            _end(found, begun[-1], previous)
            begun[-1], lists[-1] = None, word.text == ","
        elif lists[-1] and begun[-1] is None and not _opens(words, number):
            begun[-1] = word
        if word.kind == "symbol" and word.text in _OPENING:
            begun.append(None)
            lists.append(False)
    for first in begun:
        _end(found, first, words[-1] if words else None)
    return sorted(found)


def _is_keyword(word: Word, previous: Word | None, keyword: str) -> bool:
    is_name = previous is not None and previous.upper in (".", "AS")
    return word.upper == keyword and not is_name


def _ends(word: Word, previous: Word | None) -> bool:
    """Return True for a word that ends a list of columns."""
    if word.upper not in _ENDS or not _is_keyword(word, previous, word.upper):
        return False
    return previous is None or previous.upper != _NO_ENDS.get(word.upper)


def _opens(words: Sequence[Word], number: int) -> bool:
    """Return True for a word of DISTINCT ON (…) or ALL, which stand before the first column."""
    before = tuple(word.upper for word in words[max(0, number - 3) : number + 1])
    return (
        before[-2:] in (("SELECT", "DISTINCT"), ("SELECT", "ALL"))
        or before[-3:] == ("SELECT", "DISTINCT", "ON")
        or before == ("SELECT", "DISTINCT", "ON", "(")
    )


def _end(found: list[tuple[int, int]], first: Word | None, last: Word | None) -> None:
    if first is not None and last is not None:
        found.append((first.start, last.end))
