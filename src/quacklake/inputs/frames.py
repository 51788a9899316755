"""Accept rows from users: frames, Arrow data in any form, dictionaries, files, or a DuckDB relation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from types import FrameType
from typing import Any

import pyarrow as pa

from quacklake.core.format.schema import TableSchema
from quacklake.core.format.stats import check_values
from quacklake.core.format.stored_index import index_columns, stored_range
from quacklake.core.operations.sources import Input, Source, readable, readable_schema
from quacklake.core.storage import Store
from quacklake.errors import InputError, SchemaMismatchError
from quacklake.inputs import pandas_frames
from quacklake.inputs.paths import is_path

_BATCH_ROWS = 65_536
_READ_AHEAD: dict[str, Any] = {"batch_readahead": 4, "fragment_readahead": 1}
"""Limits of Arrow's reading ahead in a dataset; its own default is many times as much."""

_MAX_DEPTH = 100
"""The most levels of lists and dictionaries in a value."""


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


def to_source(data: Any, store: Store | None = None, *, index: bool = True) -> Input:
    """Return rows of any supported kind; ``store`` has paths such as ``s3://…``. Raise ``SchemaMismatchError``.

    With ``index`` false, the index of pandas is left out, which also files and Arrow tables may hold.

    >>> to_source([{"id": 7, "name": "seven"}]).opened().table.to_pylist()
    [{'id': 7, 'name': 'seven'}]
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
    source.index += tuple(name for name in index_columns(source.schema.metadata) if name in source.schema.names)
    return source


def _with_range(source: Source) -> Source:
    assert source.table is not None
    found = stored_range(source.schema.metadata)
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
    if type(data).__module__ == "quacklake.inputs.files":
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
    from quacklake.inputs.files import open_files

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
    from quacklake.inputs.row_types import RowType

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


def read_rows(value: Any) -> Any:
    """Return rows that can be read repeatedly under a name. Raise ``SchemaMismatchError`` for a value without rows."""
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
