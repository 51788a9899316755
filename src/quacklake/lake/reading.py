"""The reading methods that lakes, past snapshots and open transactions share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from quacklake.engines.duckdb.connections import connect_store
from quacklake.errors import NotFoundError
from quacklake.format.names import quote
from quacklake.format.objects import MacroInfo, TableInfo
from quacklake.lake.table import Table
from quacklake.lake.view import View
from quacklake.operations.context import LakeContext
from quacklake.operations.handles import Handle
from quacklake.operations.reference import TableRef
from quacklake.operations.table_scan import TableScan
from quacklake.scan import Filter
from quacklake.sql.sessions import LakeSessions

if TYPE_CHECKING:
    import duckdb

    from quacklake.sql.result import Result


class LakeReader:
    """Reads tables and views and runs SQL; the base of lakes, past snapshots and transactions."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self._sessions = LakeSessions(handle)

    def sql(self, text: str, params: Sequence[Any] | dict[str, Any] | None = None) -> Result:
        """Run one or more SQL statements and return the result of the last one.

        ``params`` holds values for ``?`` and ``$1`` (a list) or for ``$name`` (a dictionary). Tables are named
        ``table`` or ``schema.table``. Each thread has its own lasting session, so a ``BEGIN`` stays open until
        ``COMMIT``. Raises ``SqlError``, or the error of the operation itself.
        """
        return self._sessions.current()._from(text, params)

    @property
    def _context(self) -> LakeContext:
        return self.handle.context

    def table(self, name: str) -> Table:
        """Return a table by name: ``schema.table``, or ``table`` in ``main``. A missing table raises only on use."""
        ref = TableRef.parse(name, nested=self._context.catalog.is_next)
        return Table(self.handle, ref)

    def __getitem__(self, name: str) -> Table:
        """Return an existing table: ``lake["schema.t"]``. Raises ``NotFoundError`` that suggests similar names."""
        table = self.table(name)
        view = self.handle.view()
        ref = TableRef.parse(name)
        if view.get_table(ref.schema, ref.name) is None and view.objects.get_view(ref.schema, ref.name) is not None:
            raise NotFoundError(f"{name} is a view, not a table", hint=f'use lake.view("{name}")')
        view.find_table(ref.schema, ref.name)
        return table

    def __contains__(self, name: object) -> bool:
        """Return whether a table exists: ``"t" in lake``."""
        if not isinstance(name, str):
            return False
        ref = TableRef.parse(name)
        return self.handle.view().get_table(ref.schema, ref.name) is not None

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the tables, as ``tables`` returns them."""
        return iter(self.tables())

    def _ipython_key_completions_(self) -> list[str]:
        return [name.removeprefix("main.") for name in self.tables()]

    def scan(self, name: str, columns: Sequence[str] | None = None, where: Filter | None = None) -> TableScan:
        """Return a lazy scan of a table."""
        return self.table(name).scan(columns, where)

    def schemas(self) -> list[str]:
        """Return the names of the schemas."""
        return [info.name for info in self.handle.view().schemas()]

    def tables(self, schema: str | None = None) -> list[str]:
        """Return the names of the tables as ``schema.table``."""
        return [info.qualified_name for info in self._tables() if schema is None or info.schema_name == schema]

    def _tables(self) -> list[TableInfo]:
        return self.handle.view().tables()

    def view(self, name: str) -> View:
        """Return a view by name: ``schema.view``, or ``view`` in ``main``. A missing view raises only on use."""
        ref = TableRef.parse(name, nested=self._context.catalog.is_next)
        return View(self.handle, ref)

    def views(self, schema: str | None = None) -> list[str]:
        """Return the names of the views as ``schema.view``."""
        found = self.handle.view().objects.views()
        return [view.qualified_name for view in found if schema is None or view.schema_name == schema]

    def macros(self, schema: str | None = None) -> list[MacroInfo]:
        """Return the macros with their names, parameters and SQL."""
        return [macro for macro in self.handle.view().objects.macros() if schema is None or macro.schema_name == schema]

    @overload
    def register(self, target: duckdb.DuckDBPyConnection) -> None: ...

    @overload
    def register(self, target: str, rows: Any) -> None: ...

    def register(self, target: duckdb.DuckDBPyConnection | str, rows: Any = None) -> None:
        """Register rows as a table for SQL, or register every table of the lake in a DuckDB connection.

        ``register("wanted", df)`` lets ``sql`` query ``wanted`` until ``unregister``, in every thread. It takes a
        frame, Arrow data, or any other input of ``append`` except files, which SQL reads directly.

        ``register(connection)`` creates a view in the connection for each table as it is now. Unlike
        ``Table.to_duckdb``, the views do not follow the lake. SQL in the connection then reads the lake's files; tables
        in ``main`` also work without a schema.
        """
        if isinstance(target, str):
            self._sessions.current().register(target, rows)
            return
        connection = target
        view = self.handle.view()
        connect_store(connection, self._context.store)
        for info in view.tables():
            query = self._context.engine.bind(connection, view.plan(info))
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(info.schema_name)}")
            connection.execute(f"CREATE OR REPLACE VIEW {quote(info.schema_name)}.{quote(info.name)} AS {query}")

    def unregister(self, name: str) -> None:
        """Remove rows that ``register`` added."""
        self._sessions.current().unregister(name)
