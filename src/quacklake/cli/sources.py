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

from quacklake.duckdb_versions import connect
from quacklake.errors import InputError
from quacklake.format.schema import TableSchema

__all__ = ["FORMATS", "FileSource", "open_source", "opened"]

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


@contextmanager
def opened(name: str, format: str | None = None) -> Iterator[FileSource]:
    """The rows of a file, or with ``-`` of standard input."""
    if name != "-":
        with open_source(Path(name), format) as source:
            yield source
        return
    # both what guesses types and what reads the rows begin at the beginning
    with tempfile.NamedTemporaryFile(prefix="quacklake-") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        path = Path(file.name)
        with open_source(path, format or _guess(path), name="standard input") as source:
            yield source


def _guess(path: Path) -> str:
    """What is in a file, by how it begins."""
    with path.open("rb") as file:
        begin = file.read(1000).lstrip()
    return "parquet" if begin.startswith(b"PAR1") else "json" if begin[:1] in (b"[", b"{") else "csv"


def open_source(path: Path, format: str | None = None, *, name: str | None = None) -> FileSource:
    """The rows of a file; its name says what it is unless ``format`` does. Raises ``InputError``."""
    if not path.is_file():
        raise InputError(f"there is no file {path}", hint="check the path" if not path.exists() else "name one file")
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in _COMPRESSIONS]
    found = format or _SUFFIXES.get(suffixes[-1] if suffixes else "")
    if found is None:
        hint = f"pass --format {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise InputError(f"the name of {path} does not say what is in it", hint=hint)
    if found == "parquet":
        return _ParquetSource(path, name or str(path))
    return _TextSource(path, name or str(path), found)


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
    """CSV and JSON, as DuckDB reads them."""

    def __init__(self, path: Path, name: str, format: str) -> None:
        super().__init__(path, name, format)
        self._connection = connect(config={"autoinstall_known_extensions": False})

    def _open(self, wanted: TableSchema | None) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
        # the name of one file, not a pattern
        name = re.sub(r"([*?\[])", r"[\1]", str(self.path))
        relation = self._relation(name, {})
        if wanted is not None:
            guessed = dict(zip(relation.columns, map(str, relation.types), strict=True))
            relation = self._relation(name, _types(guessed, wanted))
        reader = relation.to_arrow_reader(_BATCH_ROWS)
        return reader.schema, reader

    def _relation(self, name: str, types: dict[str, str]) -> duckdb.DuckDBPyRelation:
        if self.format == "csv":
            return self._connection.read_csv(name, dtype=types or None)
        return self._connection.read_json(name, columns=types or None)

    def close(self) -> None:
        self._connection.close()


def _types(guessed: dict[str, str], wanted: TableSchema) -> dict[str, str]:
    """The type of each column of a file: the table's, so that 007 stays a text there; a guess where it has none."""
    known: dict[str, Any] = {name: wanted.get(name) for name in guessed}
    return {name: guess if known[name] is None else known[name].duckdb_type() for name, guess in guessed.items()}


_FAILURES = (duckdb.Error, pa.ArrowException, OSError)
