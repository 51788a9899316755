"""A digest of rows: the same for the same values in the same order, however they are divided and encoded.

Batches, slices, dictionaries, and what lies under a NULL or in the padding of a buffer make no difference. The names
of columns do not matter in their order or case, their types do.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.extend.names import fold

if TYPE_CHECKING:
    from hashlib import _Hash

__all__ = ["RowsDigest", "json_digest", "rows_digest"]

_DIGITS = 40


class RowsDigest:
    """Collects batches, each of which is read once."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str], _Hash] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch."""
        for name, column in zip(batch.schema.names, batch.columns if batch.num_rows else (), strict=False):
            self._add(fold(name), column)

    def _add(self, name: str, column: pa.Array) -> None:
        while isinstance(column, pa.ExtensionArray | pa.DictionaryArray):
            column = column.storage if isinstance(column, pa.ExtensionArray) else column.dictionary_decode()
        type_ = column.type
        self._feed(name, "null", column.is_null().cast(pa.uint8()))
        if pa.types.is_null(type_):
            return
        if pa.types.is_nested(type_):  # rare, and of many forms
            self._part(name, str(type_)).update("".join(f"{value!r}\0" for value in column.to_pylist()).encode())
            return
        if pa.types.is_boolean(type_):
            column = column.cast(pa.uint8())
        elif pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
            column = column.cast(pa.large_string()).cast(pa.large_binary())
        elif pa.types.is_binary(type_) or pa.types.is_binary_view(type_):
            column = column.cast(pa.large_binary())
        if pa.types.is_large_binary(column.type):
            whole = column.fill_null(b"")
            ends = memoryview(whole.buffers()[1]).cast("q")[whole.offset : whole.offset + len(whole) + 1]
            self._feed(name, "size", pc.binary_length(whole))
            if whole.buffers()[2] is not None:
                self._part(name, str(type_)).update(memoryview(whole.buffers()[2])[ends[0] : ends[-1]])
            return
        width = column.type.bit_width // 8
        bits, values = column.buffers()
        plain = pa.Array.from_buffers(pa.binary(width), len(column), [bits, values], offset=column.offset)
        self._feed(name, str(type_), plain.fill_null(b"\0" * width), width)

    def _feed(self, name: str, part: str, values: pa.Array, width: int | None = None) -> None:
        width = width or values.type.bit_width // 8
        data = memoryview(values.buffers()[1])
        self._part(name, part).update(data[values.offset * width : (values.offset + len(values)) * width])

    def _part(self, name: str, part: str) -> _Hash:
        return self._parts.setdefault((name, part), hashlib.sha256())

    def text(self) -> str:
        """Return the digest of what was added."""
        found = [(*key, part.hexdigest()) for key, part in sorted(self._parts.items())]
        return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:_DIGITS]


def rows_digest(rows: pa.Table) -> str:
    """Return the digest of a table."""
    digest = RowsDigest()
    for batch in rows.to_batches():
        digest.add(batch)
    return digest.text()


def json_digest(body: bytes, *, lines: bool) -> str | None:
    """Return the digest of JSON, or of lines of it: the order of names and the spaces make no difference."""
    try:
        found = [json.loads(line) for line in body.splitlines() if line.strip()] if lines else json.loads(body)
        text = json.dumps(found, sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return None
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
