"""Rows for the catalog itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from quacklake.format import inline
from quacklake.format.measure import of_array
from quacklake.format.objects import TableInfo
from quacklake.format.stats import ColumnStats
from quacklake.lake.settings import Shared
from quacklake.transaction import InlinedInsert

__all__ = ["encoded_insert"]


def encoded_insert(shared: Shared, table: TableInfo, rows: pa.Table, row_ids: Sequence[int | None]) -> InlinedInsert:
    """Rows of the table's exact types, encoded for its catalog."""
    database = shared.catalog.encoding
    columns: list[list[Any] | None] = []
    stats: list[ColumnStats] = []
    for index, column in enumerate(table.schema.columns):
        array = rows.column(index)
        columns.append(inline.encode(array, column, database))
        if column.nested and column.travels_as_text:
            stats.extend(ColumnStats(leaf.id) for leaf in column.leaves())
        else:
            stats.extend(of_array(array, column))
    hard = [column for column, values in zip(table.schema.columns, columns, strict=True) if values is None]
    texts = shared.engine.texts(rows, hard)
    encoded = [
        texts[column.id] if values is None else values
        for column, values in zip(table.schema.columns, columns, strict=True)
    ]
    return InlinedInsert(rows, tuple(zip(*encoded, strict=True)), tuple(row_ids), tuple(stats))
