"""Files that can be appended: Parquet, CSV and JSON, read as streams."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from quacklake.cli.csv_files import CsvOptions, Dialect, dialect_of, faulty_line
from quacklake.cli.inputs import STANDARD_INPUT
from quacklake.cli.json_files import faulty_value
from quacklake.errors import InputError, nearest
from quacklake.format.schema import TableSchema

__all__ = ["FORMATS", "FileSource", "check_formats", "open_source", "opened"]

FORMATS = ("parquet", "csv", "json")
_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_COMPRESSIONS = (".gz", ".zst")
_BATCH_ROWS = 65_536


def check_formats(names: Iterable[str], format: str | None = None) -> None:
    """Raise ``InputError`` for the first file that is not there or whose name does not say what is in it."""
    for name in names:
        if name != STANDARD_INPUT:
            _format_of(Path(name), format)


@contextmanager
def opened(name: str, format: str | None = None, csv: CsvOptions | None = None) -> Iterator[FileSource]:
    """Open the rows of a file, or with ``-`` of standard input."""
    if name != STANDARD_INPUT:
        with open_source(Path(name), format, csv=csv) as source:
            yield source
        return
    # both what guesses types and what reads the rows begin at the beginning
    with tempfile.NamedTemporaryFile(prefix="quacklake-") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        path = Path(file.name)
        with open_source(path, format or _guess(path), name="standard input", csv=csv) as source:
            yield source


def _guess(path: Path) -> str:
    """What is in a file, by how it begins."""
    with path.open("rb") as file:
        begin = file.read(1000).lstrip()
    return "parquet" if begin.startswith(b"PAR1") else "json" if begin[:1] in (b"[", b"{") else "csv"


def open_source(
    path: Path, format: str | None = None, *, name: str | None = None, csv: CsvOptions | None = None
) -> FileSource:
    """Open the rows of a file; its name says what it is unless ``format`` does. Raises ``InputError``."""
    found = _format_of(path, format)
    if found == "parquet":
        return _ParquetSource(path, name or str(path))
    if found == "csv":
        return _CsvSource(path, name or str(path), csv or CsvOptions())
    return _JsonSource(path, name or str(path))


def _format_of(path: Path, format: str | None) -> str:
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a file", hint="name one of its files")
    if not path.exists():
        raise InputError(f"there is no file {path}", hint=_near(path))
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in _COMPRESSIONS]
    found = format or _SUFFIXES.get(suffixes[-1] if suffixes else "")
    if found is None:
        hint = f"pass --format {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise InputError(f"the name of {path} does not say what is in it", hint=hint)
    return found


def _near(path: Path) -> str:
    """What to do about a path that is not there."""
    if not path.parent.is_dir():
        return f"there is no folder {path.parent} either"
    return nearest(path.name, [each.name for each in path.parent.iterdir()]) or "check the path"


class FileSource:
    """Rows of a file. As a context manager it closes the file.

    What fails while the rows stream through other libraries reaches the caller as the ``InputError`` it was here.
    """

    total: int | None = None
    """The number of rows, where the file says it."""

    def __init__(self, path: Path, name: str, format: str) -> None:
        self.path = path
        self.name = name
        self.format = format
        self._failure: InputError | None = None

    def read(self, wanted: TableSchema | None = None) -> pa.RecordBatchReader:
        """The rows as a stream. A text file is read with the types that ``wanted`` has for its columns."""
        try:
            schema, batches = self._open(wanted)
        except _FAILURES as error:
            raise self._unreadable(error) from error
        return pa.RecordBatchReader.from_batches(schema, self._guarded(batches))

    def _open(self, wanted: TableSchema | None) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
        raise NotImplementedError

    def _guarded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except _FAILURES as error:
            self._failure = self._unreadable(error)
            raise self._failure from error

    def _unreadable(self, error: Exception) -> InputError:
        if isinstance(error, UnicodeDecodeError):
            hint = "write it as UTF-8, as in: iconv -f latin1 -t utf-8 OLD > NEW"
            return InputError(f"cannot read {self.name} as {self.format}: it is not UTF-8 text", hint=hint)
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        # where it is in the file comes first, what is wrong there some lines later
        detail = next((f": {line}" for line in lines[1:] if line.startswith("Error ")), "")
        return InputError(f"cannot read {self.name} as {self.format}: {lines[0]}{detail}")

    def close(self) -> None:
        """Close the file."""

    def __enter__(self) -> FileSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self._failure is not None and isinstance(error, Exception):
            raise self._failure from None


class _ParquetSource(FileSource):
    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, name, "parquet")
        try:
            self._file = pq.ParquetFile(path)
        except _FAILURES as error:
            raise self._unreadable(error) from error
        self.total = self._file.metadata.num_rows

    def _open(self, wanted: TableSchema | None) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
        return self._file.schema_arrow.remove_metadata(), self._file.iter_batches(_BATCH_ROWS)

    def close(self) -> None:
        self._file.close()


class _TextSource(FileSource):
    """Text that DuckDB reads."""

    def __init__(self, path: Path, name: str, format: str) -> None:
        super().__init__(path, name, format)
        self._connection = duckdb.connect(config={"autoinstall_known_extensions": False})
        # the name of one file, not a pattern
        self._pattern = re.sub(r"([*?\[])", r"[\1]", str(path))

    def _stream(self, relation: duckdb.DuckDBPyRelation) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
        reader = relation.to_arrow_reader(_BATCH_ROWS)
        return reader.schema, reader

    def close(self) -> None:
        self._connection.close()


class _CsvSource(_TextSource):
    """CSV in a dialect that is settled before DuckDB reads it, so that it passes over no line."""

    def __init__(self, path: Path, name: str, options: CsvOptions) -> None:
        super().__init__(path, name, "csv")
        self._options = options
        self._dialect: Dialect | None = None

    def _open(self, wanted: TableSchema | None) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
        dialect = self._dialect = dialect_of(self.path, self.name, self._options)
        # every row has a say in the types of a new table
        relation = self._relation(dialect, sample_size=-1 if wanted is None else None)
        dialect = self._dialect = dialect.with_header(relation.columns, self.name)
        if wanted is None:
            return self._stream(relation)
        names = list(relation.columns) if dialect.header else self._names(wanted, len(relation.columns))
        guessed = dict(zip(names, map(str, relation.types), strict=True))
        more = {} if dialect.header else {"names": names}
        return self._stream(self._relation(dialect, dtype=_types(guessed, wanted), **more))

    def _relation(self, dialect: Dialect, **more: Any) -> duckdb.DuckDBPyRelation:
        given = {name: value for name, value in more.items() if value is not None}
        return self._connection.read_csv(self._pattern, **dialect.reading(), **given)

    def _names(self, wanted: TableSchema, count: int) -> list[str]:
        """The names of the table's columns, for a file without its own."""
        if self._options.header is None:
            raise InputError(
                f"the first line of {self.name} seems to be no header",
                hint="pass --no-header to take its columns in the order of the table's, or --header",
            )
        if count != len(wanted.names):
            raise InputError(f"{self.name} has {count} columns and no header, and the table has {len(wanted.names)}")
        return list(wanted.names)

    def _unreadable(self, error: Exception) -> InputError:
        fault = None if self._dialect is None else faulty_line(self.path, self._dialect)
        if fault is None:
            return super()._unreadable(error)
        return InputError(
            f"cannot read {self.name} as csv: {fault}",
            hint="correct the line; --delimiter, --quote and --skip-lines say how the file is written",
        )


class _JsonSource(_TextSource):
    """A JSON array of objects, or objects one after the other."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, name, "json")

    def _open(self, wanted: TableSchema | None) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
        if self.path.stat().st_size == 0:
            raise InputError(f"{self.name} is empty: it has no rows")
        # all objects have a say in the columns: with fewer, DuckDB leaves out keys that come later
        relation = self._connection.read_json(self._pattern, records="true", sample_size=-1, hive_partitioning=False)
        if wanted is None:
            return self._stream(relation)
        guessed = dict(zip(relation.columns, map(str, relation.types), strict=True))
        columns = _types(guessed, wanted)
        relation = self._connection.read_json(self._pattern, columns=columns, records="true", hive_partitioning=False)
        return self._stream(relation)

    def _unreadable(self, error: Exception) -> InputError:
        try:
            fault = faulty_value(self.path)
        except UnicodeDecodeError as undecodable:
            error, fault = undecodable, None
        if fault is None:
            return super()._unreadable(error)
        return InputError(f"cannot read {self.name} as json: {fault}")


def _types(guessed: dict[str, str], wanted: TableSchema) -> dict[str, str]:
    """The type of each column of a file: the table's, so that 007 stays a text there; a guess where it has none."""
    known: dict[str, Any] = {name: wanted.get(name) for name in guessed}
    return {name: guess if known[name] is None else known[name].duckdb_type() for name, guess in guessed.items()}


_FAILURES = (duckdb.Error, pa.ArrowException, OSError, UnicodeDecodeError)
