"""Connections of dbt to a lake: one lake for the run, one session with its own transaction for each thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dbt.adapters.contracts.connection import AdapterResponse, Connection, ConnectionState, Credentials
from dbt.adapters.exceptions import FailedToConnectError
from dbt.adapters.sql import SQLConnectionManager
from dbt_common.clients.agate_helper import empty_table
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

import quacklake
from quacklake import dbapi

if TYPE_CHECKING:
    import agate

DATABASE = "lake"
"""The name of the lake in SQL."""
TEMPORARY = "temp"
"""The name of DuckDB's database of temporary tables."""


@dataclass
class QuacklakeCredentials(Credentials):
    """A target of ``profiles.yml``."""

    database: str = DATABASE
    schema: str = "main"
    lake: str | None = None
    """The URL of the lake's catalog; by default from the environment or ``quacklake.toml``."""
    data_path: str | None = None
    catalog: str | None = None
    """The tenant, in a shared lake."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Further settings of ``quacklake.connect``."""

    _ALIASES = {"url": "lake", "tenant": "catalog"}  # noqa: RUF012 - dbt's own name

    def __post_init__(self) -> None:
        if self.database != DATABASE:
            raise DbtRuntimeError(f"the database of a lake is named {DATABASE!r}, not {self.database!r}")

    @property
    def type(self) -> str:
        return "quacklake"

    @property
    def unique_field(self) -> str:
        return f"{self.lake}/{self.catalog}"

    def _connection_keys(self) -> tuple[str, ...]:
        return ("database", "schema", "data_path", "catalog")

    def __repr__(self) -> str:
        return f"QuacklakeCredentials(schema={self.schema!r})"  # a URL may hold a password

    @property
    def key(self) -> tuple[Any, ...]:
        """The credentials as a key: equal ones share a lake."""
        return (self.lake, self.data_path, self.catalog, repr(sorted(self.settings.items())))

    def connect(self) -> quacklake.Lake:
        """Open the lake, or create it."""
        return quacklake.connect(self.lake, self.data_path, catalog=self.catalog, **self.settings)


class QuacklakeConnectionManager(SQLConnectionManager):
    """Opens sessions on one lake, and runs what must wait for a commit after it."""

    TYPE = "quacklake"
    _lakes: dict[tuple[Any, ...], quacklake.Lake] = {}  # noqa: RUF012 - shared by all managers of the process
    _lakes_lock = threading.Lock()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._waiting = threading.local()

    @classmethod
    def lake(cls, credentials: QuacklakeCredentials) -> quacklake.Lake:
        """Return the open lake of these credentials."""
        with cls._lakes_lock:
            found = cls._lakes.get(credentials.key)
            if found is None:
                found = cls._lakes[credentials.key] = credentials.connect()
            return found

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        if connection.state == ConnectionState.OPEN:
            return connection
        try:
            connection.handle = dbapi.connect(cls.lake(connection.credentials), autocommit=True)  # type: ignore[arg-type]
            connection.state = ConnectionState.OPEN
        except (quacklake.QuacklakeError, dbapi.Error) as error:
            connection.handle, connection.state = None, ConnectionState.FAIL
            raise FailedToConnectError(str(error)) from error
        return connection

    def cleanup_all(self) -> None:
        super().cleanup_all()
        with self._lakes_lock:
            lake = self._lakes.pop(self.profile.credentials.key, None)  # type: ignore[attr-defined]
        if lake is not None:
            lake.close()

    def execute(
        self, sql: str, auto_begin: bool = False, fetch: bool = False, limit: int | None = None
    ) -> tuple[AdapterResponse, agate.Table]:
        """Run statements. dbt commits before hooks outside a transaction, also when there is none."""
        if sql.strip().rstrip(";").lower() != "commit":
            return super().execute(sql, auto_begin, fetch, limit)
        if self.get_thread_connection().transaction_open:
            self.commit()
        return AdapterResponse("OK"), empty_table()

    def cancel(self, connection: Connection) -> None:
        connection.handle.cancel()

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:
        try:
            yield
        except (quacklake.QuacklakeError, dbapi.Error) as error:
            self._forget()
            self.rollback_if_open()
            raise DbtDatabaseError(str(error)) from error
        except DbtRuntimeError:
            raise
        except Exception as error:
            self._forget()
            self.rollback_if_open()
            raise DbtRuntimeError(str(error)) from error

    # -- after the commit ----------------------------------------------------------------------------------------------

    def after_commit(self, work: Callable[[], None]) -> None:
        """Run ``work`` after the open transaction is committed, or now if none is open; forget it if that fails."""
        if not self.get_thread_connection().transaction_open:
            work()
            return
        self._works().append(work)

    def commit(self) -> Connection:
        connection = super().commit()
        works, self._waiting.works = self._works(), []
        for work in works:
            work()
        return connection

    def _works(self) -> list[Callable[[], None]]:
        found: list[Callable[[], None]] = self._waiting.__dict__.setdefault("works", [])
        return found

    def _forget(self) -> None:
        self._waiting.works = []

    # -- answers -------------------------------------------------------------------------------------------------------

    @classmethod
    def get_response(cls, cursor: Any) -> AdapterResponse:
        rows = cursor.rowcount
        return AdapterResponse("OK" if rows < 0 else f"OK {rows}", rows_affected=rows)

    @classmethod
    def data_type_code_to_name(cls, type_code: int | str) -> str:
        return str(type_code).partition("(")[0]
