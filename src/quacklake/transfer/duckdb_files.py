"""Import a DuckDB file: all schemas, tables with their comments, defaults and keys, and views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from quacklake.errors import InputError, QuacklakeError
from quacklake.extend.duckdbs import arrow_reader, connect
from quacklake.extend.files import fits_in_file
from quacklake.extend.names import literal, quote
from quacklake.extend.schemas import Column, TableSchema, to_column
from quacklake.extend.sql import Cursor
from quacklake.lake.transfers import LeftOut
from quacklake.transfer.tables import BATCH_ROWS, Selection, SourceTable, SourceView, Unit
from quacklake.transfer.types import checked_mapping, column_of, schema_of

_DATABASE = "source"
_CONSTRAINTS = {"CHECK": "check", "UNIQUE": "uniqueness", "FOREIGN KEY": "foreign key"}
_WHOLE = "DECIMAL(38,0)"
_UNFIT = "a file would cut or round some of its values"
_OTHERS = (
    ("sequence", "SELECT schema_name, sequence_name FROM duckdb_sequences() WHERE database_name = ? AND NOT temporary"),
    ("index", "SELECT schema_name, index_name FROM duckdb_indexes() WHERE database_name = ?"),
    (
        "macro",
        "SELECT DISTINCT schema_name, function_name FROM duckdb_functions()"
        " WHERE database_name = ? AND function_type IN ('macro', 'table_macro') AND NOT internal",
    ),
    ("type", "SELECT schema_name, type_name FROM duckdb_types() WHERE database_name = ? AND NOT internal"),
)


class DuckDBSource:
    """A DuckDB file, read as it is at one moment and never changed."""

    def __init__(self, place: str, map_types: Mapping[str, str]) -> None:
        self._told = checked_mapping(map_types)
        self._path = Path(place.removeprefix("//") if place.startswith("///") else place).expanduser().absolute()
        if not self._path.is_file():
            raise InputError(f"there is no file {self._path}", hint="check the path")
        self._connection = connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})
        try:
            self._connection.execute("SET TimeZone = 'UTC'")
            self._connection.execute(f"ATTACH {literal(str(self._path))} AS {_DATABASE} (TYPE duckdb, READ_ONLY)")
            # whatever the file has in its columns and views reaches nothing outside of it
            self._connection.execute("SET enable_external_access = false")
            self._connection.execute("SET lock_configuration = true")
            self._connection.execute("BEGIN")
        except duckdb.Error as error:
            self._connection.close()
            first = next(iter(str(error).splitlines()), "")
            raise InputError(f"the DuckDB file {self._path} cannot be opened: {first}") from error
        found = self._path.stat()
        self._version = f"{found.st_size} {found.st_mtime_ns}"

    @property
    def origin(self) -> str:
        """The path of the file."""
        return f"duckdb:{self._path}"

    def tables(self, wanted: Selection) -> list[SourceTable]:
        """Return the tables, each in one unit."""
        rows = self._rows(
            "SELECT schema_name, table_name, comment FROM duckdb_tables()"
            " WHERE database_name = ? AND NOT internal AND NOT temporary ORDER BY ALL"
        )
        return [self._table(*row) for row in rows if wanted.has(row[0], row[1])]

    def views(self, wanted: Selection) -> list[SourceView]:
        """Return the views that can be read as a query."""
        rows = self._rows(
            "SELECT schema_name, view_name, comment, sql FROM duckdb_views()"
            " WHERE database_name = ? AND NOT internal AND NOT temporary ORDER BY ALL"
        )
        return [_view(*row) for row in rows if wanted.has(row[0], row[1])]

    def left_out(self) -> list[LeftOut]:
        """Return sequences, indexes, macros and types."""
        return [
            LeftOut(f"{kind} {schema}.{name}", f"a lake has no {kind} of a database")
            for kind, query in _OTHERS
            for schema, name in sorted(self._rows(query))
        ]

    def close(self) -> None:
        """Close the file."""
        with suppress(duckdb.Error):
            self._connection.close()

    def _rows(self, query: str, *more: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, [_DATABASE, *more]).fetchall()

    def _table(self, schema: str, name: str, comment: str | None) -> SourceTable:
        label = f"{schema}.{name}"
        source = f"{_DATABASE}.{quote(schema)}.{quote(name)}"
        types = dict(zip(*self._shape(source), strict=True))
        facts = self._rows(
            "SELECT column_name, is_nullable, column_default, comment FROM duckdb_columns()"
            " WHERE database_name = ? AND schema_name = ? AND table_name = ? ORDER BY column_index",
            schema,
            name,
        )
        columns, values, left = [], [], []
        for column, nullable, _, _ in facts:
            made, type_ = column_of(label, column, types[column], self._told)
            other = self._type_for_files(source, made)
            if other is not None:
                left.append(LeftOut(f"{label}.{column}", f"the type {type_}, which became {other}: {_UNFIT}"))
                made, type_ = to_column(column, other), other
            columns.append(replace(made, nullable=bool(nullable)))
            values.append(f"CAST({quote(column)} AS {type_}) AS {quote(column)}")
            if "array" in _kinds(types[column]):
                left.append(LeftOut(f"{label}.{column}", "the length of arrays, which became lists"))
            if "enum" in _kinds(types[column]):
                left.append(LeftOut(f"{label}.{column}", "the values of the ENUM, which became text"))
        key: tuple[str, ...] = ()
        for kind, text, names in self._rows(
            "SELECT constraint_type, constraint_text, constraint_column_names FROM duckdb_constraints()"
            " WHERE database_name = ? AND schema_name = ? AND table_name = ? ORDER BY constraint_index",
            schema,
            name,
        ):
            if kind == "PRIMARY KEY":
                key = tuple(names)
            elif kind in _CONSTRAINTS:
                what = f"the {_CONSTRAINTS[kind]} constraint {text or '(' + ', '.join(names) + ')'}"
                left.append(LeftOut(label, f"{what}: a lake checks NOT NULL only"))
        query = f"SELECT {', '.join(values)} FROM {source}"
        (count,) = self._connection.execute(f"SELECT count(*) FROM {source}").fetchall()[0]
        return SourceTable(
            schema,
            name,
            schema_of(columns),
            [Unit("rows", lambda: self._read(query))],
            self._version,
            count,
            {column: default for column, _, default, _ in facts if default not in (None, "NULL")},
            comment,
            {column: text for column, _, _, text in facts if text is not None},
            key,
            tuple(left),
        )

    def _type_for_files(self, source: str, column: Column) -> str | None:
        """Return the type in which files hold all values of a column; None when that is its own."""
        condition = fits_in_file(TableSchema((column,)))
        if condition is None or not self._any(source, f"NOT ({condition})"):
            return None
        name = quote(column.name)
        is_wide = column.nested or column.type == "interval"
        if is_wide or self._any(source, f"{name} IS NOT NULL AND TRY_CAST({name} AS {_WHOLE}) IS NULL"):
            return "VARCHAR"
        return _WHOLE

    def _any(self, source: str, condition: str) -> bool:
        return bool(self._connection.execute(f"SELECT 1 FROM {source} WHERE {condition} LIMIT 1").fetchall())

    def _shape(self, source: str) -> tuple[list[str], list[Any]]:
        relation = self._connection.sql(f"FROM {source}")
        return list(relation.columns), list(relation.types)

    def _read(self, query: str) -> Iterator[pa.RecordBatch]:
        # tables are read one after the other, so that one connection, and its transaction, is enough
        yield from arrow_reader(self._connection, query, batch_rows=BATCH_ROWS)


def _kinds(found: Any) -> set[str]:
    """Return the kinds of a type and of all types inside it."""
    inside = found.children if found.id in ("list", "array", "struct", "map") else ()
    below = (kinds for name, child in inside if name != "size" for kinds in _kinds(child))
    return {found.id, *below}


def _view(schema: str, name: str, comment: str | None, text: str) -> SourceView:
    """Return a view by the statement that DuckDB shows of it."""
    cursor = Cursor(text.rstrip().removesuffix(";"))
    columns: tuple[str, ...] = ()
    try:
        cursor.expect("CREATE")
        while not cursor.accept("VIEW"):
            cursor.take()
        cursor.names()
        if cursor.sees("("):
            columns = tuple(Cursor(item).name() for item in cursor.items())
        cursor.expect("AS")
    except QuacklakeError:
        return SourceView(schema, name, "", (), comment)
    return SourceView(schema, name, cursor.rest(), columns, comment)
