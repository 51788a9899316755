"""Import a SQLite file. A column there may hold values of any type: each is what the column says, or an error."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from quacklake.errors import ConnectorError, InputError
from quacklake.extend.duckdbs import arrow_reader, connect
from quacklake.extend.names import DEFAULT_SCHEMA, quote
from quacklake.extend.schemas import Column, to_column
from quacklake.lake.transfers import LeftOut
from quacklake.transfer.tables import BATCH_ROWS, Selection, SourceTable, SourceView, Unit
from quacklake.transfer.types import checked_mapping, schema_of

_WHOLE = ("integer",)
_NUMBERS = ("integer", "real")
_TYPES: Mapping[str, str] = {
    **dict.fromkeys(("int", "integer", "tinyint", "smallint", "mediumint", "bigint", "int2", "int4", "int8"), "BIGINT"),
    **dict.fromkeys(("real", "double", "double precision", "float"), "DOUBLE"),
    **dict.fromkeys(("text", "clob", "varchar", "character", "char", "nchar", "nvarchar"), "VARCHAR"),
    **dict.fromkeys(("blob", "varbinary", "binary"), "BLOB"),
    **dict.fromkeys(("boolean", "bool"), "BOOLEAN"),
    **dict.fromkeys(("datetime", "timestamp"), "TIMESTAMP"),
    "date": "DATE",
    "time": "TIME",
    "json": "JSON",
    "uuid": "UUID",
}
"""The types of columns by those that they declare. Others become what all of their values are."""
_STORED: Mapping[str, tuple[str, ...]] = {
    "BIGINT": _WHOLE, "BOOLEAN": _WHOLE, "DOUBLE": _NUMBERS, "DECIMAL": (*_NUMBERS, "text"), "BLOB": ("blob",),
}  # fmt: skip
"""The classes of values that a column of a type may hold; text for all others."""
_GUESSES = (
    (frozenset({"integer"}), "BIGINT"),
    (frozenset({"integer", "real"}), "DOUBLE"),
    (frozenset({"text"}), "VARCHAR"),
    (frozenset({"blob"}), "BLOB"),
)
_COLUMNS = 'SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?) WHERE hidden <> 1'
_EXACT = 2**53
"""The integers up to which a DOUBLE holds every one."""
_DECLARED = re.compile(r"\s*([^()]*?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*")
_LITERAL = re.compile(r"[-+]?\d+(?:\.\d+)?|'(?:[^']|'')*'|true|false", re.IGNORECASE)


class SQLiteSource:
    """A SQLite file, read as it is at one moment and never changed."""

    def __init__(self, place: str, map_types: Mapping[str, str]) -> None:
        self._told = checked_mapping(map_types)
        self._path = Path(place.removeprefix("//") if place.startswith("///") else place).expanduser().absolute()
        if not self._path.is_file():
            raise InputError(f"there is no file {self._path}", hint="check the path")
        try:
            # batches are read in threads of DuckDB, one at a time
            self._connection = sqlite3.connect(
                f"{self._path.as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA trusted_schema = OFF")
            self._connection.execute("BEGIN")
            self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.Error as error:
            raise InputError(f"the SQLite file {self._path} cannot be opened: {error}") from error
        found = self._path.stat()
        self._version = f"{found.st_size} {found.st_mtime_ns}"

    @property
    def origin(self) -> str:
        """The path of the file."""
        return f"sqlite:{self._path}"

    def tables(self, wanted: Selection) -> list[SourceTable]:
        """Return the tables, each in one unit."""
        rows = self._rows(
            "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
            " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
        )
        return [self._table(name, bool(wr)) for name, wr in rows if wanted.has(DEFAULT_SCHEMA, name)]

    def views(self, wanted: Selection) -> list[SourceView]:
        """Return none: their queries are in another dialect."""
        return []

    def left_out(self) -> list[LeftOut]:
        """Return views, triggers, indexes and virtual tables."""
        found = [
            LeftOut(f"{kind} {name}", "it is in the SQL of SQLite" if kind != "index" else "a lake has no indexes")
            for kind, name in self._rows(
                "SELECT type, name FROM sqlite_schema WHERE type <> 'table' AND sql IS NOT NULL ORDER BY type, name"
            )
        ]
        return found + [
            LeftOut(f"virtual table {name}", "an extension of SQLite keeps its rows")
            for (name,) in self._rows("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'virtual'")
        ]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _rows(self, query: str, *values: Any) -> list[Any]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise ConnectorError(f"the SQLite file {self._path} cannot be read: {error}") from error

    def _table(self, name: str, without_rowid: bool) -> SourceTable:
        label = f"{DEFAULT_SCHEMA}.{name}"
        facts = [
            _Fact(*row)
            for row in self._rows(
                'SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?) WHERE hidden <> 1',
                name,
            )
        ]
        key = [fact for fact in sorted(facts, key=lambda fact: fact.key) if fact.key]
        # the one integer key of a table is its row id, which is never NULL
        row_id = len(key) == 1 and not without_rowid and key[0].type.strip().lower() == "integer"
        columns, left, defaults = [], [], {}
        for fact in facts:
            required = bool(fact.required) or (bool(fact.key) and (row_id or without_rowid))
            columns.append(self._column(name, label, fact, required))
            what = f"{label}.{fact.name}"
            if fact.hidden:
                left.append(LeftOut(what, "that the file makes its values: a lake keeps them as they are"))
            elif fact.preset is not None and _LITERAL.fullmatch(fact.preset.strip()):
                defaults[fact.name] = fact.preset.strip()
            elif fact.preset is not None and fact.preset.strip().upper() != "NULL":
                left.append(LeftOut(what, f"the default {fact.preset}, which is not a constant"))
        nullable = [column.column.name for column in columns if column.column.nullable]
        if any(fact.name in nullable for fact in key):
            left.append(LeftOut(label, "the primary key, which may be NULL there"))
            key = []
        for (table,) in self._rows('SELECT DISTINCT "table" FROM pragma_foreign_key_list(?)', name):
            left.append(LeftOut(label, f"the foreign key to {table}: a lake checks NOT NULL only"))
        ((count,),) = self._rows(f"SELECT count(*) FROM {quote(name)}")
        return SourceTable(
            DEFAULT_SCHEMA,
            name,
            schema_of(column.column for column in columns),
            [Unit("rows", lambda: self._read(name, label, columns))],
            self._version,
            count,
            defaults,
            primary_key=tuple(fact.name for fact in key),
            left_out=tuple(left),
        )

    def _column(self, table: str, label: str, fact: _Fact, required: bool) -> _SqliteColumn:
        match = _DECLARED.fullmatch(fact.type)
        base, precision, scale = (match[1].lower(), match[2], match[3]) if match is not None else ("", None, None)
        type_ = self._told.get(base)
        mapped = type_ is not None
        if type_ is None and base in ("decimal", "numeric") and precision is not None:
            type_ = f"DECIMAL({precision},{scale or 0})" if int(scale or 0) <= int(precision) <= 38 else None
        elif type_ is None:
            type_ = _TYPES.get(base) or self._guess(table, fact.name)
        if type_ is None:
            raise InputError(
                f'the column "{fact.name}" of {label} is {fact.type or "of no type"}, which cannot be imported',
                hint=f"map the type: map_types={{{base!r}: 'VARCHAR'}}, or --map-type '{base}=VARCHAR'",
            )
        column = replace(to_column(fact.name, type_), nullable=not required)
        return _SqliteColumn(column, type_, _STORED.get(type_.partition("(")[0], ("text",)), mapped)

    def _guess(self, table: str, column: str) -> str | None:
        """Return the type of all values of a column that declares none; None where they are of several."""
        name = quote(column)
        kinds = {kind for (kind,) in self._rows(f"SELECT DISTINCT typeof({name}) FROM {quote(table)}")} - {"null"}
        return next((type_ for known, type_ in _GUESSES if kinds <= known), None)

    def _read(self, name: str, label: str, columns: list[_SqliteColumn]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table. Raise ``ConnectorError`` for a value that is not of the type of its column."""
        texts = [f"unhex(c{at})" if column.type == "BLOB" else f"c{at}" for at, column in enumerate(columns)]
        values = ", ".join(
            f"CAST({text} AS {column.type}) AS {quote(column.column.name)}"
            for text, column in zip(texts, columns, strict=True)
        )
        wrong: list[Exception] = []
        with connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("texts", self._texts(name, columns, wrong))
            try:
                yield from arrow_reader(connection, f"SELECT {values} FROM texts", batch_rows=BATCH_ROWS)
            except (duckdb.Error, pa.ArrowException) as error:
                raise _refused_value_error(
                    label, next(iter(str(wrong[0] if wrong else error).splitlines()), "")
                ) from error

    def _texts(self, name: str, columns: list[_SqliteColumn], wrong: list[Exception]) -> pa.RecordBatchReader:
        """Return the rows as texts from which DuckDB reads the same values; ``wrong`` gets what stops it."""
        schema = pa.schema([(f"c{at}", pa.string()) for at in range(len(columns))])
        chosen = ", ".join(quote(column.column.name) for column in columns)

        def batches() -> Iterator[pa.RecordBatch]:
            cursor = self._connection.execute(f"SELECT {chosen} FROM {quote(name)}")
            try:
                while rows := cursor.fetchmany(BATCH_ROWS):
                    made = (column.texts(each) for column, each in zip(columns, zip(*rows, strict=True), strict=True))
                    yield pa.RecordBatch.from_arrays([pa.array(each, pa.string()) for each in made], schema=schema)
            except (ValueError, sqlite3.Error) as error:
                wrong.append(error)
                raise

        return pa.RecordBatchReader.from_batches(schema, batches())


class _Fact(NamedTuple):
    """A column as SQLite describes it."""

    name: str
    type: str
    required: int
    preset: str | None
    key: int
    hidden: int


@dataclass(frozen=True)
class _SqliteColumn:
    """A column: as the lake has it, with the SQL type of its values and the classes of SQLite that they may be of."""

    column: Column
    type: str
    stored: tuple[str, ...]
    mapped: bool

    def texts(self, values: tuple[Any, ...]) -> list[str | None]:
        """Return values as texts. Raise ``ValueError`` for one that would be another one afterwards."""
        return [None if value is None else self._text(value) for value in values]

    def _text(self, value: Any) -> str:
        kind = _CLASSES[type(value)]
        if self.mapped and kind != "blob":
            return repr(value) if kind == "real" else str(value)
        base = self.type.partition("(")[0]
        if kind not in self.stored or not _FITS.get(base, _any)(value, self.type):
            shown = f"{kind} {str(value)[:_SHOWN]!r}" if kind != "blob" else f"blob of {len(value)} bytes"
            raise ValueError(f'the column "{self.column.name}" is {self.type}, and the {shown} is not')
        if base == "DECIMAL":
            return format(Decimal(str(value)), "f")
        if base == "DOUBLE":
            return repr(float(value))
        return value.hex() if kind == "blob" else str(value)


def _any(value: Any, type_: str) -> bool:
    return True


def _decimal(value: Any, type_: str) -> bool:
    precision, scale = (int(part) for part in type_[len("DECIMAL(") : -1].split(","))
    try:
        number = Decimal(str(value))
    except ArithmeticError:
        return False
    if not number.is_finite():
        return False
    places = -int(number.normalize().as_tuple().exponent)
    return places <= scale and number.adjusted() < precision - scale


_CLASSES = {int: "integer", float: "real", str: "text", bytes: "blob"}
_SHOWN = 40
_DAY, _TIME = r"\d{4,6}-\d\d-\d\d", r"\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?"
_FITS: Mapping[str, Callable[[Any, str], bool]] = {
    "BOOLEAN": lambda value, _: value in (0, 1),
    "DOUBLE": lambda value, _: isinstance(value, float) or abs(value) <= _EXACT,
    "DECIMAL": _decimal,
    "DATE": lambda value, _: re.fullmatch(_DAY, value) is not None,
    "TIME": lambda value, _: re.fullmatch(_TIME, value) is not None,
    "TIMESTAMP": lambda value, _: re.fullmatch(f"{_DAY}(?:[ T]{_TIME})?", value) is not None,
}
"""The values that a type holds as they are; DuckDB would cut, round or shift others."""


def _refused_value_error(label: str, why: str) -> ConnectorError:
    return ConnectorError(
        f"a value of {label} cannot be imported: {why}",
        hint="change the value, leave the table out with exclude, or map the type to VARCHAR",
    )
