"""Inlined rows of a shared lake: each is one text, a JSON array with the texts of its values in schema order.

A table for each table of each tenant would not hold at many tenants, so that the rows of all are in one. The texts are
those of ``inline.encode`` for ``PACKED``, which DuckDB casts back without loss, so that rows go to the stock form and
come from it by way of Arrow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from quacklake.errors import CatalogError
from quacklake.format.schema import TableSchema

LIFE = ("row_id", "begin_snapshot", "end_snapshot")
"""What stands beside a packed row."""


def pack(values: Iterable[Any]) -> str:
    """Return the encoded values of a row as one text."""
    return json.dumps([None if value is None else str(value) for value in values], ensure_ascii=True)


def has_width(payload: str, width: int) -> bool:
    """Return whether a text is a packed row of that many values."""
    try:
        return len(_values(payload)) == width
    except CatalogError:
        return False


def _values(payload: str) -> list[str | None]:
    """Return the encoded values of a packed row. Raises ``CatalogError`` for a text that is none."""
    try:
        found = json.loads(payload)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(value is None or isinstance(value, str) for value in found):
        raise CatalogError("the catalog holds an inlined row that is no list of texts", hint="verify tells where it is")
    return found


def unpack(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Return packed rows (``LIFE`` and ``payload``) as columns of texts, named ``c<id>``.

    A row that has fewer values than the schema has columns is padded with NULL.
    """
    payloads: Sequence[str] = rows.column("payload").to_pylist()
    parsed = [_values(payload) for payload in payloads]
    columns = {name: rows.column(name) for name in LIFE}
    for index, column in enumerate(schema.columns):
        values = [row[index] if index < len(row) else None for row in parsed]
        columns[f"c{column.id}"] = pa.array(values, pa.string())
    return pa.table(columns)
