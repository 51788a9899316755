"""The connection to a lake that a service has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from quacklake import Result
from quacklake.dbapi.bulk_inserts import BulkInsert
from quacklake.dbapi.connections import Connection
from quacklake.dbapi.cursors import Parameters
from quacklake.dbapi.failures import NotSupportedError, translated
from quacklake.errors import ConnectorUnavailableError, NotFoundError, SqlError
from quacklake.extend.names import quote, uuid7
from quacklake.extend.sql import split, words_of

_CHANGES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})
_UNKNOWN = "the rows may have been written all the same: look before you run the statement again"


class ServiceLake(Protocol):
    """The lake of a service, as far as a connection needs it."""

    @property
    def url(self) -> str:
        """The URL of the service, without a token."""

    def sql(
        self, text: str, params: Sequence[Any] | dict[str, Any] | None = None, *, request_id: str | None = None
    ) -> Result:
        """Run SQL."""

    def cancel(self, request_id: str) -> bool:
        """Cancel a statement."""

    def table(self, name: str) -> Any:
        """Return a table."""

    def close(self) -> None:
        """Close the connections."""


class ServiceConnection(Connection):
    """A connection to a lake that a service has. Each statement is committed by itself."""

    chunk_rows = None
    lake: ServiceLake

    def __init__(self, lake: ServiceLake, *, autocommit: bool, owned: bool) -> None:
        super().__init__(lake, owned=owned)
        self._changed = False
        self._request: str | None = None
        self.autocommit = autocommit

    @property
    def autocommit(self) -> bool:
        return True

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        if not value:
            raise NotSupportedError("a service commits each statement by itself: it has no other transactions")

    def commit(self) -> None:
        """Do nothing: what has been run is committed."""
        self.check_open()
        self._changed = False

    def rollback(self) -> None:
        """Do nothing if nothing has been changed since the last ``commit``; else raise ``NotSupportedError``."""
        self.check_open()
        if self._changed:
            self._changed = False
            raise NotSupportedError("the rows are committed already: a service commits each statement by itself")

    def _end_session(self) -> None:
        self._request = None

    def primary_key(self, schema: str, table: str) -> tuple[str, ...]:
        self.check_open()
        with translated():
            try:
                found = self.lake.table(f"{quote(schema)}.{quote(table)}").describe()
            except NotFoundError:
                return ()
            # users with rights of their own are not told of keys
            return tuple(column["name"] for column in found["columns"] if column.get("primary_key"))

    def cancel(self) -> bool:
        request = self._request
        if request is None:
            return False
        with translated():
            try:
                return self.lake.cancel(request)
            except NotFoundError:
                return False

    def run(self, sql: str, parameters: Parameters) -> Result:
        self.check_open()
        self._request = str(uuid7())
        changes = _changes(sql)
        with translated():
            try:
                result = self.lake.sql(sql, parameters, request_id=self._request)  # type: ignore[arg-type]
            except ConnectorUnavailableError as error:
                if changes:
                    error.hint = _UNKNOWN
                raise
        self._changed |= changes
        return result

    def insert(self, bulk: BulkInsert, rows: list[Any]) -> Result | None:
        columns = bulk.columns(rows)
        return None if columns is None else self.run(bulk.from_lists(), columns)


def _changes(sql: str) -> bool:
    """Return whether a text has a statement that changes rows."""
    try:
        begins = [words_of(statement) for statement in split(sql)]
    except SqlError:
        return False
    return any(
        words[0].upper in _CHANGES or (words[0].upper == "WITH" and any(word.upper in _CHANGES for word in words))
        for words in begins
        if words
    )
