"""Python's database interface (PEP 249) over the SQL of a lake.

>>> import tempfile
>>> from quacklake import dbapi
>>> home = tempfile.mkdtemp()
>>> connection = dbapi.connect(f"sqlite:///{home}/lake.db", data_path=f"{home}/data")
>>> cursor = connection.cursor()
>>> cursor.execute("CREATE TABLE t (id BIGINT, name VARCHAR)").executemany(
...     "INSERT INTO t VALUES (?, ?)", [(1, "a"), (2, "b")]
... )
<quacklake.dbapi.Cursor, 2 rows changed>
>>> connection.commit()
>>> cursor.execute("SELECT name FROM t WHERE id = ?", [2]).fetchall()
[('b',)]
>>> connection.close()

``connect("http://…", token=…)`` opens a connection to a lake that a service has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quacklake.dbapi.connections import Connection, LakeConnection
from quacklake.dbapi.cursors import Cursor
from quacklake.dbapi.failures import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
    translated,
)
from quacklake.dbapi.service import ServiceConnection, ServiceLake
from quacklake.dbapi.types import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
    TypeObject,
)
from quacklake.lake.connect import connect as connect_lake
from quacklake.lake.lake import Lake

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "TypeObject",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]

apilevel = "2.0"
threadsafety = 1
"""Threads may share the module, but not connections: a connection has one transaction."""
paramstyle = "qmark"
"""``?``; ``$1`` and ``$name`` (with a dictionary of values) work, too."""


def connect(
    lake: str | Lake | ServiceLake | None = None,
    data_path: str | Path | None = None,
    *,
    autocommit: bool | None = None,
    **settings: Any,
) -> Connection:
    """Open a connection to a lake: to an open one, which stays open, or as ``quacklake.connect`` opens it.

    Unless ``autocommit`` is true, the first statement begins a transaction, which lasts until ``commit`` or
    ``rollback``. Through a service (``http://…``), each statement is committed by itself, and ``autocommit=False``
    raises ``NotSupportedError``.
    """
    with translated():
        if lake is not None and not isinstance(lake, str):
            return _connection(lake, autocommit, owned=False)
        opened: Lake | ServiceLake = connect_lake(lake, data_path, **settings)
        try:
            return _connection(opened, autocommit, owned=True)
        except BaseException:
            opened.close()
            raise


def _connection(lake: Lake | ServiceLake, autocommit: bool | None, *, owned: bool) -> Connection:
    if isinstance(lake, Lake):
        return LakeConnection(lake, autocommit=bool(autocommit), owned=owned)
    return ServiceConnection(lake, autocommit=autocommit is not False, owned=owned)
