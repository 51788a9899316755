"""Several files as one stream of rows, or as few."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.cli.csv_files import CsvOptions
from quacklake.cli.inputs import STANDARD_INPUT
from quacklake.cli.sources import FileSource, check_formats, opened
from quacklake.errors import InputError, QuacklakeError
from quacklake.format.mappings import hive_values
from quacklake.format.schema import TableSchema, from_arrow

__all__ = ["Files", "folder_types"]


class Files(AbstractContextManager["Files"]):
    """The rows of files, one after the other; one file is open at a time.

    Columns that a file lacks and that are in the names of its folders, such as ``year=2024/``, come from there.
    """

    def __init__(self, names: Sequence[str], format: str | None = None, csv: CsvOptions | None = None) -> None:
        check_formats(names, format)
        self.names = names
        self.current = names[0]
        """The file whose rows are being read."""
        self._format = format
        self._csv = csv
        self._folders = folder_types(names)
        self._left = list(names)
        self._stack = ExitStack()
        self._next: pa.RecordBatchReader | None = None
        self._failure: InputError | None = None

    @property
    def total(self) -> int | None:
        """The number of rows, where the files say it cheaply."""
        if len(self.names) > 1 or self.current == STANDARD_INPUT:
            return None
        with opened(self.current, self._format, self._csv) as source:
            return source.total

    def streams(self, wanted: Callable[[], TableSchema | None]) -> Iterator[pa.RecordBatchReader]:
        """Yield a stream for each run of files with the same columns and types.

        ``wanted`` gives the columns of the table as they are then. A file that is read before there is a table gives
        its types to those that follow.
        """
        while self._next is not None or self._left:
            known = wanted()
            first = self._next or self._open(known)
            self._next = None
            yield pa.RecordBatchReader.from_batches(first.schema, self._chained(first, known))

    def _chained(self, reader: pa.RecordBatchReader, known: TableSchema | None) -> Iterator[pa.RecordBatch]:
        schema = reader.schema
        while True:
            yield from reader
            if not self._left:
                return
            reader = self._open(known or from_arrow(schema))
            if reader.schema != schema:
                self._next = reader
                return

    def _open(self, wanted: TableSchema | None) -> pa.RecordBatchReader:
        self._stack.close()
        self.current = self._left.pop(0)
        try:
            source: FileSource = self._stack.enter_context(opened(self.current, self._format, self._csv))
            reader = source.read(wanted)
            return _with_folders(reader, self.current, self._folders, wanted)
        except InputError as error:
            self._failure = error
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # the source of the current file raises the error that it knows better than the libraries between
        self._stack.__exit__(kind, error, trace)
        if self._failure is not None and isinstance(error, Exception):
            raise self._failure from None
        if isinstance(error, QuacklakeError) and len(self.names) > 1 and self.current not in error.message:
            error.message = f"{self.current}: {error.message}"
            error.args = (error.message,)


def folder_types(names: Sequence[str]) -> dict[str, pa.DataType]:
    """Return the columns that the names of folders hold, with the types of a new table: whole numbers or texts."""
    values: dict[str, list[str]] = {}
    for name in names:
        for column, value in hive_values(str(Path(name).parent / "file")).items():
            values.setdefault(column, []).extend([] if value is None else [value])
    return {
        column: pa.int64() if texts and all(map(_is_whole, texts)) else pa.string() for column, texts in values.items()
    }


def _is_whole(text: str) -> bool:
    """Whether a text is a whole number and nothing is lost when it becomes one.

    >>> _is_whole("2024"), _is_whole("007"), _is_whole("a")
    (True, False, False)
    """
    return text.isascii() and text.isdigit() and str(int(text)) == text and len(text) < 19


def _with_folders(
    reader: pa.RecordBatchReader, name: str, types: Mapping[str, pa.DataType], wanted: TableSchema | None
) -> pa.RecordBatchReader:
    known = {column.casefold() for column in reader.schema.names}
    values = hive_values(str(Path(name).parent / "file"))
    added = {column: value for column, value in values.items() if column.casefold() not in known}
    if not added:
        return reader
    constants = {}
    for column, value in added.items():
        target = None if wanted is None else wanted.get(column)
        type_ = types[column] if target is None else target.arrow_type()
        try:
            constants[column] = pc.cast(pa.scalar(value, pa.string()), type_)
        except pa.ArrowException as error:
            raise InputError(f"the folder {column}={value} of {name} is not a value of type {type_}") from error
    schema = reader.schema
    for column, constant in constants.items():
        schema = schema.append(pa.field(column, constant.type))

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            columns = [*batch.columns, *(pa.repeat(constant, batch.num_rows) for constant in constants.values())]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())
