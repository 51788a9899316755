"""The tables that a query reads, and the columns and rows that it needs of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quacklake.format.bounds import ANYTHING, Predicate
from quacklake.format.names import fold, quote
from quacklake.format.objects import TableInfo
from quacklake.scan.plan import VIRTUAL
from quacklake.sql import tree
from quacklake.sql.attached import Attached
from quacklake.sql.titles import Title
from quacklake.sql.tree import Node

if TYPE_CHECKING:
    from quacklake.scan import ScanPlan
    from quacklake.transaction import Transaction


@dataclass
class Scan:
    """One reference to a table of a lake in a query."""

    name: str
    attached: Attached
    tx: Transaction
    table: TableInfo
    virtual: tuple[str, ...] = ()
    rows: bool = False
    predicate: Predicate = ANYTHING
    plan: ScanPlan | None = None
    past: bool = False

    def columns(self) -> str:
        """Return the columns with their types, as for a table without rows."""
        from quacklake.engines.duckdb.sql import ROW_COLUMNS

        found = [f"{quote(column.name)} {column.duckdb_type()}" for column in self.table.schema.columns]
        found += [f"{quote(name)} {VIRTUAL[name].duckdb_type()}" for name in self.virtual]
        found += [f"{name} BIGINT" for name in (ROW_COLUMNS if self.rows else ())]
        return ", ".join(found)


@dataclass
class Bound:
    """A query that DuckDB runs after ``install`` has created the relations that it names."""

    sql: str
    values: Any
    scans: list[Scan]
    target: Scan | None = None
    answered: tuple[Scan, ...] = ()
    """References to tables that metadata answers."""
    titles: Mapping[int, Title] = field(default_factory=dict)
    """Column titles by position, where the text itself would give other names."""


_LOCAL_IDS = 10**18
"""The first row id of uncommitted rows, as in stock DuckLake."""


def with_local_ids(query: str, scan: Scan) -> str:
    """Return a scan in which uncommitted rows have the row id that they keep, or one that marks them as new."""
    pending = next((found for found in scan.tx.pendings() if found.table.id == scan.table.id), None)
    known = {} if pending is None else pending.known_row_ids()
    if not known:
        return query
    kept = {local: id_ for local, id_ in known.items() if id_ is not None}
    cases = "".join(f" WHEN {local:d} THEN {id_:d}" for local, id_ in kept.items())
    own = f"CASE rowid{cases} ELSE {_LOCAL_IDS:d} - 1 - rowid END" if cases else f"{_LOCAL_IDS:d} - 1 - rowid"
    return f"SELECT * REPLACE (CASE WHEN rowid < 0 THEN {own} ELSE rowid END AS rowid) FROM ({query})"


def first_table(node: Node) -> Node:
    while node.get("type") == "JOIN":
        node = node["left"]
    return node


def virtual_names(node: Node) -> frozenset[str]:
    """Return the virtual columns that a query block names."""
    named = (found["column_names"][-1] for found in tree.nodes(node) if found.get("class") == "COLUMN_REF")
    return frozenset(fold(name) for name in named) & VIRTUAL.keys()


def hide_virtual(node: Node, scans: Mapping[str, tuple[str, ...]]) -> None:
    """Exclude from ``*`` the virtual columns that the scans of a query block return."""
    given: dict[str, tuple[str, ...]] = {}
    pending = [node["from_table"]]
    while pending:
        item = pending.pop()
        if item.get("type") == "JOIN":
            pending += [item["left"], item["right"]]
        elif item.get("type") == "BASE_TABLE" and item["table_name"] in scans:
            given[fold(item["alias"])] = scans[item["table_name"]]
    if not any(given.values()):
        return
    pending = list(node["select_list"])
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending += item
        elif isinstance(item, dict) and item.get("type") != "SELECT_NODE":
            if item.get("class") == "STAR":
                relation = fold(item.get("relation_name") or "")
                hidden = given.get(relation, ()) if relation else {name for names in given.values() for name in names}
                item["exclude_list"] = [*item["exclude_list"], *sorted(hidden)]
            pending += [value for value in item.values() if isinstance(value, dict | list)]


def has_filters(parsed: Node) -> bool:
    """Return True when a query has a condition that might rule out files."""
    return any(
        node.get("where_clause") or node.get("condition") or node.get("qualify") or node.get("having")
        for node in tree.nodes(parsed)
    ) or any(node.get("type") == "JOIN" for node in tree.nodes(parsed))
