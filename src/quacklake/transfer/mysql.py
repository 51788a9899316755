"""Import a MySQL or MariaDB database: all tables as of one moment.

The server writes each value as a text from which DuckDB reads exactly the same value; DuckDB checks every text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import pyarrow as pa
import pymysql
from pymysql.converters import encoders
from pymysql.cursors import DictCursor, SSCursor

from quacklake.config import redact
from quacklake.errors import ConnectorError, ConnectorUnavailableError, InputError
from quacklake.extend.duckdbs import arrow_reader, connect
from quacklake.extend.names import literal, quote
from quacklake.extend.schemas import Column, to_column
from quacklake.lake.transfers import LeftOut
from quacklake.transfer.tables import BATCH_ROWS, Selection, SourceTable, SourceView, Unit
from quacklake.transfer.types import checked_mapping, schema_of

_PORT = 3306
_ROWS = 8_192
"""Rows that are taken from the server at a time."""
_INTEGERS = {
    "tinyint": "TINYINT", "smallint": "SMALLINT", "mediumint": "INTEGER", "int": "INTEGER", "bigint": "BIGINT",
}  # fmt: skip
_TYPES = {
    "float": "FLOAT", "double": "DOUBLE", "date": "DATE", "time": "TIME", "datetime": "TIMESTAMP",
    "timestamp": "TIMESTAMP WITH TIME ZONE", "year": "SMALLINT", "bit": "UBIGINT", "json": "JSON", "uuid": "UUID",
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"), "VARCHAR"),
    **dict.fromkeys(("inet4", "inet6"), "VARCHAR"),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "BLOB"),
}  # fmt: skip
_TEXTS = {
    "BLOB": "HEX({0})",
    "FLOAT": "CAST({0} + 0e0 AS CHAR)",  # a FLOAT shows six digits of its own, a DOUBLE all
    "UBIGINT": "CAST({0} + 0 AS CHAR)",
    "TIMESTAMP WITH TIME ZONE": "CONCAT({0}, '+00')",
}
"""Values as texts, where those of the server are others."""
_SETTINGS = (
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION sql_mode = ''",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
)
_TABLES = """
    SELECT table_name AS name, table_type AS kind, table_rows AS row_count, table_comment AS comment, engine AS engine
    FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY 1
"""
_COLUMNS = """
    SELECT column_name AS name, data_type AS type, column_type AS full_type, is_nullable = 'YES' AS optional,
           column_default AS preset, extra AS extra, column_comment AS comment, numeric_precision AS digits,
           numeric_scale AS scale
    FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s ORDER BY ordinal_position
"""
_KEY = """
    SELECT column_name AS name FROM information_schema.key_column_usage
    WHERE table_schema = DATABASE() AND table_name = %s AND constraint_name = 'PRIMARY' ORDER BY ordinal_position
"""
_CONSTRAINTS = """
    SELECT constraint_name AS name, constraint_type AS kind FROM information_schema.table_constraints
    WHERE table_schema = DATABASE() AND table_name = %s AND constraint_type <> 'PRIMARY KEY' ORDER BY 1
"""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_TEXT = re.compile(r"'((?:[^'\\]|''|\\['\\])*)'")
_MARIADB = "mariadb"
_CONVERSIONS: Any = encoders
"""The conversions of parameters alone: every value of a row stays a text."""


class MySQLSource:
    """A database of MySQL or MariaDB, read in one transaction that sees one state and changes nothing."""

    def __init__(self, url: str, map_types: Mapping[str, str]) -> None:
        self._told = checked_mapping(map_types)
        self._left: list[LeftOut] = []
        parts = urlsplit(url)
        self._database = unquote(parts.path.lstrip("/"))
        if not self._database or "/" in self._database:
            raise InputError("the URL names no database", hint='write "mysql://user@host/database"')
        host, port = parts.hostname or "localhost", parts.port or _PORT
        try:
            self._connection = pymysql.connect(
                host=host,
                port=port,
                user=unquote(parts.username or ""),
                password=unquote(parts.password or ""),
                database=self._database,
                charset="utf8mb4",
                conv=_CONVERSIONS,
            )
        except pymysql.Error as error:
            raise ConnectorUnavailableError(f"the MySQL server cannot be reached: {_first_line(error)}") from None
        try:
            for setting in _SETTINGS:
                self._rows(setting)
            self._is_mariadb = _MARIADB in self._rows("SELECT VERSION() AS version")[0]["version"].lower()
        except ConnectorError:
            self.close()
            raise
        self.origin = f"mysql://{host}:{port}/{self._database}"

    def tables(self, wanted: Selection) -> list[SourceTable]:
        """Return the tables, each in one unit, in a schema that is called as the database. Views are left out."""
        self._left.clear()
        found = []
        for row in self._rows(_TABLES):
            if not wanted.has(self._database, row["name"]):
                continue
            if row["kind"] in ("BASE TABLE", "SYSTEM VERSIONED"):
                found.append(self._table(row))
            else:
                self._left.append(LeftOut(f"{row['kind'].lower()} {row['name']}", "it is in the SQL of MySQL"))
        return found

    def views(self, wanted: Selection) -> list[SourceView]:
        """Return none: their queries are in another dialect."""
        return []

    def left_out(self) -> list[LeftOut]:
        """Return the views and sequences."""
        return self._left

    def close(self) -> None:
        """Leave the server."""
        with suppress(pymysql.Error):
            self._connection.close()

    def _rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        try:
            with self._connection.cursor(DictCursor) as cursor:
                cursor.execute(query, values)
                return list(cursor.fetchall())
        except pymysql.Error as error:
            raise _failure(error) from None

    def _table(self, row: Mapping[str, Any]) -> SourceTable:
        label, name = f"{self._database}.{row['name']}", row["name"]
        facts = self._rows(_COLUMNS, name)
        columns = [_column(label, fact, self._told) for fact in facts]
        left, defaults = [], {}
        if row["engine"] not in (None, "InnoDB"):
            left.append(LeftOut(label, f"its moment: the rows of {row['engine']} tables are as of when they are read"))
        for fact in facts:
            what, preset = f"{label}.{fact['name']}", fact["preset"]
            if any(word in fact["extra"].lower() for word in ("auto_increment", "generated")):
                left.append(LeftOut(what, "that the server makes its values: a lake keeps them as they are"))
            elif preset is not None and preset != "NULL":
                constant = _constant(preset) if self._is_mariadb else None
                if constant is not None:
                    defaults[fact["name"]] = constant
                else:
                    left.append(LeftOut(what, f"the default {preset}, which is not known to be a constant"))
        for constraint in self._rows(_CONSTRAINTS, name):
            what = f"the constraint {constraint['name']} ({constraint['kind'].lower()})"
            left.append(LeftOut(label, f"{what}: a lake checks NOT NULL only"))
        texts = ", ".join(column.text.format(_quote_name(column.column.name)) for column in columns)
        query = f"SELECT {texts} FROM {_quote_name(name)}"
        return SourceTable(
            self._database,
            name,
            schema_of(column.column for column in columns),
            [Unit("rows", lambda: self._read(label, query, columns))],
            "",
            None if row["row_count"] is None else int(row["row_count"]),
            defaults,
            row["comment"] or None,
            {fact["name"]: fact["comment"] for fact in facts if fact["comment"]},
            tuple(key["name"] for key in self._rows(_KEY, name)),
            tuple(left),
        )

    def _read(self, label: str, query: str, columns: list[_MySqlColumn]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table. Raise ``ConnectorError`` for a value that the lake cannot hold."""
        values = ", ".join(
            f"CAST({column.value.format(f'c{at}')} AS {column.type}) AS {quote(column.column.name)}"
            for at, column in enumerate(columns)
        )
        failed: list[pymysql.Error] = []
        try:
            with self._connection.cursor(SSCursor) as cursor, connect() as connection:
                cursor.execute(query)
                connection.execute("SET TimeZone = 'UTC'")
                connection.register("texts", _texts(cursor, len(columns), failed))
                yield from arrow_reader(connection, f"SELECT {values} FROM texts", batch_rows=BATCH_ROWS)
        except pymysql.Error as error:
            raise _failure(error) from None
        except (duckdb.Error, pa.ArrowException) as error:
            if failed:
                raise _failure(failed[0]) from None
            first = next(iter(str(error).splitlines()), "")
            raise ConnectorError(
                f"a value of {label} cannot be imported: {redact(first)}",
                hint="change the value, leave the table out with exclude, or map the type to VARCHAR",
            ) from error


@dataclass(frozen=True)
class _MySqlColumn:
    """A column: as the lake has it, the text that the server writes, and the value that DuckDB makes of that."""

    column: Column
    type: str
    text: str
    value: str = "{0}"


def _column(label: str, fact: Mapping[str, Any], told: Mapping[str, str]) -> _MySqlColumn:
    base = fact["type"].lower()
    type_, text, value = told.get(base), "CAST({0} AS CHAR)", "{0}"
    if type_ is None:
        type_ = _TYPES.get(base) or _number(base, fact)
        text = _TEXTS.get(type_ or "", text)
        value = "unhex({0})" if type_ == "BLOB" else value
    if type_ is None:
        raise InputError(
            f'the column "{fact["name"]}" of {label} is {fact["full_type"]}, which cannot be imported',
            hint=f"map the type: map_types={{{base!r}: 'VARCHAR'}}, or --map-type '{base}=VARCHAR'",
        )
    column = replace(to_column(fact["name"], type_), nullable=fact["optional"] == "1")
    return _MySqlColumn(column, type_, text, value)


def _constant(preset: str) -> str | None:
    """Return a default that is a number or a text in the SQL of DuckDB; None for any other.

    >>> _constant("-1.5"), _constant(r"'it\\'s'"), _constant("current_timestamp()")
    ('-1.5', "'it''s'", None)
    """
    text = _TEXT.fullmatch(preset)
    if text is not None:
        return literal(re.sub(r"\\(['\\])|'(')", lambda part: part[1] or part[2], text[1]))
    return preset if _NUMBER.fullmatch(preset) else None


def _number(base: str, fact: Mapping[str, Any]) -> str | None:
    """Return the type of an integer or a decimal number that a lake has."""
    if base in _INTEGERS:
        unsigned = "U" if "unsigned" in fact["full_type"].lower() else ""
        return f"{unsigned}{_INTEGERS[base]}"
    if base != "decimal" or int(fact["digits"]) > 38:
        return None
    return f"DECIMAL({int(fact['digits'])},{int(fact['scale'])})"


def _texts(cursor: SSCursor, width: int, failed: list[pymysql.Error]) -> pa.RecordBatchReader:
    """Return the rows of a query as texts; ``failed`` gets the error of a server that stops in between."""
    schema = pa.schema([(f"c{at}", pa.string()) for at in range(width)])

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            while rows := cursor.fetchmany(_ROWS):
                columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
        except pymysql.Error as error:
            failed.append(error)
            raise

    return pa.RecordBatchReader.from_batches(schema, batches())


def _quote_name(name: str) -> str:
    """Return a name in SQL; a percent sign is one only where there are values for a query.

    >>> _quote_name("a`b")
    '`a``b`'
    """
    return f"`{name.replace('`', '``')}`"


def _first_line(error: pymysql.Error) -> str:
    return redact(str(error.args[-1] if error.args else type(error).__name__).splitlines()[0])


def _failure(error: pymysql.Error) -> ConnectorError:
    if isinstance(error, pymysql.OperationalError | pymysql.InterfaceError):
        return ConnectorUnavailableError(f"the MySQL server failed: {_first_line(error)}")
    return ConnectorError(f"the MySQL server refused: {_first_line(error)}")
