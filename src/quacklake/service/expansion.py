"""The size that rows have once they are unpacked, found before memory is taken for them.

A body of a few kilobytes can stand for terabytes: compressed buffers and pages, dictionaries whose long value every row
has, views that all show one text. What such a body says of itself is not believed where it could be a lie.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from quacklake.errors import InputError, ResultTooLargeError, UnsupportedFeatureError
from quacklake.extend import duckdbs

__all__ = ["check_ipc", "check_parquet", "plain_batch", "plain_schema", "too_large", "unpacked_size"]

_DICTIONARY, _RECORD_BATCH = 2, 3
_NOT_COMPRESSED = -1
_BUFFER = struct.Struct("<qq")
_SIZE = struct.Struct("<q")
_VIEW = 4
"""The numbers of 32 bits of a view; the first is the length of its text."""
_VIEW_BYTES = 16
_OFFSET = 4
_NULL = 8
"""Bytes of a value that arrives as none: a NULL, or the beginning of a list."""
_LEAST_MEMORY = 64 << 20
"""DuckDB's own memory for reading a file, beside what its rows may take."""


def too_large() -> ResultTooLargeError:
    """Return the error for rows that take too much memory."""
    return ResultTooLargeError("the rows of the request take too much memory", hint="send it in parts")


# -- Arrow -------------------------------------------------------------------------------------------------------------


def check_ipc(stream: pa.Buffer, limit: int) -> None:
    """Raise ``ResultTooLargeError`` for an Arrow stream whose buffers become larger than the limit.

    The size of a compressed buffer stands before it, and the decompressor takes that much memory at once.
    """
    size = 0
    for message in pa.ipc.MessageReader.open_stream(stream):
        try:
            size += sum(_buffers(memoryview(message.metadata), message.body))
        except (struct.error, TypeError):
            raise InputError("the body is not Arrow: a message is damaged") from None
        if size > limit:
            raise too_large()


def _buffers(metadata: memoryview, body: pa.Buffer | None) -> Iterator[int]:
    """Yield the sizes of the compressed buffers of a message, which is a table of FlatBuffers."""
    message = _number(metadata, 0, "<I")
    kind, header = _field(metadata, message, 1), _table(metadata, message, 2)
    if kind is None or header is None:
        return
    number = metadata[kind]
    batch = _table(metadata, header, 1) if number == _DICTIONARY else header if number == _RECORD_BATCH else None
    if batch is None or _field(metadata, batch, 3) is None:  # no rows, or not compressed
        return
    start = _table(metadata, batch, 2)
    data = memoryview(body if body is not None else b"")
    for index in range(0 if start is None else _number(metadata, start, "<I")):
        assert start is not None
        offset, length = _BUFFER.unpack_from(metadata, start + 4 + index * _BUFFER.size)
        if length:
            [claimed] = _SIZE.unpack_from(data, offset)
            yield length if claimed == _NOT_COMPRESSED else max(claimed, length)


def _number(data: memoryview, at: int, kind: str) -> int:
    return int(struct.unpack_from(kind, data, at)[0])


def _field(data: memoryview, table: int, index: int) -> int | None:
    """Return where a field of a table of FlatBuffers is; None when it has its default."""
    places = table - _number(data, table, "<i")
    at = 4 + 2 * index
    offset = _number(data, places + at, "<H") if at < _number(data, places, "<H") else 0
    return table + offset if offset else None


def _table(data: memoryview, table: int, index: int) -> int | None:
    """Return where the table or vector is that a field refers to."""
    at = _field(data, table, index)
    return None if at is None else at + _number(data, at, "<I")


def unpacked_size(array: pa.Array) -> int:
    """Return the bytes that an array takes without dictionaries, runs and views, or a little more.

    >>> names = pa.DictionaryArray.from_arrays(pa.array([0] * 1000), pa.array(["x" * 1000]))
    >>> names.nbytes < 10_000, unpacked_size(names)
    (True, 1004000)
    """
    kind, types = array.type, pa.types
    if isinstance(array, pa.ExtensionArray):
        return unpacked_size(array.storage)
    if types.is_null(kind):
        return len(array) * _NULL
    if types.is_dictionary(kind):
        return _count_picked(array.dictionary, array.indices)
    if types.is_run_end_encoded(kind):
        return _count_repeated(array)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return int(pc.sum(_lengths(array)).as_py() or 0) + _VIEW_BYTES * len(array)
    if types.is_struct(kind) or types.is_union(kind):
        parts = [array.field(index) for index in range(kind.num_fields)]
        if types.is_union(kind) and kind.mode == "dense":  # any number of rows may show one value of a part
            return len(array) * (1 + sum(_largest(part) for part in parts))
        return sum(map(unpacked_size, parts)) + len(array)
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        shown = pc.sum(pc.cast(array.sizes, pa.float64())).as_py() or 0
        return int(shown) * _largest(array.values) + _NULL * len(array)
    if types.is_nested(kind) and hasattr(array, "values"):
        return unpacked_size(array.values) + _NULL * len(array)
    return max(int(array.nbytes), len(array))


def _count_picked(values: pa.Array, indices: pa.Array) -> int:
    """Return the bytes of values that are taken by their indices."""
    lengths = _lengths(values)
    if lengths is None:
        return len(indices) * _largest(values)
    return int(pc.sum(lengths.take(indices)).as_py() or 0) + _OFFSET * len(indices)


def _count_repeated(array: pa.Array) -> int:
    """Return the bytes of the values of an array of runs, each as often as its run is long."""
    lengths = _lengths(array.values)
    if lengths is None:
        return len(array) * _largest(array.values)
    start, end = float(array.offset), float(array.offset + len(array))
    ends = pc.cast(array.run_ends, pa.float64())  # sums of what a lie may make longer than 64 bits
    ends = pc.max_element_wise(pc.min_element_wise(ends, end), start)
    before = pa.concat_arrays([pa.array([start]), ends[:-1]]) if len(ends) else ends
    texts = pc.sum(pc.multiply(pc.subtract(ends, before), pc.cast(lengths, pa.float64()))).as_py()
    return int(texts or 0) + _OFFSET * len(array)


def _lengths(values: pa.Array) -> pa.Array | None:
    """Return the bytes of each text or blob; None for values of another type."""
    kind, types = values.type, pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind):
        buffer = values.buffers()[1]
        if buffer is None or not len(values):
            return pa.array([0] * len(values), pa.int64())
        numbers = pa.Array.from_buffers(pa.int32(), (values.offset + len(values)) * _VIEW, [None, buffer])
        views = pa.FixedSizeListArray.from_arrays(numbers, _VIEW).slice(values.offset)
        return pc.cast(pc.list_element(views, 0), pa.int64())
    return pc.cast(pc.binary_length(values), pa.int64()) if _is_text(kind) else None


def _largest(values: pa.Array) -> int:
    """Return the bytes of the largest of some values, or more."""
    if isinstance(values, pa.ExtensionArray):
        return _largest(values.storage)
    lengths = _lengths(values)
    if lengths is not None:
        return int(pc.max(lengths).as_py() or 0) + _OFFSET
    fixed = getattr(values.type, "bit_width", None) if pa.types.is_primitive(values.type) else None
    return unpacked_size(values) + _NULL if fixed is None else fixed // 8 + 1


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of rows once ``plain_batch`` has unpacked what is not for DuckDB."""
    return pa.schema([field.with_type(_plain_type(field.type)) for field in schema], schema.metadata)


def plain_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows in the columns of ``plain_schema``.

    DuckDB ends the process for some nested arrays whose values are shared, such as a list of a dictionary. So only
    columns of simple values are left as they came. Raise ``UnsupportedFeatureError`` for what Arrow does not unpack.
    """
    if batch.schema.equals(schema):
        return batch
    try:
        arrays = [_plain(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedFeatureError(f"a column cannot be unpacked: {str(error).splitlines()[0]}") from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _plain_type(kind: pa.DataType, *, nested: bool = False) -> pa.DataType:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        storage = _plain_type(kind.storage_type, nested=True)
        return kind if storage == kind.storage_type else storage
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return kind if not nested and _is_simple(kind.value_type) else _plain_type(kind.value_type, nested=True)
    if types.is_string_view(kind):
        return pa.large_string() if nested else kind
    if types.is_binary_view(kind):
        return pa.large_binary() if nested else kind
    if types.is_union(kind):
        raise UnsupportedFeatureError("columns of unions are not taken", hint="send a struct")
    if types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type, nested=True)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type, nested=True), _plain_type(kind.item_type, nested=True))
    if types.is_fixed_size_list(kind):
        return pa.list_(_plain_type(kind.value_type, nested=True), kind.list_size)
    for is_kind, make in _LISTS:
        if is_kind(kind):
            return make(kind.value_field.with_type(_plain_type(kind.value_type, nested=True)))
    return kind


_LISTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Field], pa.DataType]], ...] = (
    (pa.types.is_list, pa.list_),
    (pa.types.is_large_list, pa.large_list),
    (pa.types.is_list_view, pa.list_),
    (pa.types.is_large_list_view, pa.large_list),
)


def _is_simple(kind: pa.DataType) -> bool:
    types = pa.types
    is_number = any(is_kind(kind) for is_kind in (types.is_integer, types.is_float32, types.is_float64))
    return is_number or _is_text(kind)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    known = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(is_kind(kind) for is_kind in known)


def _plain(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array as one of its plain type."""
    types = pa.types
    if array.type == kind:
        return array
    if isinstance(array, pa.ExtensionArray):
        return _plain(array.storage, kind)
    if types.is_dictionary(array.type):
        return _plain(array.dictionary, kind).take(array.indices)
    if types.is_run_end_encoded(array.type):
        numbers = pa.array(range(len(array.values)), pa.int64())
        runs = pa.RunEndEncodedArray.from_arrays(array.run_ends, numbers).slice(array.offset, len(array))
        return _plain(array.values, kind).take(pc.run_end_decode(runs))
    empty = array.is_null()
    if types.is_struct(kind):
        parts = [_plain(array.field(index), kind.field(index).type) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=empty)
    if types.is_map(kind):
        keys, items = _plain(array.keys, kind.key_type), _plain(array.items, kind.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=kind, mask=empty)
    if types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(_plain(array.values, kind.value_type), type=kind, mask=empty)
    if types.is_list(kind) or types.is_large_list(kind):
        values = _plain(array.values, kind.value_type)
        if types.is_list_view(array.type) or types.is_large_list_view(array.type):
            return _to_lists(array, values, kind)
        make = pa.ListArray if types.is_list(kind) else pa.LargeListArray
        return make.from_arrays(array.offsets, values, type=kind, mask=empty)
    return array.cast(kind)


def _to_lists(array: pa.Array, values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return views of lists, which may show a value often and in any order, as lists."""
    empty = array.is_null()
    sizes = pc.if_else(empty, 0, pc.cast(array.sizes, pa.int64()))
    ends = pc.cumulative_sum(sizes)
    starts = pc.subtract(ends, sizes)
    # the first value of a list is at its offset, and each further one behind that
    shifts = pc.subtract(pc.cast(array.offsets, pa.int64()), starts)
    rows = pa.LargeListArray.from_arrays(_bounds(ends), pa.nulls(int(pc.sum(sizes).as_py() or 0)))
    indices = pc.add(shifts.take(pc.list_parent_indices(rows)), pa.array(range(len(rows.values)), pa.int64()))
    make = pa.ListArray if pa.types.is_list(kind) else pa.LargeListArray
    bounds = _bounds(ends).cast(pa.int32() if pa.types.is_list(kind) else pa.int64())
    return make.from_arrays(bounds, values.take(indices), type=kind, mask=empty)


def _bounds(ends: pa.Array) -> pa.Array:
    return pa.concat_arrays([pa.array([0], pa.int64()), ends])


# -- Parquet -----------------------------------------------------------------------------------------------------------


def check_parquet(body: bytes, limit: int) -> None:
    """Raise ``ResultTooLargeError`` for a Parquet file whose rows take more memory than the limit.

    The sizes in its footer may be lies, and pages can be compressed and share values. So DuckDB reads the file, within
    that memory and without making rows of it, and adds the lengths up. Raise ``InputError`` for a file that is none.
    """
    settings = {"memory_limit": f"{limit + _LEAST_MEMORY}B", "threads": 1, "temp_directory": ""}
    with tempfile.TemporaryDirectory(prefix="quacklake-body-") as folder:
        path = Path(folder) / "body.parquet"
        path.write_bytes(body)
        connection = duckdbs.connect(config=settings)
        try:
            shown = connection.execute("SELECT * FROM read_parquet(?) LIMIT 0", [str(path)]).description or []
            sums = [_length(f"c{number}", str(column[1])) for number, column in enumerate(shown)]
            names = ", ".join(f"c{number}" for number in range(len(shown)))
            [lengths] = connection.execute(
                f"SELECT {', '.join(sums)} FROM read_parquet(?) AS t({names})", [str(path)]
            ).fetchall()
        except duckdb.OutOfMemoryException:
            raise too_large() from None
        except duckdb.Error:
            raise InputError("the body is not Parquet, or is damaged") from None
        finally:
            connection.close()
    if sum(length or 0 for length in lengths) > limit:
        raise too_large()


def _length(column: str, kind: str) -> str:
    """Return the expression for the bytes of all values of a column."""
    if kind == "VARCHAR":
        return f"sum(strlen({column}))"
    if kind == "BLOB":
        return f"sum(octet_length({column}))"
    is_nested = kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION"))
    return f"sum(strlen({column}::VARCHAR))" if is_nested else f"count({column}) * 8"
