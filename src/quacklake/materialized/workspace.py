"""The place of one refresh: a session on the transaction that commits it, with temporary tables of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import duckdb

from quacklake.duckdb_versions import first_row
from quacklake.engines.duckdb.trees import Node
from quacklake.format.names import fold, literal, quote
from quacklake.format.objects import TableInfo
from quacklake.materialized import rewriting
from quacklake.materialized.definition import MaterializedView
from quacklake.materialized.survey import BaseChange, StaleError
from quacklake.operations.change_feed import ChangeScan
from quacklake.operations.context import LakeContext
from quacklake.operations.handles import Handle, TransactionHandle
from quacklake.operations.reference import TableRef
from quacklake.sql import tree
from quacklake.sql.binder import Binder, Bound
from quacklake.sql.failures import translated
from quacklake.sql.safety.checks import check
from quacklake.sql.session import Session
from quacklake.sql.sessions import session_of
from quacklake.sql.statements.inserting import conforming
from quacklake.sql.statements.rows import append_bound
from quacklake.transaction import Transaction

_CHANGE = "_ql_change"
_CAME = "('insert', 'update_postimage')"
#: Types that cannot be compared: their texts are. Others are compared as DuckDB does, also where equal values differ,
#: such as 0.0 and -0.0: the dictionary of a Parquet file keeps one of them.
_BY_TEXT = ("VARIANT", "GEOMETRY")
_UNORDERED = ("FLOAT", "DOUBLE", "INTERVAL", "TIME WITH TIME ZONE", "BLOB", "JSON", "UUID", "BIT", "NULL")
_LISTED = 64
"""The most values of a condition that lets scans skip files; with more, only the least and the greatest count."""


@dataclass
class Feed:
    """The changes of a table in a temporary table."""

    table: str
    inserted: int
    deleted: int

    @property
    def came(self) -> str:
        """The view of the rows that came."""
        return f"{self.table}_came"

    @property
    def went(self) -> str:
        """The view of the rows that went."""
        return f"{self.table}_went"


@dataclass
class Workspace:
    """Runs queries of a view at the snapshot of a transaction, and changes its rows in that transaction."""

    context: LakeContext
    tx: Transaction
    session: Session
    files: int = 0
    files_total: int = 0
    bytes_read: int = 0
    _names: int = 0
    _feeds: dict[int, Feed] = field(default_factory=dict)

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection of the session."""
        return self.session.connection

    # -- the query -----------------------------------------------------------------------------------------------------

    def parse(self, view: MaterializedView, bases: Sequence[BaseChange]) -> Node:
        """Return the query with the names that its tables have now. Raise ``StaleError`` when it cannot be parsed."""
        parsed = tree.parse(self.connection, view.definition.query)
        check(parsed, lambda *_: False)  # whoever refreshes runs what somebody else has written
        names = {(fold(base.known_as[0]), fold(base.known_as[1])): base.table for base in bases}

        def current(node: Node) -> Node | None:
            table = names.get((fold(node.get("schema_name") or ""), fold(node["table_name"])))
            if table is None or (table.schema_name, table.name) == (node["schema_name"], node["table_name"]):
                return None
            alias = node.get("alias") or node["table_name"]
            return {**node, "schema_name": table.schema_name, "table_name": table.name, "alias": alias}

        return rewriting.with_tables(parsed, current)

    def bind(self, sql: str) -> Bound:
        """Look up the names of a query, and plan its scans."""
        bound = Binder(self.session).bind(sql)
        for scan in bound.scans:
            if scan.plan is not None:
                self.files += scan.plan.files.num_rows
                self.bytes_read += sum(size or 0 for size in scan.plan.files.column("file_size_bytes").to_pylist())
        return bound

    def types(self, sql: str) -> list[tuple[str, str]]:
        """Return the columns of a query."""
        with self.translated():
            return self._types(sql)

    def translated(self) -> AbstractContextManager[None]:
        """Turn errors of DuckDB into those of Quacklake."""
        return translated([self.context.store.root], safe=False)

    def _types(self, sql: str) -> list[tuple[str, str]]:
        bound = Binder(self.session).bind(sql)
        rows = self.connection.execute(f"DESCRIBE {bound.sql}", bound.values).fetchall()
        return [(str(row[0]), str(row[1])) for row in rows]

    # -- temporary tables ----------------------------------------------------------------------------------------------

    def fresh(self) -> str:
        """Return the name of a new temporary table."""
        self._names += 1
        return f"ql_view_{self._names}"

    def keep(self, sql: str) -> str:
        """Compute a query into a temporary table, which DuckDB may put on disk, and return its name."""
        name, bound = self.fresh(), self.bind(sql)
        self.connection.execute(f"CREATE TEMP TABLE {name} AS {bound.sql}", bound.values)
        self._announce(name)
        return name

    def make(self, sql: str) -> str:
        """Like ``keep``, for a query over temporary tables alone."""
        name = self.fresh()
        self.connection.execute(f"CREATE TEMP TABLE {name} AS {sql}")
        self._announce(name)
        return name

    def _announce(self, name: str) -> None:
        """Let the planner know a temporary table, without rows: it finds no filters of a query that it cannot bind."""
        columns = self.connection.execute(f"DESCRIBE temp.main.{name}").fetchall()
        listed = ", ".join(f"{quote(str(row[0]))} {row[1]}" for row in columns)
        self.session.planner().execute(f"CREATE OR REPLACE TEMP TABLE {name} ({listed})")

    def number(self, sql: str) -> int:
        """Return the number that a query over temporary tables gives."""
        row = first_row(self.connection, sql)
        assert row is not None
        return int(row[0] or 0)

    def feed(self, base: BaseChange, since: int, wanted: frozenset[str]) -> Feed:
        """Return the changes of a table since a snapshot, with the columns that the query may name."""
        if base.table.id in self._feeds:
            return self._feeds[base.table.id]
        table, name = base.table, self.fresh()
        handle, ref = TransactionHandle(self.context, self.tx), TableRef(table.schema_name, table.name)
        plan = ChangeScan(handle, ref, since, None).plan()
        self.bytes_read += sum(size or 0 for size in plan.rows.files.column("file_size_bytes").to_pylist())
        query = self.context.engine.bind_feed(self.connection, plan, deletes=base.deleted, prefix=name)
        shown = plan.schema.columns[-len(table.schema.columns) :]
        columns = ", ".join(
            f"{quote(fed.name)} AS {quote(column.name)}"
            for fed, column in zip(shown, table.schema.columns, strict=True)
            if fold(column.name) in wanted
        )
        listed = ", ".join(quote(column.name) for column in table.schema.columns if fold(column.name) in wanted)
        changes = f"SELECT change_type AS {_CHANGE}{', ' if columns else ''}{columns} FROM ({query})"
        self.connection.execute(f"CREATE TEMP TABLE {name} AS {changes}")
        rows = self.connection.execute(
            f"SELECT count(*) FILTER ({_CHANGE} IN {_CAME}), count(*) FILTER ({_CHANGE} NOT IN {_CAME}) FROM {name}"
        ).fetchall()
        feed = Feed(name, int(rows[0][0]), int(rows[0][1]))
        for view, negated in ((feed.came, ""), (feed.went, "NOT ")):
            where = f"WHERE {_CHANGE} {negated}IN {_CAME}"
            self.connection.execute(f"CREATE TEMP VIEW {view} AS SELECT {listed or '1 AS one'} FROM {name} {where}")
            self._announce(view)
        self._feeds[table.id] = feed
        return feed

    # -- conditions that let scans skip files --------------------------------------------------------------------------

    def bounds(self, table: str, column: str, type_: str, expression: str, width: str | None = None) -> list[str]:
        """Return conditions on an expression that hold for all values of a column of a temporary table.

        ``width`` makes a value a bucket: the expression is at least the value, and at most the value plus the width.
        """
        if not _is_ordered(type_):
            return []
        name = quote(column)
        end = f"TRY({name} + {width})" if width is not None else name
        row = first_row(
            self.connection,
            f"SELECT count(*), count({name}), count({end}), approx_count_distinct({name}) FROM {table}",
        )
        assert row is not None
        if not row[0] or row[0] != row[1] or row[0] != row[2]:
            return []
        span = f"min({name})::VARCHAR, max({end})::VARCHAR, any_value(typeof({end}))"
        lower, upper, end_type = self.connection.execute(f"SELECT {span} FROM {table}").fetchall()[0]
        conditions = [
            f"{expression} >= CAST({literal(lower)} AS {type_})",
            f"{expression} <= CAST({literal(upper)} AS {end_type})",
        ]
        if row[3] <= _LISTED:
            values = self.connection.execute(
                f"SELECT DISTINCT {name}::VARCHAR, ({end})::VARCHAR FROM {table} LIMIT {_LISTED + 1}"
            ).fetchall()
            if 1 < len(values) <= _LISTED:
                conditions.append(_any_of(values, expression, type_, str(end_type), width is not None))
        return conditions

    # -- the rows of the view ------------------------------------------------------------------------------------------

    def append(self, table: TableInfo, bound: Bound | str) -> int:
        """Insert the rows of a query with one value for each column."""
        sql, values = (bound, None) if isinstance(bound, str) else (bound.sql, bound.values)
        places = {column.id: place for place, column in enumerate(table.schema.columns)}
        attached = self.session.names.default
        assert attached is not None
        return append_bound(self.session, self.tx, attached, table, conforming(table, places, sql), values)

    def delete(self, table: TableInfo, conditions: Sequence[str]) -> int:
        """Delete the rows that meet all conditions, in which ``v`` is the view; all rows without any."""
        where = f" WHERE {' AND '.join(f'({condition})' for condition in conditions)}" if conditions else ""
        result = self.session.statement(f"DELETE FROM {target(table)} AS v{where}")
        row = result.fetchone()
        return int(row[0]) if row is not None else 0


def target(table: TableInfo) -> str:
    """Return the full name of a table in the session of a workspace."""
    return f"lake.{quote(table.schema_name)}.{quote(table.name)}"


def by_text(type_: str) -> bool:
    """Return whether values of a type are compared by their texts."""
    return any(odd in type_ for odd in _BY_TEXT)


def _is_ordered(type_: str) -> bool:
    plain = not any(mark in type_ for mark in ("[", "(", "STRUCT", "MAP")) or type_.startswith("DECIMAL(")
    return (
        plain
        and not by_text(type_)
        and type_ not in _UNORDERED
        and type_ not in ("BLOB", "JSON", "UUID", "BIT", "NULL")
    )


def _any_of(values: Sequence[tuple[Any, ...]], expression: str, type_: str, end_type: str, ranges: bool) -> str:
    if not ranges:
        listed = ", ".join(f"CAST({literal(value)} AS {type_})" for value, _ in values)
        return f"{expression} IN ({listed})"
    return " OR ".join(
        f"({expression} >= CAST({literal(first)} AS {type_}) AND {expression} <= CAST({literal(last)} AS {end_type}))"
        for first, last in values
    )


@contextmanager
def workspace(context: LakeContext, tx: Transaction, handle: Handle | None = None) -> Iterator[Workspace]:
    """Open a workspace on a transaction; with a handle, one that reads the lake of it, at any snapshot."""
    session = session_of(handle or TransactionHandle(context, tx))
    space = Workspace(context, tx, session)
    try:
        with space.translated():
            yield space
    finally:
        session.close()


def checked(work: Workspace, view: MaterializedView, sql: str) -> None:
    """Raise ``StaleError`` unless a query gives the columns that the view has."""
    found = [type_ for _, type_ in work.types(sql)]
    wanted = [column.duckdb_type() for column in view.table.schema.columns]
    for column, now, before in zip(view.table.schema.columns, found, wanted, strict=False):
        if not work.number(f"SELECT (CAST(NULL AS {now}) IS NULL)::INT") or not _alike(work, now, before):
            raise StaleError(f'the column "{column.name}" would be {now} now, and is {before}')
    if len(found) != len(wanted):
        raise StaleError(f"the query gives {len(found)} columns now, and the view has {len(wanted)}")


def _alike(work: Workspace, one: str, other: str) -> bool:
    row = first_row(work.connection, f"SELECT typeof(CAST(NULL AS {one})) = typeof(CAST(NULL AS {other}))")
    return row is not None and bool(row[0])
