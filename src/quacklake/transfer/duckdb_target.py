"""Export to a DuckDB file: tables with their types, comments, keys and defaults, and views."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import duckdb
import pyarrow as pa

from quacklake.errors import AlreadyExistsError, InputError
from quacklake.extend import reporting
from quacklake.extend.duckdbs import connect
from quacklake.extend.names import literal, quote
from quacklake.extend.schemas import Column
from quacklake.extend.sql import plain_expression
from quacklake.extend.stores import Store
from quacklake.lake.transfers import LeftOut
from quacklake.transfer.places import REPLACE
from quacklake.transfer.targets import ExportedTable, View, run_copy


class DuckDBTarget:
    """A new DuckDB file, which gets its name when it is complete."""

    def __init__(self, path: Path, *, replace: bool) -> None:
        if path.is_dir() or (path.exists() and not replace):
            raise AlreadyExistsError(f"{path} exists already", hint=REPLACE)
        if not path.parent.is_dir():
            raise InputError(f"the folder {path.parent} does not exist", hint="create it first")
        self._path, self._part = path, path.with_name(f".{path.name}.{uuid4().hex}")
        self.place = f"duckdb:{path}"
        self._opened: duckdb.DuckDBPyConnection | None = None

    def check(self, table: ExportedTable) -> None:
        """Take every table: DuckDB has all types and names of a lake."""

    def begin(self, snapshot_id: int, tables: Sequence[ExportedTable]) -> list[ExportedTable]:
        """Return no tables: every export begins anew."""
        return []

    def write(self, table: ExportedTable, rows: pa.RecordBatchReader) -> None:
        """Create a table and fill it."""
        connection, name = self._connection, f"{quote(table.schema)}.{quote(table.name)}"
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(table.schema)}")
        columns = [_definition(column) for column in table.columns.columns]
        connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        values = (f"CAST({quote(column.name)} AS {column.duckdb_type()})" for column in table.columns.columns)
        connection.register("_ql_rows", rows)
        run_copy(connection, f"INSERT INTO {name} SELECT {', '.join(values)} FROM _ql_rows", table)
        connection.unregister("_ql_rows")
        if table.comment is not None:
            connection.execute(f"COMMENT ON TABLE {name} IS {literal(table.comment)}")
        for column, text in table.column_comments.items():
            connection.execute(f"COMMENT ON COLUMN {name}.{quote(column)} IS {literal(text)}")

    def views(self, views: Sequence[View]) -> tuple[list[str], list[LeftOut]]:
        """Create views; those that read others are tried again."""
        connection = self._connection
        # a query of a view reaches nothing but this file while DuckDB binds it
        connection.execute("SET enable_external_access = false")
        done: list[str] = []
        left = list(views)
        while left:
            reasons: dict[View, str] = {}
            for view in left:
                schema, name, query, columns = view
                listed = f" ({', '.join(map(quote, columns))})" if columns else ""
                try:
                    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(schema)}")
                    connection.execute(f"USE {quote(schema)}")
                    connection.execute(f"CREATE VIEW {quote(schema)}.{quote(name)}{listed} AS {query}")
                    done.append(f"{schema}.{name}")
                except duckdb.Error as error:
                    reasons[view] = next(iter(str(error).splitlines()), "")
            if len(reasons) == len(left):
                return sorted(done), [LeftOut(f"view {view[0]}.{view[1]}", why) for view, why in reasons.items()]
            left = list(reasons)
        return sorted(done), []

    def left_out(self, table: ExportedTable) -> list[LeftOut]:
        """Return the key: a lake does not check it, so that the file may not be able to."""
        if not table.primary_key:
            return []
        return [
            LeftOut(
                table.qualified_name, f"the primary key ({', '.join(table.primary_key)}), which a lake does not check"
            )
        ]

    def finish(self) -> dict[str, int]:
        """Close the file and give it its name."""
        self._connection.execute("CHECKPOINT")
        self._connection.close()
        folder = Store.open(str(self._path.parent))
        folder.sync([self._part.name])
        reporting.reach("export.publish.before")
        self._part.replace(self._path)
        folder.sync([self._path.name])
        reporting.reach("export.publish.after")
        return {}

    def abort(self) -> None:
        """Remove what was written."""
        if self._opened is not None:
            with suppress(duckdb.Error):
                self._opened.close()
        self._part.unlink(missing_ok=True)
        self._part.with_name(f"{self._part.name}.wal").unlink(missing_ok=True)

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        if self._opened is None:
            self._opened = connect(str(self._part), config={"autoinstall_known_extensions": False})
            self._opened.execute("SET TimeZone = 'UTC'")
        return self._opened


def _definition(column: Column) -> str:
    required = "" if column.nullable else " NOT NULL"
    preset = ""
    if column.default is not None and column.default_kind == "literal":
        preset = f" DEFAULT {literal(column.default)}"
    elif column.default is not None:
        with suppress(InputError):
            preset = f" DEFAULT ({plain_expression(column.default)})"
    return f"{quote(column.name)} {column.duckdb_type()}{required}{preset}"
