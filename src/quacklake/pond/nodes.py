"""A node of the tree: one type for every entry, and how it maps to rows of ``pond.nodes``."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

import pyarrow as pa

from quacklake.extend.names import uuid7

ROOT_ID = "00000000-0000-7000-8000-000000000000"
"""The id of the root directory in every pond."""
NODES = "pond.nodes"
"""The table of the tree."""
TARGET, FACTORY, CONFIG = "target", "factory", "config"
"""Attributes: where a symbolic link leads; what computes a dynamic node, and with which options."""
SETTINGS = "settings"
"""An attribute of the root: the settings of the pond."""
SCHEDULE, STATE = "schedule", "state"
"""Attributes of nodes that run: when, as a cron expression, and how far they have come."""
TIMESTAMP_COLUMN, MIN_OVERRIDE, MAX_OVERRIDE, ROWS, SOURCE, SOURCE_SHA256, KEEPS_CONFLICTS = (
    "timestamp_column",
    "min_override",
    "max_override",
    "rows",
    "source",
    "source_sha256",
    "keeps_conflicts",
)
"""Attributes of tables and series: the time column, bounds set by hand, the rows of a version and their source, and
whether a series was told to keep several readings of one time."""


class EntryType(StrEnum):
    """The type of a node."""

    DIRECTORY = "directory"
    DATA = "file:data"
    TABLE = "file:table"
    SERIES = "file:series"
    SYMLINK = "symlink"
    DYNAMIC = "dynamic"

    @property
    def has_rows(self) -> bool:
        """True for a table or a series, whose rows are in a table of the lake."""
        return self in (EntryType.TABLE, EntryType.SERIES)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@dataclass(frozen=True, slots=True)
class Node:
    """One version of a node. A series has a row for each version, every other node exactly one.

    ``part_id`` is the id of the directory that holds it. ``content`` is set for a new small file only: the tree is
    read without it.
    """

    node_id: str
    part_id: str
    name: str
    file_type: EntryType
    version: int = 1
    timestamp: dt.datetime = field(default_factory=_now)
    content: bytes | None = None
    sha256: str | None = None
    size: int | None = None
    min_event_time: dt.datetime | None = None
    max_event_time: dt.datetime | None = None
    extended_attributes: Mapping[str, Any] = field(default_factory=dict)
    txn_seq: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """The id and the version, which together name a row."""
        return self.node_id, self.version

    @property
    def short_id(self) -> str:
        """The last eight digits of the id, for people."""
        return self.node_id[-8:]

    @property
    def is_root(self) -> bool:
        """True for the root directory."""
        return self.node_id == ROOT_ID

    def attribute(self, name: str) -> Any:
        """Return an attribute, or None."""
        return self.extended_attributes.get(name)


def new_id() -> str:
    """Return the id of a new node: a UUID of version 7, which sorts by time."""
    return str(uuid7())


def root(txn_seq: int = 0) -> Node:
    """Return the root directory of a new pond."""
    return Node(ROOT_ID, ROOT_ID, "", EntryType.DIRECTORY, txn_seq=txn_seq)


# -- rows --------------------------------------------------------------------------------------------------------------

_TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        pa.field("part_id", pa.string(), nullable=False),
        pa.field("node_id", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("file_type", pa.string(), nullable=False),
        pa.field("timestamp", _TIME, nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("content", pa.binary()),
        pa.field("sha256", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("min_event_time", _TIME),
        pa.field("max_event_time", _TIME),
        pa.field("extended_attributes", pa.string()),
        pa.field("txn_seq", pa.int64(), nullable=False),
    ]
)
"""The columns of ``pond.nodes``."""
COLUMNS = {
    "part_id": "VARCHAR NOT NULL",
    "node_id": "VARCHAR NOT NULL",
    "name": "VARCHAR NOT NULL",
    "file_type": "VARCHAR NOT NULL",
    "timestamp": "TIMESTAMPTZ NOT NULL",
    "version": "BIGINT NOT NULL",
    "content": "BLOB",
    "sha256": "VARCHAR",
    "size": "BIGINT",
    "min_event_time": "TIMESTAMPTZ",
    "max_event_time": "TIMESTAMPTZ",
    "extended_attributes": "VARCHAR",
    "txn_seq": "BIGINT NOT NULL",
}
"""The columns of ``pond.nodes`` as the lake is asked to create them."""
WITHOUT_CONTENT = [name for name in SCHEMA.names if name != "content"]
_FIELDS = {each.name for each in fields(Node)}


def to_arrow(nodes: Iterable[Node]) -> pa.Table:
    """Return nodes as rows."""
    rows = [
        {name: getattr(node, name) for name in SCHEMA.names}
        | {"file_type": str(node.file_type), "extended_attributes": attributes_text(node.extended_attributes)}
        for node in nodes
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def from_arrow(rows: pa.Table | pa.RecordBatch) -> Iterator[Node]:
    """Yield the nodes of rows. Other columns are ignored."""
    for row in rows.to_pylist():
        values = {name: value for name, value in row.items() if name in _FIELDS}
        values["file_type"] = EntryType(values["file_type"])
        values["extended_attributes"] = json.loads(values.get("extended_attributes") or "{}")
        yield Node(**values)


def attributes_text(attributes: Mapping[str, Any]) -> str | None:
    """Return attributes as the text of their column; None for none."""
    return json.dumps(dict(attributes), sort_keys=True) if attributes else None
