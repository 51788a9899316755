"""Read one sheet of a workbook and write it as Parquet: the program of a process of its own.

A cell in the last row and column makes the reader of workbooks ask for hundreds of gigabytes, and where it does not get
them it ends the process. So it runs in one that has a limit and nothing to lose. The sheet is in memory as a whole, at
most 1,048,576 rows; its cells become Arrow columns in batches.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from quacklake.errors import InputError, LimitError, QuacklakeError

_BATCH_CELLS = 1 << 19
_EXACT = 1 << 53
"""Numbers of workbooks are doubles: whole ones below it are exact."""
_SHOWN = 60
NO_MEMORY = 3
"""The exit code of a process that had too little memory, unless it was killed."""
_DURATION, _NOTHING = "INTERVAL", "NULL"
_TYPES: dict[str, pa.DataType] = {
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "TIME": pa.time64("us"),
    _DURATION: pa.string(),  # Parquet has none that Arrow writes
    _NOTHING: pa.null(),
}


@dataclass(frozen=True, slots=True)
class SheetRequest:
    """A sheet to read: its workbook, what errors call that, the file to write, and the limits of the process.

    ``sheet`` is a name, or a number from 1 on; without one, the workbook has a single sheet with rows. ``skip`` rows
    are above the header. Texts in ``nulls`` mean NULL. ``memory`` is None where a process cannot be limited.
    """

    path: str
    name: str
    target: str
    sheet: str | int | None
    header: bool | None
    skip: int
    nulls: Sequence[str]
    max_bytes: int
    memory: int


@dataclass(frozen=True, slots=True)
class SheetFacts:
    """A sheet that was read, its columns, and the number of rows above the first that holds values.

    ``empty`` are the rows that were left out below it, each a first row and a count. ``blanks`` are columns without
    values, ``durations`` those of intervals, which are written as texts, and ``mixed`` those of texts and something
    else, with the first text and its row.
    """

    sheet: str
    above: int
    names: list[str]
    empty: list[tuple[int, int]] = field(default_factory=list)
    blanks: list[str] = field(default_factory=list)
    durations: list[str] = field(default_factory=list)
    mixed: dict[str, tuple[str, int]] = field(default_factory=dict)

    def row_of(self, number: int) -> int:
        """Return the row of the sheet that holds a row of values; both are counted from 1."""
        row = self.above + number
        for first, count in self.empty:
            if first > row:
                break
            row += count
        return row


def read_sheet(request: SheetRequest) -> SheetFacts:
    """Write a sheet as Parquet. Raise ``InputError``, and ``LimitError`` for what is too large unpacked."""
    import python_calamine

    _check_size(request)
    unreadable = (python_calamine.CalamineError, OSError, ValueError, OverflowError)
    try:
        with Path(request.path).open("rb") as file, python_calamine.CalamineWorkbook.from_filelike(file) as workbook:
            sheet = _choose(workbook, request)
            return _Sheet(sheet, request).write()
    except python_calamine.PasswordError:
        raise InputError(
            f"cannot read {request.name} as excel: it is protected by a password", hint="save it without one"
        ) from None
    except QuacklakeError:
        raise
    except BaseException as error:
        # the reader, which is not written in Python, has an error of its own that is no Exception
        if not isinstance(error, unreadable) and type(error).__name__ != "PanicException":
            raise
        detail = " ".join(str(error).split())[:200]
        raise InputError(f"cannot read {request.name} as excel: {detail}", hint=_hint(request.path)) from None


def _check_size(request: SheetRequest) -> None:
    """Raise ``LimitError`` for a workbook that is too large when it is unpacked, by the directory of its archive."""
    if not zipfile.is_zipfile(request.path):
        return
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(request.path) as archive:
        size = sum(member.file_size for member in archive.infolist())
        if size > request.max_bytes:
            raise LimitError(
                f"{request.name} has {size:,} bytes when it is unpacked, and at most {request.max_bytes:,} are read",
                hint="the setting excel_max_bytes is the limit",
            )


def _hint(path: str) -> str:
    with Path(path).open("rb") as file:
        begin = file.read(1000)
    if begin.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<"):
        return "it is HTML or XML: open it in a spreadsheet program, and save it as .xlsx"
    if begin and b"\0" not in begin and not begin.startswith(b"PK"):
        return "it seems to be text: pass --format csv"
    return "it is damaged, or not a workbook: open it in a spreadsheet program, and save it as .xlsx"


def _choose(workbook: Any, request: SheetRequest) -> Any:
    """Return the sheet that was asked for, or the only visible one with rows. Raise ``InputError``."""
    from python_calamine import SheetTypeEnum, SheetVisibleEnum

    listed = [each for each in workbook.sheets_metadata if each.typ == SheetTypeEnum.WorkSheet]
    names = [each.name for each in listed]
    shown = ", ".join(names)
    wanted = request.sheet
    if wanted is None:
        visible = [each.name for each in listed if each.visible == SheetVisibleEnum.Visible]
        filled = [name for name in visible if workbook.get_sheet_by_name(name).end is not None]
        if not filled:
            raise InputError(f"{request.name} has no rows", hint=f"its sheets are {shown}" if shown else None)
        if len(filled) > 1:
            raise InputError(
                f"{request.name} has several sheets with rows: {', '.join(filled)}",
                hint=f"name one, as in --sheet {json.dumps(filled[0], ensure_ascii=False)}",
            )
        return workbook.get_sheet_by_name(filled[0])
    if isinstance(wanted, str) and wanted not in names:
        folded = [name for name in names if name.casefold() == wanted.casefold()]
        wanted = folded[0] if folded else int(wanted) if wanted.isdecimal() and wanted.isascii() else wanted
    if isinstance(wanted, int):
        if not 1 <= wanted <= len(names):
            raise InputError(f"{request.name} has {len(names)} sheets, and none of number {wanted}", hint=shown)
        wanted = names[wanted - 1]
    if wanted not in names:
        raise InputError(f"{request.name} has no sheet {wanted!r}", hint=f"its sheets are {shown}")
    sheet = workbook.get_sheet_by_name(wanted)
    if sheet.end is None:
        raise InputError(f"the sheet {wanted!r} of {request.name} has no rows", hint=f"its sheets are {shown}")
    return sheet


# -- cells to columns --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Column:
    """A column: its place in the sheet, its name, and the kinds of values in it."""

    place: int
    name: str
    kinds: set[type] = field(default_factory=set)
    whole: bool = True
    text: tuple[str, int] | None = None
    """The first text, and its row."""

    def look(self, values: Sequence[Any], row: int) -> None:
        """Take note of values, the first of which is in ``row``."""
        kinds = set(map(type, values)) - {type(None)}
        self.kinds |= kinds
        if self.whole and float in kinds:
            numbers = (value for value in values if type(value) is float)
            self.whole = all(value.is_integer() and abs(value) < _EXACT for value in numbers)
        if self.text is None and str in kinds:
            place = next(place for place, value in enumerate(values) if type(value) is str)
            self.text = values[place][:_SHOWN], row + place

    @property
    def type(self) -> str:
        """The type that holds all of the values as they are, else text."""
        if not self.kinds:
            return _NOTHING
        if self.kinds <= {int, float}:
            return "BIGINT" if self.whole else "DOUBLE"
        if self.kinds <= {dt.date, dt.datetime}:  # a time at midnight is read as a day
            return "TIMESTAMP" if dt.datetime in self.kinds else "DATE"
        (kind, *others) = self.kinds
        alone = {bool: "BOOLEAN", dt.time: "TIME", dt.timedelta: _DURATION}
        return "VARCHAR" if others else alone.get(kind, "VARCHAR")

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Return values as an Arrow array of the type."""
        type_ = self.type
        if type_ == "BIGINT":
            values = [None if value is None else int(value) for value in values]
        elif type_ == "TIMESTAMP":
            values = [dt.datetime.combine(value, dt.time()) if type(value) is dt.date else value for value in values]
        elif type_ in ("VARCHAR", _DURATION):
            values = [value if value is None or type(value) is str else _text(value) for value in values]
        return pa.array(values, _TYPES[type_])


def _text(value: Any) -> str:
    """Return a value as text, as DuckDB would write it.

    >>> _text(7.0), _text(1.5), _text(True), _text(dt.datetime(2024, 1, 2, 3)), _text(dt.timedelta(hours=30))
    ('7', '1.5', 'true', '2024-01-02 03:00:00', '30:00:00')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < _EXACT else repr(value)
    if isinstance(value, dt.datetime):
        return value.isoformat(" ")
    if isinstance(value, dt.timedelta):
        sign, value = ("-", -value) if value < dt.timedelta() else ("", value)
        minutes, seconds = divmod(value // dt.timedelta(seconds=1), 60)
        fraction = f".{value.microseconds:06d}" if value.microseconds else ""
        return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}{fraction}"
    return value.isoformat() if isinstance(value, dt.date | dt.time) else str(value)


def _is_empty(row: Sequence[Any]) -> bool:
    return row.count("") == len(row)


class _Sheet:
    """The cells of a sheet, which are gone through twice: for the types of its columns, and for their values."""

    def __init__(self, sheet: Any, request: SheetRequest) -> None:
        self._sheet, self._request = sheet, request
        self._nulls = {"", *request.nulls}
        self._step = max(1, _BATCH_CELLS // max(1, sheet.end[1] + 1))

    def write(self) -> SheetFacts:
        """Write the rows as Parquet. Raise ``InputError`` for a header that is none."""
        above, columns = self._header()
        for row, rows in self._batches(above):
            for column, values in zip(columns, self._values(rows, columns), strict=True):
                column.look(values, row)
        columns = self._name_columns(columns, above)
        facts = SheetFacts(
            self._sheet.name,
            above,
            [column.name for column in columns],
            blanks=[column.name for column in columns if column.type == _NOTHING],
            durations=[column.name for column in columns if column.type == _DURATION],
            mixed={column.name: column.text for column in columns if column.text and len(column.kinds) > 1},
        )
        schema = pa.schema([(column.name, _TYPES[column.type]) for column in columns])
        with pq.ParquetWriter(self._request.target, schema) as writer:
            for rows in self._skip_empty_rows(above, facts.empty, alone=len(columns) == 1):
                arrays = [
                    column.array(values) for column, values in zip(columns, self._values(rows, columns), strict=True)
                ]
                writer.write_batch(pa.record_batch(arrays, schema=schema))
        return facts

    def _batches(self, above: int) -> Iterator[tuple[int, list[list[Any]]]]:
        """Yield the rows below some of the sheet in batches, each with the number of its first, from 1 on."""
        rows = islice(self._sheet.iter_rows(), above, None)
        while batch := list(islice(rows, self._step)):
            yield above + 1, batch
            above += len(batch)

    def _skip_empty_rows(self, above: int, empty: list[tuple[int, int]], *, alone: bool) -> Iterator[list[list[Any]]]:
        """Yield batches without empty rows, which are noted; those between rows of a lone column are its NULLs."""
        waiting: list[list[Any]] = []
        for number, rows in self._batches(above):
            kept: list[list[Any]] = []
            for place, row in enumerate(rows, number):
                if not _is_empty(row):
                    kept += [*waiting, row]
                    waiting.clear()
                elif alone:
                    waiting.append(row)
                elif empty and sum(empty[-1]) == place:
                    empty[-1] = empty[-1][0], empty[-1][1] + 1
                else:
                    empty.append((place, 1))
            if kept:
                yield kept

    def _values(self, rows: Sequence[Sequence[Any]], columns: Sequence[_Column]) -> Iterator[list[Any]]:
        """Yield the values of each column, None for empty cells and texts that mean NULL."""
        cells = list(zip(*rows, strict=True))
        for column in columns:
            yield [None if type(each) is str and each in self._nulls else each for each in cells[column.place]]

    def _header(self) -> tuple[int, list[_Column]]:
        """Return the number of rows above the values, and all columns with the names that the header has for them."""
        rows = islice(enumerate(self._sheet.iter_rows(), 1), self._request.skip, None)
        number, row = next(((number, row) for number, row in rows if not _is_empty(row)), (0, []))
        if not row:
            raise InputError(f"{self._place} has no rows below row {self._request.skip}")
        if self._request.header is False:
            return number - 1, [_Column(place, "") for place in range(len(row))]
        if self._request.header is None and not any(isinstance(cell, str) and cell for cell in row):
            raise InputError(
                f"row {number} of {self._place} does not seem to be a header: it has no text",
                hint="--no-header if it has values, --header if these are the names of columns",
            )
        return number, [_Column(place, " ".join(_text(cell).split())) for place, cell in enumerate(row)]

    def _name_columns(self, columns: Sequence[_Column], above: int) -> list[_Column]:
        """Return the columns with names or values, all of them named. Raise ``InputError`` for a name twice."""
        found = [column for column in columns if column.name or column.kinds]
        nameless = sum(not column.name for column in found)
        if self._request.header is None and nameless * 2 > len(found):
            raise InputError(
                f"row {above} of {self._place} does not seem to be a header: it names {len(found) - nameless} of "
                f"{len(found)} columns",
                hint="--skip-lines N leaves out the rows above the header, --header takes it as it is",
            )
        seen: set[str] = set()
        for place, column in enumerate(found):
            column.name = column.name or f"column{place}"
            if column.name.casefold() in seen:
                raise InputError(
                    f"row {above} of {self._place} names the column {column.name!r} twice",
                    hint="rename one of them, or say that the sheet has no header",
                )
            seen.add(column.name.casefold())
        return found

    @property
    def _place(self) -> str:
        return f"the sheet {self._sheet.name!r} of {self._request.name}"


def _limit_memory(size: int) -> None:
    """Limit the memory of this process, where its system can."""
    try:
        import resource
    except ImportError:
        return
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (size if most == resource.RLIM_INFINITY else min(size, most), most))


def main() -> None:
    """Read the sheet that standard input asks for, and print its facts or the error."""
    request = SheetRequest(**json.load(sys.stdin))
    _limit_memory(request.memory)
    try:
        answer = {"facts": asdict(read_sheet(request))}
    except MemoryError:
        sys.exit(NO_MEMORY)
    except QuacklakeError as error:
        answer = {"error": {"type": type(error).__name__, "message": error.message, "hint": error.hint}}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
