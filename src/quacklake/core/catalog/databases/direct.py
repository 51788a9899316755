"""Statements handed to the driver of a database without SQLAlchemy.

SQLAlchemy takes longer to run a small statement than the driver and the database together; a statement that runs in
every commit needs it once, to become text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.util import LRUCache

from quacklake.core.catalog import scoped

_MAX_COUNT = 2_000
"""The statements of an open lake that are kept as text; each table with inlined rows has its own."""


class VaryingStatement(sa.exc.CompileError):
    """The text of a statement depends on the values of its parameters: only SQLAlchemy can run it."""


class Direct:
    """A statement in the form of the driver; ``keys`` are the columns of an insert."""

    __slots__ = ("_bind", "_fixed", "_result", "_scoped", "order", "parameters", "text")

    def __init__(self, connection: Connection, statement: Any, keys: Sequence[str]) -> None:
        dialect = connection.dialect
        compiled = statement.compile(dialect=dialect, column_keys=list(keys))
        if compiled.post_compile_params or compiled.escaped_bind_names:
            raise VaryingStatement("the text of this statement is another for other parameters")
        self.text: str = compiled.string
        self.parameters = len(compiled.binds)
        #: The names of the parameters by their places, where the driver does not take them by name.
        self.order: tuple[str, ...] = tuple(compiled.positiontup or ())
        self._scoped = scoped.CATALOG in compiled.binds
        self._fixed: dict[str, Any] = {name: value for name, value in compiled.params.items() if value is not None}
        self._bind: list[tuple[str, Callable[[Any], Any]]] = []
        for name, parameter in compiled.binds.items():
            process = parameter.type.dialect_impl(dialect).bind_processor(dialect)
            if process is not None:
                self._bind.append((name, process))
        columns = statement.selected_columns if isinstance(statement, sa.Select) else ()
        processes = [column.type.dialect_impl(dialect).result_processor(dialect, None) for column in columns]
        self._result = [(place, process) for place, process in enumerate(processes) if process is not None]

    def values(self, connection: Connection, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return all parameters as the driver takes them."""
        values = {**self._fixed, **parameters}
        if self._scoped:
            values[scoped.CATALOG] = scoped.required_value_of(connection)
        for name, process in self._bind:
            values[name] = process(values[name])
        return values

    def placed(self, connection: Connection, parameters: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return all parameters as a driver takes them that knows them by their places."""
        values = self.values(connection, parameters)
        return tuple(map(values.__getitem__, self.order))

    def rows(self, cursor: Any) -> list[tuple[Any, ...]]:
        """Return what a select has found."""
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return [self._convert(row) for row in rows] if self._result else rows

    def _convert(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        values = list(row)
        for place, process in self._result:
            values[place] = process(values[place])
        return tuple(values)


_SELECTS = 200
_selects: LRUCache[tuple[Dialect, sa.Select[Any], tuple[str, ...]], Direct] = LRUCache(_SELECTS)
"""Selects of all catalogs of the process: most are built once for all, and the first query of each lake asks them."""


class DirectStatements:
    """The statements of a catalog that were turned into text so far."""

    def __init__(self) -> None:
        self._known: LRUCache[tuple[Any, tuple[str, ...]], Direct] = LRUCache(_MAX_COUNT)

    def find(self, connection: Connection, statement: Any, parameters: Mapping[str, Any]) -> Direct:
        """Return a statement for parameters of these names."""
        key = (statement, tuple(parameters))
        direct = self._known.get(key)
        if direct is None:
            direct = self._known[key] = self._compile(connection, *key)
        return direct

    def _compile(self, connection: Connection, statement: Any, names: tuple[str, ...]) -> Direct:
        if not isinstance(statement, sa.Select):  # each table with inlined rows has inserts of its own
            return Direct(connection, statement, names)
        key = (connection.dialect, statement, names)
        direct = _selects.get(key)
        if direct is None:
            direct = _selects[key] = Direct(connection, statement, names)
        return direct
