"""The options of a lake, which apply to every client."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from quacklake.errors import InputError
from quacklake.format.options import OptionRow, OptionType, Scope, format_option, option
from quacklake.operations.context import LakeContext
from quacklake.operations.handles import Handle
from quacklake.operations.reference import TableRef
from quacklake.transaction import objects


class LakeOptions:
    """The options of a lake, of its schemas and of its tables."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    @property
    def _context(self) -> LakeContext:
        return self.handle.context

    def list(self) -> pa.Table:
        """Return the options that are set: name, value, and the schema or table (neither: the whole lake)."""
        self._context.forget_options()
        with self._context.catalog.read() as reader:
            reader.snapshots.check_there()
        rows = self._context.options()
        names = ("key", "value", "scope", "scope_id")
        types = (pa.string(), pa.string(), pa.string(), pa.int64())
        columns = zip(*((row.key, row.value, row.scope, row.scope_id) for row in rows), strict=True)
        return pa.table({n: pa.array(c, t) for n, c, t in zip(names, columns, types, strict=True)})

    def get(self, name: str, *, schema: str | None = None, table: str | None = None) -> Any:
        """Return the value of an option for the lake, a schema or a table.

        A table's setting overrides its schema's, which overrides the lake's, which overrides that of ``connect``.
        """
        _, schema_id, table_id = self._scope(schema, table)
        self._context.forget_options()
        return self._context.effective(name, schema_id, table_id)

    def set(self, name: str, value: Any, *, schema: str | None = None, table: str | None = None) -> None:
        """Set an option of the format, such as ``data_inlining_row_limit``, for the lake, a schema or a table.

        Options apply to every client from now on; they are not part of any snapshot. Raises ``ConfigError``.
        """
        if option(name).type is OptionType.COLUMNS:
            objects.require_next(self._context.catalog, f"the option {name}")
            value = self._column_ids(value, table)
        text = format_option(name, value)
        row = self._option_row(name, text, schema, table)
        with self._context.catalog.commit() as writer:
            writer.snapshots.check_there()
            writer.put_option(row)
        self._context.forget_options()

    def unset(self, name: str, *, schema: str | None = None, table: str | None = None) -> None:
        """Remove a setting of the lake, a schema or a table; the next wider setting applies again."""
        row = self._option_row(name, "", schema, table)
        with self._context.catalog.commit() as writer:
            writer.snapshots.check_there()
            writer.drop_option(row)
        self._context.forget_options()

    def _column_ids(self, value: Any, table: str | None) -> str:
        """Return column names or ids in the form that an option stores."""
        if isinstance(value, str) or table is None:
            return str(value)
        ref = TableRef.parse(table)
        found = self.handle.view().find_table(ref.schema, ref.name)
        return ",".join(str(leaf.id) for name in value for leaf in found.schema.find(name).leaves())

    def _option_row(self, name: str, text: str, schema: str | None, table: str | None) -> OptionRow:
        entry = option(name)
        scope, schema_id, table_id = self._scope(schema, table)
        if scope not in entry.scopes:
            hint = "lake.history.set_retention lets a table keep its history longer" if scope is Scope.TABLE else None
            what = "a table" if entry.scopes == (Scope.TABLE,) else "the whole lake"
            raise InputError(f'the option "{entry.name}" can only be set for {what}', hint=hint)
        id_ = {Scope.GLOBAL: None, Scope.SCHEMA: schema_id, Scope.TABLE: table_id}[scope]
        return OptionRow(entry.name, text, None if scope is Scope.GLOBAL else scope.value, id_)

    def _scope(self, schema: str | None, table: str | None) -> tuple[Scope, int | None, int | None]:
        """Return the scope of a setting, with the ids of the schema and the table."""
        if schema is not None and table is not None:
            raise InputError("pass schema= or table=, not both")
        if table is not None:
            ref = TableRef.parse(table)
            found = self.handle.view().find_table(ref.schema, ref.name)
            return Scope.TABLE, found.schema_id, found.id
        if schema is not None:
            return Scope.SCHEMA, self.handle.view().find_schema(schema).id, None
        return Scope.GLOBAL, None, None
