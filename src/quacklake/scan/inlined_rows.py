"""Inlined rows: from what a database stores to the rows of a plan, and those of large tables remembered.

DuckDB decodes them: stored text is text as DuckDB casts it, and only its own casts read every type back.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from quacklake import forks, telemetry
from quacklake.catalog import InlinedRows, Reader
from quacklake.duckdb_versions import arrow_table, connect
from quacklake.errors import CatalogError
from quacklake.format import inline
from quacklake.format.inline import LIFE
from quacklake.format.names import quote
from quacklake.format.objects import TableInfo
from quacklake.format.schema import Column, TableSchema, initial_value, reshaped
from quacklake.format.snapshots import Snapshot
from quacklake.scan.plan import INLINED_META, column_key

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
    """Return inlined rows, or None: ``INLINED_META``, ``c<id>`` per column, with ``ends`` then ``end_snapshot``."""
    decoder = _Decoder(schema, database, ends=ends)
    for part in parts:
        decoder.take(part)
    return decoder.rows()


def read_inlined(
    reader: Reader, snapshot: Snapshot, table: TableInfo, database: str, *, remains: bool = False
) -> pa.Table | None:
    """Return the inlined rows of a table at a snapshot as ``decode_inlined`` does, decoded while the database sends."""
    decoder = _Decoder(table.schema, database)
    reader.inlined.hand_over(snapshot, table, decoder.take, remains=remains)
    return decoder.rows()


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
    for column in schema.columns:
        key, place = column_key(column), places.get(column.id)
        if place is None:
            value = initial_value(column)
        else:
            stored = part.schema.columns[place]
            if stored.type == column.type and (array := _as_stored(part.rows, column, database)) is not None:
                ready[key] = array
                continue
            value = reshaped(_decode_expression(part, stored, place, database), stored, column)
        asked[key] = f"{value}{'::VARCHAR' if column.travels_as_text else ''}"
    for name in [name for name in asked if name in LIFE and part.rows.schema.field(name).type == pa.int64()]:
        ready[name] = part.rows.column(name)
        del asked[name]
    found = _decoded(part, asked, database) if asked else {}
    names = [*INLINED_META, *map(column_key, schema.columns), *(["end_snapshot"] if ends else [])]
    return pa.table({name: ready[name] if name in ready else found[name] for name in names})


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


def _decoded(part: InlinedRows, expressions: Mapping[str, str], database: str) -> dict[str, pa.ChunkedArray]:
    """Return what DuckDB makes of stored rows, by name. Raise ``CatalogError`` for values that it cannot read."""
    selected = [f"{expression} AS {quote(name)}" for name, expression in expressions.items()]
    if database != inline.PACKED:
        rows = _asked(f"SELECT {', '.join(selected)} FROM stored", part.rows)
        return {name: rows.column(place) for place, name in enumerate(expressions)}
    selected.append(inline.is_plain_expression("payload", "ql_values", len(part.schema.columns)))
    values = f"SELECT *, {inline.values_expression('payload')} AS ql_values FROM stored"
    rows = _asked(f"SELECT {', '.join(selected)} FROM ({values})", part.rows)
    for payload in part.rows.column("payload").filter(pc.invert(rows.column(len(expressions)))).to_pylist():
        inline.check_packed(payload)
    return {name: rows.column(place) for place, name in enumerate(expressions)}


def _decode_expression(part: InlinedRows, column: Column, place: int, database: str) -> str:
    if database == inline.PACKED:
        return inline.decode_expression(column, database, f"ql_values[{place + 1}]")
    key = column_key(column)
    as_bytes = pa.types.is_binary(part.rows.schema.field(key).type)
    return inline.decode_expression(column, database, quote(key), as_bytes=as_bytes)


def _asked(query: str, stored: pa.Table) -> pa.Table:
    """Return what a query makes of ``stored`` rows."""
    connection = _cursor()
    connection.register("stored", stored)
    try:
        return arrow_table(connection, query)
    except (duckdb.ConversionException, duckdb.InvalidInputException, duckdb.OutOfRangeException) as error:
        raise CatalogError(
            f"the catalog holds an inlined row that cannot be read: {str(error).splitlines()[0]}",
            hint="another client wrote a value that DuckDB cannot represent; snapshots before it can be read",
        ) from None
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
        self._known: OrderedDict[tuple[int, str], _Known] = OrderedDict()
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
        self._keep(key, None if rows is None or rows.num_rows < MANY else _Known(read, snapshot, table, rows))
        return rows

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._known.clear()

    def _keep(self, key: tuple[int, str], known: _Known | None) -> None:
        with self._lock:
            self._known.pop(key, None)
            if known is not None and known.rows.nbytes <= self._most // 2:
                self._known[key] = known
            while sum(each.rows.nbytes for each in self._known.values()) > self._most:
                self._known.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _Known:
    """Rows at a snapshot, and when all of them were read."""

    read: float
    snapshot: Snapshot
    table: TableInfo
    rows: pa.Table


def _later(reader: Reader, snapshot: Snapshot, known: _Known, database: str) -> pa.Table | None:
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
    new = decode_inlined(later.begun, known.table.schema, database)
    if new is None:
        return rows
    rows = pa.concat_tables([rows, new], promote_options="permissive")
    return rows.combine_chunks() if rows.column(0).num_chunks > _CHUNKS else rows
