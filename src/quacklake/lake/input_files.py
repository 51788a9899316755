"""Files as rows to be written: Parquet, CSV, JSON and Arrow, read as a stream in bounded memory, as often as needed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from quacklake.engines.duckdb.remote import connect_store
from quacklake.errors import InputError
from quacklake.format.names import fold, quote
from quacklake.format.schema import TableSchema
from quacklake.lake.input_paths import Found, PathLike, find
from quacklake.storage import Store

__all__ = ["InputFiles", "open_files"]

_BATCH_ROWS = 65_536
_FAILURES = (duckdb.Error, pa.ArrowException, OSError)
_ARROW_FILE = b"ARROW1"
_READERS = {"parquet": "read_parquet", "csv": "read_csv", "json": "read_json"}


def open_files(
    paths: PathLike | Iterable[PathLike], format: str | None = None, *, store: Store | None = None
) -> InputFiles:
    """Return the rows of files, folders and patterns; see ``InputFiles``. Raises ``InputError`` when there are none."""
    return InputFiles(find(paths, format, store), store)


@dataclass
class InputFiles:
    """Rows of files of one format. Columns are matched by name, and a column that a file lacks is NULL there.

    Folders that are called ``year=2024`` below the path that was named give a column ``year``.
    """

    found: Found
    store: Store | None = None

    @property
    def name(self) -> str:
        """How the user named the files."""
        return self.found.name

    @cached_property
    def total(self) -> int | None:
        """The number of rows, where the files of this machine say it."""
        if self.found.format != "parquet" or not all(Path(path).is_file() for path in self.found.paths):
            return None
        try:
            return sum(int(pq.read_metadata(path).num_rows) for path in self.found.paths)
        except _FAILURES as error:
            raise self._unreadable(error) from error

    def read(self, wanted: TableSchema | None = None) -> pa.RecordBatchReader:
        """Return the rows as a stream. A text file is read with the types that ``wanted`` has for its columns.

        Raises ``InputError`` that names the file, now or while the rows are read.
        """
        try:
            schema, batches = self._arrow() if self.found.format == "arrow" else self._duckdb(wanted)
        except _FAILURES as error:
            raise self._unreadable(error) from error
        return pa.RecordBatchReader.from_batches(schema, self._guarded(batches))

    def _guarded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except _FAILURES as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> InputError:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        # where it is in the file comes first, what is wrong there some lines later
        detail = next((f": {line}" for line in lines[1:] if line.startswith("Error ")), "")
        return InputError(f"cannot read {self.name} as {self.found.format}: {lines[0]}{detail}")

    # -- Arrow -------------------------------------------------------------------------------------------------------

    def _arrow(self) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
        def opened(path: str) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
            if self.store is None or "://" not in path:
                file = pa.memory_map(path)
            else:
                file = self.store.filesystem.open_input_file(path.partition("://")[2])
            begin = file.read(len(_ARROW_FILE))
            file.seek(0)
            return pa.ipc.open_file(file) if begin == _ARROW_FILE else pa.ipc.open_stream(file)

        schemas = [opened(path).schema.remove_metadata() for path in self._with_bytes]
        schema = pa.unify_schemas(schemas, promote_options="default")
        return schema, (_filled(batch, schema) for path in self._with_bytes for batch in _batches(opened(path)))

    # -- DuckDB ------------------------------------------------------------------------------------------------------

    def _duckdb(self, wanted: TableSchema | None) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
        connection = self._connection()
        sql, values = self._query({} if wanted is None else self._types(wanted))
        reader = connection.execute(sql, values).to_arrow_reader(_BATCH_ROWS)
        return reader.schema, _closing(connection, reader)

    def _connection(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(config={"autoinstall_known_extensions": False})
        buckets = sorted({"/".join(path.split("/")[:3]) for path in self.found.paths if "://" in path})
        if self.store is not None and buckets:
            connect_store(connection, self.store, buckets)
        return connection

    def _query(self, types: dict[str, str]) -> tuple[str, list[Any]]:
        """The query over the files, every value of it a parameter."""
        found = self.found
        options: dict[str, Any] = {"hive_partitioning": bool(found.folders)}
        folders = {name: type_ for name, type_ in types.items() if name in found.folders}
        if folders:
            options["hive_types"] = folders
        if len(found.paths) > 1:
            options["union_by_name"] = True
        inside = {name: type_ for name, type_ in types.items() if name not in found.folders}
        if found.format == "json":
            # a key that comes late would be an error, and with given columns it would be lost
            options |= {"sample_size": -1, "maximum_sample_files": len(found.paths)}
        if found.format != "parquet" and inside:
            options["columns" if found.format == "json" else "types"] = inside
        arguments = "".join(f", {name} = ?" for name in options)
        # names of files, not patterns
        paths = [re.sub(r"([*?\[])", r"[\1]", path) for path in self._with_bytes]
        hidden = ", ".join(quote(name) for name in sorted(found.above)) if found.folders else ""
        select = f"* EXCLUDE ({hidden})" if hidden else "*"
        return f"SELECT {select} FROM {_READERS[found.format]}(?{arguments})", [paths, *options.values()]

    @cached_property
    def _with_bytes(self) -> list[str]:
        """The files without those that are empty, of which nothing can be guessed."""
        filled = [path for path in self.found.paths if "://" in path or Path(path).stat().st_size]
        if not filled:
            raise InputError(f"{self.name} is empty", hint="a file needs at least the names of its columns")
        return filled

    @cached_property
    def _guessed(self) -> dict[str, str]:
        """The columns of the files with the types that DuckDB finds in them."""
        with self._connection() as connection:
            sql, values = self._query({})
            described = connection.execute(f"DESCRIBE {sql}", values).fetchall()
        return {str(name): str(type_) for name, type_, *_ in described}

    def _types(self, wanted: TableSchema) -> dict[str, str]:
        """The type of each column of a file: the table's, so that 007 stays a text; a guess where it has none."""
        if self.found.format == "parquet" and not self.found.folders:
            return {}  # its own types hold
        known = {fold(column.name): column.duckdb_type() for column in wanted.columns if not column.travels_as_text}
        return {name: known.get(fold(name), guess) for name, guess in self._guessed.items()}


def _closing(connection: duckdb.DuckDBPyConnection, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    with connection:
        yield from reader


def _batches(reader: pa.RecordBatchFileReader | pa.RecordBatchStreamReader) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.RecordBatchStreamReader):
        yield from reader
    else:
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))


def _filled(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with all columns, in order; those that its file lacks are NULL."""
    arrays = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
