"""Keep the text that a user wrote: replace table names in it, and name its columns.

DuckDB can also render a tree as text, but not quite the same text: constants lose their types, and columns without a
name get titles from the replaced names. So a query keeps its own text wherever only the names of tables and their
columns have to be replaced. The new text is parsed again, and used only if its tree is the expected one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
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
    if before.get("type") == after.get("type") == "BASE_TABLE":
        named, instead = (tuple(node[key] for key in _NAMES if node.get(key)) for node in (before, after))
        if named == instead:
            return bool(before == after)
        text = ".".join(map(quote, instead)) + ("" if before["alias"] else f" AS {quote(after['alias'])}")
        edits.append(_Edit(before["query_location"], named, text, before.get("at_clause") is not None))
        return True
    if before.get("class") == after.get("class") == "COLUMN_REF":
        if before["column_names"] != after["column_names"]:
            text = ".".join(map(quote, after["column_names"]))
            edits.append(_Edit(before["query_location"], tuple(before["column_names"]), text))
        return bool(before["alias"] == after["alias"])
    if before.get("type") == after.get("type") == "FUNCTION":
        called, instead = (tuple(node[key] for key in _CALLED if node.get(key)) for node in (before, after))
        if called != instead:
            edits.append(_Edit(before["query_location"], called, ".".join(map(quote, instead))))
            before, after = ({**node, **dict.fromkeys(_CALLED, "")} for node in (before, after))
    return before.keys() == after.keys() and all(
        key in tree.PLACES or _compare(old, after[key], edits) for key, old in before.items()
    )


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


# -- titles ------------------------------------------------------------------------------------------------------------

_SCALE = re.compile(r"(\bDECIMAL\(\d+),(\d+\))")
_SPACED_SCALE = re.compile(r"\bDECIMAL\(\d+, \d+\)")
_INFINITE = "_ql_infinite"


@dataclass(frozen=True, slots=True)
class Title:
    """The text of an expression as the user wrote it, and as it runs."""

    written: str
    run: str

    def of(self, given: str) -> str:
        """Return the title, where ``given`` is the title in the text that runs.

        DuckDB writes a type as it was parsed, with or without quotes, and ``DECIMAL(9, 2)`` with a space. The tree does
        not show the difference.
        """
        words, others = words_of(self.run), words_of(given)
        if len(words) != len(others):
            return self.written
        quoted = {word.text for word, other in zip(words, others, strict=True) if other.text == f'"{word.text}"'}
        pattern = r"\bAS (" + "|".join(map(re.escape, sorted(quoted))) + r")\b"
        written = re.sub(pattern, r'AS "\1"', self.written) if quoted else self.written
        return _SCALE.sub(r"\1, \2", written) if _SPACED_SCALE.search(given) else written


def titles(connection: duckdb.DuckDBPyConnection, before: Node, after: Node, *, rendered: bool) -> Mapping[int, Title]:
    """Return the titles of columns, by position, that the text that runs would name differently.

    ``before`` is the tree of the user's text, ``after`` the tree that runs. ``rendered`` says that DuckDB rendered the
    text, in which constants look different too.
    """
    old, new = _first_select(before["node"]), _first_select(after["node"])
    if old is None or new is None or len(old["select_list"]) != len(new["select_list"]):
        return {}
    found: dict[int, Title] = {}
    for place, (item, other) in enumerate(zip(old["select_list"], new["select_list"], strict=True)):
        if any(node.get("class") == "STAR" for node in tree.nodes(item)):
            break  # the number of columns is unknown
        if item["alias"] or other["alias"] or not (rendered or item != other):
            continue
        plain = item.get("class") == "COLUMN_REF"
        written = item["column_names"][-1] if plain else _text(connection, item)
        found[place] = Title(written, "" if plain else _text(connection, other, rendered=rendered))
    return found


def _first_select(node: Node) -> Node | None:
    """Return the query block that names the columns."""
    while node.get("type") == "SET_OPERATION_NODE":
        children = node.get("children")
        node = children[0] if children else node["left"]
    return node if node.get("type") == "SELECT_NODE" else None


def _text(connection: duckdb.DuckDBPyConnection, item: Node, *, rendered: bool = False) -> str:
    query = tree.query_of(connection, item if rendered else _finite(item))
    text = tree.render(connection, query) if rendered else tree.written(connection, query)
    return text.removeprefix("SELECT ").replace(_INFINITE, "1e1000")


def _finite(node: Any) -> Any:
    """Return a tree with a name in place of numbers like 1e400, which DuckDB does not read from a tree."""
    if isinstance(node, list):
        return [_finite(item) for item in node]
    if not isinstance(node, dict):
        return node
    value = node["value"].get("value") if node.get("class") == "CONSTANT" and "value" in node else None
    if isinstance(value, float) and not math.isfinite(value):
        same = {key: node[key] for key in ("alias", "query_location")}
        return {"class": "COLUMN_REF", "type": "COLUMN_REF", "column_names": [_INFINITE], **same}
    return {key: _finite(item) for key, item in node.items()}
