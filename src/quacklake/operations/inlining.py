"""Encode rows for inlining in the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from quacklake.format import inline
from quacklake.format.objects import TableInfo
from quacklake.format.stats import ColumnStats, of_array
from quacklake.operations.context import LakeContext
from quacklake.transaction import InlinedInsert


def encoded_insert(
    context: LakeContext, table: TableInfo, rows: pa.Table, row_ids: Sequence[int | None]
) -> InlinedInsert:
    """Encode rows, which must have the exact types of the table, for the catalog."""
    rows = _in_utc(table, rows)
    database = context.catalog.encoding
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
    texts = context.engine.texts(rows, hard)
    encoded = [
        texts[column.id] if values is None else values
        for column, values in zip(table.schema.columns, columns, strict=True)
    ]
    return InlinedInsert(rows, tuple(zip(*encoded, strict=True)), tuple(row_ids), tuple(stats))


def _in_utc(table: TableInfo, rows: pa.Table) -> pa.Table:
    """Convert times to UTC, as in all inlined rows; DuckDB returns them in the time zone of the session."""
    for index, column in enumerate(table.schema.columns):
        wanted, given = column.arrow_field(), rows.schema.field(index)
        if not column.travels_as_text and "tz=" in str(given.type) and given.type != wanted.type:
            rows = rows.set_column(index, given.with_type(wanted.type), rows.column(index).cast(wanted.type))
    return rows
