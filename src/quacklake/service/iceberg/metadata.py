"""Table metadata: the JSON document from which a reader of Iceberg learns everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["ServedSnapshot", "table_metadata", "unwritable"]

_NOWHERE = "quacklake-is-read-only"


def unwritable(scheme: str, table_uuid: str) -> str:
    """Return a place where no client can write, so that none leaves files in the lake before it is refused.

    It is one of the lake's own kind of store, which readers look up: below a device, or in a bucket that none can be.

    >>> unwritable("file", "u"), unwritable("s3", "u")
    ('/dev/null/quacklake-is-read-only/u', 's3://quacklake-is-read-only..invalid/u')
    """
    if scheme == "file":
        return f"/dev/null/{_NOWHERE}/{table_uuid}"
    return f"{scheme}://{_NOWHERE}..invalid/{table_uuid}"


@dataclass(frozen=True, slots=True)
class ServedSnapshot:
    """A snapshot as table metadata lists it."""

    id: int
    parent: int | None
    time_ms: int
    schema_id: int
    manifest_list: str
    operation: str
    first_row_id: int
    added_rows: int
    summary: Mapping[str, str]


def table_metadata(
    *,
    version: int,
    table_uuid: str,
    location: str,
    name: str,
    schemas: Sequence[Mapping[str, Any]],
    current_schema: int,
    last_column_id: int,
    snapshots: Sequence[ServedSnapshot],
    next_row_id: int,
    properties: Mapping[str, str],
) -> dict[str, Any]:
    """Return the metadata of a table; the last of its snapshots is the current one."""
    newest = snapshots[-1] if snapshots else None
    document: dict[str, Any] = {
        "format-version": version,
        "table-uuid": table_uuid,
        "location": location,
        "last-sequence-number": newest.id if newest else 0,
        "last-updated-ms": newest.time_ms if newest else 0,
        "last-column-id": last_column_id,
        "current-schema-id": current_schema,
        "schemas": list(schemas),
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {
            "write.data.path": f"{location}/data",
            "write.metadata.path": f"{location}/metadata",
            "write.object-storage.enabled": "false",
            "quacklake.table": name,
            **properties,
        },
        "snapshots": [_snapshot(snapshot, version) for snapshot in snapshots],
        "snapshot-log": [{"snapshot-id": each.id, "timestamp-ms": each.time_ms} for each in snapshots],
        "metadata-log": [],
        "statistics": [],
        "partition-statistics": [],
    }
    if newest is not None:
        document["current-snapshot-id"] = newest.id
        document["refs"] = {"main": {"snapshot-id": newest.id, "type": "branch"}}
    if version >= 3:
        document["next-row-id"] = next_row_id
    return document


def _snapshot(snapshot: ServedSnapshot, version: int) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "snapshot-id": snapshot.id,
        "sequence-number": snapshot.id,
        "timestamp-ms": snapshot.time_ms,
        "manifest-list": snapshot.manifest_list,
        "summary": {"operation": snapshot.operation, **snapshot.summary},
        "schema-id": snapshot.schema_id,
    }
    if snapshot.parent is not None:
        entry["parent-snapshot-id"] = snapshot.parent
    if version >= 3:
        entry["first-row-id"] = snapshot.first_row_id
        entry["added-rows"] = snapshot.added_rows
    return entry
