"""Replace table names in the text that a user wrote.

DuckDB can also render a tree as text, but not quite the same text: constants lose their types, and columns without a
name get titles from the replaced names. So a query keeps its own text wherever only the names of tables and their
columns have to be replaced. The new text is parsed again, and used only if its tree is the expected one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb

from quacklake.errors import SqlError
from quacklake.format.names import fold, quote
from quacklake.sql import tree
from quacklake.sql.tree import Node
from quacklake.sql.words import Cursor, words_of

_CALLED = ("catalog", "schema", "function_name")
_NAMES = ("catalog_name", "schema_name", "table_name")


@dataclass(frozen=True, slots=True)
class _Edit:
    """A dotted name at the position that DuckDB reports, and its replacement."""

    location: int
    names: tuple[str, ...]
    text: str
    past: bool = False
    """True when AT (…) after the name and its alias is removed."""


def with_names(connection: duckdb.DuckDBPyConnection, sql: str, before: Node, after: Node) -> str | None:
    """Return the text of ``before`` changed to mean ``after``, or None when more than names has changed."""
    edits: list[_Edit] = []
    try:
        if not _compare(before, after, edits):
            return None
        text = _edited(sql, edits)
        if text is None or tree.bare(tree.parse(connection, text)) != tree.bare(after):
            return None
    except SqlError:
        return None
    return text


def _compare(before: Any, after: Any, edits: list[_Edit]) -> bool:
    """Collect the names that differ. Return False when anything else differs."""
    if isinstance(before, list):
        return (
            isinstance(after, list)
            and len(before) == len(after)
            and all(_compare(old, new, edits) for old, new in zip(before, after, strict=True))
        )
    if not isinstance(before, dict) or not isinstance(after, dict):
        return bool(before == after)
    if before.get("type") == "BASE_TABLE" and after.get("type") == "BASE_TABLE":
        return _compare_tables(before, after, edits)
    if before.get("class") == "COLUMN_REF" and after.get("class") == "COLUMN_REF":
        if before["column_names"] != after["column_names"]:
            new = ".".join(map(quote, after["column_names"]))
            edits.append(_Edit(before["query_location"], tuple(before["column_names"]), new))
        return bool(before["alias"] == after["alias"])
    if before.get("type") == "FUNCTION" and after.get("type") == "FUNCTION":
        called, instead = (tuple(node[key] for key in _CALLED if node.get(key)) for node in (before, after))
        if called != instead:
            edits.append(_Edit(before["query_location"], called, ".".join(map(quote, instead))))
            before, after = ({**node, **dict.fromkeys(_CALLED, "")} for node in (before, after))
    return before.keys() == after.keys() and all(
        key in tree.PLACES or _compare(old, after[key], edits) for key, old in before.items()
    )


def _compare_tables(before: Node, after: Node, edits: list[_Edit]) -> bool:
    old, new = ([node[key] for key in _NAMES if node.get(key)] for node in (before, after))
    if old == new:
        return bool(before == after)
    alias = "" if before["alias"] else f" AS {quote(after['alias'])}"
    past = before.get("at_clause") is not None
    edits.append(_Edit(before["query_location"], tuple(old), ".".join(map(quote, new)) + alias, past))
    return True


def _edited(sql: str, edits: list[_Edit]) -> str | None:
    words = words_of(sql)
    if not words or words[-1].end != len(sql):
        return None  # a comment at the end would swallow the text that is appended to the query
    starts = {len(sql[: word.start].encode()): number for number, word in enumerate(words)}
    parts: list[str] = []
    done = 0
    for edit in sorted(edits, key=lambda edit: edit.location):
        number = starts.get(edit.location)
        if number is None:
            return None
        cursor = Cursor(sql, words)
        cursor.at = number
        names = cursor.names()
        start, end = words[number].start, words[cursor.at - 1].end
        if [fold(name) for name in names] != [fold(name) for name in edit.names] or start < done:
            return None
        parts += [sql[done:start], edit.text]
        done = end
        if edit.past:
            cursor.until("AT")
            if not cursor.sees("AT", "(") or cursor.at - number > len(names) * 2 + 2:
                return None
            parts.append(sql[done : cursor.words[cursor.at].start])
            cursor.take()
            cursor.skip_group()
            done = words[cursor.at - 1].end
    return "".join([*parts, sql[done:]])
