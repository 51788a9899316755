"""The manifest of a table: its scan plan, with what is known of each file beside it, as an Arrow IPC file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from quacklake.scan.plan import ScanPlan

__all__ = ["PARTITION_VALUES", "STATISTICS", "encode_manifest"]

PARTITION_VALUES = pa.list_(pa.struct([("key_index", pa.int64()), ("value", pa.string())]))
"""The values that all rows of a file have in the keys of its partitioning, as texts."""

STATISTICS = pa.list_(
    pa.struct(
        [
            ("column_id", pa.int64()),
            ("value_count", pa.int64()),
            ("null_count", pa.int64()),
            ("min_value", pa.string()),
            ("max_value", pa.string()),
            ("contains_nan", pa.bool_()),
        ]
    )
)
"""What the catalog knows of the columns of a file; bounds are texts, and NULL where nothing is known."""


def encode_manifest(
    plan: ScanPlan,
    values: Mapping[int, Mapping[int, str | None]],
    statistics: Mapping[int, Sequence[Mapping[str, Any]]],
) -> bytes:
    """The plan with ``partition_values`` and ``column_statistics`` of each file, which ``from_ipc`` leaves out."""
    ids = plan.files.column("data_file_id").to_pylist()
    keys = [[{"key_index": index, "value": text} for index, text in values.get(id_, {}).items()] for id_ in ids]
    known = [[dict(entry) for entry in statistics.get(id_, ())] for id_ in ids]
    files = plan.files.append_column("partition_values", pa.array(keys, PARTITION_VALUES))
    files = files.append_column("column_statistics", pa.array(known, STATISTICS))
    return replace(plan, files=files).to_ipc()
