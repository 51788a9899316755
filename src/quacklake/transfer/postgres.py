"""Import schemas of a PostgreSQL database: all tables as of one moment, through COPY.

The server writes each value as a text from which DuckDB reads exactly the same value; DuckDB checks every text.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.rows import namedtuple_row
from pyarrow import csv

from quacklake.config import redact
from quacklake.errors import ConnectorError, ConnectorUnavailableError, InputError
from quacklake.extend.duckdbs import arrow_reader, connect
from quacklake.extend.names import quote
from quacklake.extend.schemas import Column, to_column
from quacklake.lake.transfers import LeftOut
from quacklake.transfer.tables import BATCH_ROWS, Selection, SourceTable, SourceView, Unit
from quacklake.transfer.types import checked_mapping, schema_of

_BLOCK = 16 * 2**20
"""Bytes of text that are read at a time, and the most of one row."""
_TYPES = {
    "bool": "BOOLEAN", "int2": "SMALLINT", "int4": "INTEGER", "int8": "BIGINT", "oid": "BIGINT", "float4": "FLOAT",
    "float8": "DOUBLE", "text": "VARCHAR", "varchar": "VARCHAR", "bpchar": "VARCHAR", "char": "VARCHAR",
    "name": "VARCHAR", "citext": "VARCHAR", "bytea": "BLOB", "date": "DATE", "time": "TIME", "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP WITH TIME ZONE", "interval": "INTERVAL", "uuid": "UUID", "json": "JSON", "jsonb": "JSON",
}  # fmt: skip
_TEXTS = {
    "bytea": "encode({0}, 'hex')",
    "date": "replace({0}::text, ' BC', ' (BC)')",
    "timestamp": "regexp_replace({0}::text, '^(\\S+) (.*) BC$', '\\1 (BC) \\2')",
    "timestamptz": "regexp_replace({0}::text, '^(\\S+) (.*) BC$', '\\1 (BC) \\2')",
    "interval": (
        "(extract(year FROM {0}) * 12 + extract(month FROM {0}))::bigint || ' months ' ||"
        " extract(day FROM {0})::bigint || ' days ' ||"
        " ((extract(hour FROM {0}) * 3600 + extract(minute FROM {0}) * 60) * 1000000"
        " + extract(microseconds FROM {0}))::bigint || ' microseconds'"
    ),
}
"""Values as texts that DuckDB reads, where those of PostgreSQL are others."""
_ARRAY = "CASE WHEN array_ndims({0}) > 1 THEN 'an array of several dimensions' ELSE to_json({0}::text[])::text END"
_LITERAL = re.compile(r"(-?\d+(?:\.\d+)?|true|false|'(?:[^']|'')*')(?:::[\w \"(),]+)?", re.IGNORECASE)
_SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET DateStyle = 'ISO, YMD'",
    "SET extra_float_digits = 3",
    "SET row_security = off",  # a table whose policies would hide rows is an error
)
_TABLES = """
    SELECT n.nspname AS schema, c.relname AS name, c.oid, c.relkind::text AS kind, c.reltuples::bigint AS rows,
           obj_description(c.oid, 'pg_class') AS comment
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND c.relpersistence <> 't'
      AND n.nspname <> 'information_schema' AND left(n.nspname, 3) <> 'pg_'
    ORDER BY 1, 2
"""
_COLUMNS = """
    SELECT a.attname AS name, a.attnotnull AS required, a.attidentity <> '' AS identity,
           a.attgenerated <> '' AS generated, col_description(a.attrelid, a.attnum) AS comment,
           pg_get_expr(d.adbin, d.adrelid) AS preset, format_type(b.oid, NULL) AS type,
           COALESCE(e.typname, b.typname) AS base, COALESCE(e.typtype, b.typtype)::text AS sort,
           e.oid IS NOT NULL AS is_array,
           CASE WHEN a.atttypmod <> -1 THEN a.atttypmod WHEN t.typtype = 'd' THEN t.typtypmod ELSE -1 END AS modifier
    FROM pg_attribute a
    JOIN pg_type t ON t.oid = a.atttypid
    JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
    LEFT JOIN pg_type e ON e.oid = b.typelem AND b.typcategory = 'A'
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""
_CONSTRAINTS = """
    SELECT contype::text AS kind, conname AS name, pg_get_constraintdef(oid) AS text,
           ARRAY(SELECT attname::text FROM unnest(conkey) WITH ORDINALITY k(n, i)
                 JOIN pg_attribute a ON a.attrelid = conrelid AND a.attnum = k.n ORDER BY k.i) AS columns
    FROM pg_constraint WHERE conrelid = %s ORDER BY conname
"""


class PostgresSource:
    """A PostgreSQL database, read in one transaction that sees one state and changes nothing."""

    def __init__(self, url: str, map_types: Mapping[str, str]) -> None:
        self._told = checked_mapping(map_types)
        self._left: list[LeftOut] = []
        try:
            self._connection = psycopg.connect(url, row_factory=namedtuple_row)
        except psycopg.Error as error:
            raise ConnectorUnavailableError(f"the PostgreSQL server cannot be reached: {_first_line(error)}") from None
        try:
            self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self._connection.read_only = True
            for setting in _SETTINGS:
                self._connection.execute(setting)
        except psycopg.Error as error:
            self._connection.close()
            raise _failure(error) from None
        info = self._connection.info
        self.origin = f"postgresql://{info.host}:{info.port}/{info.dbname}"

    def tables(self, wanted: Selection) -> list[SourceTable]:
        """Return the tables, each in one unit. Views and foreign tables are left out."""
        self._left.clear()
        found = []
        for row in self._rows(_TABLES):
            if not wanted.has(row.schema, row.name):
                continue
            if row.kind in ("r", "p"):
                found.append(self._table(row))
            else:
                kind = {"v": "view", "m": "materialized view", "f": "foreign table"}[row.kind]
                self._left.append(LeftOut(f"{kind} {row.schema}.{row.name}", "it is in the SQL of PostgreSQL"))
        return found

    def views(self, wanted: Selection) -> list[SourceView]:
        """Return none: their queries are in another dialect."""
        return []

    def left_out(self) -> list[LeftOut]:
        """Return the views and foreign tables."""
        return self._left

    def close(self) -> None:
        """Leave the server."""
        self._connection.close()

    def _rows(self, query: str, *values: Any) -> list[Any]:
        try:
            return self._connection.execute(query, values).fetchall()
        except psycopg.Error as error:
            raise _failure(error) from None

    def _table(self, row: Any) -> SourceTable:
        label = f"{row.schema}.{row.name}"
        facts = self._rows(_COLUMNS, row.oid)
        if not facts:
            raise InputError(f"the table {label} has no columns", hint="leave it out with exclude")
        columns = [_column(label, fact, self._told) for fact in facts]
        left, defaults = [], {}
        for fact in facts:
            if fact.identity or fact.generated:
                left.append(
                    LeftOut(f"{label}.{fact.name}", "that the server makes its values: a lake keeps them as they are")
                )
            elif fact.preset is not None and (match := _LITERAL.fullmatch(fact.preset)) is not None:
                defaults[fact.name] = match[1]
            elif fact.preset is not None:
                left.append(LeftOut(f"{label}.{fact.name}", f"the default {fact.preset}, which is not a constant"))
        key: tuple[str, ...] = ()
        for constraint in self._rows(_CONSTRAINTS, row.oid):
            if constraint.kind == "p":
                key = tuple(constraint.columns)
            elif constraint.kind != "n":
                left.append(LeftOut(label, f"the constraint {constraint.text}: a lake checks NOT NULL only"))
        place = sql.SQL("{}{}.{}").format(
            sql.SQL("ONLY " if row.kind == "r" else ""), sql.Identifier(row.schema), sql.Identifier(row.name)
        )
        texts = sql.SQL(", ").join(
            sql.SQL(column.text).format(sql.Identifier(column.column.name)) for column in columns
        )
        query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv)").format(texts, place)
        return SourceTable(
            row.schema,
            row.name,
            schema_of(column.column for column in columns),
            [Unit("rows", lambda: self._read(label, query, columns))],
            "",
            row.rows if row.rows >= 0 else None,
            defaults,
            row.comment,
            {fact.name: fact.comment for fact in facts if fact.comment is not None},
            key,
            tuple(left),
        )

    def _read(self, label: str, query: sql.Composed, columns: list[_PostgresColumn]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table. Raise ``ConnectorError`` for a value that the lake cannot hold."""
        values = ", ".join(
            f"{column.value.format(f'c{place}')} AS {quote(column.column.name)}" for place, column in enumerate(columns)
        )
        names = [f"c{place}" for place in range(len(columns))]
        try:
            with self._connection.cursor().copy(query) as copy, connect() as connection:
                connection.execute("SET TimeZone = 'UTC'")
                connection.register("texts", _texts(_Stream(copy), names))
                yield from arrow_reader(connection, f"SELECT {values} FROM texts", batch_rows=BATCH_ROWS)
        except psycopg.Error as error:
            raise _failure(error) from None
        except (duckdb.Error, pa.ArrowInvalid) as error:
            first = next(iter(str(error).splitlines()), "")
            raise ConnectorError(
                f"a value of {label} cannot be imported: {redact(first)}",
                hint="change the value, leave the table out with exclude, or map the type to VARCHAR",
            ) from error


@dataclass(frozen=True)
class _PostgresColumn:
    """A column: as the lake has it, the text that the server writes, and the value that DuckDB makes of that."""

    column: Column
    text: str
    value: str


def _column(label: str, fact: Any, told: Mapping[str, str]) -> _PostgresColumn:
    name = fact.base
    type_ = told.get(name) or told.get(fact.type.lower())
    text, value = "{0}::text", "{0}"
    if type_ is None:
        type_ = "VARCHAR" if fact.sort == "e" else _TYPES.get(name) or _decimal(fact)
        if type_ is not None:
            text = _TEXTS.get(name, text)
            value = "unhex({0})" if name == "bytea" else value
            if fact.is_array and name in ("bytea", "interval"):
                type_ = None
    elif fact.is_array:
        fact = fact._replace(is_array=False)  # the whole value is one text
    if type_ is None:
        raise InputError(
            f'the column "{fact.name}" of {label} is {fact.type}, which cannot be imported',
            hint=f"map the type: map_types={{{name!r}: 'VARCHAR'}}, or --map-type '{name}=VARCHAR'",
        )
    if fact.is_array:
        text, value, type_ = _ARRAY, "CAST(CAST({0} AS JSON) AS VARCHAR[])", f"{type_}[]"
    column = to_column(fact.name, type_)
    return _PostgresColumn(replace(column, nullable=not fact.required), text, f"CAST({value} AS {type_})")


def _decimal(fact: Any) -> str | None:
    """Return the type of a number with a precision that a lake has."""
    if fact.base != "numeric" or fact.modifier < 4:
        return None
    precision, scale = (fact.modifier - 4) >> 16 & 0xFFFF, (fact.modifier - 4) & 0x7FF
    return f"DECIMAL({precision},{scale})" if precision <= 38 and scale <= precision else None


class _Stream(io.RawIOBase):
    """The answer of a COPY, as a file."""

    def __init__(self, blocks: Iterable[Any]) -> None:
        self._blocks = iter(blocks)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, into: Any) -> int:
        """Fill a buffer with what comes next; 0 at the end."""
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = memoryview(block)
        count = min(len(into), len(self._rest))
        into[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _texts(stream: io.RawIOBase, names: list[str]) -> pa.RecordBatchReader:
    """Return the rows of a CSV as texts: what is empty and not quoted is NULL, and every line is a row."""
    schema = pa.schema([(name, pa.string()) for name in names])
    try:
        reader = csv.open_csv(
            io.BufferedReader(stream, _BLOCK),
            csv.ReadOptions(use_threads=False, block_size=_BLOCK, column_names=names),
            csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            csv.ConvertOptions(
                column_types=schema, strings_can_be_null=True, null_values=[""], quoted_strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            return pa.RecordBatchReader.from_batches(schema, [])
        raise
    return pa.RecordBatchReader.from_batches(schema, reader)


def _first_line(error: psycopg.Error) -> str:
    return redact(next(iter(str(error).splitlines()), type(error).__name__))


def _failure(error: psycopg.Error) -> ConnectorError:
    if isinstance(error, psycopg.OperationalError):
        return ConnectorUnavailableError(f"the PostgreSQL server failed: {_first_line(error)}")
    return ConnectorError(f"the PostgreSQL server refused: {_first_line(error)}")
