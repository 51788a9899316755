"""Files from elsewhere that came before there were name mappings: their columns are found by their names.

Such a file has no field ids, and its row in the catalog no mapping. It has the names that the columns had when it came.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.catalog import Reader
from quacklake.core.format.mappings import MappedColumn, NameMapping
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import Column, Past, TableSchema
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.storage import Store
from quacklake.core.storage.parquet import glance
from quacklake.errors import QuacklakeError

_OWN_NAME = "ducklake-0"
"""A part of the names of the files that lakes write themselves, with field ids: the time begins their number."""
_FIRST_ID = -(1 << 40)
"""The ids of mappings that no catalog has; those of an open transaction are nearer to zero."""
_KNOWN = 16_384


def map_by_names(
    reader: Reader,
    store: Store,
    snapshot: Snapshot,
    table: TableInfo,
    files: pa.Table,
    mappings: tuple[NameMapping, ...],
) -> tuple[pa.Table, tuple[NameMapping, ...]]:
    """Return planned files and mappings, in which every file without field ids has a mapping."""
    own = pc.match_substring(files.column("path"), _OWN_NAME)
    mapped = pc.or_(pc.is_valid(files.column("mapping_id")), pc.is_valid(files.column("encryption_key")))
    doubtful = pc.indices_nonzero(pc.invert(pc.or_(own, mapped))).to_pylist()
    paths, begins = files.column("path"), files.column("begin_snapshot")
    unnumbered = [place for place in doubtful if _has_no_ids(store, paths[place].as_py())]
    if not unnumbered:
        return files, mappings
    past = reader.tables.past_columns(snapshot, table)
    ids = files.column("mapping_id").to_pylist()
    added: dict[TableSchema, NameMapping] = {}
    for place in unnumbered:
        then = _columns_at(past, begins[place].as_py(), table.schema)
        mapping = added.setdefault(then, NameMapping(_FIRST_ID - len(added), _map_columns(then.columns)))
        ids[place] = mapping.id
    index = files.column_names.index("mapping_id")
    field = files.schema.field(index)
    return files.set_column(index, field, pa.array(ids, field.type)), (*mappings, *added.values())


def _columns_at(past: Past, begin: int | None, newest: TableSchema) -> TableSchema:
    """Return the columns of a table at a snapshot, or the oldest that are known."""
    schemas = [schema for since, schema in past if begin is not None and since <= begin]
    return schemas[-1] if schemas else past[0][1] if past else newest


def _map_columns(columns: Iterable[Column]) -> tuple[MappedColumn, ...]:
    return tuple(MappedColumn(column.name, column.id, children=_map_columns(column.children)) for column in columns)


def _has_no_ids(store: Store, path: str) -> bool:
    # a file that cannot be read is an error for who reads it
    with suppress(QuacklakeError, OSError):
        return _look(store, path)
    return False


@lru_cache(_KNOWN)
def _look(store: Store, path: str) -> bool:
    """Return whether a file, which never changes, has no field ids."""
    return glance(store, path).field_ids == frozenset()
