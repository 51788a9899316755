"""Inlined rows: from what a database stores to the rows of a plan, and those of large tables remembered.

DuckDB decodes them: stored text is text as DuckDB casts it, and only its own casts read every type back.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from quacklake import telemetry
from quacklake.core import forks
from quacklake.core.catalog import InlinedRows, Reader
from quacklake.core.duckdb_versions import arrow_table, connect
from quacklake.core.format import inline
from quacklake.core.format.inline import LIFE
from quacklake.core.format.names import quote
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import Column, TableSchema, initial_value, reshaped
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.scan.nested_texts import parse_nested
from quacklake.core.scan.plan import INLINED_META, UNREADABLE, UNREADABLE_HINT, column_key, unreadable_key
from quacklake.errors import CatalogError

SECONDS = 30.0
"""The age from which on rows are read anew."""
MANY = 5_000
"""The rows of a table from which on they are remembered; fewer are read as quickly."""
_CHUNKS = 64
"""The parts of remembered rows from which on they become one."""
_AS_STORED: Mapping[str, pa.DataType] = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "varchar": pa.binary(),
}
"""The type of Arrow in which stored values are those of a column already; PostgreSQL has the bytes of texts."""
_CHUNK = 122_880
"""The rows that are decoded at a time and become a chunk, as many as a row group of DuckDB has."""

_TEXTS = ("varchar", "json", "blob")
"""The types whose texts may hold any character."""

_thread = threading.local()


def _cursor() -> duckdb.DuckDBPyConnection:
    """Return a private in-memory DuckDB of this thread."""
    connection: duckdb.DuckDBPyConnection | None = getattr(_thread, "connection", None)
    if connection is None:
        connection = _thread.connection = connect(config={"threads": 1, "autoload_known_extensions": False})
        # in which all inlined rows are, whatever the zone of machine and session
        connection.execute("SET TimeZone = 'UTC'")
    return connection


def decode_inlined(
    parts: Iterable[InlinedRows], schema: TableSchema, database: str, *, ends: bool = False
) -> pa.Table | None:
    """Return inlined rows, or None: ``INLINED_META``, ``c<id>`` per column, with ``ends`` then ``end_snapshot``.

    Raise ``CatalogError`` for values that cannot be read.
    """
    rows = decode_marked(parts, schema, database, ends=ends)
    if rows is not None:
        check_readable(rows, schema.columns)
    return rows


def decode_marked(
    parts: Iterable[InlinedRows], schema: TableSchema, database: str, *, ends: bool = False
) -> pa.Table | None:
    """Return inlined rows as ``decode_inlined`` does, with NULL for a value that cannot be read, and its mark.

    The marks of a column with such values are in the column of ``unreadable_key``.
    """
    decoder = _Decoder(schema, database, ends=ends)
    for part in parts:
        decoder.take(part)
    return decoder.rows()


def read_inlined(
    reader: Reader, snapshot: Snapshot, table: TableInfo, database: str, *, remains: bool = False
) -> pa.Table | None:
    """Return the inlined rows of a table at a snapshot as ``decode_marked`` does, decoded while the database sends."""
    decoder = _Decoder(table.schema, database)
    reader.inlined.hand_over(snapshot, table, decoder.take, remains=remains)
    return decoder.rows()


def check_readable(rows: pa.Table, columns: Iterable[Column]) -> None:
    """Raise ``CatalogError`` where a value of inlined rows is marked as one that cannot be read."""
    for column in columns:
        key = unreadable_key(column)
        if key in rows.column_names:
            marked = rows.filter(pc.fill_null(rows.column(key), False))
            if marked.num_rows:
                text = f'{UNREADABLE}: column "{column.name}", rowid {marked.column("row_id")[0]}'
                raise CatalogError(text, hint=UNREADABLE_HINT)


class _Decoder:
    """Decodes inlined rows part by part, and joins them to chunks of the size in which DuckDB copies them fastest."""

    def __init__(self, schema: TableSchema, database: str, *, ends: bool = False) -> None:
        self._schema, self._database, self._ends = schema, database, ends
        self._waiting: list[InlinedRows] = []
        self._chunks: list[pa.Table] = []

    def take(self, part: InlinedRows) -> None:
        """Decode some rows, or keep them until there are enough."""
        if self._waiting and not _alike(self._waiting[0], part):
            self._decode()
        self._waiting.append(part)
        if sum(each.rows.num_rows for each in self._waiting) >= _CHUNK:
            self._decode()

    def rows(self) -> pa.Table | None:
        """Return all of them, or None."""
        self._decode()
        if not self._chunks:
            return None
        rows = pa.concat_tables(self._chunks, promote_options="permissive")
        return rows.combine_chunks() if rows.num_rows < len(self._chunks) * _CHUNK // 2 else rows

    def _decode(self) -> None:
        if self._waiting:
            first, rows = self._waiting[0], pa.concat_tables([part.rows for part in self._waiting])
            part = InlinedRows(first.schema, first.schema_version, rows)
            self._waiting = []
            self._chunks.append(_decode_one(part, self._schema, self._database, ends=self._ends).combine_chunks())


def _alike(one: InlinedRows, other: InlinedRows) -> bool:
    """Return whether both are decoded in the same way."""
    return one.schema_version == other.schema_version and one.rows.schema.equals(other.rows.schema)


def _decode_one(part: InlinedRows, schema: TableSchema, database: str, *, ends: bool) -> pa.Table:
    version = pa.repeat(pa.scalar(part.schema_version, pa.int64()), part.rows.num_rows)
    ready: dict[str, Any] = {"schema_version": version}
    asked = {name: f"CAST({name} AS BIGINT)" for name in (*INLINED_META[:2], *(["end_snapshot"] if ends else []))}
    places = {column.id: place for place, column in enumerate(part.schema.columns)}
    values: dict[str, _Value] = {}
    for column in schema.columns:
        key, place = column_key(column), places.get(column.id)
        if place is None:
            value = initial_value(column)
        else:
            stored = part.schema.columns[place]
            if stored.type == column.type and (array := _as_stored(part.rows, column, database)) is not None:
                ready[key] = array
                continue
            values[key] = _Value(part, column, stored, place, database)
            value = values[key].sql
        asked[key] = f"{value}{'::VARCHAR' if column.travels_as_text else ''}"
    for name in [name for name in asked if name in LIFE and part.rows.schema.field(name).type == pa.int64()]:
        ready[name] = part.rows.column(name)
        del asked[name]
    checks = {f"ql_check{key}": value.is_doubtful for key, value in values.items() if value.may_be_misread}
    try:
        found = _decode_rows(part, asked | checks, database) if asked else {}
    except CatalogError:
        others = {name: sql for name, sql in asked.items() if name not in values}
        found = _decode_rows(part, others, database) if others else {}
        doubtful = list(values)
    else:
        doubtful = [key for key in values if f"ql_check{key}" in checks and pc.any(found[f"ql_check{key}"]).as_py()]
    names = [*INLINED_META, *map(column_key, schema.columns), *(["end_snapshot"] if ends else [])]
    for key in doubtful:
        found[key], unreadable = values[key].read_one_by_one()
        if unreadable is not None:
            mark = unreadable_key(values[key].column)
            found[mark] = unreadable
            names.append(mark)
    return pa.table({name: ready[name] if name in ready else found[name] for name in names})


@dataclass(frozen=True, slots=True)
class _Value:
    """The values of one column in a part of inlined rows: as the table has them now, from a place in the stored row."""

    part: InlinedRows
    column: Column
    stored: Column
    place: int
    database: str

    @property
    def sql(self) -> str:
        """The SQL of the value."""
        return reshaped(self._stored_sql, self.stored, self.column)

    @property
    def _attempt(self) -> str:
        """The SQL of the stored value, NULL where it cannot be read."""
        return f"TRY({self._stored_sql})"

    @property
    def may_be_misread(self) -> bool:
        """True when DuckDB may take a text of such values for another value: lists inside of others, with texts."""
        if not self.stored.nested or (self.database == "duckdb" and not self.stored.travels_as_text):
            return False
        inside = [child for child in self.stored.children if child.nested]
        return any(leaf.type in _TEXTS for child in inside for leaf in child.leaves())

    @property
    def is_doubtful(self) -> str:
        """The SQL that is true for a text with quotes which is not the text of what DuckDB reads."""
        return self._is_other(self._stored_sql)

    def _is_other(self, value: str) -> str:
        other = f"{value}::VARCHAR IS DISTINCT FROM {self._text}"
        return f"CASE WHEN contains({self._text}, '''') THEN {other} ELSE false END"

    def read_one_by_one(self) -> tuple[pa.ChunkedArray, pa.Array | None]:
        """Return the values, and marks for those that cannot be read; None when all can.

        What DuckDB cannot read, or takes for something else, is taken apart here, if that gives the very text again.
        """
        # every value is tried: one that is not, beside the same one that is, would end the query
        failed = f"{self._text} IS NOT NULL AND {self._attempt} IS NULL"
        doubtful = f"({failed}) OR {self._is_other(self._attempt)}" if self.may_be_misread else failed
        text = "::VARCHAR" if self.column.travels_as_text else ""
        asked = {
            "value": f"{reshaped(self._attempt, self.stored, self.column)}{text}",
            "failed": f"coalesce({failed}, false)",
            "text": f"CASE WHEN {doubtful} THEN {self._text} END",
        }
        found = _decode_rows(self.part, asked, self.database)
        failures = found["failed"].to_pylist()
        # what stays a text in Arrow would be misread there
        known = self.stored.nested and not self.column.travels_as_text
        texts = found["text"].to_pylist() if known else [None] * len(failures)
        values, places = self._parse_texts({place: text for place, text in enumerate(texts) if text is not None})
        column = found["value"]
        if places:
            order = list(range(len(failures)))
            for number, place in enumerate(places):
                order[place] = len(failures) + number
                failures[place] = False
            column = pa.chunked_array([*column.chunks, *values.chunks]).take(pa.array(order))
        return column, pa.array(failures) if any(failures) else None

    def _parse_texts(self, texts: Mapping[int, str]) -> tuple[pa.ChunkedArray, list[int]]:
        """Return the values of texts that can be taken apart, and their places."""
        parsed: dict[int, Any] = {}
        for place, text in texts.items():
            with suppress(ValueError, RecursionError):
                parsed[place] = parse_nested(text, self.stored)
        as_text = _as_texts(self.stored).arrow_type()
        try:
            values = pa.array(list(parsed.values()), as_text)
        except pa.ArrowException:  # such as a map with a key of NULL
            return pa.chunked_array([], pa.null()), []
        places = list(parsed)
        rows = pa.table({"place": places, "text": [texts[place] for place in places], "value": values})
        again = f"TRY(CAST(value AS {self.stored.duckdb_type()}))"
        value = reshaped("again", self.stored, self.column)
        query = f"SELECT place, text, {again} AS again FROM stored"
        found = _run_query(
            f"SELECT {value} AS value, place FROM ({query}) WHERE again::VARCHAR = text ORDER BY place", rows
        )
        return found.column("value"), found.column("place").to_pylist()

    @property
    def _text(self) -> str:
        """The SQL of what is stored."""
        return f"ql_values[{self.place + 1}]" if self.database == inline.PACKED else quote(column_key(self.stored))

    @property
    def _stored_sql(self) -> str:
        return _decode_expression(self.part, self.stored, self.place, self.database)


def _as_texts(column: Column) -> Column:
    """Return a column with texts instead of all values inside."""
    if column.nested:
        return replace(column, children=tuple(map(_as_texts, column.children)))
    return replace(column, type="varchar")


def _as_stored(rows: pa.Table, column: Column, database: str) -> pa.ChunkedArray | None:
    """Return the values of a column that the database gives as Arrow has them; None if DuckDB has to cast them."""
    key = column_key(column)
    if key not in rows.column_names or (array := rows.column(key)).type != _AS_STORED.get(column.type):
        return None
    if not pa.types.is_binary(array.type):
        return array
    if database != "postgres":
        return None
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return None  # DuckDB says what is wrong


def _decode_rows(part: InlinedRows, expressions: Mapping[str, str], database: str) -> dict[str, pa.ChunkedArray]:
    """Return what DuckDB makes of stored rows, by name. Raise ``CatalogError`` for values that it cannot read."""
    selected = [f"{expression} AS {quote(name)}" for name, expression in expressions.items()]
    if database != inline.PACKED:
        rows = _run_query(f"SELECT {', '.join(selected)} FROM stored", part.rows)
        return {name: rows.column(place) for place, name in enumerate(expressions)}
    selected.append(inline.is_plain_expression("payload", "ql_values", len(part.schema.columns)))
    values = f"SELECT *, {inline.values_expression('payload')} AS ql_values FROM stored"
    rows = _run_query(f"SELECT {', '.join(selected)} FROM ({values})", part.rows)
    for payload in part.rows.column("payload").filter(pc.invert(rows.column(len(expressions)))).to_pylist():
        inline.check_packed(payload)
    return {name: rows.column(place) for place, name in enumerate(expressions)}


def _decode_expression(part: InlinedRows, column: Column, place: int, database: str) -> str:
    if database == inline.PACKED:
        return inline.decode_expression(column, database, f"ql_values[{place + 1}]")
    key = column_key(column)
    as_bytes = pa.types.is_binary(part.rows.schema.field(key).type)
    return inline.decode_expression(column, database, quote(key), as_bytes=as_bytes)


def _run_query(query: str, stored: pa.Table) -> pa.Table:
    """Return what a query makes of ``stored`` rows."""
    connection = _cursor()
    connection.register("stored", stored)
    try:
        return arrow_table(connection, query)
    except (duckdb.ConversionException, duckdb.InvalidInputException, duckdb.OutOfRangeException) as error:
        raise CatalogError(f"{UNREADABLE}: {str(error).splitlines()[0]}", hint=UNREADABLE_HINT) from None
    finally:
        connection.unregister("stored")


def local_rows(rows: pa.Table, row_ids: Sequence[int], schema: TableSchema, version: int) -> pa.Table:
    """Return rows of an open transaction in the same shape; they are visible to it as inlined rows."""
    count = rows.num_rows
    meta = {
        "row_id": pa.array(row_ids, pa.int64()),
        "begin_snapshot": pa.nulls(count, pa.int64()),
        "schema_version": pa.array([version] * count, pa.int64()),
    }
    assert tuple(meta) == INLINED_META
    return pa.table({**meta, **{column_key(column): rows.column(i) for i, column in enumerate(schema.columns)}})


class KnownRows:
    """The inlined rows of tables that have many, as they were last read, up to a number of bytes.

    Rows of a later snapshot are those that are still there and the new ones: how many of the known rows the later
    snapshot sees is counted in the catalog, and where that is not what it should be, all are read anew. A flush takes
    rows away, for instance. Rows are believed for ``SECONDS``: a lake may be repaired in place. Safe to share between
    threads.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._known: OrderedDict[tuple[int, str], _KnownRowsAt] = OrderedDict()
        self._lock = threading.Lock()
        forks.watch(self, forks.new_lock)

    def read(self, reader: Reader, snapshot: Snapshot, table: TableInfo, database: str) -> pa.Table | None:
        """Return the inlined rows of a table at the newest snapshot as ``decode_inlined`` does."""
        key = table.id, table.uuid
        with self._lock:
            known = self._known.get(key)
        rows, read = None, time.monotonic()
        if known is not None and known.table == table and read - known.read < SECONDS:
            rows = _later(reader, snapshot, known, database)
        if known is not None and rows is not None:
            telemetry.count("scan.inlined_remembered")
            read = known.read
        else:
            rows = read_inlined(reader, snapshot, table, database)
        self._keep(key, None if rows is None or rows.num_rows < MANY else _KnownRowsAt(read, snapshot, table, rows))
        return rows

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._known.clear()

    def _keep(self, key: tuple[int, str], known: _KnownRowsAt | None) -> None:
        with self._lock:
            self._known.pop(key, None)
            if known is not None and known.rows.nbytes <= self._most // 2:
                self._known[key] = known
            while sum(each.rows.nbytes for each in self._known.values()) > self._most:
                self._known.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _KnownRowsAt:
    """Rows at a snapshot, and when all of them were read."""

    read: float
    snapshot: Snapshot
    table: TableInfo
    rows: pa.Table


def _later(reader: Reader, snapshot: Snapshot, known: _KnownRowsAt, database: str) -> pa.Table | None:
    """Return known rows as a later snapshot sees them; None when they have to be read anew."""
    versions = known.rows.column("schema_version").value_counts()
    counts = {each["values"].as_py(): each["counts"].as_py() for each in versions}
    later = reader.inlined.later(snapshot, known.table, known.snapshot, counts)
    if later is None:
        return None
    rows = known.rows
    if later.ended:
        # a row id is there once at a snapshot
        rows = rows.filter(pc.invert(pc.is_in(rows.column("row_id"), value_set=pa.array(later.ended, pa.int64()))))
    new = decode_marked(later.begun, known.table.schema, database)
    if new is None:
        return rows
    rows = pa.concat_tables([rows, new], promote_options="permissive")
    return rows.combine_chunks() if rows.column(0).num_chunks > _CHUNKS else rows
