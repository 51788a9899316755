"""The rows of requests: JSON, NDJSON, CSV, Arrow or Parquet, compressed or not, within the limits."""

from __future__ import annotations

import io
import json
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from quacklake import open_files
from quacklake.errors import InputError, QuacklakeError, ResultTooLargeError, UnsupportedFeatureError
from quacklake.extend.schemas import TableSchema
from quacklake.service.encoding import ARROW, CSV, JSON, NDJSON, PARQUET
from quacklake.service.expansion import check_ipc, check_parquet, plain_batch, plain_schema, too_large, unpacked_size
from quacklake.service.settings import ServiceSettings

__all__ = ["BODY_FORMATS", "PlainRows", "body_format", "joined", "plain_rows", "rows_of", "unpacked"]

_ARROW_FILE = "application/vnd.apache.arrow.file"
BODY_FORMATS = (JSON, NDJSON, CSV, ARROW, _ARROW_FILE, PARQUET)
_ALIASES = {"application/ndjson": NDJSON, "application/jsonl": NDJSON, "application/parquet": PARQUET}
_FILE_START, _FILE_END = b"ARROW1\0\0", b"ARROW1"
_NULL = 16
"""The most bytes of a NULL in memory."""
_FEW = 1 << 20
"""Bytes of JSON that are parsed at once, in this process."""
_TINY = 1 << 14
"""Bytes of JSON whose rows become columns together with those of other bodies."""


def body_format(content_type: str | None) -> str:
    """Return the format of a body. Raise ``UnsupportedFeatureError`` for one that has no rows."""
    name = (content_type or JSON).partition(";")[0].strip().lower()
    found = _ALIASES.get(name, name)
    if found not in BODY_FORMATS:
        raise UnsupportedFeatureError(
            f"bodies of the type {name[:80]!r} have no rows", hint=f"Content-Type: {', '.join(BODY_FORMATS)}"
        )
    return found


def unpacked(body: bytes, content_encoding: str | None, limit: int) -> bytes:
    """Return a body without its compression. Raise ``ResultTooLargeError`` when it is larger than it may be."""
    encoding = (content_encoding or "identity").strip().lower()
    if encoding == "identity":
        return body
    try:
        if encoding == "gzip":
            unpack = zlib.decompressobj(16 + zlib.MAX_WBITS)
            found = unpack.decompress(body, limit + 1)
            ended = unpack.eof
        elif encoding == "zstd":
            with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(io.BytesIO(body)) as reader:
                found = reader.read(limit + 1)
                ended = len(found) > limit or not reader.read(1)
        else:
            raise UnsupportedFeatureError(f"the encoding {encoding[:40]!r} is not known", hint="gzip, zstd or none")
    except (zlib.error, zstandard.ZstdError):
        raise InputError(f"the body is not {encoding}") from None
    if len(found) > limit:
        raise ResultTooLargeError(f"the request has more than {limit} bytes", hint="send it in parts")
    if not ended:
        raise InputError(f"the {encoding} body ends early")
    return found


def rows_of(body: bytes, format: str, wanted: TableSchema, settings: ServiceSettings) -> pa.Table:
    """Return the rows of a body; text gets the types of a table. Raise ``InputError``."""
    try:
        if format == PARQUET:
            return _read_limited(_parquet(body, settings), settings)
        if format in (ARROW, _ARROW_FILE):
            return _read_limited(_arrow(body, format, settings), settings)
        if format in (JSON, NDJSON) and len(body) <= _FEW:
            found = _json(body, format, wanted, settings)
            if found is not None:
                return found
        return _text(body, format, wanted, settings)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise InputError(f"the body is not {format}: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _read_limited(batches: Iterable[pa.RecordBatch], settings: ServiceSettings) -> pa.Table:
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        rows += batch.num_rows
        _check_rows(rows, settings)
        size += sum(map(unpacked_size, batch.columns))
        if size > settings.max_unpacked:
            raise too_large()
        held.append(plain_batch(batch, plain_schema(batch.schema)))
    if not held:
        raise InputError("the body has no schema")
    return pa.Table.from_batches(held)


def _check_rows(rows: int, settings: ServiceSettings) -> None:
    if rows > settings.max_body_rows:
        raise ResultTooLargeError(f"the request has more than {settings.max_body_rows} rows", hint="send it in parts")


def _arrow(body: bytes, format: str, settings: ServiceSettings) -> Iterable[pa.RecordBatch]:
    stream = pa.py_buffer(body)
    if format == _ARROW_FILE:  # a stream between two words, and a footer that says where its parts are
        if not body.startswith(_FILE_START) or not body.endswith(_FILE_END):
            raise InputError(f"the body is not {format}")
        stream = stream.slice(len(_FILE_START))
    check_ipc(stream, settings.max_unpacked)
    reader = pa.ipc.open_stream(stream)
    yield _none(reader.schema)
    for batch in reader:
        batch.validate(full=True)  # offsets that point elsewhere would show the memory of the service
        yield batch


def _none(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _parquet(body: bytes, settings: ServiceSettings) -> Iterable[pa.RecordBatch]:
    file = pq.ParquetFile(io.BytesIO(body), memory_map=False)
    _check_rows(file.metadata.num_rows, settings)
    check_parquet(body, settings.max_unpacked)
    yield _none(file.schema_arrow)
    yield from file.iter_batches(8_192)


def _objects(body: bytes, format: str, settings: ServiceSettings) -> list[dict[str, Any]]:
    """Return the rows of a little JSON. Raise ``InputError``."""
    try:
        found: Any = (
            json.loads(body) if format == JSON else [json.loads(line) for line in body.splitlines() if line.strip()]
        )
    except ValueError as error:
        raise InputError(f"the body is not {format}: {error}") from None
    if isinstance(found, dict):
        found = found.get("rows", [found]) if format == JSON else [found]
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise InputError("the body is not a list of objects", hint='[{"id": 1, "name": "a"}]')
    _check_rows(len(found), settings)
    return found


def _json(body: bytes, format: str, wanted: TableSchema, settings: ServiceSettings) -> pa.Table | None:
    """Return the rows of a little JSON; None for values that only DuckDB converts."""
    found = _objects(body, format, settings)
    # one more than there are columns cannot fit: every further one would cost as much as all rows
    names = list(dict.fromkeys(name for row in found for name in row))[: len(wanted.columns) + 1]
    if not names:
        return pa.Table.from_batches([_none(wanted.to_arrow())]) if not found else None
    return _columns(found, names, wanted, settings)


def _columns(
    rows: list[dict[str, Any]], names: Sequence[str], wanted: TableSchema, settings: ServiceSettings
) -> pa.Table | None:
    """Return rows as columns of the types of a table; None for values that only DuckDB converts."""
    known = {column.name: column for column in wanted.columns}
    folded = {name.lower(): name for name in known}
    arrays, size = [], 0
    for name in names:
        values = [row.get(name) for row in rows]
        column = known.get(name) or known.get(folded.get(name.lower(), ""))
        array = _array(values, None if column is None else column.arrow_type())
        if array is None:
            return None
        arrays.append(array)
        size += array.nbytes
        if size > settings.max_unpacked:
            raise too_large()
    return _fill_columns(pa.Table.from_arrays(arrays, names=list(names)), wanted, settings)


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Rows of a little JSON that all have the same names, which are columns of their table."""

    names: tuple[str, ...]
    rows: list[dict[str, Any]]


def plain_rows(body: bytes, format: str, wanted: TableSchema, settings: ServiceSettings) -> PlainRows | None:
    """Return the rows of a small body if those of several can be read as one; None for any other."""
    if format not in (JSON, NDJSON) or len(body) > _TINY:
        return None
    try:
        rows = _objects(body, format, settings)
    except (InputError, ResultTooLargeError, RecursionError):
        return None  # told when it is read by itself
    names = tuple(rows[0]) if rows else ()
    known = {column.name for column in wanted.columns}
    if not names or not known.issuperset(names) or not all(row.keys() == rows[0].keys() for row in rows):
        return None
    is_small = len(rows) * len(known) * _NULL + len(body) * _NULL <= min(_FEW, settings.max_unpacked)
    return PlainRows(names, rows) if is_small else None


def joined(parts: Sequence[PlainRows], wanted: TableSchema, settings: ServiceSettings) -> pa.Table | None:
    """Return the rows of bodies with the same names; None if a value of one is not as it should be.

    Each value becomes what it becomes when its body is read by itself.
    """
    try:
        return _columns([row for part in parts for row in part.rows], parts[0].names, wanted, settings)
    except (QuacklakeError, pa.ArrowException):
        return None


def _fill_columns(rows: pa.Table, wanted: TableSchema, settings: ServiceSettings) -> pa.Table:
    """Return the rows with NULL in the columns that none of them has, unless a column has a default."""
    given = {name.lower() for name in rows.column_names}
    missing = [column for column in wanted.columns if column.name.lower() not in given and column.default is None]
    if rows.num_rows * len(missing) * _NULL > settings.max_unpacked:
        raise too_large()
    for column in missing:
        rows = rows.append_column(column.name, pa.nulls(rows.num_rows, column.arrow_type()))
    return rows


def _array(values: list[Any], type_: pa.DataType | None) -> pa.Array | None:
    try:
        if type_ is None:
            return pa.array(values)
        if any(isinstance(value, str) for value in values) and not pa.types.is_string(type_):
            if pa.types.is_nested(type_) or pa.types.is_binary(type_):
                return None
            return pa.array(values, pa.string()).cast(type_)
        if pa.types.is_nested(type_) or pa.types.is_decimal(type_) or pa.types.is_binary(type_):
            return None
        return pa.array(values, type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def _text(body: bytes, format: str, wanted: TableSchema, settings: ServiceSettings) -> pa.Table:
    """Return the rows of text as DuckDB reads files of it: with the types of the table."""
    suffix = {JSON: "json", NDJSON: "json", CSV: "csv"}[format]
    with tempfile.TemporaryDirectory(prefix="quacklake-body-") as folder:
        path = Path(folder) / f"body.{suffix}"
        path.write_bytes(body)
        try:
            rows = _read_limited(_with_schema(open_files(path, suffix).read(wanted)), settings)
            return rows if format == CSV else _fill_columns(rows, wanted, settings)
        except QuacklakeError as error:
            error.message = error.message.replace(str(path), "the body").replace(folder, "")
            error.args = (error.message,)
            raise


def _with_schema(reader: pa.RecordBatchReader) -> Iterable[pa.RecordBatch]:
    yield _none(reader.schema)
    yield from reader
