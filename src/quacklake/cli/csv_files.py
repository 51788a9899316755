"""How a CSV file is written: its delimiter, quotes and header, and which of its lines is wrong.

DuckDB's own detection passes over lines that do not fit what it detects, a header among them. The dialect is therefore
fixed here before DuckDB reads the file, so that every line is a row or an error.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from quacklake.errors import InputError

__all__ = ["CsvOptions", "Dialect", "dialect_of", "faulty_line", "text_of"]

_DELIMITERS = (",", "\t", ";", "|")
_SAMPLE_BYTES = 1 << 18
_SAMPLE_RECORDS = 100
_GENERATED = re.compile(r"column\d+")
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """What the user says of a CSV file. None is found out from the file."""

    delimiter: str | None = None
    quote: str = '"'
    escape: str | None = None
    header: bool | None = None
    skip: int = 0

    def __post_init__(self) -> None:
        for name, value in (("delimiter", self.delimiter), ("quote", self.quote), ("escape", self.escape)):
            if value is not None and len(value) != 1:
                raise InputError(f"{value!r} is not one character", hint=f"--{name} takes one, such as ';' or '\\t'")
        if self.skip < 0:
            raise InputError("--skip-lines takes a number of lines, not a negative one")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file is written, with its first record. ``skip`` counts the lines before it."""

    delimiter: str
    quote: str
    escape: str
    header: bool | None
    skip: int
    first: tuple[str, ...]

    def reading(self) -> dict[str, Any]:
        """Return the arguments of DuckDB's ``read_csv`` that leave nothing for it to detect but types and a header."""
        fixed: dict[str, Any] = {"sep": self.delimiter, "quotechar": self.quote, "escapechar": self.escape}
        fixed |= {
            "skiprows": self.skip,
            "comment": "",
            "null_padding": False,
            "strict_mode": True,
            "hive_partitioning": False,
        }
        return fixed if self.header is None else fixed | {"header": self.header}

    def with_header(self, columns: Sequence[str], name: str) -> Dialect:
        """Return the dialect with the header that DuckDB found or missed, told by the names of the columns.

        Raises ``InputError`` when the header has a name twice, which DuckDB would change.
        """
        if self.header is False:
            return self
        made_up = all(_GENERATED.fullmatch(column) for column in columns) and tuple(columns) != self.first
        header = self.header or not made_up
        if header:
            _check_names(self.first, name, self.skip + 1)
        return replace(self, header=header)


def _check_names(header: Sequence[str], name: str, line: int) -> None:
    seen: set[str] = set()
    for column in (column.strip().casefold() for column in header):
        if column and column in seen:
            raise InputError(
                f"line {line} of {name} names the column {column!r} twice",
                hint="rename one of them, or pass --no-header if the line is no header",
            )
        seen.add(column)


def dialect_of(path: Path, name: str, options: CsvOptions) -> Dialect:
    """Return how a file is written, by its first lines. Raises ``InputError`` for one that is empty."""
    with text_of(path) as file:
        sample = file.read(_SAMPLE_BYTES)
    lines = sample.splitlines(keepends=True)
    skip = options.skip
    while skip < len(lines) and not lines[skip].strip():
        skip += 1
    if skip >= len(lines):
        raise InputError(f"{name} is empty: it has no header and no rows")
    escape = options.escape or options.quote
    delimiter = options.delimiter or _delimiter(path, lines[skip:], options.quote)
    dialect = Dialect(delimiter, options.quote, escape, options.header, skip, ())
    first = next((record for _, record in _records(iter(lines[skip:]), dialect)), [])
    return replace(dialect, first=tuple(first))


def _delimiter(path: Path, lines: Sequence[str], quote: str) -> str:
    """Return what divides most lines in the same way; a tab in a file that is called so, else rather a comma."""
    if ".tsv" in (suffix.lower() for suffix in path.suffixes):
        return "\t"

    def fit(delimiter: str) -> tuple[bool, bool, int]:
        reader = csv.reader(lines, delimiter=delimiter, quotechar=quote)
        widths = [len(record) for record in itertools.islice(reader, _SAMPLE_RECORDS) if record]
        return widths[0] > 1, len(set(widths)) == 1, widths[0]

    best = max(_DELIMITERS, key=fit)
    return best if fit(best)[0] else _DELIMITERS[0]


def faulty_line(path: Path, dialect: Dialect) -> str | None:
    """Return what is wrong with the first line that does not fit, None when every line does."""
    with text_of(path) as file:
        lines = iter(file)
        for _ in range(dialect.skip):
            next(lines, None)
        width, line = len(dialect.first), dialect.skip + 1
        try:
            for line, record in _records(lines, dialect):
                if record and len(record) != width:
                    fields = f"{len(record)} field{'' if len(record) == 1 else 's'}"
                    return f"line {line} has {fields}, and line {dialect.skip + 1} has {width}"
        except csv.Error as error:
            return f"after line {line}: {error}, as of a quotation that does not end" if line else str(error)
        except UnicodeDecodeError as error:
            return f"after line {line} it is not UTF-8 text: {error.reason}"
    return None


def _records(lines: Iterator[str], dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yield each record with the number of the line that it begins on."""
    doubled = dialect.escape == dialect.quote
    reader = csv.reader(
        lines,
        delimiter=dialect.delimiter,
        quotechar=dialect.quote,
        doublequote=doubled,
        escapechar=None if doubled else dialect.escape,
        strict=True,
    )
    begin = dialect.skip + 1
    for record in reader:
        yield begin, record
        begin = dialect.skip + 1 + reader.line_num


@contextmanager
def text_of(path: Path) -> Iterator[io.TextIOWrapper]:
    """Open a text file, compressed or not."""
    compression = _COMPRESSIONS.get(path.suffix.lower())
    raw = pa.input_stream(str(path), compression=compression)
    with raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as file:
        yield file
