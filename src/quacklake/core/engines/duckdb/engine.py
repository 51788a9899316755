"""The in-process engine: scan plans run on DuckDB, rows stream as Arrow."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from quacklake import telemetry
from quacklake.core import forks
from quacklake.core.duckdb_versions import arrow_reader, arrow_table
from quacklake.core.engines.duckdb.carrying import carried_column
from quacklake.core.engines.duckdb.connections import LastReads, lend_keys, reading, stopping, translate
from quacklake.core.engines.duckdb.expressions import OrderMacro, check_expression, plain_expression
from quacklake.core.engines.duckdb.feed import FeedBuilder, deleted_sql, to_blocks
from quacklake.core.engines.duckdb.idle import idle, leave_database, open_database
from quacklake.core.engines.duckdb.rows import reads_back
from quacklake.core.engines.duckdb.shapes import ShapeCache
from quacklake.core.engines.duckdb.sql import (
    ROW_COLUMNS,
    ScanSql,
    compared_names,
    guarded_columns,
    looked_up,
    needs_guard,
    scan_sql,
)
from quacklake.core.engines.duckdb.visible import behind_barrier, check_virtual, hiding, visible_feed_sql, visible_sql
from quacklake.core.format.names import quote
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.scan import Filter, ScanPlan
from quacklake.core.scan.feed import FeedPlan
from quacklake.core.scan.plan import Restriction, find_column
from quacklake.core.scan.planner import unknown_columns, virtual_columns
from quacklake.core.storage import Store
from quacklake.core.transaction import DeleteTarget
from quacklake.errors import ClosedError, ConstraintError, InputError, PredicateError

#: Lets those in who read; each is in until the block ends.
Gate = Callable[[], AbstractContextManager[None]]

#: The column with the row id, last where it is asked for.
ROW_ID = pa.field("rowid", pa.int64())
SNAPSHOT = "_ql_snapshot"
"""The column with the snapshot that a row came with, where places are asked for."""

#: Types that DuckDB cannot export to Arrow, or exports wrongly when values are too large.
_NO_POSITIONS = pa.schema([("file_id", pa.int64()), ("row_id", pa.int64())])
_NO_INLINED = pa.schema([("schema_version", pa.int64()), ("row_id", pa.int64())])


@dataclass(frozen=True, slots=True)
class RunningScan:
    """A running scan: a stream of batches that can be cancelled from another thread."""

    reader: pa.RecordBatchReader
    connection: duckdb.DuckDBPyConnection

    def cancel(self) -> None:
        """Stop it; the stream then raises ``CancelledError``."""
        self.connection.interrupt()


class DuckDBEngine:
    """Executes plans in this process. Each call has its own connection; safe to share between threads."""

    name = "duckdb"

    def __init__(
        self,
        store: Store,
        *,
        memory_limit: str | None = None,
        threads: int | None = None,
        gate: Gate = nullcontext,
        reuse: bool = False,
    ) -> None:
        # load nothing from outside: no downloads, and times with a zone stay in UTC unless an extension changes that
        config: dict[str, Any] = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
        limits = {"memory_limit": memory_limit, "threads": threads}
        config |= {name: value for name, value in limits.items() if value is not None}
        self.store = store
        self.gate = gate
        """The gate that every read for a user holds until it ends."""
        self._config = config
        self._idle = idle if reuse and store.is_local else None
        self._root: duckdb.DuckDBPyConnection | None = None  # opened by the first use: sessions have their own
        self._closed, self._streams = False, set[int]()
        self._shapes = ShapeCache(store)
        self._names = itertools.count()
        self._lock = threading.Lock()
        self._working: dict[int, list[duckdb.DuckDBPyConnection]] = {}
        self.last_reads = LastReads()
        forks.watch(self, DuckDBEngine._renew)

    def _renew(self) -> None:
        """Leave the connections in a forked child, as their threads are the parent's; the first use opens others."""
        forks.abandon((self._root, self._working))
        self._root, self._working, self._streams = None, {}, set()
        forks.new_lock(self)

    def close(self) -> None:
        with self._lock:
            root, self._root, self._closed = self._root, None, True
        if root is not None:
            leave_database(None if self._working or self._streams else self._idle, self._config, root)

    @contextmanager
    def connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Lend a connection for one piece of work; an interrupt of it leaves the block as ``CancelledError``."""
        thread = threading.get_ident()
        with self._lock:
            cursor = self._cursor()
            self._working.setdefault(thread, []).append(cursor)
        try:
            with stopping():
                yield cursor
        finally:
            with self._lock:
                mine = self._working[thread]
                mine.remove(cursor)
                if not mine:
                    del self._working[thread]
            cursor.close()

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        if self._closed:
            raise ClosedError
        if self._root is None:
            self._root = open_database(self._idle, self.store, self._config)
        return self._root.cursor()

    def interrupt(self, thread: int) -> None:
        """Stop what a thread does on its connections; there it raises ``CancelledError``."""
        with self._lock:
            for connection in self._working.get(thread, ()):
                connection.interrupt()

    def bind(
        self,
        connection: duckdb.DuckDBPyConnection,
        plan: ScanPlan,
        *,
        rows: bool = False,
        columns: Sequence[str] | None = None,
        where: Filter | None = None,
        virtual: Mapping[str, str] = MappingProxyType({}),
        prefix: str | None = None,
        guarded: bool = False,
        compared: Collection[str] = (),
        barrier: bool = True,
    ) -> str:
        """Prepare a plan on a connection; return the query of its rows, with ``ROW_COLUMNS`` on request.

        ``virtual`` columns (name -> the name it gets) are there, and those that ``columns`` or ``where`` name.
        ``prefix`` keeps names apart where plans of several engines meet; for ``guarded`` see ``needs_guard``, for
        ``compared`` see ``looked_up``. Without a ``barrier``, no expression of a user may follow on a restricted plan:
        see ``visible``.
        """
        prefix = prefix or f"ql{next(self._names)}"
        wanted = {column.name: column.name for column in virtual_columns(plan.schema, columns, where)} | dict(virtual)
        if plan.restriction is not None:
            return self._visible(connection, plan, plan.restriction, prefix, wanted, rows=rows, barrier=barrier)
        with reading():
            shapes = self._shapes.find(connection, plan, plan.schema.columns)
        sql = scan_sql(
            plan,
            self.store,
            prefix,
            plan.schema.columns,
            rows=rows,
            virtual=wanted,
            shapes=shapes,
            guarded=guarded or needs_guard(where),
            compared=compared or compared_names(where, plan.schema.columns),
        )
        return self.prepare(connection, sql)

    def _visible(
        self,
        connection: duckdb.DuckDBPyConnection,
        plan: ScanPlan,
        shown: Restriction,
        prefix: str,
        virtual: Mapping[str, str],
        *,
        rows: bool,
        barrier: bool,
    ) -> str:
        check_virtual(plan, virtual)
        with hiding():
            guarded = needs_guard(shown.condition)
            compared = compared_names(shown.condition, shown.plan.schema.columns)
            inner = self.bind(
                connection, shown.plan, rows=rows, virtual=virtual, prefix=prefix, guarded=guarded, compared=compared
            )
        beside = [*virtual.values(), *(ROW_COLUMNS if rows else ())]
        query = visible_sql(inner, shown, shown.plan.schema.columns, beside)
        return behind_barrier(connection, prefix, query) if barrier else query

    @staticmethod
    def prepare(connection: duckdb.DuckDBPyConnection, sql: ScanSql) -> str:
        """Lend, register and run what a query needs first; return the query."""
        if sql.keys:
            lend_keys(connection, sql.keys_variable, sql.keys)
        for name, table in sql.tables:
            connection.register(name, table)
        with reading():
            for statement in sql.setup:
                connection.execute(statement)
        return sql.query

    def scan(
        self,
        plan: ScanPlan,
        *,
        columns: Sequence[str] | None = None,
        where: Filter | None = None,
        limit: int | None = None,
        row_ids: bool = False,
        places: bool = False,
        batch_rows: int = 122_880,
    ) -> RunningScan:
        """Stream columns of rows that satisfy a filter, then ``rowid``, or ``ROW_COLUMNS`` and ``SNAPSHOT``."""
        chosen = (
            [find_column(plan.schema, name) for name in columns] if columns is not None else list(plan.schema.columns)
        )
        virtual = {"snapshot_id": SNAPSHOT} if places else {}
        bind = partial(self.bind, plan=plan, rows=row_ids or places, columns=columns, where=where, virtual=virtual)
        bind = partial(bind, barrier=isinstance(where, str))
        beside = {ROW_ID.name: ROW_COLUMNS[0]} if row_ids else {}
        beside |= {name: name for name in (*ROW_COLUMNS, SNAPSHOT)} if places else {}
        hidden = plan.restriction is not None
        return self._stream(bind, plan.schema, chosen, where, limit, batch_rows, beside, hidden=hidden)

    def feed(
        self,
        plan: FeedPlan,
        *,
        inserts: bool = True,
        deletes: bool = True,
        columns: Sequence[str] | None = None,
        where: Filter | None = None,
        limit: int | None = None,
        batch_rows: int = 122_880,
    ) -> RunningScan:
        """Run a feed plan: what came, what went, or both, as a stream."""
        schema = plan.schema
        chosen = [schema.find(name) for name in columns] if columns is not None else list(schema.columns)
        bind = partial(self.bind_feed, plan=plan, inserts=inserts, deletes=deletes, guarded=needs_guard(where))
        compared = compared_names(where, schema.columns)
        bind = partial(bind, compared=compared, barrier=isinstance(where, str))
        return self._stream(bind, schema, chosen, where, limit, batch_rows, hidden=plan.whole is not None)

    def bind_feed(
        self,
        connection: duckdb.DuckDBPyConnection,
        plan: FeedPlan,
        *,
        inserts: bool = True,
        deletes: bool = True,
        prefix: str | None = None,
        guarded: bool = False,
        compared: Collection[str] = (),
        barrier: bool = True,
    ) -> str:
        """Prepare a feed plan on a connection; return the query that yields its rows. The rest is as in ``bind``."""
        prefix = prefix or f"ql{next(self._names)}"
        if plan.whole is not None:
            with hiding():
                whole = partial(self.bind_feed, connection, plan.whole, inserts=inserts, deletes=deletes)
                query = visible_feed_sql(whole(prefix=prefix, guarded=True), plan, plan.whole)
            return behind_barrier(connection, prefix, query) if barrier else query
        find = self.prepare(connection, deleted_sql(plan, self.store, prefix))
        with reading():
            blocks = to_blocks(arrow_table(connection, find))
            numbered = partial(self._shapes.numbered, connection)
            shapes = partial(self._shapes.find, connection)
            builder = FeedBuilder(plan, self.store, prefix, shapes, numbered, blocks)
            sql = builder.build(inserts=inserts, deletes=deletes)
        query = self.prepare(connection, sql)
        columns = plan.rows.schema.columns
        shielded = columns if guarded else looked_up(columns, compared)
        kept = guarded_columns([column.name for column in shielded], ROW_ID.name)
        return f"SELECT * REPLACE ({', '.join(kept)}) FROM ({query})" if kept else query

    def _stream(
        self,
        bind: Callable[[duckdb.DuckDBPyConnection], str],
        schema: TableSchema,
        chosen: Sequence[Column],
        where: Filter | None,
        limit: int | None,
        batch_rows: int,
        beside: Mapping[str, str] = MappingProxyType({}),
        *,
        hidden: bool = False,
    ) -> RunningScan:
        """Run the query that ``bind`` prepares. ``beside`` are numbers after the columns: name -> name in the query.

        With ``hidden`` rows or columns, errors have no values unless an expression of the user has met them.
        """
        expression = where if isinstance(where, pc.Expression) else None
        with self._lock:
            connection = self._cursor()
        try:
            with telemetry.timed("engine.bind"), _filtering(where, schema), reading():
                query, select = bind(connection), _select_columns(chosen, beside)
                start: Callable[[], pa.RecordBatchReader]
                if where is None:
                    # DuckDB binds a relation at every step, which is slow for many files
                    query = f"SELECT {select} FROM ({query}){'' if limit is None else f' LIMIT {limit:d}'}"
                    start = partial(arrow_reader, connection, query, batch_rows=batch_rows)
                else:
                    relation = connection.sql(query)
                    if expression is None:
                        relation = relation.filter(where).project(select)
                        relation = relation if limit is None else relation.limit(limit)
                    start = partial(relation.to_arrow_reader, batch_rows)
        except BaseException:
            connection.close()
            raise
        fields = [*(column.arrow_field() for column in chosen), *(pa.field(name, pa.int64()) for name in beside)]
        # nothing runs before the first batch is read, so that a scan can be cancelled from its beginning
        batches = self._batches(start, connection, pa.schema(fields), where, schema, limit, hidden=hidden)
        self._streams.add(id(connection))
        return RunningScan(pa.RecordBatchReader.from_batches(pa.schema(fields), batches), connection)

    def _batches(
        self,
        start: Callable[[], pa.RecordBatchReader],
        connection: duckdb.DuckDBPyConnection,
        schema: pa.Schema,
        where: Filter | None,
        columns: TableSchema,
        limit: int | None,
        *,
        hidden: bool,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a query in exactly ``schema``; an Arrow expression and its limit are applied here.

        ``start`` runs the query; it is called when the first batch is asked for. The connection is closed, and the gate
        left, at the end, early or not.
        """
        expression = where if isinstance(where, pc.Expression) else None
        left = limit if expression is not None else None
        try:
            with self.gate(), _filtering(where, columns):
                unseen = hiding if hidden and not isinstance(where, str) else nullcontext
                with telemetry.timed("engine.scan", tenant=self.store.label), unseen(), reading():
                    source = start()
                for batch in _translate_errors(source, unseen):
                    rows = batch if expression is None else _filter_batch(batch, expression, schema, left)
                    if left is not None:
                        left -= rows.num_rows
                    if rows.num_rows:
                        telemetry.count("engine.rows", rows.num_rows, tenant=self.store.label)
                        yield _cast_batch(rows, schema)
                    if left is not None and left <= 0:
                        return
        finally:
            self._streams.discard(id(connection))
            connection.close()

    def count(self, plan: ScanPlan, where: str | None) -> int:
        """Return the number of rows that satisfy a filter, counted where they are."""
        return self._count(partial(self.bind, plan=plan, where=where), plan.schema, where)

    def count_feed(self, plan: FeedPlan, where: str | None, *, inserts: bool, deletes: bool) -> int:
        bind = partial(self.bind_feed, plan=plan, inserts=inserts, deletes=deletes, guarded=needs_guard(where))
        bind = partial(bind, compared=compared_names(where, plan.schema.columns))
        return self._count(bind, plan.schema, where)

    def _count(self, bind: Callable[[duckdb.DuckDBPyConnection], str], schema: TableSchema, where: str | None) -> int:
        with self.gate(), self.connection() as connection, _filtering(where, schema), reading():
            relation = connection.sql(bind(connection))
            relation = relation if where is None else relation.filter(where)
            rows = relation.aggregate("count(*)").fetchall()
        return int(rows[0][0])

    def find(
        self, connection: duckdb.DuckDBPyConnection, query: str, where: str | None, schema: TableSchema
    ) -> DeleteTarget:
        """Return the rows of a bound query (with ``ROW_COLUMNS``) that satisfy a filter, as places."""
        with _filtering(where, schema), reading():
            relation = connection.sql(query)
            relation = relation if where is None else relation.filter(where)
            places = relation.project("_ql_file_id, _ql_version, _ql_position").to_arrow_table()
        return places_to_target(places)

    def cast(self, texts: pa.Array, column: Column) -> pa.Array:
        """Return texts as values of a column's type; NULL for a text that is not one."""
        with self.connection() as connection, reading():
            connection.register("ql_source", pa.table({"i": range(len(texts)), "v": texts}))
            query = f"SELECT TRY_CAST(v AS {column.duckdb_type()}) AS v FROM ql_source ORDER BY i"
            return arrow_table(connection, query).column("v").combine_chunks()

    def canonical_expression(self, expression: str, schema: TableSchema, macros: Sequence[OrderMacro] = ()) -> str:
        """Return an expression as DuckDB writes it. Raise ``InputError`` if it needs more than a row and ``macros``."""
        text = plain_expression(expression, [macro.name for macro in macros])
        columns = ", ".join(f"NULL::{column.duckdb_type()} AS {quote(column.name)}" for column in schema.columns)
        with self.connection() as connection:
            try:
                for macro in macros:
                    connection.execute(macro.statement)
                connection.sql(f"SELECT {text} FROM (SELECT {columns})")
            except duckdb.Error as error:
                first = str(error).strip().splitlines()[0]
                raise InputError(f"the expression {expression!r} cannot be computed: {first}") from error
        return text

    def texts(self, table: pa.Table, columns: Sequence[Column]) -> dict[int, list[str | None]]:
        """Return columns as the text DuckDB casts them to: column id -> texts."""
        return self.inlined_texts(table, columns)[0]

    def inlined_texts(
        self, table: pa.Table, columns: Sequence[Column], *, check: bool = False
    ) -> tuple[dict[int, list[str | None]], list[int]]:
        """Return the texts of columns by id, and with ``check`` the places of rows that they do not bring back."""
        if not columns:
            return {}, []
        values = [f"CAST({quote(column.name)} AS {column.duckdb_type()})" for column in columns]
        names = [f"c{place}" for place in range(len(columns))]
        cast = ", ".join(f"{value} AS {name}" for value, name in zip(values, names, strict=True))
        select = [f"{name}::VARCHAR" for name in names]
        if check:
            checks = (reads_back(name, column) for name, column in zip(names, columns, strict=True))
            select.append(" AND ".join(checks))
        with self.connection() as connection, reading():
            connection.register("ql_source", table.select([column.name for column in columns]))
            rows = connection.execute(f"SELECT {', '.join(select)} FROM (SELECT {cast} FROM ql_source)").fetchall()
        texts = {column.id: [row[i] for row in rows] for i, column in enumerate(columns)}
        return texts, [place for place, row in enumerate(rows) if check and not row[-1]]


def check_filter(where: str) -> None:
    """Raise ``PredicateError`` unless a text is one condition on a row, which reaches nothing else."""
    try:
        check_expression(where)
    except InputError as error:
        raise PredicateError(f"the filter cannot be used: {error.message}", hint=error.hint) from None


def places_to_target(places: pa.Table) -> DeleteTarget:
    """Return ``_ql_file_id``, ``_ql_version`` and ``_ql_position`` as the two kinds of places."""
    in_files = places.filter(pc.is_valid(places.column("_ql_file_id")))
    inlined = places.filter(pc.is_valid(places.column("_ql_version")))
    return DeleteTarget(
        pa.table([in_files.column("_ql_file_id"), in_files.column("_ql_position")], schema=_NO_POSITIONS),
        pa.table([inlined.column("_ql_version"), inlined.column("_ql_position")], schema=_NO_INLINED),
    )


def _select_columns(columns: Sequence[Column], beside: Mapping[str, str]) -> str:
    """Return what is selected from a query for some columns, and numbers beside them."""
    select = [f"{carried_column(column)} AS {quote(column.name)}" for column in columns]
    select += [f"{source} AS {name}" for name, source in beside.items()]
    return ", ".join(select) or "1"


@contextmanager
def _filtering(where: Filter | None, schema: TableSchema) -> Iterator[None]:
    """Check a filter, and raise an error about it with the nearest column names."""
    try:
        if isinstance(where, str):
            check_filter(where)
        yield
    except PredicateError as error:
        if isinstance(where, str) and error.hint is None:
            error.hint = unknown_columns(where, schema)
        raise
    except ConstraintError as error:
        if not isinstance(where, str):
            raise
        raise PredicateError(f"cannot evaluate the filter {where!r}: {error.message}") from error


def _filter_batch(
    batch: pa.RecordBatch, expression: pc.Expression, schema: pa.Schema, left: int | None
) -> pa.RecordBatch:
    names = ["_ql_row_id" if name == ROW_ID.name and name not in batch.schema.names else name for name in schema.names]
    try:
        rows = batch.filter(expression).select(names)
    except pa.ArrowException as error:
        raise PredicateError(
            f"the expression {expression} fails on a row: {error}",
            hint="compare columns with values of their own types, or write the filter as SQL text",
        ) from None
    return rows if left is None else rows.slice(0, left)


def _translate_errors(source: pa.RecordBatchReader, unseen: Gate) -> Iterator[pa.RecordBatch]:
    try:
        while True:
            with unseen():
                batch = _next(source)
            if batch is None:
                return
            yield batch
    finally:
        source.close()


def _next(source: pa.RecordBatchReader) -> pa.RecordBatch | None:
    try:
        return source.read_next_batch()
    except StopIteration:
        return None
    except Exception as error:
        # errors cross the Arrow C interface as text with DuckDB's class in front
        raise translate(_unwrap_error(error), "read the data files") or error from error


def _unwrap_error(error: Exception) -> Exception:
    text = str(error)
    for word, kind in (("INTERRUPT", duckdb.InterruptException), ("Conversion Error", duckdb.ConversionException)):
        if word in text:
            return kind(text)
    return duckdb.IOException(text) if isinstance(error, OSError | pa.ArrowException) else error


def _cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the table's nullability, and its very types where DuckDB gives an equal one."""
    if not schema.names:
        return batch.select([])  # keep the number of rows even without columns
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
