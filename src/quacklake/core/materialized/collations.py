"""Collations in the query of a view: what DuckDB compares in the place of a text.

``k COLLATE NOCASE`` is compared by ``lower(k)``: 'p' and 'P' are one value with two spellings. A column of a view keeps
spellings and no collation, so that whatever finds the rows of a group compares by the same functions.

>>> functions_of("nocase"), functions_of("noaccent.de"), functions_of("nocase.it's")
(('lower',), ('icu_collate_de', 'strip_accents'), None)
>>> comparable("v.k", "nocase.noaccent"), comparable("v.k", "")
('lower(strip_accents(v.k))', 'v.k')
"""

from __future__ import annotations

import re
from typing import Any

import duckdb

from quacklake.core.engines.duckdb.trees import Node
from quacklake.core.format.names import fold
from quacklake.core.sql import tree

EXACT = ""
"""The collation of a text that is compared as it is."""
_EXACT_NAMES = ("c", "posix", "binary")
_COMBINABLE = {"nocase": "lower", "noaccent": "strip_accents"}
_LOCALE = re.compile(r"[a-z]+(_[a-z]+)?")


def functions_of(collation: str) -> tuple[str, ...] | None:
    """Return the functions of what a collation compares, outermost first; None for an unknown one."""
    parts = [part for part in collation.split(".") if part not in _EXACT_NAMES and part != EXACT]
    last = [part for part in parts if part not in _COMBINABLE]
    if len(last) > 1 or not all(_LOCALE.fullmatch(part) for part in last):
        return None
    outer = ["nfc_normalize" if part == "nfc" else f"icu_collate_{part.removeprefix('icu_')}" for part in last]
    return (*outer, *(_COMBINABLE[part] for part in parts if part in _COMBINABLE))


def comparable(text: str, collation: str) -> str:
    """Return SQL of what DuckDB compares in the place of a text under a collation."""
    for function in reversed(functions_of(collation) or ()):
        text = f"{function}({text})"
    return text


def comparable_node(connection: duckdb.DuckDBPyConnection, value: Node, collation: str) -> Node:
    """Return the tree of what DuckDB compares in the place of a text under a collation."""
    for function in reversed(functions_of(collation) or ()):
        # DuckDB 2.0 takes the alias of an argument for the name of a parameter
        argument, alias = {**value, "alias": ""}, value.get("alias", "")
        value = {**tree.expression_of(connection, f"{function}(x)"), "children": [argument], "alias": alias}
    return value


def collation_of(expression: Node) -> str:
    """Return the collation that an expression says at its top, or ``EXACT``."""
    if expression.get("class") != "COLLATE":
        return EXACT
    collation = fold(expression["collation"])
    return EXACT if collation in _EXACT_NAMES else collation


def spelling(expression: Node) -> Node:
    """Return an expression without the collation at its top, under the same alias."""
    if expression.get("class") != "COLLATE":
        return expression
    return {**expression["child"], "alias": expression.get("alias", "")}


def is_collated(part: Any) -> bool:
    """Return whether a part of a query has a collation that its value may keep: that of a comparison ends there."""
    if isinstance(part, list):
        return any(is_collated(each) for each in part)
    if not isinstance(part, dict):
        return False
    if part.get("class") in ("COMPARISON", "BETWEEN") or part.get("type") in ("COMPARE_IN", "COMPARE_NOT_IN"):
        return False
    return part.get("class") == "COLLATE" or any(is_collated(each) for each in part.values())
