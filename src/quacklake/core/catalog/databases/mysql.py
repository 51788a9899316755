"""MySQL and MariaDB as catalogs: how they are opened, how commits queue, and what their errors mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.sql import func

from quacklake.core.catalog import scoped
from quacklake.core.catalog.databases.database import Database, Failure, PreparedSelect, replace_closed

#: The error of reading a table that has been made since the transaction began.
_CHANGED = 1412
_NUMBERS: Mapping[Failure, tuple[int, ...]] = {
    Failure.COLLISION: (1062, 1213, 1050, _CHANGED),
    Failure.FULL: (1021, 1114),
    # from 1053 on: the session or its statement was ended, or the server is shutting down
    Failure.UNAVAILABLE: (1205, 1040, 2002, 2003, 2006, 2013, 1053, 1317, 1927, 3169, 4031),
    Failure.FORBIDDEN: (1044, 1045, 1142, 1290, 1792),
    Failure.ABSENT: (1146,),
}
_MYSQL = {number: failure for failure, numbers in _NUMBERS.items() for number in numbers}


class MySQLDatabase(Database):
    """MySQL 8 and MariaDB through PyMySQL. A named lock is the commit queue."""

    name = "mysql"
    extra = "mysql"
    driver = "pymysql"

    def engine_options(self) -> dict[str, Any]:
        return {**super().engine_options(), "connect_args": {"charset": "utf8mb4"}}

    def listen(self, engine: Engine) -> None:
        replace_closed(engine, lambda driver: int(driver._sock.fileno()))

    def _lock_name(self, scope: str) -> str:
        return f"quacklake:{self.url.url.database}:{scope}"[:64]

    def size(self, connection: Connection, schema: str | None) -> int | None:
        statement = (
            "SELECT coalesce(sum(data_length + index_length), 0) FROM information_schema.tables"
            " WHERE table_schema = coalesce(:schema, database())"
            " AND (table_name LIKE 'ducklake\\_%' OR table_name LIKE 'quacklake\\_%')"
        )
        return int(connection.execute(sa.text(statement), {"schema": schema}).scalar_one())

    def enter_queue(self, connection: Connection, scope: str, ahead: PreparedSelect | None = None) -> None:
        seconds = max(1, self.busy_timeout_ms // 1000)
        got = connection.execute(sa.select(func.get_lock(self._lock_name(scope), seconds))).scalar()
        if got != 1:
            raise TimeoutError("the commit queue was not free in time")

    def leave_queue(self, connection: Connection, scope: str) -> None:
        # the lock belongs to the session: a connection that is gone has released it already
        if not connection.closed and not connection.invalidated:
            driver = connection.connection.driver_connection
            assert driver is not None
            try:
                with driver.cursor() as cursor:
                    cursor.execute("SELECT RELEASE_LOCK(%s)", (self._lock_name(scope),))
            except Exception:
                # the commit does not depend on this: the end of the session releases the lock
                connection.invalidate()

    def has_table(self, connection: Connection, name: str, schema: str | None) -> bool:
        # SQLAlchemy's DESCRIBE is refused (1684) while another connection is making the table
        tables = sa.table("tables", sa.column("table_schema"), sa.column("table_name"), schema="information_schema")
        where = (tables.c.table_schema == (schema or func.database())) & (tables.c.table_name == name)
        if not connection.execute(sa.select(func.count()).select_from(tables).where(where)).scalar_one():
            return False
        table = scoped.registry(sa.Table(name, sa.MetaData(), schema=schema))
        try:
            connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).all()
        except sa.exc.OperationalError as error:
            # the list of tables is newer than the transaction, which sees this table empty
            if error.orig is not None and error.orig.args[:1] == (_CHANGED,):
                return False
            raise
        return True

    def index_names(self, connection: Connection, schema: str | None) -> set[str]:
        # SQLAlchemy would ask for each table
        known = sa.table("statistics", sa.column("table_schema"), sa.column("index_name"), schema="information_schema")
        mine = known.c.table_schema == (schema or func.database())
        return set(connection.scalars(sa.select(known.c.index_name).where(mine).distinct()))

    def binary_text(self, element: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        # its collations ignore spaces at the end, and so sort a tab before the empty text
        return sa.type_coerce(sa.cast(element, sa.LargeBinary), sa.String)

    def number(self, element: sa.ColumnElement[Any], kind: str) -> sa.ColumnElement[Any]:
        if kind == "integer":
            return sa.case((element.op("REGEXP")("^-?[0-9]{1,18}$"), sa.cast(element, sa.BigInteger)))
        good = element.op("REGEXP")("^-?[0-9]+([.][0-9]+)?(e[+-]?[0-9]{1,2})?$")
        return sa.case((good, sa.cast(element, sa.Double)))

    def now_ms(self) -> sa.ColumnElement[Any]:
        return sa.cast(func.unix_timestamp(func.sysdate(sa.literal_column("3"))) * 1000, sa.BigInteger)

    def classify(self, error: BaseException) -> Failure:
        number = error.args[0] if error.args else None
        return _MYSQL.get(number, Failure.OTHER) if isinstance(number, int) else Failure.OTHER
