"""Write rows as a sheet of an Excel workbook (.xlsx), in bounded memory.

Excel has numbers of 15 digits, times to the millisecond without a zone, and days from March 1900 on. What it cannot
hold as a number is written as a text, times with a zone in UTC. DuckDB makes numbers and texts of the values; the cells
are written one by one, as the library takes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from quacklake.errors import LimitError, MissingExtraError
from quacklake.extend.duckdbs import arrow_reader, connect
from quacklake.extend.names import literal, quote

MAX_ROWS = 1_048_576
"""The rows of a sheet, with the header."""
MAX_COLUMNS = 16_384
MAX_TEXT = 32_767
"""The characters of a cell, counted as UTF-16 does."""
_BATCH_ROWS = 8_192
_DIGITS = 15
_FIRST, _LAST = "1900-03-01", "9999-12-31"
"""The days that Excel has. Before them it counts a day that never was."""
_DAY_MS = 86_400_000
_FORMATS = {
    "DATE": ("yyyy-mm-dd", 11),
    "TIMESTAMP": ("yyyy-mm-dd hh:mm:ss.000", 23),
    "TIME": ("hh:mm:ss.000", 13),
    "INTERVAL": ("[h]:mm:ss.000", 13),
}
"""Formats of cells, each with the width of its column."""
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_ZONED = "TIMESTAMP WITH TIME ZONE"
_HINT = "write less, with --where or --columns, or another format, such as Parquet"


def write_workbook(rows: pa.RecordBatchReader, path: Path) -> int:
    """Write rows to a workbook with one sheet, and return their number.

    Raise ``LimitError`` for more rows, columns or characters than a sheet or a cell holds, and ``MissingExtraError``.
    """
    try:
        import xlsxwriter
    except ImportError:
        raise MissingExtraError(
            "writing Excel files needs the package XlsxWriter", hint="pip install 'quacklake[excel]'"
        ) from None
    if len(rows.schema.names) > MAX_COLUMNS:
        raise LimitError(
            f"the rows have {len(rows.schema.names):,} columns, and a sheet holds {MAX_COLUMNS:,}", hint=_HINT
        )
    with connect(config={"autoinstall_known_extensions": False}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", rows)
        described = connection.execute("DESCRIBE FROM rows").fetchall()
        columns = {str(name): str(type_) for name, type_, *_ in described}
        kinds = [_kind(type_) for type_ in columns.values()]
        workbook = xlsxwriter.Workbook(str(path), {"constant_memory": True, "in_memory": False})
        workbook.use_zip64()
        try:
            sheet = workbook.add_worksheet(worksheet_class=_sheet_class())
            return _write(sheet, kinds, _formats(workbook, sheet, kinds), columns, connection)
        finally:
            workbook.close()


def _formats(workbook: Any, sheet: Any, kinds: list[str]) -> list[Any]:
    """Return the format of each column, and make the column wide enough for it."""
    made = {kind: workbook.add_format({"num_format": text}) for kind, (text, _) in _FORMATS.items()}
    for place, kind in enumerate(kinds):
        if kind in _FORMATS:
            sheet.set_column(place, place, _FORMATS[kind][1])
    sheet.freeze_panes(1, 0)
    return [made.get(kind) for kind in kinds]


def _write(
    sheet: Any, kinds: list[str], formats: list[Any], columns: dict[str, str], connection: duckdb.DuckDBPyConnection
) -> int:
    for place, name in enumerate(columns):
        _write_text(sheet, 0, place, name, name)
    row = 0
    names = list(columns)
    for cells in _cells(columns, connection):
        for values in zip(*cells, strict=True):
            row += 1
            if row >= MAX_ROWS:
                raise LimitError(
                    f"there are more than {MAX_ROWS - 1:,} rows: a sheet of Excel holds {MAX_ROWS:,} with its header",
                    hint=_HINT,
                )
            for place, value in enumerate(values):
                if value is None:
                    continue
                if isinstance(value, str):
                    _write_text(sheet, row, place, value, names[place])
                elif kinds[place] == "BOOLEAN":
                    sheet.write_boolean(row, place, value)
                else:
                    sheet.write_number(row, place, value, formats[place])
    return row


def _write_text(sheet: Any, row: int, place: int, text: str, column: str) -> None:
    if len(text) * 2 > MAX_TEXT and len(text.encode("utf-16-le")) // 2 > MAX_TEXT:
        raise LimitError(
            f"row {row} has a text of {len(text):,} characters in the column {column!r}, and a cell of Excel holds "
            f"{MAX_TEXT:,}",
            hint=_HINT,
        )
    sheet.write_string(row, place, text)


def _cells(columns: dict[str, str], connection: duckdb.DuckDBPyConnection) -> Iterator[list[list[Any]]]:
    """Yield the cells of each column in batches: numbers, texts, and None for NULL."""
    values = [_cell(name, type_) for name, type_ in columns.items()]
    items = [f"{number} AS n{place}, {text} AS t{place}" for place, (number, text) in enumerate(values)]
    reader = arrow_reader(connection, f"SELECT {', '.join(items)} FROM rows", [], batch_rows=_BATCH_ROWS)
    for batch in reader:
        found = [column.to_pylist() for column in batch.columns]
        yield [
            [text if number is None else number for number, text in zip(numbers, texts, strict=True)]
            for numbers, texts in zip(found[::2], found[1::2], strict=True)
        ]


def _kind(type_: str) -> str:
    """Return what cells of a DuckDB type are."""
    if type_.startswith("TIMESTAMP"):
        return "TIMESTAMP"
    if type_.removeprefix("U") in _WHOLE or type_ in ("DOUBLE", "FLOAT") or type_.startswith("DECIMAL"):
        return "NUMBER"
    return type_ if type_ in ("BOOLEAN", "DATE", "TIME", "INTERVAL") else "TEXT"


def _cell(name: str, type_: str) -> tuple[str, str]:
    """Return SQL for the number of a value, NULL where Excel has none for it, and for its text otherwise."""
    column = quote(name)
    text = f"CAST({column} AS VARCHAR)"
    match _kind(type_):
        case "TEXT":
            return "NULL", text
        case "BOOLEAN":
            return column, "NULL"
        case "NUMBER":
            if type_ in ("DOUBLE", "FLOAT"):
                fits, value = f"isfinite({column})", f"{column}::DOUBLE"
                value = f"{text}::DOUBLE" if type_ == "FLOAT" else value  # 0.1, not 0.10000000149011612
            else:
                scale = int(type_.rstrip(")").rpartition(",")[2]) if type_.startswith("DECIMAL") else 0
                fits, value = f"abs({column}::DOUBLE) < 1e{_DIGITS - scale:d}", f"{column}::DOUBLE"
        case "DATE":
            fits = f"{column} BETWEEN DATE {literal(_FIRST)} AND DATE {literal(_LAST)}"
            value = f"({column} - DATE '1899-12-30')::DOUBLE"
        case "TIMESTAMP":
            local = f"{column}::TIMESTAMPTZ AT TIME ZONE 'UTC'" if type_ == _ZONED else f"{column}::TIMESTAMP"
            first, last = f"TIMESTAMP {literal(_FIRST)}", f"TIMESTAMP {literal(_LAST + ' 23:59:59.999999')}"
            fits = f"({local}) BETWEEN {first} AND {last}"
            value = f"(epoch_ms({local}) - epoch_ms(TIMESTAMP '1899-12-30')) / {_DAY_MS}"
        case "TIME":
            fits = f"{column} < TIME '24:00:00'"
            value = f"(epoch_us({column}) // 1000) / {_DAY_MS}"
        case _:
            whole = f"(epoch_us({column}) // 1000)"
            fits = f"datepart('month', {column}) = 0 AND datepart('year', {column}) = 0 AND {whole} >= 0"
            value = f"{whole} / {_DAY_MS}"
    return f"CASE WHEN {fits} THEN {value} END", f"CASE WHEN ({fits}) IS NOT TRUE THEN {text} END"


def _sheet_class() -> type[Any]:
    from xlsxwriter.worksheet import Worksheet

    class Sheet(Worksheet):  # type: ignore[misc]
        """A sheet that writes all digits of a number, and any text as a text.

        The library's own writes 16 digits, and a text of the form ``<r>…</r>`` as the XML that it seems to be.
        """

        def _xml_number_element(self, number: float, attributes: Any = ()) -> None:
            super()._xml_number_element(_Number(number), attributes)

        def _xml_rich_inline_string(self, string: str, attributes: Any = ()) -> None:
            self._xml_inline_string(string, True, attributes)

    return Sheet


class _Number(float):
    def __format__(self, _: str) -> str:
        return str(int(self)) if self.is_integer() and abs(self) < 10**_DIGITS else repr(float(self))
