"""Give unnamed columns of a query the title that the user's text implies.

DuckDB names such a column after its expression, which would show Quacklake's own names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from quacklake.sql import tree
from quacklake.sql.tree import Node
from quacklake.sql.words import words_of

_SCALE = re.compile(r"(\bDECIMAL\(\d+),(\d+\))")
_SPACED_SCALE = re.compile(r"\bDECIMAL\(\d+, \d+\)")


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
    bare = tree.parse(connection, "SELECT 1")
    bare["node"]["select_list"] = [item if rendered else _finite(item)]
    text = tree.render(connection, bare) if rendered else tree.written(connection, bare)
    return text.removeprefix("SELECT ").replace(_INFINITE, "1e1000")


_INFINITE = "_ql_infinite"


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
