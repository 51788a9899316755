"""Accept rows from users: frames, Arrow data in any form, dictionaries, files, or a DuckDB relation."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from types import FrameType
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from quacklake import telemetry
from quacklake.core.format.intervals import INTERVAL, from_durations
from quacklake.core.format.schema import TableSchema, of_last_schema
from quacklake.core.format.stats import check_values
from quacklake.core.operations import pandas_frames
from quacklake.core.operations.input_paths import is_path
from quacklake.core.storage import Store
from quacklake.errors import InputError, SchemaMismatchError

__all__ = ["Input", "Source", "to_source"]


_PRECISION = 38
_READABLE = {
    *(type_.id for type_ in (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())),
    *(type_.id for type_ in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.date32(), pa.timestamp("us"))),
    *(type_.id for type_ in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())),
}
"""The most common of the Arrow types that stay as they are."""


@of_last_schema
def _is_readable(schema: pa.Schema) -> bool:
    return all(type_.id in _READABLE for type_ in schema.types)


def readable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with types that DuckDB can read; unchanged if it reads all. Raises ``SchemaMismatchError``."""
    if _is_readable(schema):
        return schema
    fields = [field.with_type(_type(field.type, field.name)) for field in schema]
    return schema if fields == list(schema) else pa.schema(fields, schema.metadata)


def readable(rows: Any, schema: pa.Schema) -> Any:
    """Convert a table or batch to a schema of ``readable_schema``. Raises ``SchemaMismatchError``."""
    if rows.schema.types == schema.types:
        return rows
    columns = [_array(column, field) for column, field in zip(rows.columns, schema, strict=True)]
    return type(rows).from_arrays(columns, schema=schema)


def _storable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of ``readable_schema`` with durations as intervals."""
    schema = readable_schema(schema)
    for place, field in enumerate(schema):
        if pa.types.is_duration(_of_values(field.type)):
            schema = schema.set(place, field.with_type(INTERVAL))
    return schema


def _of_values(arrow: pa.DataType) -> pa.DataType:
    return arrow.value_type if isinstance(arrow, pa.DictionaryType | pa.RunEndEncodedType) else arrow


def _type(arrow: pa.DataType, name: str) -> pa.DataType:
    if pa.types.is_float16(arrow):
        return pa.float32()
    if pa.types.is_decimal(arrow) and not 0 <= arrow.scale <= arrow.precision:
        raise SchemaMismatchError(
            f'the column "{name}" is {arrow}, which DuckLake does not have', hint="its scale is 0 to its precision"
        )
    if pa.types.is_decimal256(arrow) and arrow.precision <= _PRECISION:
        return pa.decimal128(arrow.precision, arrow.scale)
    if isinstance(arrow, pa.DictionaryType | pa.RunEndEncodedType):
        inner = _type(arrow.value_type, name)
        return inner if inner != arrow.value_type or pa.types.is_nested(inner) else arrow
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        make = pa.large_list if pa.types.is_large_list(arrow) else pa.list_
        return make(_field(arrow.value_field, name))
    if pa.types.is_map(arrow):
        return pa.map_(_field(arrow.key_field, name), _field(arrow.item_field, name), arrow.keys_sorted)
    return pa.struct([_field(field, name) for field in arrow]) if pa.types.is_struct(arrow) else arrow


def _field(field: pa.Field, name: str) -> pa.Field:
    return field.with_type(_type(field.type, name))


def _array(array: Any, field: pa.Field) -> Any:
    wanted = field.type
    if array.type == wanted:
        return array
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([_array(chunk, field) for chunk in array.chunks], wanted)
    if isinstance(array.type, pa.DictionaryType):
        return _array(array.dictionary_decode(), field)
    if isinstance(array.type, pa.RunEndEncodedType):
        return _array(pc.run_end_decode(array), field)
    if wanted == INTERVAL and pa.types.is_duration(array.type):
        check_values(pa.RecordBatch.from_arrays([array], [field.name]))
        return from_durations(array)
    try:
        return array.cast(wanted)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise SchemaMismatchError(
            f'the column "{field.name}" is {array.type}, which cannot be stored', hint=f"cast it to {wanted} first"
        ) from None


_READ_AHEAD_SECONDS = 1.0
"""Seconds to wait for threads that read ahead; a thread that waits for room requests no more rows."""


class Input(Protocol):
    """Rows from a user, before their table is known."""

    @property
    def replayable(self) -> bool:
        """True when the rows can be read again after a conflict."""

    @property
    def empty(self) -> bool:
        """True for input without rows and without columns, such as an empty list."""

    def opened(self, wanted: TableSchema | None = None) -> Source:
        """Return the rows for a table with these columns; text is read with their types."""


@dataclass(frozen=True)
class Reopened:
    """Rows that are read again each time: files, a dataset or a lazy frame."""

    open: Callable[[TableSchema | None], pa.RecordBatchReader]
    index: bool
    replayable: bool = True
    empty: bool = False
    columns: TableSchema | None = None
    """The columns of a new table of these rows, where Arrow cannot tell their types."""

    def opened(self, wanted: TableSchema | None = None) -> Source:
        stream = self.open(wanted)
        return _with_index(Source(stream.schema, stream=stream), self.index)


@dataclass
class Source:
    """Rows to write: a table in memory, or a stream that can be read once.

    ``index`` names the columns that are the index of a frame of pandas.
    """

    schema: pa.Schema
    table: pa.Table | None = None
    stream: pa.RecordBatchReader | None = None
    index: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        given, self.schema = self.schema, _storable_schema(self.schema)
        if self.schema is not given and self.table is not None:
            self.table = readable(self.table, self.schema)
        elif self.schema is not given and self.stream is not None:
            batches = (readable(batch, self.schema) for batch in self.stream)
            self.stream = pa.RecordBatchReader.from_batches(self.schema, batches)

    @property
    def replayable(self) -> bool:
        """True when the rows can be read again after a conflict."""
        return self.table is not None

    @property
    def empty(self) -> bool:
        """True for input without rows and without columns, such as an empty list."""
        return self.table is not None and not self.table.num_rows and not self.schema.names

    def opened(self, wanted: TableSchema | None = None) -> Source:
        """Return itself, because these rows already have types."""
        return self

    def first(self, limit: int) -> pa.Table | None:
        """Return all rows as a table if there are at most ``limit``, else None; a stream stays complete."""
        if self.table is not None:
            return self._checked() if self.table.num_rows <= limit else None
        assert self.stream is not None
        taken: list[pa.RecordBatch] = []
        rows = 0
        for batch in self.stream:
            taken.append(batch)
            rows += batch.num_rows
            if rows > limit:
                rest = self.stream
                self.stream = pa.RecordBatchReader.from_batches(self.schema, itertools.chain(taken, rest))
                return None
        self.table, self.stream = pa.Table.from_batches(taken, self.schema), None
        return self._checked()

    def _checked(self) -> pa.Table:
        """Return the rows in memory. Raises ``ConstraintError`` for a value that cannot be stored unchanged."""
        assert self.table is not None
        check_values(self.table)
        return self.table

    @contextmanager
    def lend(self) -> Iterator[pa.Table | pa.RecordBatchReader]:
        """Yield the rows for an engine to register during the block.

        Arrow reads ahead in its own threads, and a process that exits while one is in a Python iterator crashes. So the
        end of the block, early or not, tells these threads to stop and waits for them. An error of the stream itself is
        raised unchanged, not as the engine reports it; so is ``ConstraintError`` for a value that cannot be stored
        unchanged.
        """
        if self.table is not None:
            yield self._checked()
            return
        assert self.stream is not None
        stopped, ended = threading.Event(), threading.Event()
        failures: list[BaseException] = []
        batches = _until(stopped, self.stream, ended, failures)
        try:
            yield pa.RecordBatchReader.from_batches(self.schema, batches)
        except GeneratorExit:
            raise
        except BaseException:
            if failures:
                raise failures[0] from None
            raise
        finally:
            stopped.set()
            ended.wait(_READ_AHEAD_SECONDS)

    @property
    def size(self) -> int | None:
        """The size in bytes when all rows are in memory."""
        return None if self.table is None else self.table.nbytes


def _until(
    stopped: threading.Event, batches: Iterable[pa.RecordBatch], ended: threading.Event, failures: list[BaseException]
) -> Iterator[pa.RecordBatch]:
    try:
        for batch in batches:
            if stopped.is_set():
                return
            check_values(batch)
            yield batch
            telemetry.count(telemetry.ROWS_TAKEN, batch.num_rows)
    except GeneratorExit:
        raise
    except BaseException as error:
        failures.append(error)
        raise
    finally:
        ended.set()


_BATCH_ROWS = 65_536
_READ_AHEAD: dict[str, Any] = {"batch_readahead": 4, "fragment_readahead": 1}
"""Limits of Arrow's reading ahead in a dataset; its own default is many times as much."""

_MAX_DEPTH = 100
"""The most levels of lists and dictionaries in a value."""


def to_source(data: Any, store: Store | None = None, *, index: bool = True) -> Input:
    """Return rows of any supported kind; ``store`` has paths such as ``s3://…``. Raises ``SchemaMismatchError``.

    With ``index`` false, the index of pandas is left out, which also files and Arrow tables may hold.
    """
    found = _to_input(data, store, index)
    return _with_index(found, index) if isinstance(found, Source) else found


def _with_index(source: Source, index: bool) -> Source:
    """Return rows in which the index of pandas that they hold has the names of columns, or is left out."""
    if source.schema.metadata is None or source.index:
        return source
    selected = pandas_frames.select_columns(source.schema, index=index)
    if selected is not None and source.table is not None:
        table = pa.Table.from_arrays(source.table.select(selected.places).columns, schema=selected.schema)
        source = Source(table.schema, table)
    elif selected is not None and source.stream is not None:
        batches = selected.batches(source.stream)
        source = Source(selected.schema, stream=pa.RecordBatchReader.from_batches(selected.schema, batches))
    elif index and source.table is not None:
        source = _with_range(source)
    source.index += tuple(
        name for name in pandas_frames.index_columns(source.schema.metadata) if name in source.schema.names
    )
    return source


def _with_range(source: Source) -> Source:
    assert source.table is not None
    found = pandas_frames.stored_range(source.schema.metadata)
    column = None if found is None else found.column(source.table.num_rows)
    if found is None or column is None or found.name in source.schema.names:
        return source
    table = source.table.append_column(found.name, column)
    return Source(table.schema, table, index=(found.name,))


def _to_input(data: Any, store: Store | None, index: bool) -> Input:
    if isinstance(data, pa.Table):
        return Source(data.schema, table=data)
    if isinstance(data, pa.RecordBatch):
        return Source(data.schema, table=pa.Table.from_batches([data]))
    if isinstance(data, pa.RecordBatchReader):
        return Source(data.schema, stream=data)
    if is_path(data):
        return _from_files(data, store, index)
    if type(data).__module__ == "quacklake.core.operations.input_files":
        return Reopened(data.read, index)
    if pandas_frames.is_frame(data):
        table, levels = pandas_frames.to_arrow(data, index=index)
        return Source(table.schema, table, index=levels)
    if _package(data) == "polars" and hasattr(data, "collect_schema") and hasattr(data, "collect"):
        return Reopened(lambda wanted: _lazy_batches(data), index)
    if _is_dataset(data):
        return Reopened(lambda wanted: _dataset_batches(data), index)
    if type(data).__name__ == "Series":
        raise SchemaMismatchError("a series is one column without a table", hint='pass series.to_frame("name")')
    scanner = type(data).__module__.startswith("pyarrow._dataset") and hasattr(data, "to_reader")
    if scanner or hasattr(data, "__arrow_c_stream__"):
        if _package(data) == "polars":
            _check_polars(data)
        stream = data.to_reader() if scanner else pa.RecordBatchReader.from_stream(data)
        # Frames in memory can be read again; the stream of a running query cannot.
        table = stream.read_all() if _package(data) == "polars" else None
        return Source(stream.schema, table, None if table is not None else stream)
    if hasattr(data, "__arrow_c_array__"):
        return _to_input(pa.record_batch(data), store, index)
    if isinstance(data, Mapping):
        return _from_columns(data)
    if isinstance(data, Iterable) and not isinstance(data, bytes):
        return _from_items(data, store, index)
    hint = "pass a frame, Arrow data, the path of a file, a DuckDB relation, or a list of dictionaries or dataclasses"
    if _package(data) == "pyspark":
        hint = "quacklake.spark(lake) writes frames of Spark"
    raise SchemaMismatchError(f"cannot read rows from {type(data).__name__}", hint=hint)


def _package(data: Any) -> str:
    return type(data).__module__.partition(".")[0]


def _from_files(paths: Any, store: Store | None, index: bool) -> Input:
    from quacklake.core.operations.input_files import open_files

    files = open_files(paths, store=store)
    return Reopened(lambda wanted: files.read(wanted, index=index), index)


def _is_dataset(data: Any) -> bool:
    # Do not import the module for users who do not need it.
    return type(data).__module__.startswith("pyarrow._dataset") and hasattr(data, "scanner")


def _check_polars(frame: Any) -> None:
    """Raise ``SchemaMismatchError`` for columns of polars that Arrow has no type for, or gets only addresses of."""
    for name, type_ in frame.schema.items():
        leaves = set(_leaf_types(type_))
        if "Object" in leaves:
            hint = f'pl.col("{name}").map_elements(str, return_dtype=pl.String) makes text of it'
        elif leaves & {"Int128", "UInt128"}:
            hint = f'pl.col("{name}").cast(pl.Decimal(38, 0)) keeps numbers of 38 digits'
        else:
            continue
        raise SchemaMismatchError(
            f'the column "{name}" of the polars frame is {type_}, which cannot be stored', hint=hint
        )


def _leaf_types(type_: Any) -> Iterator[str]:
    inner = getattr(type_, "inner", None)
    parts = [inner] if inner is not None else [field.dtype for field in getattr(type_, "fields", ())]
    for part in parts:
        yield from _leaf_types(part)
    if not parts:
        yield str(type_)


def _lazy_batches(frame: Any) -> pa.RecordBatchReader:
    """Return the rows of a polars lazy frame, collected in batches if its version supports that."""
    empty = frame.limit(0).collect()
    _check_polars(empty)
    schema = empty.to_arrow().schema

    def batches() -> Iterator[pa.RecordBatch]:
        if not hasattr(frame, "collect_batches"):
            yield from frame.collect().to_arrow().cast(schema).to_batches(_BATCH_ROWS)
            return
        collected = frame.collect_batches(chunk_size=_BATCH_ROWS, maintain_order=True)
        try:
            for part in collected:
                yield from part.to_arrow().cast(schema).to_batches()
        finally:
            getattr(collected, "stop", lambda: None)()

    return pa.RecordBatchReader.from_batches(schema, batches())


def _dataset_batches(dataset: Any) -> pa.RecordBatchReader:
    options = dict(_READ_AHEAD)
    if getattr(getattr(dataset, "format", None), "default_extname", None) == "parquet":
        from pyarrow.dataset import ParquetFragmentScanOptions

        # Otherwise Arrow keeps what it has read of a file until the end of the file.
        options["fragment_scan_options"] = ParquetFragmentScanOptions(pre_buffer=False)
    return dataset.scanner(batch_size=_BATCH_ROWS, **options).to_reader()


def _from_items(items: Iterable[Any], store: Store | None, index: bool) -> Input:
    """Return rows, paths or a sequence of frames, depending on the first item."""
    rest = iter(items)
    first = list(itertools.islice(rest, 1))
    if first and (
        pandas_frames.is_frame(first[0])
        or hasattr(first[0], "__arrow_c_stream__")
        or (hasattr(first[0], "__arrow_c_array__") and not isinstance(first[0], Mapping))
    ):
        return _from_frames(first[0], rest, index)
    if first and is_dataclass(first[0]) and not isinstance(first[0], type):
        return _from_instances(first[0], items, rest)
    found = [*first, *rest]
    return _from_files(found, store, index) if found and all(map(is_path, found)) else _from_rows(found)


def _from_frames(first: Any, rest: Iterator[Any], index: bool) -> Source:
    """Return a stream of frames or batches that keeps one at a time in memory."""
    source = to_source(first, index=index).opened()
    schema, levels = source.schema, source.index

    def batches() -> Iterator[pa.RecordBatch]:
        for number, frame in enumerate(itertools.chain([first], rest), 1):
            source = to_source(frame, index=index).opened()
            if set(source.schema.names) != set(schema.names):
                raise SchemaMismatchError(
                    f"frame {number} has other columns than the first: {', '.join(source.schema.names)}",
                    hint=f"the first has {', '.join(schema.names)}",
                )
            with source.lend() as rows:
                for batch in rows.to_batches() if isinstance(rows, pa.Table) else rows:
                    yield batch.select(schema.names).cast(schema)

    return Source(schema, stream=pa.RecordBatchReader.from_batches(schema, batches()), index=levels)


def _from_instances(first: Any, items: Iterable[Any], rest: Iterator[Any]) -> Reopened:
    """Return instances of a dataclass, converted in batches; a sequence can be read again."""
    from quacklake.core.operations.row_types import RowType

    rows = RowType(type(first))
    again = isinstance(items, Sequence)

    def read(_: TableSchema | None) -> pa.RecordBatchReader:
        instances = items if again else itertools.chain([first], rest)
        return pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(instances))

    return Reopened(read, index=False, replayable=again, columns=rows.columns)


def _from_rows(found: list[Any]) -> Source:
    for row in found:
        if not isinstance(row, Mapping):
            raise SchemaMismatchError(
                f"a row must be a dictionary, not {type(row).__name__}", hint="pass [{'id': 1}, {'id': 2}]"
            )
    names = list(dict.fromkeys(name for row in found for name in row))
    return _from_columns({name: [row.get(name) for row in found] for name in names})


def _from_columns(given: Mapping[Any, Any]) -> Source:
    names = [pandas_frames.column_name(key, place) for place, key in enumerate(given, 1)]
    pandas_frames.check_unique(names)
    columns = dict(zip(names, given.values(), strict=True))
    for name, values in columns.items():
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            raise SchemaMismatchError(
                f'the column "{name}" is one value ({type(values).__name__}), not a list of values',
                hint="pass [{…}] for one row, or a list for each column",
            )
        if isinstance(values, list):
            _check_depth(name, values)
    try:
        table = pa.table(
            {name: values if isinstance(values, pa.Array) else pa.array(values) for name, values in columns.items()}
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        first = str(error).splitlines()[0]
        raise SchemaMismatchError(f"the rows have a column of mixed types: {first}") from None
    return Source(table.schema, table=table)


def _check_depth(column: str, values: list[Any]) -> None:
    """Reject values nested too deeply, such as a list that contains itself, which would crash Arrow and the process."""
    level = [value for value in values if isinstance(value, list | tuple | Mapping)]
    for _ in range(_MAX_DEPTH):
        if not level:
            return
        inner = (value.values() if isinstance(value, Mapping) else value for value in level)
        level = [value for values in inner for value in values if isinstance(value, list | tuple | Mapping)]
    raise SchemaMismatchError(f'a value of "{column}" is nested too deeply', hint=f"{_MAX_DEPTH} levels are the most")


# -- rows for a session ------------------------------------------------------------------------------------------------


def registrable(value: Any) -> Any:
    """Return rows that can be read repeatedly under a name. Raises ``SchemaMismatchError`` for a value without rows."""
    found = _rows(value)
    if found is not None and not isinstance(found, pa.RecordBatchReader):
        return found
    if is_path(value):
        raise InputError(f"{str(value)!r} is a path", hint=f"SQL reads files itself: FROM '{value}'")
    with to_source(value).opened().lend() as rows:
        return rows if isinstance(rows, pa.Table) else rows.read_all()


def find_frame(frame: FrameType | None, name: str) -> Any:
    """Return the rows of the caller's variable with this name, local before global, or None."""
    for variables in () if frame is None else (frame.f_locals, frame.f_globals):
        rows = _rows(variables[name]) if name in variables else None
        if rows is not None:
            return rows
    return None


def _rows(value: Any) -> Any:
    """Return what DuckDB can register without a crash: a table, or a pandas frame, dataset or stream as it is."""
    if isinstance(value, pa.RecordBatch):
        value = pa.Table.from_batches([value])
    if isinstance(value, pa.Table):
        check_values(value, exact=False)
        return readable(value, readable_schema(value.schema))
    if pandas_frames.is_frame(value):
        return pandas_frames.dense(value)
    if isinstance(value, pa.RecordBatchReader) or _is_dataset(value):
        return value
    if _package(value) == "polars" and hasattr(value, "collect_batches"):
        return pa.table(value.collect())
    if _package(value) == "quacklake" and hasattr(value, "to_arrow"):
        return value.to_arrow()  # keeps the rows of a result, which its stream gives once
    named = _package(value) in ("polars", "quacklake", "duckdb", "_duckdb")
    return pa.table(value) if named and hasattr(value, "__arrow_c_stream__") else None
