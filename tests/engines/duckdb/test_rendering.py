"""Trees are written as texts that parse to the same trees, whatever their names are."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import duckdb
import pytest

from quacklake.core.engines.duckdb.expressions import parser
from quacklake.core.engines.duckdb.rendering import render
from quacklake.core.engines.duckdb.trees import TooManyParts, nodes, serialize
from quacklake.errors import SqlError
from tests.hostile import Writer
from tests.seeds import LONG, chance

_NAMED = (
    "alias",
    "relation_name",
    "catalog_name",
    "schema_name",
    "table_name",
    "function_name",
    "identifier",
    "collation",
    "window_name",
    "cte_name",
    "key",
)
_PLAIN = re.compile(r"\d+(\.\d+)?|t|f")
"""Numbers and truth values, which are written as casts of texts."""
_PARTS = ("struct_extract", "array_extract", "array_slice")
_LISTS = ("column_names", "column_name_alias", "using_columns", "exclude_list", "aliases", "unpivot_names")


def text_of(node: dict[str, Any]) -> Any:
    """Return the text of a constant, in the form of either version of DuckDB; None for another node."""
    if node.get("class") != "CONSTANT":
        return None
    literal = node.get("literal")
    return node["value"].get("value") if literal is None else literal["text"] if literal["kind"] == "STRING" else None


def names_in(tree: Any) -> Counter[tuple[str, str]]:
    """Return every name and text in a tree with its place, found without the code under test."""
    found: Counter[tuple[str, str]] = Counter()
    for node in nodes(tree):
        stands_in = node.get("catalog") == "system" and node["function_name"] in _PARTS  # for a part of a value
        # the parameters of a statement are listed even where they stand in a window that nothing uses
        is_listed = isinstance(node.get("value"), int)
        named = ((key, node.get(key)) for key in _NAMED if not (stands_in or is_listed) or key == "alias")
        found.update((key, name) for key, name in named if isinstance(name, str) and name not in ("", "valueslist"))
        found.update((key, str(name)) for key in _LISTS for name in node.get(key) or ())
        text = text_of(node)
        if isinstance(text, str) and not _PLAIN.fullmatch(text):
            found["text", text] += 1
        if not stands_in and node.get("type") in (
            "TABLE_FUNCTION",
            "BASE_TABLE",
            "FUNCTION",
            "COLUMN_REF",
            "JOIN",
            "PIVOT",
            "SHOW_REF",
        ):
            found["node", node["type"]] += 1
    return found


def parsed(connection: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any] | None:
    try:
        document = serialize(connection, sql)
    except TooManyParts:
        return None
    return None if document["error"] else document["statements"][0]


@pytest.mark.parametrize("deepest", [1, 2, 3])
def test_any_statement_is_written_as_itself(deepest: int) -> None:
    writer = Writer(chance("rendered statements", deepest), deepest=deepest)
    written = refused = 0
    with parser() as connection:
        for _ in range(30_000 if LONG else 200):
            sql = writer.statement()
            tree = parsed(connection, sql)
            if tree is None:
                continue
            try:
                text = render(connection, tree)
            except SqlError:
                refused += 1
                continue
            again = parsed(connection, text)
            assert again is not None, f"{sql}\n{text}"
            exact = parsed(connection, sql)
            assert exact is not None
            missing, more = names_in(exact), names_in(again)
            assert not (missing - more) and not (more - missing), f"{sql}\n{text}\n{missing - more}\n{more - missing}"
            written += 1
    assert written > 20 * refused and written > 10
