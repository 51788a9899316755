"""Rows as bytes: JSON, NDJSON, CSV, an Arrow stream or Parquet, a batch at a time. DuckDB and Arrow make the text.

In text, times are in ISO form, bytes are hexadecimal, decimals and numbers that are not finite are texts: nothing loses
precision on its way through a JSON parser.
"""

from __future__ import annotations

import io
import json
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import zstandard

from quacklake.errors import InputError
from quacklake.extend.duckdbs import Connection, connect, first_row
from quacklake.extend.names import literal, quote
from quacklake.service.json_rows import few_objects

__all__ = [
    "ARROW",
    "CSV",
    "FORMATS",
    "JSON",
    "NDJSON",
    "PARQUET",
    "Buffers",
    "Piece",
    "Rows",
    "chosen",
    "compressed",
    "encoded",
]

JSON = "application/json"
NDJSON = "application/x-ndjson"
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
FORMATS = (JSON, NDJSON, CSV, ARROW, PARQUET)
_ALIASES = {"application/ndjson": NDJSON, "application/jsonl": NDJSON, "application/parquet": PARQUET}
_PARQUET_ROWS = 65_536
_PIECE = 1 << 20
"""Bytes of an Arrow stream that are sent at once, if they come quickly."""
_PATIENCE = 0.05
"""Seconds after which what there is of an Arrow stream is sent."""
_SMALL = 1_024
"""Bytes of an answer that is not worth compressing."""


@dataclass(frozen=True)
class Buffers:
    """A piece of an answer that is still in parts: to join them copies every byte."""

    parts: list[bytes | pa.Buffer]
    size: int

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)


Piece: TypeAlias = bytes | Buffers


@dataclass(frozen=True)
class Rows:
    """Rows to answer with, and facts that a JSON answer has beside them. ``types`` are DuckDB's names."""

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]
    types: tuple[str, ...] = ()
    facts: tuple[tuple[str, Any], ...] = ()
    after: Callable[[], dict[str, Any]] | None = None
    """More facts, known once all rows are read."""


def chosen(accept: str | None, formats: tuple[str, ...] = FORMATS) -> str | None:
    """Return the best format of an Accept header; None when it takes none.

    >>> chosen("text/html, application/json;q=0.5, */*;q=0.1")
    'application/json'
    """
    best, weight = None, 0.0
    for number, part in enumerate((accept or "*/*").split(",")):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = next((_quality(each[2:]) for each in parameters if each.startswith("q=")), 1.0)
        wanted = _ALIASES.get(name, name)
        exact = wanted in formats
        found = wanted if exact else next((each for each in formats if _covers(wanted, each)), None)
        score = quality * (1.0 if exact else 0.999) - number * 1e-6
        if found is not None and quality > 0 and score > weight:
            best, weight = found, score
    return best


def _quality(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0


def _covers(pattern: str, name: str) -> bool:
    return pattern == "*/*" or (pattern.endswith("/*") and name.startswith(pattern[:-1]))


def encoded(rows: Rows, format: str) -> Iterator[Piece]:
    """Yield the rows in a format, in pieces of about a batch each."""
    if format == ARROW:
        return _arrow(rows)
    if format == PARQUET:
        return _parquet(rows)
    return {JSON: _json, NDJSON: _ndjson, CSV: _csv}[format](rows)


# -- binary ------------------------------------------------------------------------------------------------------------


class _Sink(io.RawIOBase):
    """Collects what a writer writes until it is taken. Buffers of Arrow are kept as they are."""

    def __init__(self) -> None:
        self._parts: list[bytes | pa.Buffer] = []
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(data if isinstance(data, bytes | pa.Buffer) else bytes(data))
        self.size += len(data)
        return len(data)

    def take(self) -> Buffers:
        taken = Buffers(self._parts, self.size)
        self._parts, self.size = [], 0
        return taken


def _arrow(rows: Rows) -> Iterator[Piece]:
    """Yield a stream in pieces of some batches: each costs a turn of a thread and of the loop, whatever its size."""
    sink, taken = _Sink(), time.monotonic()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), rows.schema) as writer:
        for batch in rows.batches:
            writer.write_batch(batch)
            now = time.monotonic()
            if sink.size >= _PIECE or now - taken >= _PATIENCE:
                taken = now
                yield sink.take()
    yield sink.take()


def _parquet(rows: Rows) -> Iterator[bytes]:
    """Yield a file. Its writer may use its buffers again, so that each piece is a copy of them."""
    sink = _Sink()
    schema = pa.schema(
        [field.with_name(name) for field, name in zip(rows.schema, _unique(rows.schema.names), strict=True)]
    )
    if not len(schema):
        raise InputError("a statement without columns has no Parquet", hint="ask for JSON")
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd") as writer:
        held: list[pa.RecordBatch] = []
        for batch in rows.batches:
            held.append(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
            if sum(each.num_rows for each in held) >= _PARQUET_ROWS:
                writer.write_table(pa.Table.from_batches(held, schema))
                held = []
                yield bytes(sink.take())
        if held:
            writer.write_table(pa.Table.from_batches(held, schema))
    yield bytes(sink.take())


def _unique(names: list[str]) -> list[str]:
    """Return the names with a number after those that occurred before.

    >>> _unique(["a", "b", "a"])
    ['a', 'b', 'a_1']
    """
    found: dict[str, None] = {}
    for name in names:
        number, unique = 0, name
        while unique in found:
            number += 1
            unique = f"{name}_{number}"
        found[unique] = None
    return list(found)


# -- text --------------------------------------------------------------------------------------------------------------

_root: Connection | None = None


def _connection() -> Connection:
    """Return a connection that makes text; all of them share one empty database without access to files."""
    global _root
    if _root is None:
        made = connect(":memory:", config={"threads": 1, "enable_external_access": False})
        made.execute("SET GLOBAL TimeZone = 'UTC'")
        _root = made
    return _root.cursor()


def _json(rows: Rows) -> Iterator[bytes]:
    types = rows.types or tuple(str(field.type) for field in rows.schema)
    names = _unique(rows.schema.names)
    columns = [{"name": name, "type": type_} for name, type_ in zip(names, types, strict=True)]
    head = "".join(f"{json.dumps(name)}: {json.dumps(value)}, " for name, value in rows.facts)
    yield f'{{{head}"columns": {json.dumps(columns, ensure_ascii=False)}, "rows": ['.encode()
    count = 0
    for text, number in _objects(rows, ",\n"):
        yield (",\n" if count else "").encode() + text
        count += number
    facts = {"row_count": count, **(rows.after() if rows.after is not None else {})}
    yield f"], {json.dumps(facts)[1:]}\n".encode()


def _ndjson(rows: Rows) -> Iterator[bytes]:
    for text, _ in _objects(rows, "\n"):
        yield text + b"\n"


def _objects(rows: Rows, separator: str) -> Iterator[tuple[bytes, int]]:
    """Yield the rows of each batch as JSON objects, and their number."""
    if not len(rows.schema):
        for _ in rows.batches:
            pass
        return
    names = _unique(rows.schema.names)
    asked: _DuckDBEncoder | None = None
    try:
        for batch in rows.batches:
            if not batch.num_rows:
                continue
            few = few_objects(batch, names)
            if few is None:
                asked = asked or _DuckDBEncoder(rows.schema, names, separator)
                yield asked.text(batch).encode(), batch.num_rows
            else:
                yield separator.join(few).encode(), batch.num_rows
    finally:
        if asked is not None:
            asked.close()


class _DuckDBEncoder:
    """Lets DuckDB make the objects of batches."""

    def __init__(self, schema: pa.Schema, names: Sequence[str], separator: str) -> None:
        pairs = ", ".join(
            f"{literal(name)}, {_plain(f'c{index}', field.type)}"
            for index, (name, field) in enumerate(zip(names, schema, strict=True))
        )
        self._question = f"SELECT string_agg(CAST(json_object({pairs}) AS VARCHAR), {literal(separator)}) FROM ql_rows"
        self._connection = _connection()

    def text(self, batch: pa.RecordBatch) -> str:
        """Return the objects of a batch that has rows."""
        found = first_row(self._connection.register("ql_rows", _number_columns(batch)), self._question)
        assert found is not None
        return str(found[0])

    def close(self) -> None:
        """Give back what was taken for it."""
        self._connection.close()


def _csv(rows: Rows) -> Iterator[bytes]:
    if not len(rows.schema):
        for _ in rows.batches:
            pass
        return
    select = ", ".join(
        f"{_cell(f'c{index}', field.type)} AS {quote(f'c{index}')}" for index, field in enumerate(rows.schema)
    )
    yield (",".join(f'"{name.replace(chr(34), chr(34) * 2)}"' for name in rows.schema.names) + "\n").encode()
    options = pcsv.WriteOptions(include_header=False)
    with _connection() as connection:
        for batch in rows.batches:
            connection.register("ql_rows", _number_columns(batch))
            table = connection.sql(f"SELECT {select} FROM ql_rows").to_arrow_table()
            sink = io.BytesIO()
            pcsv.write_csv(table, sink, options)
            yield sink.getvalue()


def _number_columns(batch: pa.RecordBatch) -> pa.Table:
    """Return a batch whose columns are ``c0``, ``c1``, …: names of columns may differ in case only, or not at all."""
    return pa.Table.from_arrays(batch.columns, names=[f"c{index}" for index in range(batch.num_columns)])


def _cell(value: str, type_: pa.DataType) -> str:
    """Return the SQL of a value of CSV: numbers and truth values as they are, anything else as text."""
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_):
        return value
    plain = _plain(value, type_)
    if pa.types.is_nested(type_):
        return f"CAST(to_json({plain}) AS VARCHAR)"
    return f"CAST({plain} AS VARCHAR)"


def _plain(value: str, type_: pa.DataType, depth: int = 0) -> str:
    """Return the SQL of a value that JSON can hold."""
    kinds = pa.types
    if kinds.is_dictionary(type_):
        return _plain(value, type_.value_type, depth)
    if kinds.is_floating(type_):
        text = f"CASE WHEN isnan({value}) THEN 'NaN' WHEN {value} > 0 THEN 'Infinity' ELSE '-Infinity' END"
        return f"CASE WHEN isfinite({value}) OR {value} IS NULL THEN to_json({value}) ELSE to_json({text}) END"
    if kinds.is_binary(type_) or kinds.is_large_binary(type_) or kinds.is_fixed_size_binary(type_):
        return f"lower(hex({value}))"
    if kinds.is_timestamp(type_):
        zone = " || '+00:00'" if type_.tz is not None else ""
        bare = f"timezone('UTC', {value})" if type_.tz is not None else value
        shown = f"replace(CAST({bare} AS VARCHAR), ' ', 'T')"
        return f"CASE WHEN isfinite({value}) THEN {shown}{zone} ELSE CAST({value} AS VARCHAR) END"
    if kinds.is_decimal(type_) or kinds.is_date(type_) or kinds.is_time(type_) or kinds.is_interval(type_):
        return f"CAST({value} AS VARCHAR)"
    if kinds.is_struct(type_):
        if not type_.num_fields:
            return f"to_json({value})"
        fields = (type_.field(index) for index in range(type_.num_fields))
        parts = ", ".join(
            f"{literal(each.name)}, {_plain(f'struct_extract({value}, {literal(each.name)})', each.type, depth)}"
            for each in fields
        )
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE json_object({parts}) END"
    if kinds.is_list(type_) or kinds.is_large_list(type_) or kinds.is_fixed_size_list(type_):
        each = f"v{depth}"
        return f"list_transform({value}, lambda {each}: {_plain(each, type_.value_type, depth + 1)})"
    if kinds.is_map(type_):
        each = f"v{depth}"
        key, item = (
            _plain(f"{each}.key", type_.key_type, depth + 1),
            _plain(f"{each}.value", type_.item_type, depth + 1),
        )
        return f"list_transform(map_entries({value}), lambda {each}: json_object('key', {key}, 'value', {item}))"
    return value


# -- compression -------------------------------------------------------------------------------------------------------


def compressed(pieces: Iterator[Piece], accept_encoding: str | None) -> tuple[Iterator[Piece], str | None]:
    """Return the pieces, compressed if the client takes zstd or gzip and there is something to gain, and how."""
    wanted = _parse_accepted(accept_encoding or "")
    codec = next((each for each in ("zstd", "gzip") if each in wanted), None)
    first = list(_few(pieces))
    if codec is None or sum(map(len, first)) < _SMALL:
        return _chain(first, pieces), None
    squeeze: Any = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    if codec == "zstd":
        squeeze = zstandard.ZstdCompressor(level=1).compressobj()
    return _squeeze(_chain(first, pieces), squeeze), codec


def _parse_accepted(header: str) -> set[str]:
    """Return the encodings of an Accept-Encoding header, without those of weight 0.

    >>> sorted(_parse_accepted("gzip;q=0, zstd;q=0.5, br"))
    ['br', 'zstd']
    """
    found = set()
    for part in header.lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        if not any(each.startswith("q=") and not _quality(each[2:]) for each in parameters):
            found.add(name)
    return found


def _few(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yield pieces until there is enough to judge by."""
    size = 0
    for piece in pieces:
        yield piece
        size += len(piece)
        if size >= _SMALL:
            return


def _chain(first: list[Piece], rest: Iterator[Piece]) -> Iterator[Piece]:
    yield from first
    yield from rest


def _squeeze(pieces: Iterator[Piece], squeeze: Any) -> Iterator[Piece]:
    for piece in pieces:
        if found := squeeze.compress(bytes(piece)):
            yield found
    yield squeeze.flush()
