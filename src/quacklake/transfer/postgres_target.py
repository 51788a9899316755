"""Export to a PostgreSQL database: all tables in one transaction, through COPY."""

from __future__ import annotations

import io
from collections.abc import Sequence

import duckdb
import psycopg
import pyarrow as pa
from psycopg import sql
from pyarrow import csv

from quacklake.config import redact
from quacklake.errors import AlreadyExistsError, ConnectorError, ConnectorUnavailableError, InputError
from quacklake.extend import reporting
from quacklake.extend.duckdbs import arrow_reader
from quacklake.extend.names import quote
from quacklake.extend.schemas import Column
from quacklake.lake.transfers import LeftOut
from quacklake.transfer.places import REPLACE
from quacklake.transfer.tables import BATCH_ROWS
from quacklake.transfer.targets import ExportedTable, View, writing_connection

_TYPES = {
    "boolean": "boolean", "int8": "smallint", "int16": "smallint", "int32": "integer", "int64": "bigint",
    "int128": "numeric(39,0)", "uint8": "smallint", "uint16": "integer", "uint32": "bigint", "uint64": "numeric(20,0)",
    "uint128": "numeric(39,0)", "float32": "real", "float64": "double precision", "date": "date", "time": "time",
    "timetz": "timetz", "timestamp": "timestamp", "timestamp_s": "timestamp", "timestamp_ms": "timestamp",
    "timestamptz": "timestamptz", "interval": "interval", "varchar": "text", "blob": "bytea", "json": "json",
    "uuid": "uuid",
}  # fmt: skip
_BEFORE_CHRIST = (
    "CASE WHEN isfinite({0}) AND {0} < {1} THEN replace({0}::VARCHAR, ' (BC)', '') || ' BC' ELSE {0}::VARCHAR END"
)
_VALUES = {
    "blob": "'\\x' || hex({0})",
    "date": _BEFORE_CHRIST.replace("{1}", "DATE '0001-01-01'"),
    "timestamp": _BEFORE_CHRIST.replace("{1}", "TIMESTAMP '0001-01-01'"),
    "timestamptz": _BEFORE_CHRIST.replace("{1}", "TIMESTAMPTZ '0001-01-01 00:00:00+00'"),
}
"""Values as texts that PostgreSQL reads, where those of DuckDB are others."""
_MAX_NAME = 63


class PostgresTarget:
    """A PostgreSQL database. Until the export ends, nobody else sees any of it."""

    def __init__(self, url: str, *, replace: bool) -> None:
        self._replace = replace
        try:
            self._connection = psycopg.connect(url)
            self._connection.execute("SET TimeZone = 'UTC'")
        except psycopg.Error as error:
            raise ConnectorUnavailableError(f"the PostgreSQL server cannot be reached: {_first_line(error)}") from None
        info = self._connection.info
        self.place = f"postgresql://{info.host}:{info.port}/{info.dbname}"

    def check(self, table: ExportedTable) -> None:
        """Raise an error for a table that is there, or a name or type that PostgreSQL does not have."""
        for name in (table.schema, table.name, *table.columns.names):
            if len(name.encode()) > _MAX_NAME:
                raise InputError(f"PostgreSQL has no names of more than {_MAX_NAME} bytes: {name!r}")
        for column in table.columns.columns:
            _type(column, table)
        found = self._connection.execute(
            "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE nspname = %s AND relname = %s",
            (table.schema, table.name),
        ).fetchone()
        if found is not None and not self._replace:
            raise AlreadyExistsError(
                f"the database has {table.qualified_name} already",
                hint=REPLACE,
            )

    def begin(self, snapshot_id: int, tables: Sequence[ExportedTable]) -> list[ExportedTable]:
        """Return no tables: every export begins anew."""
        return []

    def write(self, table: ExportedTable, rows: pa.RecordBatchReader) -> None:
        """Create a table and fill it."""
        place = sql.Identifier(table.schema, table.name)
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}{}").format(
                sql.Identifier(column.name),
                sql.SQL(_type(column, table)),
                sql.SQL("" if column.nullable else " NOT NULL"),
            )
            for column in table.columns.columns
        )
        try:
            self._run(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(table.schema)))
            if self._replace:
                self._run(sql.SQL("DROP TABLE IF EXISTS {}").format(place))
            self._run(sql.SQL("CREATE TABLE {} ({})").format(place, columns))
            self._copy(table, place, rows)
            if table.comment is not None:
                self._run(sql.SQL("COMMENT ON TABLE {} IS {}").format(place, sql.Literal(table.comment)))
            for column, text in table.column_comments.items():
                name = sql.Identifier(table.schema, table.name, column)
                self._run(sql.SQL("COMMENT ON COLUMN {} IS {}").format(name, sql.Literal(text)))
        except psycopg.OperationalError as error:
            raise ConnectorUnavailableError(f"the PostgreSQL server failed: {_first_line(error)}") from None
        except psycopg.Error as error:
            raise ConnectorError(f"{table.qualified_name} cannot be written: {_first_line(error)}") from None

    def _run(self, statement: sql.Composed) -> None:
        self._connection.execute(statement)

    def _copy(self, table: ExportedTable, place: sql.Identifier, rows: pa.RecordBatchReader) -> None:
        values = ", ".join(f"{_text(column)} AS c{index}" for index, column in enumerate(table.columns.columns))
        command = sql.SQL("COPY {} FROM STDIN (FORMAT csv)").format(place)
        style = csv.WriteOptions(include_header=False, quoting_style="needed")
        with writing_connection() as connection, self._connection.cursor().copy(command) as copy:
            connection.register("rows", rows)
            try:
                for batch in arrow_reader(connection, f"SELECT {values} FROM rows", batch_rows=BATCH_ROWS):
                    text = io.BytesIO()
                    csv.write_csv(batch, text, style)
                    copy.write(text.getbuffer())
            except duckdb.Error as error:
                first = next(iter(str(error).splitlines()), "")
                raise InputError(f"the rows of {table.qualified_name} cannot be written: {first}") from error

    def views(self, views: Sequence[View]) -> tuple[list[str], list[LeftOut]]:
        """Return all as left out."""
        return [], [LeftOut(f"view {schema}.{name}", "its query is in the SQL of DuckDB") for schema, name, *_ in views]

    def left_out(self, table: ExportedTable) -> list[LeftOut]:
        """Return the columns whose defaults stay behind."""
        return [
            LeftOut(f"{table.qualified_name}.{column.name}", "the default, which is in the SQL of DuckDB")
            for column in table.columns.columns
            if column.default is not None
        ]

    def finish(self) -> dict[str, int]:
        """Commit."""
        reporting.reach("export.publish.before")
        try:
            self._connection.commit()
        except psycopg.Error as error:
            raise ConnectorUnavailableError(f"the PostgreSQL server failed: {_first_line(error)}") from None
        finally:
            self._connection.close()
        reporting.reach("export.publish.after")
        return {}

    def abort(self) -> None:
        """Leave everything as it was."""
        self._connection.close()


def _type(column: Column, table: ExportedTable) -> str:
    if column.type == "list" and not column.children[0].nested:
        return f"{_type(column.children[0], table)}[]"
    if column.nested:
        return "json"
    if column.type.startswith("decimal"):
        return column.type.replace("decimal", "numeric") if "(" in column.type else "numeric(18,3)"
    if column.type not in _TYPES:
        raise InputError(
            f'PostgreSQL has no type {column.duckdb_type()} for the column "{column.name}" of {table.qualified_name}',
            hint="leave the table out with exclude",
        )
    return _TYPES[column.type]


def _text(column: Column) -> str:
    """Return the SQL for the text of a value, as COPY takes it."""
    name = quote(column.name)
    value = f"CAST({name} AS {column.duckdb_type()})"
    if column.type == "list" and not column.children[0].nested:
        return _array(value, column.children[0])
    if column.nested:
        return f"to_json({value})::VARCHAR"
    return _VALUES.get(column.type, "{0}::VARCHAR").format(value)


def _array(value: str, element: Column) -> str:
    """Return the SQL for an array: texts in quotes, NULL without."""
    text = _VALUES.get(element.type, "{0}::VARCHAR").format("x")
    quoted = f"'\"' || replace(replace({text}, '\\', '\\\\'), '\"', '\\\"') || '\"'"
    each = f"lambda x: CASE WHEN x IS NULL THEN 'NULL' ELSE {quoted} END"
    listed = f"array_to_string(list_transform({value}, {each}), ',')"
    return f"CASE WHEN {value} IS NULL THEN NULL ELSE '{{' || {listed} || '}}' END"


def _first_line(error: psycopg.Error) -> str:
    return redact(next(iter(str(error).splitlines()), type(error).__name__))
