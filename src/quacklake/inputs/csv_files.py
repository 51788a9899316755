"""Detect the dialect of a CSV file, its delimiter, quotes and header, and find faulty lines.

DuckDB's own detection skips lines that do not fit its result, even a header. So this module fixes the dialect before
DuckDB reads the file, and every line is a row or an error.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quacklake.errors import InputError
from quacklake.inputs.texts import OpenText, check_encoding, unify_line_ends

_DELIMITERS = (",", "\t", ";", "|")
_SAMPLE_BYTES = 1 << 18
_SAMPLE_RECORDS = 100
_HINT = "correct it, or say how it is written (--delimiter, --quote, --escape, --skip-lines)"
_ONE_COLUMN = "a file of one column is read with a --delimiter that it does not have"
_TOO_LONG = "field larger than field limit"

_SEPARATOR = re.compile(r'"?sep=(?P<delimiter>[^"\r\n])"?\s*', re.IGNORECASE)
"""The first line by which programs tell Excel the delimiter."""


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """The user's options for a CSV file; None means to detect the value. JSON files have an encoding, too.

    Workbooks have a ``sheet``, by its name or its number from 1 on, and heed ``header``, ``skip`` and ``nulls``.

    ``fill_short_rows`` gives the fields that a row lacks at its end the value NULL. ``decimal`` and ``thousands`` are
    the characters in numbers, ``date_format`` and ``timestamp_format`` are written as in ``%d.%m.%Y %H:%M``, and
    ``nulls`` are texts that mean NULL.

    >>> CsvOptions(delimiter=";", decimal=",", nulls=["-"]).delimiter
    ';'
    """

    delimiter: str | None = None
    quote: str = '"'
    escape: str | None = None
    header: bool | None = None
    skip: int = 0
    encoding: str | None = None
    fill_short_rows: bool = False
    decimal: str | None = None
    thousands: str | None = None
    date_format: str | None = None
    timestamp_format: str | None = None
    nulls: Sequence[str] = ()
    sheet: str | int | None = None

    def __post_init__(self) -> None:
        if self.encoding is not None:
            check_encoding(self.encoding)
        for name, value in (
            ("delimiter", self.delimiter),
            ("quote", self.quote),
            ("escape", self.escape),
            ("decimal separator", self.decimal),
            ("thousands separator", self.thousands),
        ):
            if value is not None and len(value) != 1:
                raise InputError(f"{value!r} is not one character", hint=f"the {name} is one, such as ';' or '\\t'")
        if self.skip < 0:
            raise InputError("the number of lines to skip is negative")
        point = self.decimal or "."
        if point not in ".," or self.thousands == point or (self.thousands or "'") not in ".,' _\u00a0\u202f\u2019":
            raise InputError(
                f"numbers cannot be written with {point!r} and {self.thousands!r}",
                hint='such as decimal="," and thousands=".": the decimal separator is one of the two, too',
            )
        if isinstance(self.nulls, str):
            raise InputError(f"{self.nulls!r} is a text, not texts that mean NULL", hint=f"nulls=[{self.nulls!r}]")

    @property
    def has_values(self) -> bool:
        """True if the options say how values are written."""
        return bool(self.decimal or self.thousands or self.date_format or self.timestamp_format or self.nulls)

    def arguments(self) -> dict[str, Any]:
        """Return arguments for DuckDB's ``read_csv`` that say how values are written."""
        found = {
            "decimal_separator": self.decimal,
            "thousands": self.thousands,
            "dateformat": self.date_format,
            "timestampformat": self.timestamp_format,
            "nullstr": ["", *self.nulls] if self.nulls else None,
        }
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The dialect of a file. ``skip`` counts the lines before its first record."""

    delimiter: str
    quote: str
    escape: str
    skip: int
    header: bool | None = None
    fill_short_rows: bool = False

    def arguments(self) -> dict[str, Any]:
        """Return arguments for DuckDB's ``read_csv`` that leave only the types to detect."""
        fixed = {"delim": self.delimiter, "quote": self.quote, "escape": self.escape, "skip": self.skip}
        found = fixed | {"comment": "", "null_padding": self.fill_short_rows, "strict_mode": True}
        if self.fill_short_rows:
            found["parallel"] = False  # DuckDB's threads do not fill rows that have quoted line breaks
        return found if self.header is None else found | {"header": self.header}


def dialect_of(open_text: OpenText, name: str, options: CsvOptions) -> tuple[Dialect, tuple[str, ...]]:
    """Return the dialect of a file and its first record, which may be a header. Raise ``InputError`` if empty."""
    with open_text() as file:
        sample = file.read(_SAMPLE_BYTES)
    lines = _lines(sample)
    skip, named = options.skip, _SEPARATOR.fullmatch(lines[0]) if lines else None
    if named is not None:
        skip = max(skip, 1)
    while skip < len(lines) and not lines[skip].strip():
        skip += 1
    if skip >= len(lines):
        raise InputError(f"{name} is empty", hint="a file needs at least the names of its columns")
    delimiter = options.delimiter or (named["delimiter"] if named else _delimiter(name, lines[skip:], options.quote))
    escape = options.escape or options.quote
    dialect = Dialect(delimiter, options.quote, escape, skip, options.header, options.fill_short_rows)
    return dialect, tuple(_first(dialect, lines[skip:]))


def _lines(text: str) -> list[str]:
    """Return the lines of a text with their ends: those of CSV files alone, not each that Unicode knows."""
    return list(io.StringIO(text, newline=""))


def _first(dialect: Dialect, lines: Sequence[str]) -> list[str]:
    try:
        return next((record for _, record in _records(iter(lines), dialect)), [])
    except csv.Error:
        return []  # DuckDB will report the problem


def has_quotes_above(open_text: OpenText, dialect: Dialect) -> bool:
    """Return whether a line before the first record has a quote: DuckDB would skip to the line where it ends."""
    if not dialect.skip:
        return False
    with open_text() as file:
        return any(dialect.quote in line for line in itertools.islice(file, dialect.skip))


def rewrite(open_text: OpenText, dialect: Dialect, target: Path) -> bool:
    """Write a file as DuckDB reads it, and return whether its lines end in several ways.

    Lines before the first record become blank, so that the others keep their numbers.
    """
    return unify_line_ends(open_text, dialect.delimiter, dialect.quote, dialect.escape, target, skip=dialect.skip)


def check_header(header: Sequence[str], name: str, dialect: Dialect) -> None:
    """Raise ``InputError`` when a header repeats a name, which DuckDB would change."""
    seen: set[str] = set()
    for column in (column.strip().casefold() for column in header):
        if column and column in seen:
            raise InputError(
                f"line {dialect.skip + 1} of {name} names the column {column!r} twice",
                hint="rename one of them, or say that the file has no header",
            )
        seen.add(column)


def check_filled(open_text: OpenText, dialect: Dialect) -> None:
    """Raise ``InputError`` when a column has no value in the first rows of a file."""
    with open_text() as file:
        lines = _lines(file.read(_SAMPLE_BYTES))[dialect.skip :]
    try:
        records = [record for _, record in itertools.islice(_records(iter(lines), dialect), 1, 1 + _SAMPLE_RECORDS)]
    except csv.Error as error:
        raise InputError(f"the first rows cannot be read: {error}") from None
    if not records or not all(map(any, itertools.zip_longest(*records))):
        raise InputError("a column is empty in the first rows")


def _delimiter(name: str, lines: Sequence[str], quote: str) -> str:
    """Return the delimiter that splits most lines alike; a tab in a ``.tsv`` file, otherwise preferably a comma.

    Where none splits the first line, that is a title if one splits most others, or there is one column.
    """
    if ".tsv" in name.lower():
        return "\t"

    def fit(delimiter: str) -> tuple[bool, bool, int]:
        return widths[delimiter][0] > 1, len(set(widths[delimiter])) == 1, widths[delimiter][0]

    def fit_below(delimiter: str) -> bool:
        others = widths[delimiter][1:]
        alike = others.count(others[0]) if others else 0
        if alike < 2 or others[0] < 2:
            return False
        return alike == len(others) or (others[0] > 2 and (others[0] == max(others) or 2 * alike > len(others)))

    widths = {delimiter: _widths(lines, delimiter, quote) for delimiter in _DELIMITERS}
    best = max(_DELIMITERS, key=fit)
    return best if fit(best)[0] else next(filter(fit_below, _DELIMITERS), _DELIMITERS[0])


def _widths(lines: Sequence[str], delimiter: str, quote: str) -> list[int]:
    """Return the numbers of fields of the first records."""
    widths: list[int] = []
    with suppress(csv.Error):  # a field of many characters
        for record in itertools.islice(csv.reader(lines, delimiter=delimiter, quotechar=quote), _SAMPLE_RECORDS):
            widths += [len(record)] if record else []
    return widths or [1]


def faulty_line(open_text: OpenText, dialect: Dialect) -> tuple[str, str] | None:
    """Return the problem with the first line that does not fit and a hint, or None if every line fits."""
    with open_text() as file:
        lines = iter(file)
        for _ in range(dialect.skip):
            next(lines, None)
        width, line = 0, dialect.skip + 1
        try:
            for line, record in _records(lines, dialect):
                width = width or len(record)
                short = len(record) < width
                if record and (len(record) > width or (short and not dialect.fill_short_rows)):
                    fields = f"{len(record)} field{'' if len(record) == 1 else 's'}"
                    fault = f"line {line} has {fields}, and line {dialect.skip + 1} has {width}"
                    if short:
                        return fault, f"{_HINT}; --fill-short-rows fills what is missing with NULL"
                    return fault, _HINT if width > 1 else f"--skip-lines {line - 1} skips a title; {_ONE_COLUMN}"
        except csv.Error as error:
            if _TOO_LONG in str(error):
                return None  # DuckDB has a limit of its own
            return f"after line {line}: {error}, as of a quotation that does not end", _HINT
    return None


def line_of(open_text: OpenText, dialect: Dialect, row: int) -> int | None:
    """Return the line on which a row of a file begins; rows are counted from 1, without the header."""
    with open_text() as file:
        lines = iter(file)
        for _ in range(dialect.skip):
            next(lines, None)
        left = row + bool(dialect.header)
        try:
            for line, record in _records(lines, dialect):
                left -= bool(record)
                if not left:
                    return line
        except (csv.Error, UnicodeDecodeError):
            return None
    return None


def _records(lines: Iterator[str], dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yield each record with its first line number."""
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


_MAX_ARRAY = 1 << 26
"""The most characters of an array to read at once when searching for a fault."""


def faulty_value(open_text: OpenText) -> tuple[str, str] | None:
    """Return the problem with the first value that is not an object and a hint, or None if there is none."""
    fault = _faulty_value(open_text)
    return None if fault is None else (fault, "correct it")


def _faulty_value(open_text: OpenText) -> str | None:
    with open_text() as file:
        begin = file.read(_SAMPLE_BYTES)
    if begin.lstrip().startswith("["):
        return _in_array(open_text)
    if not any(_in_line(0, line) is None for line in begin.splitlines()[:2]):
        return None  # objects that span several lines
    with open_text() as file:
        for number, line in enumerate(file, 1):
            fault = _in_line(number, line) if line.strip() else None
            if fault is not None:
                return fault
    return None


def _in_line(number: int, line: str) -> str | None:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        return f"line {number}, column {error.colno}: {error.msg}"
    return None if isinstance(value, dict) else f"line {number} is {_kind(value)}, not an object"


def _in_array(open_text: OpenText) -> str | None:
    with open_text() as file:
        text = file.read(_MAX_ARRAY + 1)
    if len(text) > _MAX_ARRAY:
        return None
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        return f"line {error.lineno}, column {error.colno}: {error.msg}"
    for number, value in enumerate(values, 1):
        if not isinstance(value, dict):
            return f"value {number} of the array is {_kind(value)}, not an object"
    return None


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "an array"
    return "a text" if isinstance(value, str) else json.dumps(value)
