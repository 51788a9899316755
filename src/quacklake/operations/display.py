"""Show rows in a terminal or a notebook."""

from __future__ import annotations

import html
import io

import pyarrow as pa
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from quacklake.operations.python_values import python_values

_MAX_CELL = 60
_MAX_COLUMNS = 20
# Control characters that a terminal would obey are shown instead.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}


def _cells(rows: pa.Table, max_cell: int = _MAX_CELL) -> list[list[str]]:
    columns = [[_cell(value, max_cell) for value in python_values(column)] for column in rows.columns[:_MAX_COLUMNS]]
    return [list(row) for row in zip(*columns, strict=True)] if columns else []


def _cell(value: object, max_cell: int) -> str:
    if value is None:
        return "NULL"
    text = value.hex() if isinstance(value, bytes) else str(value).translate(_CONTROLS)
    return text if len(text) <= max_cell else text[: max_cell - 1] + "…"


def _footer(rows: pa.Table, total: int | None, unit: str = "row") -> str:
    shown = rows.num_rows
    count = shown if total is None else total
    hidden = "" if count == shown else f", {shown} shown"
    wide = rows.num_columns - _MAX_COLUMNS
    columns = "" if wide <= 0 else f", {wide} more columns"
    return f"{count:,} {unit}{'' if count == 1 else 's'}{hidden}{columns}"


def _rich(rows: pa.Table, max_cell: int) -> RichTable:
    # Use Text, because square brackets are markup to the console.
    table = RichTable()
    for field in list(rows.schema)[:_MAX_COLUMNS]:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        table.add_column(Text(field.name.translate(_CONTROLS)), justify="right" if number else "left", overflow="fold")
    for row in _cells(rows, max_cell):
        table.add_row(*(Text(cell) for cell in row))
    return table


def print_table(
    rows: pa.Table, *, total: int | None = None, console: Console | None = None, max_cell: int = _MAX_CELL
) -> None:
    """Print rows as a table with their number below it."""
    target = console or Console()
    target.print(_rich(rows, max_cell))
    target.print(Text(_footer(rows, total), style="dim italic"))


def text_table(rows: pa.Table, *, total: int | None = None) -> str:
    """Return rows as a text table."""
    output = io.StringIO()
    # in a notebook, a console would show the table itself instead of writing it
    print_table(rows, total=total, console=Console(file=output, width=120, force_jupyter=False))
    return output.getvalue().rstrip("\n")


def html_table(rows: pa.Table, *, total: int | None = None, unit: str | None = "row") -> str:
    """Return rows as an HTML table, with everything escaped.

    ``unit`` is what one row is about; None leaves their number out.
    """
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows.column_names[:_MAX_COLUMNS])
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in _cells(rows))
    count = "" if unit is None else f"<p>{_footer(rows, total, unit)}</p>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{count}"
