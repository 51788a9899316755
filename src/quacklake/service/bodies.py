"""The rows of requests: JSON, NDJSON, CSV, Arrow or Parquet, compressed or not, within the limits."""

from __future__ import annotations

import io
import json
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from quacklake.errors import InputError, QuacklakeError, ResultTooLargeError, UnsupportedFeatureError
from quacklake.format.schema import TableSchema
from quacklake.operations.input_files import open_files
from quacklake.service.encoding import ARROW, CSV, JSON, NDJSON, PARQUET
from quacklake.service.settings import ServiceSettings

__all__ = ["BODY_FORMATS", "body_format", "rows_of", "unpacked"]

_ARROW_FILE = "application/vnd.apache.arrow.file"
BODY_FORMATS = (JSON, NDJSON, CSV, ARROW, _ARROW_FILE, PARQUET)
_ALIASES = {"application/ndjson": NDJSON, "application/jsonl": NDJSON, "application/parquet": PARQUET}
_EXPANSION = 8
"""The memory that rows may take, as a multiple of the largest body."""
_FEW = 1 << 20
"""Bytes of JSON that are parsed at once, in this process."""


def body_format(content_type: str | None) -> str:
    """Return the format of a body. Raises ``UnsupportedFeatureError`` for one that has no rows."""
    name = (content_type or JSON).partition(";")[0].strip().lower()
    found = _ALIASES.get(name, name)
    if found not in BODY_FORMATS:
        raise UnsupportedFeatureError(
            f"bodies of the type {name[:80]!r} have no rows", hint=f"Content-Type: {', '.join(BODY_FORMATS)}"
        )
    return found


def unpacked(body: bytes, content_encoding: str | None, limit: int) -> bytes:
    """Return a body without its compression. Raises ``ResultTooLargeError`` when it is larger than it may be."""
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
    """Return the rows of a body; text gets the types of a table. Raises ``InputError``."""
    try:
        if format == PARQUET:
            return _limited(_parquet(body, settings), settings)
        if format in (ARROW, _ARROW_FILE):
            return _limited(_arrow(body, format), settings)
        if format in (JSON, NDJSON) and len(body) <= _FEW:
            found = _json(body, format, wanted, settings)
            if found is not None:
                return found
        return _text(body, format, wanted, settings)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise InputError(f"the body is not {format}: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _limited(batches: Iterable[pa.RecordBatch], settings: ServiceSettings) -> pa.Table:
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        _check_size(rows, size, settings)
        held.append(batch)
    if not held:
        raise InputError("the body has no schema")
    return pa.Table.from_batches(held)


def _check_size(rows: int, size: int, settings: ServiceSettings) -> None:
    if rows > settings.max_body_rows:
        raise ResultTooLargeError(f"the request has more than {settings.max_body_rows} rows", hint="send it in parts")
    if size > settings.max_body * _EXPANSION:
        raise ResultTooLargeError("the rows of the request take too much memory", hint="send it in parts")


def _arrow(body: bytes, format: str) -> Iterable[pa.RecordBatch]:
    if format == ARROW:
        reader = pa.ipc.open_stream(body)
        yield _none(reader.schema)
        yield from reader
    else:
        file = pa.ipc.open_file(body)
        yield _none(file.schema)
        for index in range(file.num_record_batches):
            yield file.get_batch(index)


def _none(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _parquet(body: bytes, settings: ServiceSettings) -> Iterable[pa.RecordBatch]:
    file = pq.ParquetFile(io.BytesIO(body), memory_map=False)
    metadata = file.metadata
    size = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
    _check_size(metadata.num_rows, size, settings)
    yield _none(file.schema_arrow)
    yield from file.iter_batches(8_192)


def _json(body: bytes, format: str, wanted: TableSchema, settings: ServiceSettings) -> pa.Table | None:
    """Return the rows of a little JSON; None for values that only DuckDB converts."""
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
    _check_size(len(found), 0, settings)
    names = list(dict.fromkeys(name for row in found for name in row))
    known = {column.name: column for column in wanted.columns}
    folded = {name.lower(): name for name in known}
    arrays, titles = [], []
    for name in names:
        values = [row.get(name) for row in found]
        column = known.get(name) or known.get(folded.get(name.lower(), ""))
        array = _array(values, None if column is None else column.arrow_type())
        if array is None:
            return None
        arrays.append(array)
        titles.append(name)
    if not arrays:
        return pa.Table.from_batches([_none(wanted.to_arrow())]) if not found else None
    return _filled(pa.Table.from_arrays(arrays, names=titles), wanted)


def _filled(rows: pa.Table, wanted: TableSchema) -> pa.Table:
    """Return the rows with NULL in the columns that none of them has, unless a column has a default."""
    given = {name.lower() for name in rows.column_names}
    for column in wanted.columns:
        if column.name.lower() not in given and column.default is None:
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
            rows = _limited(_with_schema(open_files(path, suffix).read(wanted)), settings)
            return rows if format == CSV else _filled(rows, wanted)
        except QuacklakeError as error:
            error.message = error.message.replace(str(path), "the body").replace(folder, "")
            error.args = (error.message,)
            raise


def _with_schema(reader: pa.RecordBatchReader) -> Iterable[pa.RecordBatch]:
    yield _none(reader.schema)
    yield from reader
