"""Answer from metadata alone: row counts, minimum and maximum values, and column statistics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from quacklake.catalog.reading.health import file_bounds
from quacklake.format.bounds import comparable, decode, encode_comparable
from quacklake.format.names import fold, literal
from quacklake.format.schema import Column
from quacklake.format.types import StatsKind, scalar
from quacklake.scan import ScanPlan
from quacklake.scan.plan import column_key
from quacklake.sql import metadata, tree
from quacklake.sql.scans import Scan
from quacklake.sql.statistics import shown
from quacklake.sql.tree import Node

if TYPE_CHECKING:
    from quacklake.sql.session_connection import SessionConnection

_EXACT = (StatsKind.INTEGER, StatsKind.DATE)
"""Types whose statistics are exact values of the column."""
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_NOT_THERE = ("where_clause", "having", "qualify", "sample", "group_expressions", "group_sets")


def answer(session: SessionConnection, parsed: Node, scans: Sequence[Scan]) -> set[str]:
    """Replace query blocks that only ask for the row count, minimum or maximum of a whole table by the values.

    Returns the names of the scans that are no longer needed.
    """
    by_name = {scan.name: scan for scan in scans}
    answered = set()
    for node in list(tree.nodes(parsed)):
        scan = by_name.get(str((node.get("from_table") or {}).get("table_name"))) if _is_plain(node) else None
        if scan is None or not _is_settled(scan):
            continue
        asked = [_aggregate(call, scan) for call in node["select_list"]]
        values = None if None in asked else _values(scan, [found for found in asked if found is not None])
        if values is None:
            continue
        node["select_list"] = [
            {**tree.expression_of(session.connection, value), "alias": call["alias"] or _title(call)}
            for call, value in zip(node["select_list"], values, strict=True)
        ]
        node["from_table"] = tree.parse(session.connection, "SELECT 1")["node"]["from_table"]
        answered.add(scan.name)
    return answered


def _is_plain(node: Node) -> bool:
    """Return True for a block over one table, without filters or groups."""
    if node.get("type") != "SELECT_NODE" or any(node.get(key) for key in _NOT_THERE):
        return False
    source = node["from_table"]
    limits = all(modifier["type"] == "LIMIT_MODIFIER" for modifier in node["modifiers"])
    return limits and source.get("type") == "BASE_TABLE" and not source["sample"] and not source["column_name_alias"]


def _is_settled(scan: Scan) -> bool:
    """Return True when the table is unchanged since its newest snapshot."""
    changed = any(pending.table.id == scan.table.id for pending in scan.tx.pendings())
    return scan.table.id >= 0 and not (changed or scan.past or scan.rows or scan.virtual)


def _aggregate(call: Node, scan: Scan) -> tuple[str, Column | None] | None:
    """Return the aggregate and its column, or None for any other expression."""
    if call.get("class") != "FUNCTION" or call["distinct"] or call["filter"] or call["order_bys"]["orders"]:
        return None
    name, children = fold(call["function_name"]), call["children"]
    if name == "count_star" and not children:
        return name, None
    if name not in ("min", "max") or len(children) != 1 or children[0].get("class") != "COLUMN_REF":
        return None
    names = children[0]["column_names"]
    column = scan.table.schema.get(names[-1])
    if column is None or column.nested or not all(_PLAIN.fullmatch(part) for part in names) or len(names) > 2:
        return None
    return (name, column) if scalar(column.type).stats in _EXACT else None


def _title(call: Node) -> str:
    inside = ".".join(part for child in call["children"] for part in child["column_names"])
    return f"{call['function_name']}({inside})"


def _values(scan: Scan, asked: Sequence[tuple[str, Column | None]]) -> list[str] | None:
    """Return the values as SQL, or None when rows have to be read."""
    plan = scan.tx.plan(scan.table)
    columns = {column.id: column for _, column in asked if column is not None}
    bounds = _bounds(scan, plan, columns) if columns else {}
    if bounds is None:
        return None
    found = []
    for name, column in asked:
        if column is None:
            count = _count(plan)
            if count is None:
                return None
            found.append(f"CAST({count} AS BIGINT)")
        else:
            value = bounds[column.id][0 if name == "min" else 1]
            found.append(f"CAST({'NULL' if value is None else literal(value)} AS {column.duckdb_type()})")
    return found


def _is_whole(plan: ScanPlan) -> bool:
    """Return True when every row of every file belongs to this snapshot, except for the deletes of the plan."""
    later = pc.fill_null(pc.greater(plan.files.column("partial_max"), plan.snapshot_id), False)
    return not (pc.any(pc.is_valid(plan.files.column("delete_path"))).as_py() or pc.any(later).as_py())


def _count(plan: ScanPlan) -> int | None:
    if not _is_whole(plan):
        return None
    inlined = 0 if plan.inlined is None else plan.inlined.num_rows
    return int((pc.sum(plan.files.column("record_count")).as_py() or 0) - plan.deletes.num_rows + inlined)


def _bounds(
    scan: Scan, plan: ScanPlan, columns: Mapping[int, Column]
) -> dict[int, tuple[str | None, str | None]] | None:
    """Return the minimum and maximum of columns as text, if no row is deleted and every file has statistics."""
    files = plan.files
    if plan.deletes.num_rows or not _is_whole(plan):
        return None
    with scan.attached.context.catalog.read() as reader:
        stored = file_bounds(reader, scan.tx.base, scan.table.id, sorted(columns))
    found: dict[int, tuple[str | None, str | None]] = {}
    for id_, column in columns.items():
        values: list[Any] = []
        for file_id, rows in zip(*(files.column(n).to_pylist() for n in ("data_file_id", "record_count")), strict=True):
            known = stored.get((file_id, id_))
            if known is None or ((known[0] is None or known[1] is None) and known[2] != rows):
                return None
            if known[0] is not None and not known[3]:
                return None
            values += [decode(text, column.type) for text in known[:2] if text is not None]
        if plan.inlined is not None and plan.inlined.num_rows:
            there = (value for value in plan.inlined.column(column_key(column)).to_pylist() if value is not None)
            values += [comparable(value, column.type) for value in there]
        if None in values:
            return None
        ends = (min(values), max(values)) if values else ()
        least, most = (encode_comparable(end, column.type) for end in ends) if ends else (None, None)
        found[id_] = (least, most)
    return found


# -- statistics --------------------------------------------------------------------------------------------------------


def tell_statistics(session: SessionConnection, parsed: Node, scans: Sequence[Scan]) -> None:
    """Replace ``stats(column)`` by the statistics of the lake. DuckDB has none for the column."""
    for node in tree.nodes(parsed):
        if node.get("class") == "FUNCTION" and fold(node["function_name"]) == "stats" and len(node["children"]) == 1:
            found = next((f for scan in scans if (f := _column_of(node["children"][0], scan)) is not None), None)
            if found is not None:
                scan, column = found
                text = shown(column, _stored(scan))
                alias = node["alias"] or "stats"
                node.clear()
                node.update(tree.expression_of(session.connection, literal(text)), alias=alias)


def _column_of(node: Node, scan: Scan) -> tuple[Scan, Column] | None:
    """Return the column, or the field of a column, that an expression names."""
    if node.get("type") == "ARRAY_EXTRACT" and node["children"]:
        found = _column_of(node["children"][0], scan)
        parts = () if found is None else found[1].children
        return (scan, parts[0]) if len(parts) == 1 else None
    if node.get("class") != "COLUMN_REF":
        return None
    names = node["column_names"]
    for first, name in enumerate(names):
        column = scan.table.schema.get(name)
        if column is not None:
            return _inside(scan, column, names[first + 1 :])
    return None


def _inside(scan: Scan, column: Column, names: Iterable[str]) -> tuple[Scan, Column] | None:
    for name in names:
        part = next((child for child in column.children if fold(child.name) == fold(name)), None)
        if part is None:
            return None
        column = part
    return scan, column


def _stored(scan: Scan) -> dict[int, dict[str, Any]]:
    rows = metadata.rows(scan.attached, "ducklake_table_column_stats").to_pylist()
    return {row["column_id"]: row for row in rows if row["table_id"] == scan.table.id}
