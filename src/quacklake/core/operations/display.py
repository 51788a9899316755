"""Show rows in a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest

import pyarrow as pa
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from quacklake.core.operations.cells import CONTROLS, MAX_CELL, MAX_COLUMNS, describe_count, to_cells

_BLOCK = 1000


def _rich(rows: pa.Table, max_cell: int) -> RichTable:
    # Use Text, because square brackets are markup to the console.
    table = RichTable()
    for field in list(rows.schema)[:MAX_COLUMNS]:
        justify: JustifyMethod = "right" if _is_number(field.type) else "left"
        table.add_column(Text(field.name.translate(CONTROLS)), justify=justify, overflow="fold")
    for row in to_cells(rows, max_cell):
        table.add_row(*(Text(cell) for cell in row))
    return table


def _is_number(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_decimal(arrow))


def print_table(
    rows: pa.Table, *, total: int | None = None, console: Console | None = None, max_cell: int = MAX_CELL
) -> None:
    """Print rows as a table with their number below it.

    >>> from rich.console import Console
    >>> print_table(pa.table({"n": [7]}), console=Console(width=20, color_system=None))
    ┏━━━┓
    ┃ n ┃
    ┡━━━┩
    │ 7 │
    └───┘
    1 row
    """
    target = console or Console()
    target.print(_rich(rows, max_cell))
    target.print(Text(describe_count(rows.num_rows, rows.schema, total), style="dim italic"))


def print_rows(
    rows: pa.RecordBatchReader, *, total: int | None = None, console: Console, max_cell: int = MAX_CELL
) -> None:
    """Print rows as a table, in bounded memory.

    Columns become wider with the first block of rows that needs it.

    >>> from rich.console import Console
    >>> print_rows(pa.table({"n": [7]}).to_reader(), console=Console(width=20, color_system=None))
    ┏━━━┓
    ┃ n ┃
    ┡━━━┩
    │ 7 │
    └───┘
    1 row
    """
    blocks = _blocks(rows)
    first = next(blocks, None) or rows.schema.empty_table()
    second = next(blocks, None)
    if second is None:
        print_table(first, total=total, console=console, max_cell=max_cell)
        return
    numeric = [_is_number(field.type) for field in list(rows.schema)[:MAX_COLUMNS]]
    names = [field.name.translate(CONTROLS) for field in list(rows.schema)[:MAX_COLUMNS]]
    widths = [max(map(_width, column)) for column in zip(names, *to_cells(first, max_cell), strict=True)]
    shown = 0

    def write(cells: Sequence[str], edges: str) -> None:
        lines = zip_longest(*(cell.split("\n") for cell in cells), fillvalue="")
        for line in lines:
            padded = (_pad(text, width, right) for text, width, right in zip(line, widths, numeric, strict=True))
            console.file.write(f"{edges[0]} {f' {edges[1]} '.join(padded)} {edges[0]}\n")

    def rule(left: str, line: str, cross: str, right: str) -> None:
        console.file.write(left + cross.join(line * (width + 2) for width in widths) + right + "\n")

    rule(*"┏━┳┓")
    write(names, "┃┃")
    rule(*"┡━╇┩")
    for block in chain([first, second], blocks):
        records = to_cells(block, max_cell)
        for index, column in enumerate(zip(*records, strict=True)):
            widths[index] = max(widths[index], *map(_width, column))
        for cells in records:
            write(cells, "││")
        shown += block.num_rows
    rule(*"└─┴┘")
    console.print(Text(describe_count(shown, rows.schema, total), style="dim italic"))


def _blocks(rows: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yield the rows in tables of ``_BLOCK`` rows, the last with fewer."""
    kept: list[pa.RecordBatch] = []
    count = 0
    for batch in rows:
        while count + batch.num_rows > _BLOCK:
            yield pa.Table.from_batches([*kept, batch.slice(0, _BLOCK - count)], rows.schema)
            batch, kept, count = batch.slice(_BLOCK - count), [], 0
        kept.append(batch)
        count += batch.num_rows
    if count:
        yield pa.Table.from_batches(kept, rows.schema)


def _width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def text_table(rows: pa.Table, *, total: int | None = None) -> str:
    """Return rows as a text table."""
    output = io.StringIO()
    # in a notebook, a console would show the table itself instead of writing it
    print_table(rows, total=total, console=Console(file=output, width=120, force_jupyter=False))
    return output.getvalue().rstrip("\n")
