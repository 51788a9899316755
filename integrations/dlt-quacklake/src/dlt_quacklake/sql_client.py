"""Statements of dlt in the SQL of a lake."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import duckdb
import pyarrow as pa
from dlt.common.destination import DestinationCapabilitiesContext
from dlt.common.destination.dataset import DBApiCursor
from dlt.destinations.exceptions import (
    DatabaseTerminalException,
    DatabaseTransientException,
    DatabaseUndefinedRelation,
)
from dlt.destinations.sql_client import (
    DBApiCursorImpl,
    SqlClientBase,
    raise_database_error,
    raise_open_connection_error,
)
from dlt.destinations.typing import DBTransaction

from dlt_quacklake.configuration import QuacklakeCredentials
from quacklake import dbapi, errors

MARKS = "_dlt_quacklake_jobs"
"""The table of a dataset that lists the finished jobs of loads that are not complete."""


class QuacklakeCursor(DBApiCursorImpl):
    """Rows of a lake, which are Arrow."""

    native_cursor: dbapi.Cursor

    def iter_arrow(self, chunk_size: int) -> Generator[pa.Table, None, None]:
        """Yield the rows, in tables of at most ``chunk_size`` rows if that is not 0."""
        if not chunk_size:
            yield self.native_cursor.fetch_arrow_table()
            return
        for batch in self.native_cursor.fetch_record_batch():
            for start in range(0, batch.num_rows, chunk_size):
                yield pa.Table.from_batches([batch.slice(start, chunk_size)])


class QuacklakeSqlClient(SqlClientBase[dbapi.Connection], DBTransaction):
    """A connection to a lake with one transaction."""

    dbapi: ClassVar[Any] = dbapi
    cursor_impl: ClassVar[type[QuacklakeCursor]] = QuacklakeCursor

    def __init__(
        self,
        dataset_name: str,
        staging_dataset_name: str,
        credentials: QuacklakeCredentials,
        capabilities: DestinationCapabilitiesContext,
    ) -> None:
        super().__init__(None, dataset_name, staging_dataset_name, capabilities)  # type: ignore[arg-type]
        self.credentials = credentials
        self._marks_dataset = dataset_name
        self._connection: dbapi.Connection | None = None

    @raise_open_connection_error
    def open_connection(self) -> dbapi.Connection:
        """Open the lake, or create it."""
        self._connection = self.credentials.connect()
        return self._connection

    @raise_open_connection_error
    def close_connection(self) -> None:
        """Undo what is not committed, and close the lake."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def native_connection(self) -> dbapi.Connection:
        return self._connection  # type: ignore[return-value]

    # -- transactions --------------------------------------------------------------------------------------------------

    @contextmanager
    @raise_database_error
    def begin_transaction(self) -> Iterator[DBTransaction]:
        """Run the statements of a block as one commit."""
        self.native_connection.execute("BEGIN")
        try:
            yield self
        except BaseException:
            self.rollback_transaction()
            raise
        self.commit_transaction()

    @raise_database_error
    def commit_transaction(self) -> None:
        self.native_connection.commit()

    @raise_database_error
    def rollback_transaction(self) -> None:
        self.native_connection.rollback()

    # -- statements ----------------------------------------------------------------------------------------------------

    def execute_sql(self, sql: Any, *args: Any, **kwargs: Any) -> Sequence[Sequence[Any]] | None:
        """Run statements and return the rows of the last one, or None."""
        with self.execute_query(sql, *args, **kwargs) as cursor:
            return None if cursor.description is None else cursor.fetchall()

    @contextmanager
    @raise_database_error
    def execute_query(self, query: Any, *args: Any, **kwargs: Any) -> Iterator[DBApiCursor]:
        """Run statements with values for dlt's marks ``%s``."""
        values = args or kwargs or None
        text = query.replace("%s", "?") if values else query
        with self.native_connection.cursor().execute(text, values) as cursor:
            yield self.cursor_impl(cursor)  # type: ignore[arg-type, abstract]

    @staticmethod
    def _make_database_exception(ex: Exception) -> Exception:
        """Return the error that tells dlt whether to try again."""
        if any(isinstance(cause, errors.NotFoundError | duckdb.CatalogException) for cause in _causes(ex)):
            return DatabaseUndefinedRelation(ex)
        if isinstance(ex, dbapi.OperationalError | dbapi.InterfaceError):
            return DatabaseTransientException(ex)
        return DatabaseTerminalException(ex) if isinstance(ex, dbapi.Error) else ex

    # -- marks ---------------------------------------------------------------------------------------------------------

    @property
    def _marks(self) -> str:
        return ".".join(self.make_qualified_table_name_path(MARKS, dataset_name=self._marks_dataset))

    def create_marks(self) -> None:
        """Create the table of finished jobs."""
        self.execute_sql(f"CREATE TABLE IF NOT EXISTS {self._marks} (load_id VARCHAR, job_id VARCHAR)")

    @contextmanager
    def once(self, load_id: str, job_id: str) -> Iterator[bool]:
        """Run a block as one commit that also says that the job is done; give it False if an earlier commit says so."""
        with self.begin_transaction():
            found = self.execute_sql(f"SELECT 1 FROM {self._marks} WHERE load_id = %s AND job_id = %s", load_id, job_id)
            yield not found
            if not found:
                self.execute_sql(f"INSERT INTO {self._marks} VALUES (%s, %s)", load_id, job_id)

    def forget(self, load_id: str) -> None:
        """Remove the marks of a load."""
        self.execute_sql(f"DELETE FROM {self._marks} WHERE load_id = %s", load_id)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
