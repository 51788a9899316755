"""Rows as the texts of cells, and as a table for notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # programs load this before they have rows
    import pyarrow as pa

MAX_CELL = 60
MAX_COLUMNS = 20
# Control characters that a terminal would obey are shown instead.
CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}


def to_cells(rows: pa.Table, max_cell: int = MAX_CELL) -> list[list[str]]:
    """Return the values of the first columns as texts, row by row."""
    from quacklake.core.operations.python_values import python_values

    columns = [[_cell(value, max_cell) for value in python_values(column)] for column in rows.columns[:MAX_COLUMNS]]
    return [list(row) for row in zip(*columns, strict=True)] if columns else []


def _cell(value: object, max_cell: int) -> str:
    if value is None:
        return "NULL"
    text = value.hex() if isinstance(value, bytes) else str(value).translate(CONTROLS)
    return text if len(text) <= max_cell else text[: max_cell - 1] + "…"


def describe_count(shown: int, schema: pa.Schema, total: int | None, unit: str = "row") -> str:
    """Return the line below a table: how many rows there are, and what is not shown."""
    count = shown if total is None else total
    hidden = "" if count == shown else f", {shown} shown"
    wide = len(schema) - MAX_COLUMNS
    columns = "" if wide <= 0 else f", {wide} more columns"
    return f"{count:,} {unit}{'' if count == 1 else 's'}{hidden}{columns}"


def html_table(rows: pa.Table, *, total: int | None = None, unit: str | None = "row") -> str:
    """Return rows as an HTML table, with everything escaped.

    ``unit`` is what one row is about; None leaves their number out.

    >>> import pyarrow as pa
    >>> html_table(pa.table({"a": ["<b>"]}), unit=None)
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows.column_names[:MAX_COLUMNS])
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in to_cells(rows))
    count = "" if unit is None else f"<p>{describe_count(rows.num_rows, rows.schema, total, unit)}</p>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{count}"
