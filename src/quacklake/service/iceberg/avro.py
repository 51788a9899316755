"""Manifests and manifest lists: Avro files with the field ids of Iceberg, in format 2 and 3.

The entries of manifests are encoded here: a table may have very many, and a general encoder takes three times as long.
"""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro

__all__ = ["ADDED", "DELETED", "EXISTING", "Manifest", "encode_list", "encode_manifest"]

EXISTING, ADDED, DELETED = 0, 1, 2
"""The states of an entry of a manifest."""

_FAST = 1  # deflated manifests are small, and made while a reader waits


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest as a manifest list tells of it; ``rows`` and ``files`` are added, existing and deleted ones."""

    path: str
    length: int
    deletes: bool
    snapshot_id: int
    min_sequence_number: int
    files: tuple[int, int, int]
    rows: tuple[int, int, int]
    first_row_id: int | None = None


def _field(name: str, id_: int, type_: Any, *, optional: bool = False) -> dict[str, Any]:
    if optional:
        return {"name": name, "type": ["null", type_], "default": None, "field-id": id_}
    return {"name": name, "type": type_, "field-id": id_}


def _map(key: int, value: int, type_: str) -> dict[str, Any]:
    fields = [_field("key", key, "int"), _field("value", value, type_)]
    items = {"type": "record", "name": f"k{key}_v{value}", "fields": fields}
    return {"type": "array", "logicalType": "map", "items": items}


def _list(element: int, type_: str) -> dict[str, Any]:
    return {"type": "array", "items": type_, "element-id": element}


def _data_file(version: int) -> dict[str, Any]:
    fields = [
        _field("content", 134, "int"),
        _field("file_path", 100, "string"),
        _field("file_format", 101, "string"),
        _field("partition", 102, {"type": "record", "name": "r102", "fields": []}),
        _field("record_count", 103, "long"),
        _field("file_size_in_bytes", 104, "long"),
        _field("column_sizes", 108, _map(117, 118, "long"), optional=True),
        _field("value_counts", 109, _map(119, 120, "long"), optional=True),
        _field("null_value_counts", 110, _map(121, 122, "long"), optional=True),
        _field("nan_value_counts", 137, _map(138, 139, "long"), optional=True),
        _field("lower_bounds", 125, _map(126, 127, "bytes"), optional=True),
        _field("upper_bounds", 128, _map(129, 130, "bytes"), optional=True),
        _field("key_metadata", 131, "bytes", optional=True),
        _field("split_offsets", 132, _list(133, "long"), optional=True),
        _field("equality_ids", 135, _list(136, "int"), optional=True),
        _field("sort_order_id", 140, "int", optional=True),
    ]
    if version >= 3:
        fields.append(_field("first_row_id", 142, "long", optional=True))
    fields.append(_field("referenced_data_file", 143, "string", optional=True))
    if version >= 3:
        fields += [
            _field("content_offset", 144, "long", optional=True),
            _field("content_size_in_bytes", 145, "long", optional=True),
        ]
    return {"type": "record", "name": "r2", "fields": fields}


def _entry(version: int) -> dict[str, Any]:
    fields = [
        _field("status", 0, "int"),
        _field("snapshot_id", 1, "long", optional=True),
        _field("sequence_number", 3, "long", optional=True),
        _field("file_sequence_number", 4, "long", optional=True),
        _field("data_file", 2, _data_file(version)),
    ]
    return {"type": "record", "name": "manifest_entry", "fields": fields}


def _summary() -> dict[str, Any]:
    fields = [
        _field("contains_null", 509, "boolean"),
        _field("contains_nan", 518, "boolean", optional=True),
        _field("lower_bound", 510, "bytes", optional=True),
        _field("upper_bound", 511, "bytes", optional=True),
    ]
    return {"type": "record", "name": "r508", "fields": fields}


def _list_entry(version: int) -> dict[str, Any]:
    fields = [
        _field("manifest_path", 500, "string"),
        _field("manifest_length", 501, "long"),
        _field("partition_spec_id", 502, "int"),
        _field("content", 517, "int"),
        _field("sequence_number", 515, "long"),
        _field("min_sequence_number", 516, "long"),
        _field("added_snapshot_id", 503, "long"),
        _field("added_files_count", 504, "int"),
        _field("existing_files_count", 505, "int"),
        _field("deleted_files_count", 506, "int"),
        _field("added_rows_count", 512, "long"),
        _field("existing_rows_count", 513, "long"),
        _field("deleted_rows_count", 514, "long"),
        _field("partitions", 507, {"type": "array", "items": _summary(), "element-id": 508}, optional=True),
        _field("key_metadata", 519, "bytes", optional=True),
    ]
    if version >= 3:
        fields.append(_field("first_row_id", 520, "long", optional=True))
    return {"type": "record", "name": "manifest_file", "fields": fields}


_LISTS = {version: fastavro.parse_schema(_list_entry(version)) for version in (2, 3)}


def encode_manifest(
    entries: Sequence[Mapping[str, Any]], *, version: int, schema: Mapping[str, Any], deletes: bool
) -> bytes:
    """Return a manifest of entries, each a mapping with the names of the specification; maps are pairs."""
    facts = {
        "schema": json.dumps(schema),
        "schema-id": str(schema["schema-id"]),
        "partition-spec": "[]",
        "partition-spec-id": "0",
        "format-version": str(version),
        "content": "deletes" if deletes else "data",
    }
    mark, codec = _mark(facts), {"avro.schema": json.dumps(_entry(version)), "avro.codec": "deflate"}
    header = [(key.encode(), value.encode()) for key, value in (codec | facts).items()]
    parts = [_MAGIC, _long(len(header)), *(_text(each) for pair in header for each in pair), b"\x00", mark]
    for start in range(0, len(entries), _BLOCK):
        some = entries[start : start + _BLOCK]
        packer = zlib.compressobj(_FAST, zlib.DEFLATED, -zlib.MAX_WBITS)
        block = packer.compress(b"".join([_entry_bytes(entry, version) for entry in some])) + packer.flush()
        parts += (_long(len(some)), _text(block), mark)
    return b"".join(parts)


_MAGIC = b"Obj\x01"
_BLOCK = 1024
"""The entries of a block."""
_NULL, _THERE = b"\x00", b"\x02"
"""The branches of an optional value."""


def _entry_bytes(entry: Mapping[str, Any], version: int) -> bytes:
    """Return an entry in the order of its schema; a table without partitions has an empty record of them."""
    file = entry["data_file"]
    row_id = _optional(file["first_row_id"]) if version >= 3 else b""
    referenced = file["referenced_data_file"]
    place = _optional(file["content_offset"]) + _optional(file["content_size_in_bytes"]) if version >= 3 else b""
    return b"".join(
        (
            _long(entry["status"]),
            _optional(entry["snapshot_id"]),
            _optional(entry["sequence_number"]),
            _optional(entry["file_sequence_number"]),
            _long(file["content"]),
            _text(file["file_path"].encode()),
            _text(file["file_format"].encode()),
            _long(file["record_count"]),
            _long(file["file_size_in_bytes"]),
            _NULL,  # column sizes
            _numbers(file["value_counts"]),
            _numbers(file["null_value_counts"]),
            _numbers(file["nan_value_counts"]),
            _texts(file["lower_bounds"]),
            _texts(file["upper_bounds"]),
            _NULL * 4,  # key metadata, split offsets, equality ids, sort order
            row_id,
            _NULL if referenced is None else _THERE + _text(referenced.encode()),
            place,
        )
    )


def _long(number: int) -> bytes:
    """Return a number as Avro has it: the sign last, seven bits a byte, low ones first."""
    rest = number << 1 if number >= 0 else ~(number << 1)
    if rest < 0x80:
        return _BYTES[rest]
    digits = bytearray()
    while rest >= 0x80:
        digits.append(rest & 0x7F | 0x80)
        rest >>= 7
    digits.append(rest)
    return bytes(digits)


_BYTES = [bytes([number]) for number in range(0x80)]


def _text(content: bytes) -> bytes:
    return _long(len(content)) + content


def _optional(number: int | None) -> bytes:
    return _NULL if number is None else _THERE + _long(number)


def _numbers(pairs: Sequence[tuple[int, int]] | None) -> bytes:
    if not pairs:
        return _NULL
    items = [_long(key) + _long(value) for key, value in pairs]
    return b"".join((_THERE, _long(len(pairs)), *items, b"\x00"))


def _texts(pairs: Sequence[tuple[int, bytes]] | None) -> bytes:
    if not pairs:
        return _NULL
    items = [_long(key) + _long(len(value)) + value for key, value in pairs]
    return b"".join((_THERE, _long(len(pairs)), *items, b"\x00"))


def encode_list(manifests: Sequence[Manifest], *, version: int, snapshot_id: int, parent: int | None) -> bytes:
    """Return the manifest list of a snapshot.

    It has no summaries of partitions: the table is served without, and readers take empty ones for "no rows".
    """
    facts = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(snapshot_id),
        "format-version": str(version),
    }
    if version >= 3:
        facts["first-row-id"] = "0"
    records = []
    for manifest in manifests:
        records.append(
            {
                "manifest_path": manifest.path,
                "manifest_length": manifest.length,
                "partition_spec_id": 0,
                "content": int(manifest.deletes),
                "sequence_number": manifest.snapshot_id,
                "min_sequence_number": manifest.min_sequence_number,
                "added_snapshot_id": manifest.snapshot_id,
                **dict(zip(_FILE_COUNTS, manifest.files, strict=True)),
                **dict(zip(_ROW_COUNTS, manifest.rows, strict=True)),
                "partitions": None,
                "key_metadata": None,
                "first_row_id": manifest.first_row_id,
            }
        )
    return _encode(_LISTS[version], records, facts)


_FILE_COUNTS = ("added_files_count", "existing_files_count", "deleted_files_count")
_ROW_COUNTS = ("added_rows_count", "existing_rows_count", "deleted_rows_count")


def _encode(schema: Any, records: Iterable[Mapping[str, Any]], facts: Mapping[str, str]) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, schema, records, codec="deflate", metadata=dict(facts), sync_marker=_mark(facts))
    return sink.getvalue()


def _mark(facts: Mapping[str, str]) -> bytes:
    """Return what stands between blocks. It is not random: the same content must give the same bytes."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()[:16]
