"""Say what a node is: the kind of its bytes, or the columns, times and versions of its rows."""

from __future__ import annotations

import json
from typing import Any

from quacklake.pond.factories import registry
from quacklake.pond.fs import FS, NodePath
from quacklake.pond.nodes import CONFIG, FACTORY, SOURCE, TARGET, TIMESTAMP_COLUMN, EntryType
from quacklake.pond.paths import table_of
from quacklake.pond.times import find_column

_MAGIC = (
    (b"PAR1", "Parquet"),
    (b"\x7fELF", "ELF"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF8", "GIF"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"PK\x03\x04", "ZIP"),
)
_HEAD = 4096


def describe_node(fs: FS, found: NodePath) -> dict[str, Any]:
    """Return facts about a node, by name."""
    node = found.node
    facts: dict[str, Any] = {
        "path": found.path,
        "type": str(node.file_type),
        "node_id": node.node_id,
        "part_id": node.part_id,
        "version": node.version,
        "timestamp": node.timestamp.isoformat(),
        "txn_seq": node.txn_seq,
    }
    if found.is_directory:
        facts["entries"] = len(fs.children(node) or {})
    if node.file_type is EntryType.SYMLINK:
        facts["target"] = node.attribute(TARGET)
    elif node.file_type is EntryType.DYNAMIC:
        facts |= {"factory": node.attribute(FACTORY), "computes": str(registry.looks_like(node))}
        facts["config"] = json.dumps(node.attribute(CONFIG), sort_keys=True)
    elif node.file_type is EntryType.DATA:
        facts |= {"size_bytes": node.size, "sha256": node.sha256, "content": content_kind(_head(fs, found))}
    elif node.file_type.has_rows:
        facts |= _rows(fs, found)
    return facts


def _rows(fs: FS, found: NodePath) -> dict[str, Any]:
    schema = fs.backend.lake.table(table_of(found.path)).schema
    facts: dict[str, Any] = {
        "table": table_of(found.path),
        "rows": found.rows,
        "versions": len(found.versions),
        "size_bytes": found.size,
        "columns": ", ".join(f"{field.name} {field.type}" for field in schema),
        "timestamp_column": found.node.attribute(TIMESTAMP_COLUMN) or find_column(schema.names),
        "source": found.node.attribute(SOURCE),
    }
    times = [(row.min_event_time, row.max_event_time) for row in found.versions]
    known = [(first, last) for first, last in times if first is not None and last is not None]
    if known:
        facts["min_event_time"] = min(first for first, _ in known).isoformat()
        facts["max_event_time"] = max(last for _, last in known).isoformat()
    return facts


def _head(fs: FS, found: NodePath) -> bytes:
    with fs.open(found) as file:
        return file.read(_HEAD)


def content_kind(head: bytes) -> str:
    """Return what bytes look like: a format by its first bytes, or a kind of text.

    >>> content_kind(b"PAR1..."), content_kind(b'{"a": 1}'), content_kind(b"a,b\\n1,2\\n"), content_kind(b"a\\tb\\n")
    ('Parquet', 'JSON', 'CSV', 'TSV')
    >>> content_kind(b"hello"), content_kind(b"\\x00\\xff"), content_kind(b"")
    ('plain text', 'binary', 'empty')
    """
    if not head:
        return "empty"
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    try:
        text = head.decode("utf-8", errors="strict" if len(head) < _HEAD else "ignore")
    except UnicodeDecodeError:
        return "binary"
    if "\0" in text:
        return "binary"
    if text.lstrip()[:1] in ("{", "["):
        return "JSON"
    first = text.partition("\n")[0]
    if "\t" in first:
        return "TSV"
    return "CSV" if "," in first and "\n" in text else "plain text"
