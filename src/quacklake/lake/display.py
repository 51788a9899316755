"""Rows for people: in a terminal and in a notebook."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence

import pyarrow as pa
from rich.console import Console
from rich.table import Table as RichTable

__all__ = ["html_table", "print_table", "text_table"]

_MAX_CELL = 60
_MAX_COLUMNS = 20


def _cells(rows: pa.Table) -> list[list[str]]:
    columns = [[_cell(value) for value in column.to_pylist()] for column in rows.columns[:_MAX_COLUMNS]]
    return [list(row) for row in zip(*columns, strict=True)] if columns else []


def _cell(value: object) -> str:
    if value is None:
        return "NULL"
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= _MAX_CELL else text[: _MAX_CELL - 1] + "…"


def _footer(rows: pa.Table, total: int | None) -> str:
    shown = rows.num_rows
    count = shown if total is None else total
    hidden = "" if count == shown else f", {shown} shown"
    wide = rows.num_columns - _MAX_COLUMNS
    columns = "" if wide <= 0 else f", {wide} more columns"
    return f"{count:,} row{'' if count == 1 else 's'}{hidden}{columns}"


def _rich(rows: pa.Table, title: str | None, total: int | None) -> RichTable:
    table = RichTable(title=title, caption=_footer(rows, total), caption_justify="left", title_justify="left")
    for field in list(rows.schema)[:_MAX_COLUMNS]:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        table.add_column(field.name, justify="right" if number else "left", overflow="fold")
    for row in _cells(rows):
        table.add_row(*(_escaped(row)))
    return table


def _escaped(row: Sequence[str]) -> list[str]:
    # square brackets are markup to the console
    return [cell.replace("[", r"\[") for cell in row]


def print_table(rows: pa.Table, *, title: str | None = None, total: int | None = None, console: Console | None = None) -> None:
    """Print rows as a table."""
    (console or Console()).print(_rich(rows, title, total))


def text_table(rows: pa.Table, *, title: str | None = None, total: int | None = None, width: int = 120) -> str:
    """Rows as the text of a table."""
    console = Console(file=io.StringIO(), width=width)
    print_table(rows, title=title, total=total, console=console)
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue().rstrip("\n")


def html_table(rows: pa.Table, *, total: int | None = None) -> str:
    """Rows as an HTML table, everything escaped."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows.column_names[:_MAX_COLUMNS])
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in _cells(rows))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{_footer(rows, total)}</p>"
