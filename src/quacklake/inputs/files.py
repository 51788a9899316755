"""Read files as rows to write: Parquet, CSV, JSON, Arrow and Excel, streamed in bounded memory, as often as needed."""

from __future__ import annotations

import io
import logging
import re
import shlex
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, TextIO, cast

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from quacklake.core.duckdb_versions import arrow_reader, connect, first_row
from quacklake.core.engines.duckdb.connections import connect_store, file_name
from quacklake.core.engines.duckdb.exact_reading import WHOLE, lossless, wider
from quacklake.core.format.names import fold, quote, sql_value
from quacklake.core.format.schema import TableSchema
from quacklake.core.format.stored_index import METADATA, StoredRange, index_columns, index_metadata, stored_range
from quacklake.core.storage import Store
from quacklake.errors import InputError
from quacklake.inputs.csv_files import (
    CsvOptions,
    Dialect,
    check_filled,
    check_header,
    dialect_of,
    faulty_line,
    faulty_value,
    has_quotes_above,
    line_of,
    rewrite,
)
from quacklake.inputs.exact_values import exact_text, hint_of, missing_values
from quacklake.inputs.excel_files import check_installed, convert, exact_cell
from quacklake.inputs.excel_reader import SheetFacts
from quacklake.inputs.pandas_frames import select_columns
from quacklake.inputs.paths import FoundFiles, PathLike, find
from quacklake.inputs.texts import encoding_of, suggest, transcode, undecodable

_BATCH_ROWS = 65_536
_SNIFFED_ROWS = 20_480
"""The first rows of a CSV file that tell whether it has a header."""
_SHOWN_VALUES = 5
_ROW = "file_row_number"
_FAILURES = (duckdb.Error, pa.ArrowException, OSError, UnicodeDecodeError)
_ARROW_FILE = b"ARROW1"
_READERS = {"parquet": "read_parquet", "csv": "read_csv", "json": "read_json", "excel": "read_parquet"}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_log = logging.getLogger("quacklake.files")


def open_files(
    paths: PathLike | Iterable[PathLike],
    format: str | None = None,
    *,
    store: Store | None = None,
    csv: CsvOptions | None = None,
) -> InputFiles:
    """Return the rows of files, folders and patterns; see ``InputFiles``. Raise ``InputError`` when there are none.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     size = pathlib.Path(folder, "a.csv").write_text("id,name\\n7,seven\\n")
    ...     open_files(f"{folder}/*.csv").read().read_all().to_pylist()
    [{'id': 7, 'name': 'seven'}]
    """
    return InputFiles(find(paths, format, store), store, csv or CsvOptions())


@dataclass
class InputFiles:
    """Rows of files of one format. Columns are matched by name, and a column that a file lacks is NULL there.

    Folders such as ``year=2024`` below the given path add a column ``year``. Each line of text is a row or an error.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     size = pathlib.Path(folder, "a.csv").write_text("id,name\\n7,seven\\n")
    ...     open_files(folder).found.format
    'csv'
    """

    found: FoundFiles
    store: Store | None = None
    csv: CsvOptions = field(default_factory=CsvOptions)
    _guessed: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _sniffed: dict[str, dict[str, str]] = field(default_factory=dict, init=False, repr=False)
    _rewritten: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    """The files to read instead of others, such as UTF-8 for UTF-16, each with the file that it stands for."""
    _noted: set[str] = field(default_factory=set, init=False, repr=False)
    _sheets: dict[str, SheetFacts] = field(default_factory=dict, init=False, repr=False)
    """The sheets that were read of workbooks, by the files to read instead of them."""
    _renamed: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    """The columns of a table by those of sheets without a header."""

    @property
    def name(self) -> str:
        """The files as the user named them."""
        return self.found.name

    def without_folders(self) -> InputFiles:
        """Return the same files without the columns that folder names add."""
        return replace(self, found=replace(self.found, folders=()))

    @cached_property
    def total(self) -> int | None:
        """The number of rows, if local files state it."""
        if self.found.format != "parquet" or not all(Path(path).is_file() for path in self.found.paths):
            return None
        try:
            return sum(int(pq.read_metadata(path).num_rows) for path in self.found.paths)
        except _FAILURES as error:
            raise self._unreadable(error) from error

    def read(
        self, wanted: TableSchema | None = None, *, index: bool = True, counted: bool = True
    ) -> pa.RecordBatchReader:
        """Return the rows as a stream, text with the types of ``wanted``. Raise ``InputError``, now or later.

        The index of a frame of pandas is among the columns, unless ``index`` is false; without ``counted``, only if the
        files hold more than its bounds.
        """
        schema, batches = self._open(wanted, index=index, counted=counted)
        if self.found.format == "csv":
            self.note_missing_values(
                name for name, guess in self._guessed.items() if guess == "VARCHAR" and not _has(wanted, name)
            )
        return pa.RecordBatchReader.from_batches(schema, self._guard_batches(batches))

    def schema(self) -> pa.Schema:
        """Return the columns with the types that the files have by themselves. Raise ``InputError``."""
        return self._open(None, index=True, counted=False)[0]

    def _open(
        self, wanted: TableSchema | None, *, index: bool, counted: bool
    ) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
        try:
            schema, batches = self._arrow() if self.found.format == "arrow" else self._duckdb(wanted, index and counted)
            selected = select_columns(schema, index=index)
            return (schema, batches) if selected is None else (selected.schema, selected.batches(batches))
        except _FAILURES as error:
            raise self._unreadable(error) from error

    def note_missing_values(self, names: Iterable[str]) -> None:
        """Log, once, which of some columns of CSV files are texts only because of some that mean a value is missing.

        The first rows decide which columns are looked at as a whole.
        """
        fresh = set(names).difference(self.found.folders, self._noted)
        self._noted |= fresh
        conditions = {name: missing_values(name, self.csv) for name in sorted(fresh)}
        texts = self.as_sql(dict.fromkeys(conditions, "VARCHAR")) if conditions else ""
        try:
            with self._connection() as connection:
                if conditions:
                    first = f"SELECT * FROM ({texts}) LIMIT {_SNIFFED_ROWS:d}"
                    conditions = {name: conditions[name] for name in _numbers(connection, first, conditions)}
                for name, (count, values) in _numbers(connection, texts, conditions).items():
                    if count:
                        nulls = " ".join(f"--null {shlex.quote(value)}" for value in values)
                        message = 'the column "%s" of %s is text because of %d values that are not numbers'
                        _log.warning(f"{message}; %s reads them as NULL", name, self.name, count, nulls)
        except _FAILURES as error:
            raise self._unreadable(error) from error

    def _guard_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except _FAILURES as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> InputError:
        undecoded = self._undecodable() if self.found.format in ("csv", "json") else None
        if undecoded is not None:
            return undecoded
        fault = self._fault() if self.found.format in ("csv", "json") else None
        if fault is not None:
            return fault
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        # The message gives the place in the file first, and the problem some lines later.
        detail = next((f": {line}" for line in lines[1:] if line.startswith(("Error ", "Maximum "))), "")
        file = next((line.removeprefix("file = ") for line in lines if line.startswith("file = ")), self.name)
        message = f"cannot read {self._name_of(file)} as {self.found.format}: {lines[0]}{detail}"
        for copy, original in self._copies().items():
            message = message.replace(copy, self._name_of(original))
        hint = hint_of(lines[0] + detail) if self.found.format == "csv" else None
        return InputError(message, hint=hint)

    def _copies(self) -> dict[str, str]:
        """Return the files that the user does not know, each with the file that it stands for."""
        unknown = [path for path in self.found.paths if self.name not in path] if len(self.found.paths) == 1 else []
        return self._rewritten | dict(zip(unknown, unknown, strict=True))

    def _name_of(self, path: str) -> str:
        """Return how errors call a file."""
        return self.name if len(self.found.paths) == 1 else self._rewritten.get(path, path)

    def _undecodable(self) -> InputError | None:
        """Return the error for the first file that is not UTF-8 text."""
        for path in self._with_bytes:
            content = partial(self._bytes, path)
            found = undecodable(content)
            if found is not None:
                message = f"cannot read {self._name_of(path)} as {self.found.format}: line {found[0]} is not UTF-8 text"
                return InputError(message, hint=suggest(content))
        return None

    def _fault(self) -> InputError | None:
        """Return the error for the first faulty line."""
        for path in self._with_bytes:
            text, name = partial(self._text, path), self._name_of(path)
            if self.found.format == "json":
                fault = faulty_value(text)
            else:
                fault = faulty_line(text, dialect_of(text, name, self.csv)[0])
            if fault is not None:
                return InputError(f"cannot read {name} as {self.found.format}: {fault[0]}", hint=fault[1])
        return None

    @contextmanager
    def _bytes(self, path: str) -> Iterator[BinaryIO]:
        """Open the bytes of a file, compressed or not."""
        compression = _COMPRESSIONS.get(Path(path).suffix.lower())
        if self.store is None or "://" not in path:
            raw = pa.input_stream(path, compression=compression)
        else:
            source = self.store.filesystem.open_input_stream(path.partition("://")[2], compression=None)
            raw = pa.CompressedInputStream(source, compression) if compression else source
        with raw:
            yield cast(BinaryIO, raw)

    @contextmanager
    def _text(self, path: str) -> Iterator[TextIO]:
        """Open a text file of UTF-8."""
        with self._bytes(path) as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as file:
            yield file

    @cached_property
    def _folder(self) -> Path:
        """A folder for files that are rewritten, which goes when this object does."""
        folder = tempfile.mkdtemp(prefix="quacklake-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)

    def _readable(self, path: str) -> str:
        """Return the file to read instead of one, which DuckDB cannot read as it is; else the file itself."""
        if self.found.format == "excel":
            return self._convert_workbook(path)
        if self.found.format not in ("csv", "json"):
            return path
        content = partial(self._bytes, path)
        encoding = encoding_of(content, self.csv.encoding, self._name_of(path))
        if encoding == "utf-8" or (encoding == "utf-8-sig" and self.found.format == "csv"):
            return path
        target = self._place_for(path)
        transcode(content, encoding, target, self._name_of(path))
        return self._replace(path, target)

    def _replace(self, path: str, copy: Path) -> str:
        """Note the file that a copy stands for, and return the path of the copy."""
        self._rewritten[str(copy)] = self._rewritten.get(path, path)
        return str(copy)

    def _unify_line_ends(self) -> bool:
        """Rewrite CSV files with several kinds of line ends, which DuckDB refuses; return whether there are any."""
        if self.found.format != "csv":
            return False
        paths = list[str]()
        for path in self._with_bytes:
            text, target = partial(self._text, path), self._place_for(path)
            mixed = rewrite(text, dialect_of(text, self._name_of(path), self.csv)[0], target)
            paths.append(self._replace(path, target) if mixed else path)
            if not mixed:
                target.unlink()
        if paths == self._with_bytes:
            return False
        self._with_bytes = paths
        self._sniffed.clear()
        self.__dict__.pop("_dialects", None)
        return True

    def _convert_workbook(self, path: str) -> str:
        """Return the Parquet file with the rows of a workbook."""
        name, target = self._name_of(path), self._place_for(path).with_suffix(".parquet")
        check_installed(name)
        source = Path(path)
        if "://" in path:
            source = target.with_suffix(source.suffix)
            with self._bytes(path) as file, source.open("wb") as copy:
                shutil.copyfileobj(file, copy)
        self._sheets[str(target)] = convert(source, name, target, self.csv)
        self._rewritten[str(target)] = path
        return str(target)

    def _place_for(self, path: str) -> Path:
        """Return where to rewrite a file: below folders with the names of its own, which are columns."""
        *folders, name = path.split("/")
        number = str(sum(1 for _ in self._folder.iterdir()))
        place = self._folder.joinpath(number, *(part for part in folders if "=" in part))
        place.mkdir(parents=True)
        return place / (name if Path(name).suffix.lower() not in _COMPRESSIONS else Path(name).stem)

    def _arrow(self) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
        def opened(path: str) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
            if self.store is None or "://" not in path:
                file = pa.memory_map(path)
            else:
                file = self.store.filesystem.open_input_file(path.partition("://")[2])
            begin = file.read(len(_ARROW_FILE))
            file.seek(0)
            return pa.ipc.open_file(file) if begin == _ARROW_FILE else pa.ipc.open_stream(file)

        schemas = [opened(path).schema for path in self._with_bytes]
        index = dict.fromkeys(name for each in schemas for name in index_columns(each.metadata))
        schema = pa.unify_schemas([each.remove_metadata() for each in schemas], promote_options="default")
        schema = schema.with_metadata(index_metadata(index)) if index else schema
        return schema, (_fill_columns(batch, schema) for path in self._with_bytes for batch in _batches(opened(path)))

    def _duckdb(self, wanted: TableSchema | None, counted: bool) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
        if self.found.format == "parquet" and not self.found.folders:
            types: dict[str, str] = {}  # these files have their own types
        else:
            types = self._types(wanted)
        connection = self._connection()
        exact = self._exact(wanted, types)
        types |= {name: type_ for name, (type_, _) in exact.items()}
        sql, values = self._query(types, None if wanted is None else wanted.names)
        if exact:
            connection.execute("SET TimeZone = 'UTC'")
            replaced = ", ".join(f"{value} AS {quote(name)}" for name, (_, value) in exact.items())
            sql = f"SELECT * REPLACE ({replaced}) FROM ({sql})"
        described = _pandas_metadata(connection, values[0]) if self.found.format == "parquet" else []
        ranges = {stored_range(each) for each in described} if counted else set()
        if ranges - {None}:
            sql, values = self._with_range(ranges, types)
        reader = arrow_reader(connection, sql, values, batch_rows=_BATCH_ROWS)
        columns = dict.fromkeys(name for each in described for name in index_columns(each))
        schema = reader.schema.with_metadata(index_metadata(columns)) if columns else reader.schema
        return schema, _closing(connection, reader)

    def _with_range(self, ranges: set[StoredRange | None], types: dict[str, str]) -> tuple[str, list[Any]]:
        """Return the query with the index of which the files have the bounds alone. Raise ``InputError``."""
        alike = {(found and found.name, found and found.start, found and found.step) for found in ranges}
        if len(alike) > 1:
            raise InputError(
                f"the files of {self.name} have an index of pandas whose numbers are not in them, each another",
                hint="df.to_parquet(…, index=True) stores them, index=False leaves them out",
            )
        ((name, start, step),) = alike
        sql, values = self._query(types, None, rows=True)
        number = f"{start:d} + {step:d} * {_ROW} AS {quote(str(name))}"
        return f"SELECT * EXCLUDE ({_ROW}), {number} FROM ({sql})", values

    def _connection(self) -> duckdb.DuckDBPyConnection:
        connection = connect(config={"autoinstall_known_extensions": False})
        buckets = sorted({"/".join(path.split("/")[:3]) for path in self.found.paths if "://" in path})
        if self.store is not None and buckets:
            connect_store(connection, self.store, buckets)
        return connection

    def sampled(self) -> dict[str, str]:
        """Return the columns of one CSV file with the types of its first rows.

        Raise ``InputError``, also for a column that is empty in the first rows, whose type they do not tell. Later
        rows may not fit: whoever reads them so has to check.
        """
        try:
            ((dialect, (path, *_)),) = self._dialects.items()
            if path not in self._sniffed:
                with self._connection() as connection:
                    self._sniffed[path] = _sniff(connection, path, dialect, self.csv)[1]
            check_filled(partial(self._text, path), dialect)
        except _FAILURES as error:
            raise self._unreadable(error) from error
        return self._sniffed[path]

    def fractions(self, wanted: TableSchema) -> set[str]:
        """Return the columns of whole numbers of ``wanted`` for which files without types have a number that is not."""
        if self.found.format not in ("csv", "json", "excel"):
            return set()
        try:
            found = self._guess(wanted)
            return {
                column.name
                for column in wanted.columns
                for name, guess in found.items()
                if fold(name) == fold(column.name) and guess == "DOUBLE" and not column.nested
                if column.duckdb_type() in WHOLE and self._has_fraction(name)
            }
        except _FAILURES as error:
            raise self._unreadable(error) from error

    def _has_fraction(self, column: str) -> bool:
        name = quote(column)
        with self._connection() as connection:
            odd = f"{name} <> trunc({name}) OR NOT isfinite({name})"
            return bool(first_row(connection, f"SELECT 1 FROM ({self.as_sql({column: 'DOUBLE'})}) WHERE {odd} LIMIT 1"))

    def as_sql(self, types: dict[str, str]) -> str:
        """Return a query over the files for a connection that may read them, columns with these types."""
        sql, values = self._query(types, None)
        texts = iter(map(sql_value, values))
        return "".join(next(texts) if part == "?" else part for part in re.split(r"(\?)", sql))

    def where(self, row: int) -> str:
        """Return the place of a row, counted from 1, for errors: the line of a CSV file, else the row."""
        if len(self._sheets) == 1:
            (sheet,) = self._sheets.values()
            return f"row {sheet.row_of(row)} of the sheet {sheet.sheet!r}"
        if self.found.format == "csv" and len(self.found.paths) == 1:
            for dialect, headers in self._dialects.items():
                line = line_of(partial(self._text, next(iter(headers))), dialect, row)
                if line is not None:
                    return f"line {line}"
        return f"row {row}"

    def first_where(self, column: str, condition: str) -> int | None:
        """Return the first row of CSV files, counted from 1, in which the text of a column meets an SQL condition."""
        try:
            texts = self.as_sql({column: "VARCHAR"})
            with self._connection() as connection:
                found = first_row(
                    connection,
                    f"SELECT n FROM (SELECT {quote(column)}, row_number() OVER () AS n FROM ({texts})) "
                    f"WHERE {condition} LIMIT 1",
                )
        except _FAILURES as error:
            raise self._unreadable(error) from error
        return None if found is None else int(found[0])

    def _query(
        self, types: dict[str, str], names: Iterable[str] | None, *, rows: bool = False
    ) -> tuple[str, list[Any]]:
        """Return the query over the files, with all values as parameters.

        ``names`` is for files without a header; ``rows`` adds the number of each row in its file.
        """
        found = self.found
        shared: dict[str, Any] = {"hive_partitioning": bool(found.folders)}
        folders = {name: type_ for name, type_ in types.items() if name in found.folders}
        if folders:
            shared["hive_types"] = folders
        if len(found.paths) > 1:
            shared["union_by_name"] = True
        if rows:
            shared[_ROW] = True
        inside = {name: type_ for name, type_ in types.items() if name not in found.folders}
        if found.format == "json":
            # A key that first occurs late would be an error, or would be lost with given columns.
            shared |= {"sample_size": -1, "maximum_sample_files": len(found.paths), "records": "true"}
        if found.format in ("csv", "json") and inside:
            shared["columns" if found.format == "json" else "types"] = inside
        elif found.format == "csv":
            shared["sample_size"] = -1  # all rows
        hidden = ", ".join(quote(name) for name in sorted(found.above)) if found.folders else ""
        select = f"SELECT {f'* EXCLUDE ({hidden})' if hidden else '*'} FROM {_READERS[found.format]}"
        texts, values = [], []
        for paths, columns, options in self._groups(names):
            chosen = shared | options
            if "types" in chosen and columns is not None:
                chosen["types"] = {name: type_ for name, type_ in inside.items() if fold(name) in columns}
                if not chosen["types"]:  # columns without a name in the header
                    del chosen["types"]
                    chosen["sample_size"] = -1
            alias = self._alias(paths[0], names)
            texts.append(f"{select}(?{''.join(f', {name} = ?' for name in chosen)}){alias}")
            values += [[file_name(path) for path in paths], *chosen.values()]
        return " UNION ALL BY NAME ".join(texts), values

    def _alias(self, path: str, names: Iterable[str] | None) -> str:
        """Return the names of a table's columns for a sheet without a header, as SQL."""
        if self.found.format != "excel" or names is None or self.csv.header is not False:
            return ""
        wanted = [column for column in names if column not in self.found.folders]
        count = len(self._sheets[path].names)
        if count != len(wanted):
            raise _other_width(self._name_of(path), count, len(wanted))
        self._renamed = dict(zip(self._sheets[path].names, wanted, strict=True))
        return f" AS rows({', '.join(map(quote, wanted))})"

    def _groups(self, names: Iterable[str] | None) -> Iterator[tuple[list[str], set[str] | None, dict[str, Any]]]:
        """Yield groups of files to read with the same arguments, the columns of their headers, and the arguments."""
        if self.found.format != "csv":
            yield self._with_bytes, None, {}
            return
        for dialect, headers in self._dialects.items():
            paths, options = list(headers), dialect.arguments() | self.csv.arguments()
            columns = {fold(column.strip()) for header in headers.values() for column in header}
            if names is not None and not dialect.header:
                options["names"] = self._by_position(paths[0], list(names))
            yield paths, columns if dialect.header else None, options

    def _by_position(self, path: str, names: list[str]) -> list[str]:
        """Return the table's column names for a file without a header."""
        name = self._name_of(path)
        if self.csv.header is None:
            raise InputError(
                f"the first line of {name} does not seem to be a header",
                hint="pass --no-header to take its columns in the order of the table's, or --header",
            )
        count = len(dialect_of(partial(self._text, path), name, self.csv)[1])
        names = [column for column in names if column not in self.found.folders]
        if count != len(names):
            raise _other_width(name, count, len(names))
        return names

    @cached_property
    def _dialects(self) -> dict[Dialect, dict[str, tuple[str, ...]]]:
        """The dialects of the CSV files, each with its files and their first records."""
        found: dict[Dialect, dict[str, tuple[str, ...]]] = {}
        with self._connection() as connection:
            for place, path in enumerate(self._with_bytes):
                name, text = self._name_of(path), partial(self._text, path)
                dialect, first = dialect_of(text, name, self.csv)
                if has_quotes_above(text, dialect):
                    target = self._place_for(path)
                    rewrite(text, dialect, target)
                    path = self._with_bytes[place] = self._replace(path, target)
                if dialect.header is None or dialect.fill_short_rows:
                    header, self._sniffed[path] = _sniff(connection, path, dialect, self.csv)
                    dialect = replace(dialect, header=header if dialect.header is None else dialect.header)
                if dialect.header:
                    check_header(first, name, dialect)
                found.setdefault(dialect, {})[path] = first
        return found

    @cached_property
    def _with_bytes(self) -> list[str]:
        """The files that are not empty; nothing can be detected from an empty file."""
        filled = [path for path in self.found.paths if "://" in path or Path(path).stat().st_size]
        if not filled:
            raise InputError(f"{self.name} is empty", hint="a file needs at least the names of its columns")
        return list(map(self._readable, filled))

    def _types(self, wanted: TableSchema | None) -> dict[str, str]:
        """Return the type of each column: the table's type, so that 007 stays text, or a guess if it has none."""
        columns = () if wanted is None else wanted.columns
        known = {
            fold(column.name): column.duckdb_type()
            for column in columns
            if not column.travels_as_text or (self.found.format == "excel" and column.type == "interval")
        }
        return {name: known.get(fold(name), guess) for name, guess in self._guess(wanted).items()}

    def _exact(self, wanted: TableSchema | None, types: dict[str, str]) -> dict[str, tuple[str, str]]:
        """Return the columns of text that DuckDB would round, cut or shift to the given types.

        Each has the type to read it as, and SQL for its value, which raises an error where something would be lost.
        """
        if self.found.format == "json":
            return self._exact_json(types)
        if self.found.format == "excel":
            return self._exact_cells(types)
        if self.found.format != "csv":
            return {}
        found: dict[str, tuple[str, str]] = {}
        for name, type_ in types.items():
            exact = (
                None if name in self.found.folders else exact_text(name, type_, self._guessed.get(name, ""), self.csv)
            )
            if exact is not None:
                found[name] = exact
        return found

    def _exact_json(self, types: dict[str, str]) -> dict[str, tuple[str, str]]:
        found: dict[str, tuple[str, str]] = {}
        with self._connection() as connection:
            for name, type_ in types.items():
                guess = self._guessed.get(name, "")
                if name in self.found.folders or type_ == guess == "DATE" or (type_ in WHOLE and guess in WHOLE):
                    continue
                wide = wider(connection.type(type_))
                if wide != str(connection.type(type_)):
                    found[name] = wide, lossless(name, type_, wide)
        return found

    def _exact_cells(self, types: dict[str, str]) -> dict[str, tuple[str, str]]:
        found: dict[str, tuple[str, str]] = {}
        with self._connection() as connection:
            for name, type_ in types.items():
                guess = self._guessed.get(name, "")
                if name in self._in_all_sheets("blanks"):
                    value: str | None = f"CAST(NULL AS {type_})"
                else:
                    value = exact_cell(name, type_, guess, wider(connection.type(type_)))
                if value is not None and name not in self.found.folders:
                    found[name] = guess, value
        return found

    def _guess(self, wanted: TableSchema | None) -> dict[str, str]:
        """Return the columns of the files with the types that DuckDB detects."""
        try:
            described = self._describe(wanted)
        except duckdb.Error:
            if not self._unify_line_ends():
                raise
            described = self._describe(wanted)
        if self.csv.fill_short_rows and self.found.format == "csv":
            self._check_width({fold(str(name)) for name, *_ in described})
        self._guessed = {str(name): str(type_) for name, type_, *_ in described}
        self._guessed |= dict.fromkeys(self._in_all_sheets("blanks"), "VARCHAR")
        self._guessed |= dict.fromkeys(self._in_all_sheets("durations"), "INTERVAL")
        return self._guessed

    def _describe(self, wanted: TableSchema | None) -> list[Any]:
        with self._connection() as connection:
            sql, values = self._query({}, None if wanted is None else wanted.names)
            return connection.execute(f"DESCRIBE {sql}", values).fetchall()

    def _in_all_sheets(self, kind: Literal["blanks", "durations"]) -> set[str]:
        """Return the columns that are blank or intervals in all sheets that have a value in them."""
        sheets = self._sheets.values()
        wanted = {name for sheet in sheets for name in getattr(sheet, kind)}
        others = {
            name for sheet in sheets for name in sheet.names if name not in (*getattr(sheet, kind), *sheet.blanks)
        }
        return {self._renamed.get(name, name) for name in wanted - others}

    def _check_width(self, names: set[str]) -> None:
        """Raise ``InputError`` for rows that are longer than their header: DuckDB would add columns."""
        known = {fold(name) for name in self.found.folders}
        for headers in self._dialects.values():
            known |= {fold(column.strip()) for header in headers.values() for column in header}
        fault = self._fault() if names - known else None
        if fault is not None:
            raise fault


def _other_width(name: str, count: int, wanted: int) -> InputError:
    return InputError(f"{name} has {count} columns and no header, and the table has {wanted}")


def _sniff(
    connection: duckdb.DuckDBPyConnection, path: str, dialect: Dialect, options: CsvOptions
) -> tuple[bool, dict[str, str]]:
    """Return whether a CSV file seems to have a header, and its columns with the types of the first rows."""
    arguments = dialect.arguments() | options.arguments() | {"sample_size": _SNIFFED_ROWS}
    given = "".join(f", {name} = ?" for name in arguments)
    pattern = re.sub(r"([*?\[])", r"[\1]", path)
    sniffed = first_row(
        connection, f"SELECT HasHeader, Columns FROM sniff_csv(?{given})", [pattern, *arguments.values()]
    )
    if sniffed is None:
        return False, {}
    return bool(sniffed[0]), {str(column["name"]): str(column["type"]) for column in sniffed[1]}


def _has(schema: TableSchema | None, name: str) -> bool:
    return schema is not None and schema.get(name) is not None


def _numbers(
    connection: duckdb.DuckDBPyConnection, rows: str, conditions: dict[str, tuple[str, str]]
) -> dict[str, tuple[int, list[str]]]:
    """Return the columns of text that are numbers but for missing values: the number of these, and some of them."""
    if not conditions:
        return {}
    facts = ", ".join(
        f"count(*) FILTER ({missing}), (list(DISTINCT {quote(name)}) FILTER ({missing}))[:{_SHOWN_VALUES:d}], "
        f"count(*) FILTER ({number}), count({quote(name)})"
        for name, (missing, number) in conditions.items()
    )
    row = iter(first_row(connection, f"SELECT {facts} FROM ({rows})") or ())
    found = zip(conditions, row, row, row, row, strict=False)
    return {
        name: (missing, sorted(values or ()))
        for name, missing, values, numbers, all_ in found
        if numbers and numbers + missing == all_
    }


def _pandas_metadata(connection: duckdb.DuckDBPyConnection, paths: list[str]) -> list[dict[bytes, bytes]]:
    """Return what pandas says in each Parquet file about the frame that it wrote."""
    connection.execute("SET parquet_metadata_cache = true")  # the rows are read next, and their footers not again
    key = METADATA
    query = "SELECT value FROM parquet_kv_metadata(?) WHERE decode(key) = ?"
    return [{key: value} for (value,) in connection.execute(query, [paths, key.decode()]).fetchall()]


def _closing(connection: duckdb.DuckDBPyConnection, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    with connection:
        yield from reader


def _batches(reader: pa.RecordBatchFileReader | pa.RecordBatchStreamReader) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.RecordBatchStreamReader):
        yield from reader
    else:
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))


def _fill_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with all columns in order; columns that its file lacks are NULL."""
    arrays = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
