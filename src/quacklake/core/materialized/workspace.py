"""The place of one refresh: a session on the transaction that commits it, with temporary tables of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import duckdb

from quacklake.core.duckdb_versions import arrow_table, first_row
from quacklake.core.engines.duckdb.engine import places_to_target
from quacklake.core.engines.duckdb.trees import Node
from quacklake.core.format.bounds import Predicate, every
from quacklake.core.format.names import EVERY_COLUMN, fold, quote
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import Column
from quacklake.core.format.snapshots import Operation
from quacklake.core.lazy import provided
from quacklake.core.materialized import rewriting
from quacklake.core.materialized.collations import EXACT, comparable
from quacklake.core.materialized.definition import MaterializedView
from quacklake.core.materialized.determinism import aggregates, determined
from quacklake.core.materialized.query import base_tables
from quacklake.core.materialized.spans import Key, Span, Spans, by_text
from quacklake.core.materialized.survey import BaseChange, StaleError
from quacklake.core.operations import dml
from quacklake.core.operations.change_feed import ChangeScan
from quacklake.core.operations.conform import RowWriter
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.handles import Handle, TransactionHandle
from quacklake.core.operations.reference import TableRef
from quacklake.core.operations.row_changes import PLACES
from quacklake.core.scan import ScanPlan
from quacklake.core.scan.feed import FeedPlan
from quacklake.core.sql import tree
from quacklake.core.sql.binder import Binder, Bound
from quacklake.core.sql.failures import translated
from quacklake.core.sql.guard import StoredTextGuard
from quacklake.core.sql.safety.checks import check
from quacklake.core.sql.session import Session
from quacklake.core.sql.sessions import session_of
from quacklake.core.sql.statements.inserting import conforming
from quacklake.core.sql.statements.rows import append_bound
from quacklake.core.sql.views import cursor_on
from quacklake.core.transaction import Transaction
from quacklake.errors import NotFoundError, QuacklakeError, UnsupportedFeatureError

_CHANGE = "_ql_change"
_CAME = "('insert', 'update_postimage')"
LISTED = 64
"""The most values of a condition that lets scans skip files; with more, only the least and the greatest count."""
FEW = 8
"""The same where a scan is cheap: for the rows of a view."""


class Queries(Protocol):
    """Another engine, which runs queries over the tables of a transaction, and over rows that came."""

    def run(self, sql: str, feeds: Mapping[str, tuple[ScanPlan, TableInfo]], *, dry: bool) -> str | None:
        """Return the query of the rows, whose columns are ``c0`` and so on; None when ``dry``.

        Raise ``UnsupportedFeatureError`` for what is not known to mean the same there.
        """

    def close(self) -> None:
        """Remove what was staged."""


@provided
def spark_queries(context: LakeContext, tx: Transaction, place: TableInfo, *, start: bool) -> Queries | None:
    """Return what runs queries in the active session of Spark; without one None, or in a new one if it may ``start``.

    Rows are staged below the folder of the table ``place``. Raise ``MissingExtraError`` where Spark cannot start.
    """
    raise NotImplementedError


@dataclass
class Feed:
    """The changes of a table since a snapshot, as two temporary relations: the rows that came and those that went."""

    table: str
    inserted: int
    deleted: int

    @property
    def came(self) -> str:
        """The view of the rows that came."""
        return f"{self.table}_came"

    @property
    def went(self) -> str:
        """The view of the rows that went, which is there when rows were deleted."""
        return f"{self.table}_went"


@dataclass(frozen=True, slots=True)
class Stored:
    """Rows of the view in a temporary table, with their places, and the plan by which they were found."""

    table: str
    plan: ScanPlan


@dataclass(frozen=True, slots=True)
class Match:
    """A key of the view, which is a column of it, and the name of its values in a temporary table of changes.

    ``spelled`` says that these are spellings as in the view, and not what the collation compares.
    """

    column: Column
    name: str
    collation: str = EXACT
    spelled: bool = False

    @property
    def of_view(self) -> str:
        """SQL that is compared of the rows of the view, which are called ``v``."""
        return comparable(f"v.{quote(self.column.name)}", self.collation)

    @property
    def of_change(self) -> str:
        """SQL that is compared of the changes, under the same name."""
        if not self.spelled or self.collation == EXACT:
            return self.name
        return f"{comparable(self.name, self.collation)} AS {self.name}"


@dataclass
class Workspace:
    """Runs queries of a view at the snapshot of a transaction, and changes its rows in that transaction."""

    context: LakeContext
    tx: Transaction
    session: Session
    engine: str = "auto"
    """The engine that the view asks for."""
    used: str = "duckdb"
    """The engine that has computed rows."""
    files: int = 0
    files_total: int = 0
    bytes_read: int = 0
    _names: int = 0
    _feeds: dict[int, Feed] = field(default_factory=dict)
    _plain_feeds: dict[str, tuple[ScanPlan, TableInfo]] = field(default_factory=dict)
    _unknown: list[str] = field(default_factory=list)
    _spark: Queries | None = None

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
        for node in base_tables(parsed):  # any other name could be a file
            if node.get("catalog_name") or (fold(node["schema_name"]), fold(node["table_name"])) not in names:
                raise NotFoundError(f'the query reads "{node["table_name"]}", which is no table of the view')

        def current(node: Node) -> Node | None:
            table = names.get((fold(node.get("schema_name") or ""), fold(node["table_name"])))
            if table is None or (table.schema_name, table.name) == (node["schema_name"], node["table_name"]):
                return None
            alias = node.get("alias") or node["table_name"]
            return {**node, "schema_name": table.schema_name, "table_name": table.name, "alias": alias}

        return self.with_one_answer(rewriting.with_tables(parsed, current))

    def with_one_answer(self, query: Node) -> Node:
        """Return a query of which every computation has the same rows, if it can be written so."""
        made = determined(self.connection, query, aggregates())
        if made == query:
            return query
        try:
            same = self.types(tree.render(self.connection, made)) == self.types(tree.render(self.connection, query))
        except QuacklakeError:  # values without an order, or a query that cannot run any more
            return query
        return made if same else query

    def bind(self, sql: str) -> Bound:
        """Look up the names of a query, and plan its scans."""
        for name in self._unknown:
            self._announce(name)
        self._unknown.clear()
        bound = Binder(self.session).bind(sql)
        for scan in bound.scans:
            if scan.plan is not None:
                self._count(scan.plan)
        return bound

    def types(self, sql: str) -> list[tuple[str, str]]:
        """Return the columns of a query."""
        with self.translated():
            return Binder(self.session).columns(sql)

    def translated(self) -> AbstractContextManager[None]:
        """Turn errors of DuckDB into those of Quacklake."""
        return translated([self.context.store.root], safe=False)

    def _count(self, plan: ScanPlan) -> None:
        self.files += plan.files.num_rows
        self.bytes_read += size_of(plan)

    def on_spark(self, place: TableInfo, text: Callable[[], str], size: int, *, dry: bool = False) -> str | None:
        """Compute a query on Spark, if the view asks for it, or if it reads so many bytes that Spark should.

        Return the query of the rows, with the columns ``c0`` and so on; None when DuckDB is to compute it. Raise
        ``UnsupportedFeatureError`` when the view asks for Spark, and the query is not known to mean the same there.
        """
        asked = self.engine == "spark"
        if self.engine == "duckdb" or (not asked and size < self.context.config.view_spark_bytes):
            return None
        if self._spark is None:
            self._spark = spark_queries(self.context, self.tx, place, start=asked and not dry)
            if self._spark is None:
                if asked:
                    self.used = "spark"  # which is not started to tell that
                return None
        try:
            rows = self._spark.run(text(), self._plain_feeds, dry=dry)
        except UnsupportedFeatureError as error:
            if asked:
                error.hint = error.hint or "let DuckDB compute it: WITH (engine = 'duckdb')"
                raise
            return None
        self.used = "spark"
        return rows

    def is_plain(self, feed: Feed) -> bool:
        """Return whether the rows of a feed only came, in files that any engine can read."""
        return feed.came in self._plain_feeds

    def plain_bytes(self, feed: Feed) -> int:
        """Return the size of the files with the rows that came."""
        return size_of(self._plain_feeds[feed.came][0])

    def close(self) -> None:
        """Remove what Spark has staged."""
        if self._spark is not None:
            self._spark.close()

    # -- temporary tables ----------------------------------------------------------------------------------------------

    def fresh(self) -> str:
        """Return the name of a new temporary table."""
        self._names += 1
        return f"ql_view_{self._names}"

    def keep(self, sql: str) -> str:
        """Compute a query into a temporary table, which DuckDB may put on disk, and return its name."""
        name, bound = self.fresh(), self.bind(sql)
        self.connection.execute(f"CREATE TEMP TABLE {name} AS {bound.sql}", bound.values)
        self._unknown.append(name)
        return name

    def make(self, sql: str, values: Any = None) -> str:
        """Like ``keep``, for a query that is bound already, or that reads temporary tables alone."""
        name = self.fresh()
        self.connection.execute(f"CREATE TEMP TABLE {name} AS {sql}", values)
        self._unknown.append(name)
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

    # -- changes of tables ---------------------------------------------------------------------------------------------

    def feed(self, base: BaseChange, since: int, wanted: frozenset[str]) -> Feed:
        """Return the changes of a table since a snapshot, with the columns that the query may name.

        Rows that only came are read where they are, when the query needs them. Otherwise the changes are kept in a
        temporary table.
        """
        if base.table.id in self._feeds:
            return self._feeds[base.table.id]
        table = base.table
        plan = self._feed_plan(base, since)
        self._count(plan.rows)
        feed = None if base.deleted else self._plain(plan, table, wanted)
        if feed is None:
            feed = self._mix_feed(plan, base, wanted)
        self._unknown += [feed.came] if self.is_plain(feed) else [feed.came, feed.went]
        self._feeds[table.id] = feed
        return feed

    def _feed_plan(self, base: BaseChange, since: int) -> FeedPlan:
        """Return the plan of the changes of a table, which the views over it share when they are refreshed in turn."""
        handle, ref = TransactionHandle(self.context, self.tx), TableRef(base.table.schema_name, base.table.name)
        make = ChangeScan(handle, ref, since, None).plan
        if base.touched is None:
            return make()
        with self.context.catalog.read() as reader:
            times = reader.snapshots.times(base.touched)
        return self.context.plans.feed(base.table, (base.touched, *times.items()), make)

    def _plain(self, plan: FeedPlan, table: TableInfo, wanted: frozenset[str]) -> Feed | None:
        """Return the feed of rows that came in files of their own; None when others are in these files too."""
        scan, rest = plan.plain_inserts()
        if rest.rows.files.num_rows or (rest.inserted is not None and rest.inserted.num_rows):
            return None
        name, count = self.fresh(), scan.count()
        listed = ", ".join(quote(column.name) for column in table.schema.columns if fold(column.name) in wanted)
        query = self.context.engine.bind(self.connection, scan, prefix=name)
        feed = Feed(name, 0, 0)
        rows = f"SELECT {listed or '1 AS one'} FROM ({query})"
        self.connection.execute(f"CREATE TEMP VIEW {feed.came} AS {rows}")
        feed.inserted = self.number(f"SELECT count(*) FROM {feed.came}") if count is None else count
        self._plain_feeds[feed.came] = scan, table
        return feed

    def _mix_feed(self, plan: FeedPlan, base: BaseChange, wanted: frozenset[str]) -> Feed:
        table, name = base.table, self.fresh()
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
        return feed

    # -- values that let scans skip files ------------------------------------------------------------------------------

    def spans(self, table: str, keys: Sequence[Key], most: int = LISTED) -> tuple[int, Spans]:
        """Return the number of rows of a temporary table, and the values of its columns by name, if they are few."""
        asked = ["count(*)"]
        for key in keys:
            name = quote(key.name)
            asked.append(f"count({name})")
            if key.ordered:
                asked += [f"count({key.ends})", f"approx_count_distinct({name})", f"min({name})::VARCHAR"]
                asked += [f"max({name})::VARCHAR", f"max({key.ends})::VARCHAR", f"any_value(typeof({key.ends}))"]
            else:
                asked += ["NULL"] * 6
        row = first_row(self.connection, f"SELECT {', '.join(asked)} FROM {table}")
        assert row is not None
        found: Spans = {}
        few: list[Key] = []
        for at, key in enumerate(keys):
            count, ends, distinct, low, high, end, end_type = row[1 + 7 * at : 8 + 7 * at]
            nulls = count != row[0]
            if low is None or nulls:
                found[key.name] = Span(nulls)
                continue
            found[key.name] = Span(nulls, low, high, end if ends == count else None, str(end_type))
            if distinct <= most and low != high:
                few.append(key)
        return int(row[0]), found | self._list_values(table, few, found)

    def _list_values(self, table: str, keys: Sequence[Key], known: Spans) -> Spans:
        """Return the spans of keys that have few values, with all of them."""
        if not keys:
            return {}
        lists = ", ".join(
            f"list(DISTINCT [CAST({quote(key.name)} AS VARCHAR), CAST({key.ends} AS VARCHAR)])" for key in keys
        )
        row = first_row(self.connection, f"SELECT {lists} FROM {table}")
        assert row is not None
        found: Spans = {}
        for key, values in zip(keys, row, strict=True):
            complete = len(values) <= LISTED and all(end is not None for _, end in values)
            if complete:
                found[key.name] = replace(known[key.name], values=tuple(sorted((one, end) for one, end in values)))
        return found

    # -- the rows of the view ------------------------------------------------------------------------------------------

    def stored(
        self, table: TableInfo, touched: str, keys: Sequence[Match], spans: Spans, *, values: bool
    ) -> Stored | None:
        """Find the rows of the view whose keys are in a temporary table.

        With ``values``, the temporary table that holds them has their columns too, as ``c0`` and so on. Return None
        when the statistics of its files say that it has no such rows.
        """
        own = [f"v.{quote(column.name)} AS c{n}" for n, column in enumerate(table.schema.columns)] if values else []
        plain = not any(spans[key.name].nulls or by_text(key.column.duckdb_type()) for key in keys)
        changed = f"SELECT {', '.join(key.of_change for key in keys)} FROM temp.main.{touched}"
        if not keys:
            joined = ""
        elif plain:
            equal = " AND ".join(f"{key.of_view} = d.{key.name}" for key in keys)
            joined = f" SEMI JOIN ({changed}) AS d ON {equal}"
        else:  # NULL counts as a value
            mine = rewriting.packing([key.of_view for key in keys])
            theirs = rewriting.packing([key.name for key in keys])
            joined = f" WHERE {mine} IN (SELECT {theirs} FROM ({changed}))"
        predicate = every(spans[key.name].predicate(key.column) for key in keys)
        return self.found(table, f"SELECT {', '.join([*own, PLACES])} FROM {{}} AS v{joined}", predicate)

    def found(self, table: TableInfo, query: str, predicate: Predicate, *, guarded: bool = False) -> Stored | None:
        """Keep the places, and more, of rows of the view: ``{}`` in the query stands for them; None: there are none."""
        self.tx.pending(table).add_read(predicate)
        plan = self.tx.plan(table, predicate, max_files=self.context.config.plan_max_files)
        self._count(plan)
        if not plan.files.num_rows and (plan.inlined is None or not plan.inlined.num_rows):
            return None
        name = self.fresh()
        rows = self.context.engine.bind(
            self.connection, plan, rows=True, prefix=f"{name}_own", guarded=guarded, compared=EVERY_COLUMN
        )
        self.connection.execute(f"CREATE TEMP VIEW {name}_rows AS {rows}")
        self.connection.execute(f"CREATE TEMP TABLE {name} AS {query.replace('{}', f'temp.main.{name}_rows', 1)}")
        return Stored(name, plan)

    def remove(self, table: TableInfo, stored: Stored | None) -> int:
        """Delete the rows that were found."""
        self.tx.asks(Operation.DELETE)
        if stored is None:
            return 0
        places = arrow_table(self.connection, f"SELECT {PLACES} FROM {stored.table}")
        if places.num_rows:
            self.tx.pending(table).delete(stored.plan, places_to_target(places))
        return int(places.num_rows)

    def remove_all(self, table: TableInfo) -> int:
        """Delete all rows of the view."""
        plan = self.tx.plan(table)
        known = plan.count()
        count = self.context.engine.count(plan, None) if known is None else known
        dml.delete(self.context, self.tx, table, None, counted=False)
        return count

    def insert(self, table: TableInfo, rows: str, count: int | None = None) -> int:
        """Insert the rows of a temporary table, so many if it is known, with one column for each of the view's."""
        self.tx.asks(Operation.INSERT)
        writer = RowWriter(self.context, self.tx, table, self.connection)
        return writer.insert_query(_conforming(table, f"SELECT * FROM temp.main.{rows}"), count=count)

    def append(self, table: TableInfo, bound: Bound) -> int:
        """Insert the rows of a query with one value for each column, as they come."""
        attached = self.session.names.default
        assert attached is not None
        return append_bound(self.session, self.tx, attached, table, _conforming(table, bound.sql), bound.values)


def size_of(*plans: ScanPlan | None) -> int:
    """Return the bytes of the files of some plans."""
    sizes = (plan.files.column("file_size_bytes").to_pylist() for plan in plans if plan is not None)
    return sum(size or 0 for each in sizes for size in each)


def _conforming(table: TableInfo, sql: str) -> str:
    return conforming(table, {column.id: place for place, column in enumerate(table.schema.columns)}, sql)


def target(table: TableInfo) -> str:
    """Return the full name of a table in the session of a workspace."""
    return f"lake.{quote(table.schema_name)}.{quote(table.name)}"


@contextmanager
def workspace(context: LakeContext, tx: Transaction, handle: Handle | None = None) -> Iterator[Workspace]:
    """Open a workspace on a transaction, in which queries can be bound; with a handle, one that runs statements too."""
    opened = cursor_on(context, tx) if handle is None else closing(session_of(handle))
    with opened as session:
        session.guard = StoredTextGuard()
        space = Workspace(context, tx, session)
        try:
            with space.translated():
                yield space
        finally:
            space.close()


def checked(work: Workspace, view: MaterializedView, sql: str) -> None:
    """Raise ``StaleError`` unless a query gives the columns that the view has."""
    found = [type_ for _, type_ in work.types(sql)]
    wanted = [column.duckdb_type() for column in view.table.schema.columns]
    for column, now, before in zip(view.table.schema.columns, found, wanted, strict=False):
        if now != before and not _alike(work, now, before):
            raise StaleError(f'the column "{column.name}" would now be {now}, but the view has {before}')
    if len(found) != len(wanted):
        raise StaleError(f"the query now returns {len(found)} columns, but the view has {len(wanted)}")


def _alike(work: Workspace, one: str, other: str) -> bool:
    row = first_row(work.connection, f"SELECT typeof(CAST(NULL AS {one})) = typeof(CAST(NULL AS {other}))")
    return row is not None and bool(row[0])
