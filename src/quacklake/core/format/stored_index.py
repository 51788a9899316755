"""The index of a frame of pandas, as pandas describes it in the metadata of a schema or a Parquet file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from quacklake.core.format.names import fold

METADATA = b"pandas"
"""The key of the metadata in which pandas describes its frame, in Parquet files too."""
_UNNAMED = re.compile(r"__index_level_(\d+)__")


def stored_index(schema: pa.Schema, *, index: bool) -> Mapping[str, str | None]:
    """Return the columns in which pandas stored an index, each with its name in a table; None leaves it out.

    Columns that have that name already are not among them.

    >>> metadata = {METADATA: b'{"index_columns": ["__index_level_0__"]}'}
    >>> stored_index(pa.schema([("v", pa.int8()), ("__index_level_0__", pa.string())], metadata), index=True)
    {'__index_level_0__': 'index'}
    >>> stored_index(pa.schema([("v", pa.int8()), ("__index_level_0__", pa.int64())], metadata), index=True)
    {'__index_level_0__': None}
    """
    stored = [name for name in index_columns(schema.metadata) if name in schema.names]
    if not index:
        return dict.fromkeys(stored)
    unnamed = {name: int(found[1]) for name in stored if (found := _UNNAMED.fullmatch(name)) is not None}
    if len(stored) > 1:
        return {name: f"level_{place}" for name, place in unnamed.items()}
    taken = {fold(name) for name in schema.names}
    return {name: None if pa.types.is_integer(schema.field(name).type) else index_name(taken) for name in unnamed}


def index_columns(metadata: Mapping[bytes, bytes] | None) -> list[str]:
    """Return the columns in which pandas stored an index, according to the metadata of a schema or a file."""
    return [name for name in _read_index_columns(metadata) if isinstance(name, str)]


@dataclass(frozen=True, slots=True)
class StoredRange:
    """An index of evenly spaced numbers, which pandas stores as its bounds alone."""

    name: str
    start: int
    stop: int
    step: int

    def column(self, rows: int) -> pa.Array | None:
        """Return the numbers of so many rows; None if the index had others, because rows were taken or left out."""
        numbers = range(self.start, self.stop, self.step)
        try:
            return pa.array(numbers, pa.int64()) if len(numbers) == rows else None
        except OverflowError:
            return None


def stored_range(metadata: Mapping[bytes, bytes] | None) -> StoredRange | None:
    """Return the index with a name that metadata has only the bounds of."""
    match _read_index_columns(metadata):
        case [{"kind": "range", "name": str(name), "start": int(start), "stop": int(stop), "step": int(step)}] if step:
            return StoredRange(name, start, stop, step) if name else None
    return None


def _read_index_columns(metadata: Mapping[bytes, bytes] | None) -> list[Any]:
    if metadata is None or METADATA not in metadata:
        return []
    try:
        found = json.loads(metadata[METADATA])["index_columns"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return []  # of another program
    return found if isinstance(found, list) else []


def index_metadata(columns: Iterable[str]) -> dict[bytes, bytes]:
    """Return the metadata of a schema that says in which columns pandas stored an index."""
    return {METADATA: json.dumps({"index_columns": list(columns)}).encode()}


def index_name(taken: Iterable[str]) -> str:
    """Return the name of an index without one, as ``reset_index`` calls it beside columns with the folded names."""
    return "level_0" if "index" in taken else "index"
