"""The tables that a query reads: the columns and rows that it needs of them, and its filters.

DuckDB plans a statement over tables without rows, and reports the filters that it would push into their scans: through
joins, subqueries, common tables and views. They let scans skip files that cannot match. A filter that cannot be parsed
back matches anything.

The statement is planned on one connection and runs on another. So ``now()`` in a condition is computed once, before
both. A query with any other function whose result depends on when and where it is called is not used to skip files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import duckdb

from quacklake.core.duckdb_versions import first_row
from quacklake.core.format.names import fold, quote
from quacklake.core.sql import tree
from quacklake.core.sql.attached import Attached
from quacklake.core.sql.tree import Node
from quacklake.errors import QuacklakeError

if TYPE_CHECKING:
    from quacklake.core.format.bounds import Predicate
    from quacklake.core.format.objects import TableInfo
    from quacklake.core.format.schema import TableSchema
    from quacklake.core.scan import ScanPlan
    from quacklake.core.transaction import Transaction


_LOCAL_IDS = 10**18
"""The first row id of uncommitted rows, as in stock DuckLake."""
_MAX_FOOTERS = 4_000


def _anything() -> Predicate:
    from quacklake.core.format.bounds import ANYTHING

    return ANYTHING


@dataclass
class Scan:
    """One reference to a table of a lake in a query."""

    name: str
    attached: Attached
    tx: Transaction
    table: TableInfo
    virtual: tuple[str, ...] = ()
    rows: bool = False
    predicate: Predicate = field(default_factory=_anything)
    plan: ScanPlan | None = None
    past: bool = False

    def columns(self) -> str:
        """Return the columns with their types, as for a table without rows."""
        from quacklake.core.engines.duckdb.sql import ROW_COLUMNS
        from quacklake.core.scan.plan import VIRTUAL

        found = [f"{quote(column.name)} {column.duckdb_type()}" for column in self.table.schema.columns]
        found += [f"{quote(name)} {VIRTUAL[name].duckdb_type()}" for name in self.virtual]
        found += [f"{name} BIGINT" for name in (ROW_COLUMNS if self.rows else ())]
        return ", ".join(found)

    def with_local_ids(self, query: str) -> str:
        """Return a scan in which uncommitted rows have the row id that they keep, or one that marks them as new."""
        pending = next((found for found in self.tx.pendings() if found.table.id == self.table.id), None)
        known = {} if pending is None else pending.known_row_ids()
        if not known:
            return query
        kept = {local: id_ for local, id_ in known.items() if id_ is not None}
        cases = "".join(f" WHEN {local:d} THEN {id_:d}" for local, id_ in kept.items())
        own = f"CASE rowid{cases} ELSE {_LOCAL_IDS:d} - 1 - rowid END" if cases else f"{_LOCAL_IDS:d} - 1 - rowid"
        return f"SELECT * REPLACE (CASE WHEN rowid < 0 THEN {own} ELSE rowid END AS rowid) FROM ({query})"


@dataclass
class Bound:
    """A query that DuckDB runs after ``install`` has created the relations that it names."""

    sql: str
    values: Any
    scans: list[Scan]
    target: Scan | None = None
    answered: tuple[Scan, ...] = ()
    """References to tables that metadata answers."""
    is_plain: bool = False
    """True when the query leaves nothing in the database that runs it, or another could tell."""


def virtual_names(node: Node) -> frozenset[str]:
    """Return the virtual columns that a query block names."""
    columns = (found["column_names"][-1] for found in tree.nodes(node) if found.get("class") == "COLUMN_REF")
    named = frozenset(map(fold, columns))
    if not named:
        return named
    from quacklake.core.scan.plan import VIRTUAL

    return named & VIRTUAL.keys()


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
    pending = list(node["select_list"]) if any(given.values()) else []
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


def planned(scan: Scan) -> ScanPlan:
    """Return the scan plan of a scan, and tell of it."""
    context = scan.attached.context
    if context.lineage is not None:
        context.lineage.read(scan.tx, scan.table)
    return scan.tx.plan(scan.table, scan.predicate, max_files=context.config.plan_max_files)


@dataclass
class Footers:
    """Lets DuckDB cache the footers of a limited number of files. They take more memory than DuckDB counts."""

    _kept: set[str] = field(default_factory=set)
    _on: bool = False

    def prepare(self, connection: duckdb.DuckDBPyConnection, scans: list[Scan]) -> None:
        """Switch the cache on or off before a statement reads the files of its scans."""
        plans = [scan.plan for scan in scans if scan.plan is not None]
        paths = [path for plan in plans for path in plan.files.column("path").to_pylist()]
        # DuckDB cannot open an encrypted file by a cached footer, and its database becomes invalid when it tries
        encrypted = any(plan.files.column("encryption_key").null_count < plan.files.num_rows for plan in plans)
        few = len(self._kept) + len(paths) <= _MAX_FOOTERS or self._kept.issuperset(paths)
        wanted = bool(paths) and few and not encrypted
        if wanted:
            self._kept.update(paths)
        if paths and wanted != self._on:
            connection.execute(f"SET SESSION parquet_metadata_cache = {'true' if wanted else 'false'}")
            self._on = wanted


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Functions with one result throughout a query, but not across connections or queries.
_ONCE = frozenset(
    """
    current_database current_date current_schema current_schemas current_setting get_current_time get_current_timestamp
    getvariable now today transaction_timestamp
    """.split()  # noqa: SIM905
)
_NEVER = frozenset(
    """
    current_connection_id current_query current_query_id current_transaction_id currval error gen_random_uuid
    in_search_path nextval random setseed setval sleep_ms stats txid_current uuid uuidv4 uuidv7 vector_type write_log
    """.split()  # noqa: SIM905
)
#: Names without parentheses that are functions unless a column has the name.
_WORDS = frozenset(
    """
    current_catalog current_date current_role current_schema current_time current_timestamp current_user localtime
    localtimestamp session_user user
    """.split()  # noqa: SIM905
)
_CONDITIONS = ("where_clause", "condition", "having", "qualify")


def scan_filters(connection: duckdb.DuckDBPyConnection, sql: str, values: Any) -> dict[str, list[list[str]]]:
    """Return the filters of each scan, by the name of its table. A table may be scanned several times."""
    row = first_row(connection, f"EXPLAIN (FORMAT JSON) {sql}", values)
    found: dict[str, list[list[str]]] = {}
    pending = [] if row is None else list(json.loads(row[1]))
    while pending:
        node = pending.pop()
        pending.extend(node.get("children", ()))
        facts = node.get("extra_info", {})
        table = facts.get("Table")
        if isinstance(table, str):
            given = facts.get("Filters", [])
            filters = [given] if isinstance(given, str) else list(given)
            found.setdefault(table.rsplit(".", 1)[-1].strip('"'), []).append(filters)
    return found


def filters_of(scans: list[list[str]] | None, schema: TableSchema) -> Predicate:
    """Return one predicate that covers all scans of a table."""
    from quacklake.core.format.bounds import ANYTHING, every, some

    if not scans or not all(_PLAIN.fullmatch(column.name) for column in schema.columns):
        return ANYTHING  # DuckDB does not quote names in its report
    return some(every(_predicate(text, schema) for text in scan) for scan in scans)


@lru_cache(maxsize=1024)
def _predicate(text: str, schema: TableSchema) -> Predicate:
    from quacklake.core.scan import to_predicate

    try:
        return to_predicate(text.removeprefix("optional: "), schema)
    except QuacklakeError:
        return _anything()


def has_filters(parsed: Node) -> bool:
    """Return True when a query has a condition that might rule out files."""
    return any(node.get("type") == "JOIN" or any(node.get(key) for key in _CONDITIONS) for node in tree.nodes(parsed))


def settle(parsed: Node, compute: Callable[[Node], Node]) -> None:
    """Replace calls in conditions that are constant throughout the query by the result of ``compute``."""
    for node in tree.nodes(parsed):
        for key in _CONDITIONS:
            if isinstance(node.get(key), dict):
                node[key] = _settle_values(node[key], compute)


def _settle_values(node: Any, compute: Callable[[Node], Node]) -> Any:
    if isinstance(node, list):
        return [_settle_values(item, compute) for item in node]
    if not isinstance(node, dict) or node.get("type") in ("SELECT_NODE", "SUBQUERY"):
        return node  # the conditions of a subquery are visited on their own
    if node.get("type") == "FUNCTION" and fold(node["function_name"]) in _ONCE:
        inside = (found["class"] for found in tree.nodes(node["children"]) if "class" in found)
        if all(class_ in (None, "CONSTANT") for class_ in inside):
            return compute(node)
    return {key: _settle_values(value, compute) for key, value in node.items()}


def is_steady(parsed: Node) -> bool:
    """Return True when a query has the same filters on every connection and at any time."""
    for node in tree.nodes(parsed):
        if node.get("type") == "FUNCTION" and fold(node["function_name"]) in _ONCE | _NEVER:
            return False
        names = node["column_names"] if node.get("class") == "COLUMN_REF" else []
        if len(names) == 1 and fold(names[0]) in _WORDS:
            return False
    return True
