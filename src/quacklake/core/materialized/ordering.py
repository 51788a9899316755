"""Find where a query of a view has several answers, because rows that it orders are equal in that order.

``lag(x) OVER (PARTITION BY k ORDER BY day)`` gives another answer when two rows of a day change places. Ordered by
everything that the SELECT reads of a row, only rows that are the same can, and the answer is one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from quacklake.core.engines.duckdb.trees import Node, bare, nodes
from quacklake.core.format.names import fold

#: Aggregates whose value depends on the order of the rows, unless they say ORDER BY, or that pick one of several.
ORDERED = frozenset(
    """
    any_value approx_quantile approx_top_k arbitrary arg_max arg_max_null arg_max_nulls_last arg_min arg_min_null
    arg_min_nulls_last argmax argmin array_agg first group_concat json_group_array json_group_object
    json_group_structure last list listagg max_by min_by mode reservoir_quantile string_agg
    """.split()  # noqa: SIM905
)
#: Functions of a window that go by the places of rows in its order, whatever its frame.
_PLACED = ("row_number", "ntile", "lag", "lead", "fill")
#: Functions of a window that pick one row of its frame.
_PICKING = ("first", "first_value", "last", "last_value", "nth_value")


@dataclass(frozen=True)
class OpenOrder:
    """A list of ORDER BY in which the places of equal rows change an answer, and what it lacks to leave none equal.

    ``first`` are the orders that come before these when the list is empty.
    """

    function: str
    orders: list[Node]
    lacking: tuple[Node, ...]
    first: tuple[Node, ...] = ()


def open_orders(select: Node, aggregates: Collection[str]) -> Iterator[OpenOrder]:
    """Yield the lists of ORDER BY in the items of a SELECT that leave rows equal which are not."""
    whole = _parts_of_rows(select, aggregates)
    for node in list(nodes([select["select_list"], select.get("having")])):
        name = fold(str(node.get("function_name", "")))
        if node.get("class") == "WINDOW":
            yield from _of_window(node, name, whole)
        elif name in ORDERED and name in aggregates and (node.get("order_bys") or {}).get("orders"):
            yield from _open(name, node["order_bys"]["orders"], _values(node["children"]))


def _of_window(window: Node, name: str, whole: list[Node]) -> Iterator[OpenOrder]:
    own, orders = window.get("arg_orders") or [], window["orders"]
    equal = [bare(part) for part in window["partitions"]]  # in all rows of a window
    whole = [part for part in whole if bare(part) not in equal]
    by_rows = any(str(window.get(end, "")).endswith("_ROWS") for end in ("start", "end"))
    if name in _PLACED and own:
        yield from _open(name, own, whole)
    elif name in _PLACED or by_rows:
        yield from _open(name, orders, whole)
    if name in _PICKING or name in ORDERED:
        yield from _open(name, window["arg_orders"], whole if name in _PICKING else _values(window["children"]), orders)


def _open(name: str, orders: list[Node], parts: list[Node], first: Collection[Node] = ()) -> Iterator[OpenOrder]:
    known = [bare(order["expression"]) for order in orders]
    lacking = [part for part in parts if bare(part) not in known]
    if lacking:
        yield OpenOrder(name, orders, tuple(lacking), () if orders else tuple(first))


def _parts_of_rows(select: Node, aggregates: Collection[str]) -> list[Node]:
    """Return expressions that are equal only for rows which no window of a SELECT tells apart."""
    items: list[Node] = select["select_list"]
    if not select["group_expressions"] and select["aggregate_handling"] != "FORCE_AGGREGATES":
        return _distinct(node for node in _outside_lambdas(items) if node.get("class") == "COLUMN_REF")
    plain = [item for item in items if not any(node.get("class") == "WINDOW" for node in nodes(item))]
    return _distinct(iter([*_values(plain), *_values(select["group_expressions"])]))


def _values(parts: list[Node]) -> list[Node]:
    return _distinct(part for part in parts if part.get("class") != "CONSTANT")


def _distinct(parts: Iterator[Node]) -> list[Node]:
    found: list[Node] = []
    known: list[Any] = []
    for part in parts:
        unnamed = {**part, "alias": ""}
        if bare(unnamed) not in known:
            known.append(bare(unnamed))
            found.append(unnamed)
    return found


def _outside_lambdas(part: Any) -> Iterator[Node]:
    if isinstance(part, list):
        for each in part:
            yield from _outside_lambdas(each)
    elif isinstance(part, dict) and part.get("class") != "LAMBDA":
        yield part
        yield from _outside_lambdas(list(part.values()))
