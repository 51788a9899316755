"""What a lake, a past snapshot and an open transaction have in common: their tables and views, and SQL over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from quacklake.engines.duckdb.remote import connect_store
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

__all__ = ["LakeReader"]


class LakeReader:
    """What a lake, a past snapshot and an open transaction have in common."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self._sessions = LakeSessions(handle)

    def sql(self, text: str, params: Sequence[Any] | dict[str, Any] | None = None) -> Result:
        """Run one or several statements; returns what the last one gave.

        ``params`` are values for ``?`` and ``$1`` (a list) or ``$name`` (a dictionary). Tables are named ``table`` or
        ``schema.table``. Each thread has a session of its own, which lasts: ``BEGIN`` holds until ``COMMIT``.
        Raises ``SqlError``, or what the operation itself raises.
        """
        return self._sessions.current()._from(text, params)

    @property
    def _context(self) -> LakeContext:
        return self.handle.context

    def table(self, name: str) -> Table:
        """A table by its name, ``schema.table`` or ``table`` in ``main``. Whether it exists shows when it is used."""
        ref = TableRef.parse(name, nested=self._context.catalog.is_next)
        return Table(self.handle, ref)

    def __getitem__(self, name: str) -> Table:
        """A table that is there: ``lake["t"]``, ``lake["schema.t"]``. Raises ``NotFoundError`` with names like it."""
        table = self.table(name)
        view = self.handle.view()
        ref = TableRef.parse(name)
        if view.get_table(ref.schema, ref.name) is None and view.objects.get_view(ref.schema, ref.name) is not None:
            raise NotFoundError(f"{name} is a view, not a table", hint=f'use lake.view("{name}")')
        view.find_table(ref.schema, ref.name)
        return table

    def __contains__(self, name: object) -> bool:
        """True for the name of a table: ``"t" in lake``."""
        if not isinstance(name, str):
            return False
        ref = TableRef.parse(name)
        return self.handle.view().get_table(ref.schema, ref.name) is not None

    def __iter__(self) -> Iterator[str]:
        """The names of the tables, as ``tables`` gives them."""
        return iter(self.tables())

    def _ipython_key_completions_(self) -> list[str]:
        return [name.removeprefix("main.") for name in self.tables()]

    def scan(self, name: str, columns: Sequence[str] | None = None, where: Filter | None = None) -> TableScan:
        """A lazy frame over a table."""
        return self.table(name).scan(columns, where)

    def schemas(self) -> list[str]:
        """The names of the schemas."""
        return [info.name for info in self.handle.view().schemas()]

    def tables(self, schema: str | None = None) -> list[str]:
        """The names of the tables, ``schema.table``."""
        return [info.qualified_name for info in self._tables() if schema is None or info.schema_name == schema]

    def _tables(self) -> list[TableInfo]:
        return self.handle.view().tables()

    def view(self, name: str) -> View:
        """A view by its name, ``schema.view`` or ``view`` in ``main``. Whether it exists shows when it is used."""
        ref = TableRef.parse(name, nested=self._context.catalog.is_next)
        return View(self.handle, ref)

    def views(self, schema: str | None = None) -> list[str]:
        """The names of the views, ``schema.view``."""
        found = self.handle.view().objects.views()
        return [view.qualified_name for view in found if schema is None or view.schema_name == schema]

    def macros(self, schema: str | None = None) -> list[MacroInfo]:
        """The macros: their names, parameters and SQL."""
        return [macro for macro in self.handle.view().objects.macros() if schema is None or macro.schema_name == schema]

    @overload
    def register(self, target: duckdb.DuckDBPyConnection) -> None: ...

    @overload
    def register(self, target: str, rows: Any) -> None: ...

    def register(self, target: duckdb.DuckDBPyConnection | str, rows: Any = None) -> None:
        """Make rows a table for SQL, or every table of the lake a view in a DuckDB connection.

        ``register("wanted", df)`` lets ``sql`` speak of ``wanted`` until ``unregister``: a frame, Arrow data, or what
        else ``append`` takes, but for files, which SQL reads itself. Other threads see it, too.

        ``register(connection)`` makes views of the tables as they are at this moment: they do not follow the lake, as
        ``Table.to_duckdb`` does. The connection's own SQL then runs over the lake's files, and views in ``main`` are
        also there without a schema.
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
        """Forget rows that ``register`` has given a name."""
        self._sessions.current().unregister(name)
