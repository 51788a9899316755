"""Find the filters of a statement on each table, to skip files that cannot match.

DuckDB plans the statement over tables without rows, and reports the filters that it would push into their scans:
through joins, subqueries, common tables and views. A filter that cannot be parsed back matches anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import duckdb

from quacklake.duckdb_versions import first_row
from quacklake.errors import QuacklakeError
from quacklake.format.bounds import ANYTHING, Predicate, every, some
from quacklake.format.schema import TableSchema
from quacklake.scan import to_predicate

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def scan_filters(connection: duckdb.DuckDBPyConnection, sql: str, values: Any) -> dict[str, list[list[str]]]:
    """Return the filters of each scan, by the name of its table. A table may be scanned several times."""
    row = first_row(connection, f"EXPLAIN (FORMAT JSON) {sql}", values)
    found: dict[str, list[list[str]]] = {}
    if row is None:
        return found
    for node in _nodes(json.loads(row[1])):
        facts = node.get("extra_info", {})
        table = facts.get("Table")
        if isinstance(table, str):
            given = facts.get("Filters", [])
            filters = [given] if isinstance(given, str) else list(given)
            found.setdefault(table.rsplit(".", 1)[-1].strip('"'), []).append(filters)
    return found


def _nodes(plan: Any) -> Iterator[Mapping[str, Any]]:
    pending = list(plan)
    while pending:
        node = pending.pop()
        yield node
        pending.extend(node.get("children", ()))


def filters_of(scans: list[list[str]] | None, schema: TableSchema) -> Predicate:
    """Return one predicate that covers all scans of a table."""
    if not scans or not all(_PLAIN.fullmatch(column.name) for column in schema.columns):
        return ANYTHING  # DuckDB does not quote names in its report
    return some(every(_predicate(text, schema) for text in scan) for scan in scans)


@lru_cache(maxsize=1024)
def _predicate(text: str, schema: TableSchema) -> Predicate:
    try:
        return to_predicate(text.removeprefix("optional: "), schema)
    except QuacklakeError:
        return ANYTHING
