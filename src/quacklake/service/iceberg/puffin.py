"""Deleted rows in the forms of Iceberg: vectors in a Puffin file (format 3), positions in a Parquet file (format 2)."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from quacklake.core.format.schema import FIELD_ID
from quacklake.core.format.vectors import encode

__all__ = ["Vector", "encode_positions", "encode_puffin"]

_MAGIC = b"PFA1"
_POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {FIELD_ID: b"2147483546"}),
        pa.field("pos", pa.int64(), False, {FIELD_ID: b"2147483545"}),
    ]
)


@dataclass(frozen=True, slots=True)
class Vector:
    """The place of a deletion vector in a Puffin file, and the number of rows in it."""

    offset: int
    length: int
    rows: int


def encode_puffin(deleted: Mapping[str, pa.Array]) -> tuple[bytes, dict[str, Vector]]:
    """Return a Puffin file with the vector of each data file, and where each of them is in it."""
    blobs, entries, vectors, offset = [], [], {}, len(_MAGIC)
    for path, positions in deleted.items():
        blob = encode(positions)
        vectors[path] = Vector(offset, len(blob), len(positions))
        entries.append(
            {
                "type": "deletion-vector-v1",
                "fields": [],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": offset,
                "length": len(blob),
                "properties": {"referenced-data-file": path, "cardinality": str(len(positions))},
            }
        )
        blobs.append(blob)
        offset += len(blob)
    payload = json.dumps({"blobs": entries, "properties": {"created-by": "quacklake"}}, ensure_ascii=False).encode()
    footer = (_MAGIC, payload, struct.pack("<II", len(payload), 0), _MAGIC)
    return b"".join((_MAGIC, *blobs, *footer)), vectors


def encode_positions(deleted: Mapping[str, pa.Array]) -> bytes:
    """Return a Parquet file of positions, sorted by data file and position, with the field ids of Iceberg."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, _POSITIONS, compression="zstd", use_dictionary=["file_path"]) as writer:
        for batch in _batches(deleted):
            writer.write_table(batch)
    return bytes(sink.getvalue())


def _batches(deleted: Mapping[str, pa.Array]) -> Iterator[pa.Table]:
    for path in sorted(deleted):
        positions = deleted[path]
        yield pa.table([pa.repeat(pa.scalar(path), len(positions)), positions], schema=_POSITIONS)
