"""PostgreSQL as a catalog: how it is opened, how commits queue, and what its errors mean."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.sql import func
from sqlalchemy.util import LRUCache

from quacklake.core.catalog import scoped
from quacklake.core.catalog.databases.database import Database, Failure, PreparedSelect, Rows, replace_closed
from quacklake.core.catalog.databases.direct import Direct, DirectStatements
from quacklake.core.catalog.databases.postgres_blocks import (
    LEAST_PAGES,
    LEAST_ROWS,
    by_pages,
    by_row_ids,
    can_fetch,
    fetch_blocks,
    table_pages,
)
from quacklake.core.catalog.databases.postgres_direct import (
    as_sqlalchemy,
    copy_arrow,
    execute,
    literal_text,
    send,
    send_together,
)
from quacklake.core.format.names import quote

#: The space of advisory locks that is the commit queue's; the metadata schema picks one in it.
_LOCK_SPACE = 0x51756163
_POSTGRES_LOCK = sa.select(
    func.pg_advisory_xact_lock(
        sa.bindparam("space", type_=sa.Integer), func.hashtext(sa.bindparam("scope", type_=sa.String))
    )
)

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_LOCK_TIMEOUT = "SELECT set_config('lock_timeout', %s, false) WHERE current_setting('lock_timeout') = '0'"
"""Unless the database, the role or the URL says how long to wait."""
_HAS_TABLE = "SELECT 1 FROM pg_catalog.pg_class WHERE oid = to_regclass(%s) AND relkind IN ('r', 'p', 'f', 'v', 'm')"
_TOGETHER = 2_000
"""The most rows that one statement inserts where COPY is not possible."""
_NARROW = 16
"""Up to this many values a row has a parameter for each, which is quicker."""
_TURNS = 1_000
"""The number of texts that take a turn to be remembered, one for each catalog."""
_INSERTS = 2_000
"""The inserts to be remembered; each table with inlined rows has its own."""
_GUARDED = "quacklake_guarded"
_BATCH = "quacklake_batch"


class PostgresDatabase(Database):
    """PostgreSQL through psycopg 3. A transaction-level advisory lock is the commit queue."""

    name = "postgres"
    batch_rows = 100
    extra = "postgres"
    driver = "psycopg"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._few: LRUCache[tuple[Any, ...], tuple[sa.Insert, list[str]]] = LRUCache(_INSERTS)
        self._set: dict[sa.Table, sa.Update] = {}
        self._direct = DirectStatements()
        self._turns: LRUCache[tuple[str, int | None, sa.Select[Any]], str] = LRUCache(_TURNS)

    def engine_options(self) -> dict[str, Any]:
        return {
            **super().engine_options(),
            # texts are UTF-8 in our files and rows, whatever the database stores
            "connect_args": {"application_name": "quacklake", "client_encoding": "UTF8"},
            # in a commit each statement must see what was committed while it waited for the lock
            "isolation_level": "READ COMMITTED",
            "use_native_hstore": False,  # or the first connection asks for a type that no table here has
        }

    def listen(self, engine: Engine) -> None:
        @sa.event.listens_for(engine, "connect")
        def connected(driver: Any, _: object) -> None:
            # a role that may write one row may lock the whole table, and any role the commit queue
            driver.autocommit = True
            driver.execute(_LOCK_TIMEOUT, [str(self.busy_timeout_ms)])
            driver.autocommit = False

        @sa.event.listens_for(engine, "checkin")
        def returned(driver: Any, _: object) -> None:
            if driver is not None and not driver.closed and driver.autocommit:
                driver.autocommit = False  # the driver begins transactions again: see _enter_asking

        replace_closed(engine, lambda driver: int(driver.fileno()))

    def insert_many(self, connection: Connection, table: sa.Table, keys: Sequence[str], rows: Rows) -> None:
        if len(rows) == 1 and len(keys) <= _NARROW:
            return super().insert_many(connection, table, keys, rows)
        if len(rows) <= self.batch_rows:
            return self._insert_few(connection, table, keys, rows)
        target, fixed = scoped.fixed(connection, table)
        if _has_row_security(connection, target):
            for start in range(0, len(rows), _TOGETHER):
                self._insert_few(connection, table, keys, rows[start : start + _TOGETHER])
            return None
        # COPY takes a third of the time of the same rows as inserts
        import psycopg

        preparer = connection.dialect.identifier_preparer
        columns = ", ".join(preparer.quote(name) for name in (*(table.c[key].name for key in keys), *fixed))
        more = tuple(fixed.values())
        driver = connection.connection.driver_connection
        assert driver is not None
        # without parameters the driver takes a percent sign, which the preparer has doubled, for itself
        statement = f"COPY {preparer.format_table(target)} ({columns}) FROM STDIN".replace("%%", "%")
        try:
            with driver.cursor() as cursor, cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row((*row, *more) if more else row)
        except psycopg.Error as error:
            raise as_sqlalchemy(error, statement, driver) from error

    def _insert_few(self, connection: Connection, table: sa.Table, keys: Sequence[str], rows: Rows) -> None:
        """Insert rows by one statement with one parameter, which unlike COPY may travel with others."""
        known = self._few.get((table, *keys))
        if known is None:
            preparer = connection.dialect.identifier_preparer
            names = [table.c[key].name for key in keys]
            target = scoped.fixed(connection, table)[0]
            # the compiler doubles a percent sign, as the preparer has done
            whole = preparer.format_table(target).replace("%%", "%")
            like: sa.ColumnElement[Any] = sa.literal_column(f"NULL::{whole}")
            given = func.json_populate_recordset(like, sa.cast(sa.bindparam("given", type_=sa.String), sa.JSON))
            columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in names]
            select = sa.select(*columns).select_from(given.alias("new"))
            known = sa.insert(table).from_select([table.c[key] for key in keys], select), names
            self._few[table, *keys] = known
        self.write(connection, known[0], [{"given": _json(known[1], rows)}])

    def update_many(
        self, connection: Connection, table: sa.Table, where: Sequence[str], keys: Sequence[str], rows: Rows
    ) -> None:
        if len(rows) == 1:
            return super().update_many(connection, table, where, keys, rows)
        # one statement: one for each row would take most of the time of a small commit
        names = [*where, *keys]
        statement = self._set.get(table)
        if statement is None:
            columns = [sa.column(name, table.c[name].type) for name in names]
            given = func.json_to_recordset(sa.cast(sa.bindparam("given", type_=sa.String), sa.JSON))
            new = given.table_valued(*columns, name="new").render_derived(with_types=True)
            same_key = [table.c[name] == new.c[name] for name in where]
            statement = sa.update(table).where(*same_key).values({name: new.c[name] for name in keys})
            self._set[table] = statement
        return self.write(connection, statement, [{"given": _json(names, rows)}])

    def write(
        self, connection: Connection, statement: sa.Insert | sa.Update, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        direct = self._direct.find(connection, statement, rows[0])
        batch: list[Any] | None = connection.info.get(_BATCH)
        if batch is None:
            send_together(connection, [(direct, row) for row in rows])
        else:
            batch.extend((direct, row) for row in rows)

    def ask(self, connection: Connection, question: PreparedSelect) -> Rows:
        direct, cursor = self._send(connection, question)
        return direct.rows(cursor)

    def _send(self, connection: Connection, question: PreparedSelect) -> tuple[Direct, Any]:
        direct = self._direct.find(connection, question.statement, question.parameters)
        # a statement that the driver has prepared keeps its old plan
        prepare = False if question.fresh else None
        return direct, send(connection, direct, question.parameters, prepare=prepare)

    def begin_read(self, connection: Connection) -> Connection:
        return connection.execution_options(isolation_level="REPEATABLE READ")

    def begin_question(self, connection: Connection) -> Connection:
        # a statement sees one state by itself: BEGIN and COMMIT would be two more messages
        return connection.execution_options(isolation_level="AUTOCOMMIT")

    def size(self, connection: Connection, schema: str | None) -> int | None:
        statement = (
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r'"
            " AND n.nspname = coalesce(:schema, current_schema())"
            " AND (starts_with(c.relname, 'ducklake_') OR starts_with(c.relname, 'quacklake_'))"
        )
        return int(connection.execute(sa.text(statement), {"schema": schema}).scalar_one())

    def enter_queue(self, connection: Connection, scope: str, ahead: PreparedSelect | None = None) -> Rows | None:
        lock = PreparedSelect(_POSTGRES_LOCK, {"space": _LOCK_SPACE, "scope": scope})
        if ahead is not None and not ahead.parameters:
            return self._enter_asking(connection, lock, ahead)
        import psycopg

        driver: Any = connection.connection.driver_connection
        sent = None
        try:
            with driver.pipeline():  # the driver's BEGIN travels with it, too
                self._send(connection, lock)
                if ahead is not None:
                    sent = self._send(connection, ahead)
        except psycopg.Error as error:
            # the driver raises this at the end of the block, outside SQLAlchemy: give it the same form
            raise as_sqlalchemy(error, "batch", driver) from error
        return None if sent is None else sent[0].rows(sent[1])

    def limit_idle(self, connection: Connection, milliseconds: int) -> None:
        connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = {milliseconds:d}")

    def _enter_asking(self, connection: Connection, lock: PreparedSelect, ahead: PreparedSelect) -> Rows:
        """Begin, wait for the turn and ask by one text, which takes the driver half as long as its pipeline.

        Each of several statements in a text sees what was committed before it began.
        """
        catalog = scoped.value_of(connection)
        key = (lock.parameters["scope"], catalog, ahead.statement)
        text = self._turns.get(key)
        if text is None:
            given = {} if catalog is None else {scoped.CATALOG: catalog}
            parts = (lock.statement.params(lock.parameters), ahead.statement.params(given))
            text = self._turns[key] = "; ".join([_BEGIN, *(literal_text(connection, part) for part in parts)])
        driver: Any = connection.connection.driver_connection
        driver.autocommit = True  # until the connection is returned: or the driver sends a BEGIN of its own
        cursor = execute(connection, text, None)
        while cursor.nextset():
            pass
        return self._direct.find(connection, ahead.statement, {}).rows(cursor)

    @contextmanager
    def batch(self, connection: Connection) -> Iterator[None]:
        known: dict[Any, Any] = connection.info  # a lost connection has no transaction any more
        collected = known[_BATCH] = []
        try:
            yield
        finally:
            del known[_BATCH]
        send_together(connection, collected)

    def has_table(self, connection: Connection, name: str, schema: str | None) -> bool:
        if schema is not None:
            return super().has_table(connection, name, schema)
        # asked for first on every connection: SQLAlchemy's statement takes a new server process 2 ms
        found = connection.exec_driver_sql(_HAS_TABLE, (quote(name),))
        return found.first() is not None

    def index_names(self, connection: Connection, schema: str | None) -> set[str]:
        known = sa.table("pg_indexes", sa.column("schemaname", sa.String), sa.column("indexname", sa.String))
        return set(
            connection.scalars(
                sa.select(known.c.indexname).where(known.c.schemaname == (schema or func.current_schema()))
            )
        )

    @classmethod
    def among(cls, element: sa.ColumnElement[str], parameter: str) -> sa.ColumnElement[bool]:
        from sqlalchemy.dialects.postgresql import ARRAY

        # one parameter for all texts: one for each takes longer to compile than to run
        return element == sa.any_(sa.bindparam(parameter, type_=ARRAY(sa.String)))

    def among_ids(self, element: sa.ColumnElement[int], parameter: str) -> sa.ColumnElement[bool]:
        from sqlalchemy.dialects.postgresql import ARRAY

        return element == sa.any_(sa.bindparam(parameter, type_=ARRAY(sa.BigInteger)))

    def binary_text(self, element: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        return element.collate("C")

    def _like(self, element: sa.ColumnElement[Any], pattern: str) -> sa.ColumnElement[bool]:
        return sa.and_(element.like(pattern), element.collate("C").between("0", "9~"))

    def bound(self, element: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
        value = super().bound(element, kind)
        return value.collate("C") if kind in ("date", "timestamp") else value

    def number(self, element: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
        if kind == "integer":
            # most bounds are plain digits, and the regular expression costs three times as much
            digits = sa.and_(func.ltrim(element, "0123456789") == "", func.length(element).between(1, 18))
            negative = element.op("~")("^-[0-9]{1,18}$")
            number = sa.cast(element, sa.BigInteger)
            return sa.case((digits, number), (negative, number))
        return sa.case(
            (element.op("~")(r"^-?[0-9]{1,200}(\.[0-9]+)?(e[+-]?[0-9]{1,2})?$"), sa.cast(element, sa.Double))
        )

    def now_ms(self) -> sa.ColumnElement[Any]:
        return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()) * 1000, sa.BigInteger)

    def classify(self, error: BaseException) -> Failure:
        state: str | None = getattr(error, "sqlstate", None)
        if state is None:
            return (
                Failure.UNAVAILABLE if type(error).__name__ in ("OperationalError", "InterfaceError") else Failure.OTHER
            )
        if state in ("23505", "40001", "40P01", "42P07"):
            return Failure.COLLISION
        if state == "53100":
            return Failure.FULL
        if state[:2] in ("08", "53", "57", "58") or state == "55P03":
            return Failure.UNAVAILABLE
        if state in ("42501", "25006"):
            return Failure.FORBIDDEN
        return Failure.ABSENT if state in ("42P01", "3F000") else Failure.OTHER

    def fetch_arrow(self, connection: Connection, select: sa.Select[Any], given: Mapping[str, Any]) -> pa.Table:
        return copy_arrow(connection, select.params(given))

    def extent(self, inlined: sa.Table, packed: sa.Table | None, schema: str | None) -> sa.ColumnElement[int]:
        if packed is None:
            return table_pages(inlined.c.table_name, schema)
        same = (packed.c[name] == inlined.c[name] for name in ("table_id", "schema_version"))
        enough: sa.Select[Any] = sa.select(sa.literal_column(f"{LEAST_ROWS:d}")).select_from(packed).where(*same)
        return enough.offset(LEAST_ROWS - 1).limit(1).scalar_subquery()

    def fetch_parts(
        self,
        connection: Connection,
        select: sa.Select[Any],
        given: Mapping[str, Any],
        take: Callable[[pa.Table], None],
        *,
        extent: int | None = None,
        row_id: sa.Column[Any] | None = None,
    ) -> None:
        if extent is None or (row_id is None and extent < LEAST_PAGES) or not can_fetch(connection, select):
            take(self.fetch_arrow(connection, select, given))
            return
        blocks = by_pages(extent) if row_id is None else by_row_ids(connection, row_id)
        fetch_blocks(connection, select.params(given), blocks, take)

    def fetch_texts(self, connection: Connection, select: sa.Select[Any], given: Mapping[str, Any]) -> pa.Table:
        return self._fetch_lists(connection, select, given, lambda column: sa.cast(func.json_agg(column), sa.String))


def _has_row_security(connection: Connection, table: sa.Table) -> bool:
    """Return whether row-level security holds for whom we are, where COPY is refused; asked once for a connection."""
    if scoped.CATALOG_ID not in table.c:
        return False  # a plain lake's, or a temporary table
    known: dict[Any, Any] = connection.info
    if _GUARDED not in known:
        name = connection.dialect.identifier_preparer.format_table(table).replace("%%", "%")
        known[_GUARDED] = bool(connection.execute(sa.select(func.row_security_active(name))).scalar())
    return bool(known[_GUARDED])


def _json(names: Sequence[str], rows: Rows) -> str:
    """Return rows as a list of objects, in the texts that the database reads."""
    objects = [dict(zip(names, row, strict=True)) for row in rows]
    try:
        return _JSON.encode(objects)
    except ValueError:  # JSON has no infinity and no NaN, but the database reads their names
        for item in objects:
            item.update({name: str(v) for name, v in item.items() if isinstance(v, float) and not math.isfinite(v)})
        return json.dumps(objects, default=_text)


def _text(value: object) -> str:
    return "\\x" + value.hex() if isinstance(value, bytes) else str(value)


_JSON = json.JSONEncoder(default=_text, allow_nan=False, check_circular=False, separators=(",", ":"))
