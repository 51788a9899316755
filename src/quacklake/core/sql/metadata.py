"""The metadata tables of a lake: as relations, and as answers to queries that need no rows.

Queries read ``__ducklake_metadata_<alias>.ducklake_…`` like any table. INSERT, UPDATE and DELETE run in the database
that holds them, for manual repairs. Row counts, minimum and maximum values and column statistics come from there too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.catalog.reading.health import file_bounds, metadata_table
from quacklake.core.format.bounds import comparable, decode, encode_comparable
from quacklake.core.format.extras import GEOMETRY_KINDS
from quacklake.core.format.names import fold, literal
from quacklake.core.format.schema import Column
from quacklake.core.format.types import StatsKind, scalar
from quacklake.core.scan import ScanPlan
from quacklake.core.scan.plan import column_key, unreadable_key
from quacklake.core.sql import tree
from quacklake.core.sql.attached import Attached
from quacklake.core.sql.in_place import leaves
from quacklake.core.sql.result import Result
from quacklake.core.sql.scans import Scan
from quacklake.core.sql.tree import Node
from quacklake.core.sql.words import Cursor
from quacklake.errors import NotFoundError, NotPermittedError, ReadOnlyError, SqlError

if TYPE_CHECKING:
    from quacklake.core.sql.session import Session


def relation(session: Session, names: Sequence[str]) -> pa.Table | None:
    """Return the rows of a metadata table, or None for any other name."""
    attached = session.attachments.metadata_of(names[0] if len(names) > 1 else session.names.catalog)
    if attached is not None and attached.handle.restricted:
        raise NotPermittedError("only administrators read the metadata of a lake")
    return None if attached is None else rows(attached, names[-1])


def rows(attached: Attached, name: str) -> pa.Table:
    """Return a metadata table of a lake. Raise ``NotFoundError`` if it does not exist."""
    with attached.context.catalog.read() as reader:
        found = metadata_table(reader, name)
    if found is None:
        raise NotFoundError(f'the metadata of the lake "{attached.alias}" has no table "{name}"')
    return found


def change(session: Session, cursor: Cursor, params: Any) -> Result | None:
    """Run an INSERT, UPDATE or DELETE of a metadata table in its own database. Return None for any other table."""
    cursor.until("INTO", "UPDATE", "FROM")
    cursor.accept("INTO") or cursor.accept("UPDATE") or cursor.accept("FROM")
    word = cursor.peek()
    if word is None or word.kind not in ("word", "name"):
        return None
    names = cursor.names()
    attached = session.attachments.metadata_of(names[0]) if len(names) > 1 else None
    if attached is None:
        return None
    if attached.handle.restricted:
        raise NotPermittedError("only administrators change the metadata of a lake")
    if attached.read_only:
        raise ReadOnlyError(f'the metadata of "{attached.alias}" cannot be changed: it is attached in read-only mode')
    if session.work.explicit:
        raise SqlError("metadata tables cannot be changed in a transaction: COMMIT or ROLLBACK first")
    if params:
        raise SqlError("a statement that changes metadata tables takes no parameters")
    context = attached.context
    count = context.catalog.run_sql(lambda prefix: _own_text(cursor.text, attached, prefix))
    context.forget()
    return Result(pa.table({"Count": pa.array([count], pa.int64())}), types=("BIGINT",), rowcount=count)


def _own_text(text: str, attached: Attached, prefix: str) -> str:
    """Return the statement with the names that its tables have in their own database."""
    cursor = Cursor(text)
    parts: list[str] = []
    done = 0
    while not cursor.done:
        first = cursor.at
        word = cursor.take()
        if word.kind in ("word", "name") and fold(word.value) == fold(attached.metadata) and cursor.accept("."):
            names = cursor.names()
            parts += [text[done : word.start], f"{prefix}{names[-1]}"]
            done = cursor.words[cursor.at - 1].end
        else:
            cursor.at = first + 1
    return "".join([*parts, text[done:]])


# -- row counts, minimum and maximum values ----------------------------------------------------------------------------

_EXACT = (StatsKind.INTEGER, StatsKind.DATE)
"""Types whose statistics are exact values of the column."""
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_NOT_THERE = ("where_clause", "having", "qualify", "sample", "group_expressions", "group_sets")


def answer(session: Session, parsed: Node, scans: Sequence[Scan]) -> set[str]:
    """Answer query blocks that ask for the count, minimum or maximum of a table; return the scans not needed."""
    by_name = {scan.name: scan for scan in scans}
    answered = set()
    for node in list(tree.nodes(parsed)):
        scan = by_name.get(str((node.get("from_table") or {}).get("table_name"))) if _is_plain(node) else None
        if scan is None or scan.table.id < 0 or scan.past or scan.rows or scan.virtual:
            continue
        if scan.tx.visible(scan.table) is not None:
            continue  # statistics are those of hidden rows too
        if any(pending.table.id == scan.table.id for pending in scan.tx.pendings()):
            continue  # the table has changed since its newest snapshot
        alias = str(node["from_table"]["alias"])
        asked = [_aggregate(call, scan, alias) for call in node["select_list"]]
        values = None if None in asked else _values(scan, [found for found in asked if found is not None])
        if values is None:
            continue
        for place, (call, value) in enumerate(zip(node["select_list"], values, strict=True)):
            node["select_list"][place] = {**tree.expression_of(session.connection, value), "alias": call["alias"]}
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


def _aggregate(call: Node, scan: Scan, alias: str) -> tuple[str, Column | None] | None:
    """Return the aggregate and its column, or None for any other expression.

    A column is bound as DuckDB binds it: ``x`` to the table before any query around it, and ``t.x`` to the table if
    that is its alias. Everything else is a field, or a column of another query.
    """
    if call.get("class") != "FUNCTION" or call["distinct"] or call["filter"] or call["order_bys"]["orders"]:
        return None
    name, children = fold(call["function_name"]), call["children"]
    if name == "count_star" and not children:
        return name, None
    if name not in ("min", "max") or len(children) != 1 or children[0].get("class") != "COLUMN_REF":
        return None
    names = children[0]["column_names"]
    if len(names) > 2 or (len(names) == 2 and fold(names[0]) != fold(alias)):
        return None
    column = scan.table.schema.get(names[-1])
    if column is None or column.nested or not all(_PLAIN.fullmatch(part) for part in names):
        return None
    return (name, column) if scalar(column.type).stats in _EXACT else None


def _values(scan: Scan, asked: Sequence[tuple[str, Column | None]]) -> list[str] | None:
    """Return the values as SQL, or None when rows have to be read."""
    plan = scan.tx.plan(scan.table)
    later = pc.fill_null(pc.greater(plan.files.column("partial_max"), plan.snapshot_id), False)
    if pc.any(pc.is_valid(plan.files.column("delete_path"))).as_py() or pc.any(later).as_py():
        return None  # not every row of every file belongs to this snapshot, apart from the deletes of the plan
    columns = {column.id: column for _, column in asked if column is not None}
    bounds = _bounds(scan, plan, columns) if columns else {}
    if bounds is None:
        return None
    found = []
    for name, column in asked:
        if column is None:
            inlined = 0 if plan.inlined is None else plan.inlined.num_rows
            count = int((pc.sum(plan.files.column("record_count")).as_py() or 0) - plan.deletes.num_rows + inlined)
            found.append(f"CAST({count} AS BIGINT)")
        else:
            value = bounds[column.id][0 if name == "min" else 1]
            found.append(f"CAST({'NULL' if value is None else literal(value)} AS {column.duckdb_type()})")
    return found


def _bounds(
    scan: Scan, plan: ScanPlan, columns: Mapping[int, Column]
) -> dict[int, tuple[str | None, str | None]] | None:
    """Return the minimum and maximum of columns as text, if no row is deleted and every file has statistics."""
    files = plan.files
    if plan.deletes.num_rows:
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
            if unreadable_key(column) in plan.inlined.column_names:
                return None
            there = (value for value in plan.inlined.column(column_key(column)).to_pylist() if value is not None)
            values += [comparable(value, column.type) for value in there]
        if None in values:
            return None
        ends = (min(values), max(values)) if values else ()
        least, most = (encode_comparable(end, column.type) for end in ends) if ends else (None, None)
        found[id_] = (least, most)
    return found


# -- statistics --------------------------------------------------------------------------------------------------------

_SHORT = 8
"""The number of bytes of a text that its statistics hold."""
_FLAGS = "Has Empty Geom: true, Has No Empty Geom: true, Has Empty Part: true, Has No Empty Part: true"
_ANY = "[Has Null: true, Has No Null: true]"
_Stored = Mapping[int, Mapping[str, Any]]


def tell_statistics(session: Session, parsed: Node, scans: Sequence[Scan]) -> None:
    """Replace ``stats(column)`` by the statistics of the lake. DuckDB has none for the column."""
    by_name = {scan.name: scan for scan in scans if scan.tx.rules is None}
    for block in tree.nodes(parsed):
        if block.get("type") != "SELECT_NODE":
            continue
        relations = [
            (fold(leaf["alias"]), by_name.get(str(leaf.get("table_name")))) for leaf in leaves(block["from_table"])
        ]
        for node in _own_nodes(block["select_list"]):
            if node.get("class") != "FUNCTION" or fold(node["function_name"]) != "stats" or len(node["children"]) != 1:
                continue
            found = _column_of(node["children"][0], relations)
            if found is not None:
                scan, column = found
                stats = rows(scan.attached, "ducklake_table_column_stats").to_pylist()
                stored = {row["column_id"]: row for row in stats if row["table_id"] == scan.table.id}
                constant = tree.expression_of(session.connection, literal(_show_statistics(column, stored)))
                tree.replace(node, {**constant, "alias": node["alias"]})


def _own_nodes(item: Any) -> Iterator[Node]:
    """Yield the nodes of expressions, without those of their subqueries."""
    if isinstance(item, list):
        for part in item:
            yield from _own_nodes(part)
    elif isinstance(item, dict) and item.get("type") != "SELECT_NODE":
        yield item
        for part in list(item.values()):
            yield from _own_nodes(part)


_Relations = Sequence[tuple[str, Scan | None]]
"""The relations of a query block: their aliases, and the scans of those that are tables of lakes."""


def _column_of(node: Node, relations: _Relations) -> tuple[Scan, Column] | None:
    """Return the column, or the field of a column, that an expression names, as DuckDB binds it."""
    if node.get("type") == "ARRAY_EXTRACT" and node["children"]:
        found = _column_of(node["children"][0], relations)
        parts = () if found is None else found[1].children
        return (found[0], parts[0]) if found is not None and len(parts) == 1 else None
    names = node["column_names"] if node.get("class") == "COLUMN_REF" else []
    if len(names) > 1:
        for alias, scan in relations:
            column = scan.table.schema.get(names[1]) if scan is not None and alias == fold(names[0]) else None
            if scan is not None and column is not None:
                return _field_of(scan, column, names[2:])
    scans = [scan for _, scan in relations if scan is not None]
    known = [(scan, column) for scan in scans if names and (column := scan.table.schema.get(names[0])) is not None]
    return _field_of(*known[0], names[1:]) if len(known) == 1 and len(scans) == len(relations) else None


def _field_of(scan: Scan, column: Column | None, names: Sequence[str]) -> tuple[Scan, Column] | None:
    for name in names:
        children = () if column is None else column.children
        column = next((child for child in children if fold(child.name) == fold(name)), None)
    return None if column is None else (scan, column)


def _show_statistics(column: Column, stored: _Stored) -> str:
    """Return the statistics of a column and its fields in DuckDB's format. Without any, every value is possible."""
    fields = f" {{{', '.join(f'{child.name}: {_show_statistics(child, stored)}' for child in column.children)}}}"
    if column.type == "struct":
        return f"{fields}{_ANY}"
    if column.type == "list":
        return f"[{_show_statistics(column.children[0], stored)}]{_ANY}"
    if column.type == "map":
        return f"[{fields}{_ANY}]{_ANY}"
    row = stored.get(column.id, {})
    nulls = "false" if row.get("contains_null") is False else "true"
    return f"{_shown_values(column, row)}[Has Null: {nulls}, Has No Null: true]"


def _shown_values(column: Column, row: Mapping[str, Any]) -> str:
    kind = scalar(column.type).stats
    if kind is StatsKind.GEOMETRY:
        return _extent(row.get("extra_stats"))
    ends = [row.get("min_value"), row.get("max_value")]
    beside = ""
    if kind is StatsKind.TEXT:
        ends = [None if text is None else text.encode()[:_SHORT].decode(errors="ignore") for text in ends]
        beside = ", Has Unicode: true, Max String Length: ?"
    elif column.type == "boolean":
        ends = [None if text is None else str(text in ("1", "true")).lower() for text in ends]
    least, most = ("NULL" if text is None else text for text in ends)
    return f"[Min: {least}, Max: {most}{beside}]"


def _extent(text: str | None) -> str:
    known = json.loads(text) if text else {"bbox": {}, "types": []}
    axes = []
    for axis in "xyzm":
        least, most = (known["bbox"].get(f"{axis}{end}") for end in ("min", "max"))
        low, high = ("inf", "-inf") if least is None or most is None else (f"{least:.6f}", f"{most:.6f}")
        axes.append(f"{axis.upper()}: [{low}, {high}]")
    types = ", ".join(sorted(known["types"], key=_dimensions))
    return f"[Extent: [{', '.join(axes)}], Types: [{types}], Flags: [{_FLAGS}]]"


def _dimensions(type_: str) -> tuple[int, int]:
    """Return the sort key of a geometry type: its dimensions, then its number."""
    kind, _, suffix = type_.partition("_")
    return len(suffix) + (suffix == "m"), GEOMETRY_KINDS.index(kind) if kind in GEOMETRY_KINDS else -1
