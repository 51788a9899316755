"""The columns of a query that it compares for equality, by which DuckDB 1.5 looks into the bloom filters of files.

There 0.0 and -0.0 are two values, although they are equal: a filter ``v = 0`` skips row groups with the other zero.
Scans keep such filters out of DuckDB's reader for columns of floating-point numbers that the query compares.

>>> import duckdb
>>> from quacklake.core.sql.tree import parse
>>> query = parse(duckdb.connect(), "SELECT * FROM (SELECT v AS w, x FROM t) WHERE w = 0 AND x = 1")
>>> found = Equalities()
>>> for node in nodes(query):
...     found.note(node)
>>> sorted(found.names())
['v', 'w']
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from quacklake.core.format.names import EVERY_COLUMN, fold
from quacklake.core.sql.tree import Node, constant_of, nodes

_RENAMING = ("SUBQUERY", "BASE_TABLE", "JOIN")


@dataclass
class Equalities:
    """Collects the names from the nodes of a query, which may be those of several trees."""

    _compared: set[str] = field(default_factory=set)
    _sources: dict[str, set[str]] = field(default_factory=dict)
    """The columns that another name stands for."""
    _unclear: bool = False
    """True where names do not tell the columns: they are in a list, or those of the first of several queries."""

    def note(self, node: Node) -> None:
        """Take up one node, without those inside."""
        kind = node.get("type")
        if kind == "COMPARE_EQUAL":
            if not (_is_other(node["left"]) or _is_other(node["right"])):
                self._compare(node)
        elif kind == "COMPARE_IN":
            if len(node.get("children") or ()) == 2 and not _is_other(node["children"][1]):
                self._compare(node)
        elif node.get("comparison_type") == "COMPARE_EQUAL":
            self._compare(node)
        elif kind == "JOIN":
            self._compared.update(map(fold, node.get("using_columns") or ()))
            if node.get("ref_type") == "NATURAL":
                self._compared.update(EVERY_COLUMN)
                self._unclear = True
        elif kind == "SELECT_NODE":
            for item in node["select_list"]:
                self._alias(item)
        self._unclear = self._unclear or kind in ("SET_OPERATION_NODE", "RECURSIVE_CTE_NODE")
        self._unclear = self._unclear or (kind in _RENAMING and bool(node.get("column_name_alias")))
        self._unclear = self._unclear or any(entry["value"].get("aliases") for entry in _common_tables(node))

    def names(self) -> Collection[str]:
        """Return the names of the columns, folded, or ``EVERY_COLUMN``."""
        if self._unclear:
            return EVERY_COLUMN if self._compared else ()
        found, waiting = set[str](), list(self._compared)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self._sources.get(name, ())
        return found

    def _compare(self, node: Node) -> None:
        self._compared.update(_names(node))

    def _alias(self, item: Node) -> None:
        if item.get("alias"):
            self._sources.setdefault(fold(item["alias"]), set()).update(_names(item))
        for entry in item.get("rename_list") or ():
            self._sources.setdefault(fold(str(entry["value"])), set()).add(fold(str(entry["key"]["column"])))


def _common_tables(node: Node) -> list[Any]:
    tables = node.get("cte_map")
    return tables["map"] if isinstance(tables, dict) else []


def _names(node: Node) -> set[str]:
    """Return all parts of the names of columns in an expression."""
    references = (found for found in nodes(node) if found.get("class") == "COLUMN_REF")
    return {fold(part) for found in references for part in found["column_names"]}


def _is_other(node: Node) -> bool:
    """Return whether an expression is a constant that is not zero."""
    constant = constant_of(node)
    if constant is None:
        return False
    try:
        return float(constant.value) != 0
    except (TypeError, ValueError):
        return not isinstance(constant.value, dict)
