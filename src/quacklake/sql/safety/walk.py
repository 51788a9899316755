"""The allow list over parsed queries: anything not known to be harmless is refused.

DuckDB runs the text rendered from this tree and never the user's text, so comments, quotes and look-alike characters
change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from quacklake.engines.duckdb.expressions import FUNCTIONS
from quacklake.engines.duckdb.trees import HARMLESS
from quacklake.errors import NotPermittedError
from quacklake.format.names import fold
from quacklake.sql import tree
from quacklake.sql.attached import PREFIX
from quacklake.sql.tree import Node

#: Returns True for the name of a lake's macro, which is checked where it is used.
Known = Callable[[Sequence[str], bool], bool]

#: Lake functions that only read, and reveal neither keys nor file locations.
_OF_LAKES = frozenset(
    {
        "current_snapshot",
        "last_committed_snapshot",
        "snapshots",
        "table_changes",
        "table_deletions",
        "table_info",
        "table_insertions",
    }
)
#: Listings of the objects in lakes.
LISTINGS = frozenset({"duckdb_columns", "duckdb_constraints", "duckdb_schemas", "duckdb_tables", "duckdb_views"})

_EXPRESSIONS = frozenset(
    """
    BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT DEFAULT FUNCTION LAMBDA LAMBDA_REF OPERATOR
    PARAMETER POSITIONAL_REFERENCE STAR SUBQUERY TYPE WINDOW
    """.split()  # noqa: SIM905
)
_QUERIES = frozenset({"CTE_NODE", "RECURSIVE_CTE_NODE", "SELECT_NODE", "SET_OPERATION_NODE"})
_RELATIONS = frozenset(
    {"BASE_TABLE", "EMPTY", "EXPRESSION_LIST", "JOIN", "PIVOT", "SHOW_REF", "SUBQUERY", "TABLE_FUNCTION"}
)
_ORDERS = frozenset({"ORDER_DEFAULT", "ASCENDING", "DESCENDING", "INVALID"})
_KINDS = _QUERIES | _RELATIONS | _ORDERS
_PARTS = ("_MODIFIER", "_TYPE_INFO")
_SHOWN = frozenset({"", '"tables"', "__show_tables_expanded"})
#: Prefixes of the names of DuckDB's own tables, and of Quacklake's.
_OWN = ("duckdb_", "pg_", "pragma_", "sqlite_", PREFIX)
_PLAIN = re.compile(r"[^\W\d]\w*")


def check(parsed: Node, known: Known) -> None:
    """Raise ``NotPermittedError`` for the first part of a query or expression that is not on the list."""
    done: set[int] = set()
    for node in tree.nodes(parsed):
        _check_kind(node)
        if isinstance(node.get("cte_map"), dict):
            _check_common_tables(node["cte_map"])
        if node.get("type") == "TABLE_FUNCTION":
            done.add(id(node["function"]))
            _check_table_function(node["function"], known)
        elif "function_name" in node and id(node) not in done:
            _check_function(node, known)


def check_value(expression: Node) -> None:
    """Check an expression on its own, which may not read any table."""
    check(expression, lambda *_: False)
    for node in tree.nodes(expression):
        if node.get("class") == "SUBQUERY":
            raise NotPermittedError("a safe session computes no queries here")


def _check_kind(node: Node) -> None:
    kind, class_ = node.get("type"), node.get("class")
    if class_ is not None:
        known = class_ in _EXPRESSIONS
    else:
        known = not isinstance(kind, str) or kind in _KINDS or kind.endswith(_PARTS)
    if "qualified_name" in node and kind != "SHOW_REF":
        known = False  # the name has not been resolved
    if kind == "SHOW_REF" and node.get("query") is None and node.get("table_name") not in _SHOWN:
        known = False
    if not known:
        raise NotPermittedError(f"a safe session does not know {class_ or kind}")


def _check_common_tables(found: Node) -> None:
    """Refuse risky names: where a common table is not visible, DuckDB reads its own table or a file of that name."""
    for entry in found["map"]:
        if not _PLAIN.fullmatch(entry["key"]) or fold(entry["key"]).startswith(_OWN):
            raise NotPermittedError(f'a safe session has no common table of the name "{entry["key"]}"')


def _names(call: Node) -> list[str]:
    return [call[key] for key in ("catalog", "schema", "function_name") if call.get(key)]


def _check_function(call: Node, known: Known) -> None:
    if call.get("export_state"):
        raise NotPermittedError("a safe session does not export the states of aggregates")
    if fold(call["function_name"]) not in FUNCTIONS and not known(_names(call), False):
        raise _refused(call)


def _check_table_function(call: Node, known: Known) -> None:
    if call.get("class") != "FUNCTION":
        raise NotPermittedError(f"a safe session does not know rows of {call.get('class')}")
    name = fold(call["function_name"])
    if name in HARMLESS or name.removeprefix("ducklake_") in _OF_LAKES or (name in LISTINGS and not call["children"]):
        return
    if not known(_names(call), True):
        raise _refused(call)


def _refused(call: Node) -> NotPermittedError:
    return NotPermittedError(
        f'a safe session does not call the function "{call["function_name"]}"',
        hint="functions may work on their arguments and on the tables of lakes only",
    )
