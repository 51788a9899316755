"""PostgreSQL: how it is opened, queued and understood."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.sql import func

from quacklake.catalog.database import Database, Failure, Rows
from quacklake.catalog.postgres_copy import copy_arrow

__all__ = ["PostgresDatabase"]

#: The space of advisory locks that is the commit queue's; the metadata schema picks one in it.
_LOCK_SPACE = 0x51756163
_POSTGRES_LOCK = sa.select(
    func.pg_advisory_xact_lock(sa.cast(sa.bindparam("space"), sa.Integer), func.hashtext(sa.bindparam("scope")))
)


class PostgresDatabase(Database):
    """PostgreSQL through psycopg 3. A transaction-level advisory lock is the commit queue."""

    name = "postgres"
    extra = "postgres"
    driver = "psycopg"

    def engine_options(self) -> dict[str, Any]:
        return {**super().engine_options(), "connect_args": {"application_name": "quacklake"}}

    def insert_many(self, connection: Connection, table: sa.Table, keys: Sequence[str], rows: Rows) -> None:
        # COPY takes a third of the time of the same rows as inserts
        if len(rows) == 1:
            return super().insert_many(connection, table, keys, rows)
        import psycopg

        preparer = connection.dialect.identifier_preparer
        columns = ", ".join(preparer.quote(table.c[key].name) for key in keys)
        driver = connection.connection.driver_connection
        assert driver is not None
        # without parameters the driver takes a percent sign, which the preparer has doubled, for itself
        statement = f"COPY {preparer.format_table(table)} ({columns}) FROM STDIN".replace("%%", "%")
        try:
            with driver.cursor() as cursor, cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)
        except psycopg.Error as error:
            raise sa.exc.DBAPIError(statement, None, error, connection_invalidated=driver.closed) from error

    def begin_read(self, connection: Connection) -> Connection:
        return connection.execution_options(isolation_level="REPEATABLE READ")

    def begin_commit(self, connection: Connection) -> Connection:
        # each statement must see what was committed while this one waited for the lock
        return connection.execution_options(isolation_level="READ COMMITTED")

    def enter_queue(self, connection: Connection, scope: str) -> None:
        connection.execute(_POSTGRES_LOCK, {"space": _LOCK_SPACE, "scope": scope})

    @contextmanager
    def batch(self, connection: Connection) -> Iterator[None]:
        import psycopg

        driver = connection.connection.driver_connection
        assert driver is not None
        try:
            with driver.pipeline():
                yield
        except psycopg.Error as error:
            # raised when the batch ends, outside SQLAlchemy: give it the same form
            raise sa.exc.DBAPIError("batch", None, error, connection_invalidated=driver.closed) from error

    def binary_text(self, element: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        return element.collate("C")

    def _like(self, element: sa.ColumnElement[Any], pattern: str) -> sa.ColumnElement[bool]:
        return sa.and_(element.like(pattern), element.collate("C").between("0", "9~"))

    def bound(self, element: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
        found = super().bound(element, kind)
        return found.collate("C") if kind in ("date", "timestamp") else found

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

    def classify(self, error: BaseException) -> Failure:
        state: str | None = getattr(error, "sqlstate", None)
        if state is None:
            return (
                Failure.UNAVAILABLE if type(error).__name__ in ("OperationalError", "InterfaceError") else Failure.OTHER
            )
        if state in ("23505", "40001", "40P01", "42P07"):
            return Failure.COLLISION
        if state[:2] in ("08", "53", "57", "58") or state == "55P03":
            return Failure.UNAVAILABLE
        if state in ("42501", "25006"):
            return Failure.FORBIDDEN
        return Failure.ABSENT if state in ("42P01", "3F000") else Failure.OTHER

    def fetch_arrow(self, connection: Connection, select: sa.Select[Any]) -> pa.Table:
        return copy_arrow(connection, select)
