"""The columns of data files: which columns of the table a file has, with their names and types.

Spark needs the names that are in the files. Files that are newer than every change of a column have the table's own
names. For other files the footer is read, once, and cached.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from quacklake.format.mappings import MappedColumn, NameMapping
from quacklake.format.schema import FIELD_ID, Column
from quacklake.scan import ScanPlan
from quacklake.spark.read.footers import all_footers
from quacklake.storage import FooterColumn, Store
from quacklake.storage.parquet import child_fields

#: The columns of the table that a file has: (id of the table's column, the file's column).
Shape = tuple[tuple[int, Column], ...]


class FileShapes:
    """A cache of the columns of files, which never change. Safe to share between threads."""

    def __init__(self, session: SparkSession, store: Store, size: int = 100_000) -> None:
        self._session = session
        self._store = store
        self._size = size
        self._known: dict[str, tuple[Column, ...]] = {}
        self._lock = threading.Lock()

    def find(self, plan: ScanPlan) -> list[Shape]:
        """Return the shape of each file of a plan. Equal shapes are the same object."""
        own: Shape = tuple((column.id, column) for column in plan.schema.columns)
        shapes: list[Shape] = [own] * plan.files.num_rows
        indexes = _doubtful(plan)
        if not indexes:
            return shapes
        paths: list[str] = plan.files.column("path").take(pa.array(indexes, pa.int64())).to_pylist()
        mappings: list[int | None] = plan.files.column("mapping_id").to_pylist()
        trees = self._trees(paths)
        made: dict[tuple[int | None, tuple[Column, ...]], Shape] = {}
        known: dict[Shape, Shape] = {own: own}
        for index, path in zip(indexes, paths, strict=True):
            key = (mappings[index], trees[path])
            if key not in made:
                mapping = None if key[0] is None else plan.mapping(key[0])
                shape = _shape(key[1], plan.schema.columns, mapping)
                made[key] = known.setdefault(shape, shape)
            shapes[index] = made[key]
        return shapes

    def _trees(self, paths: Sequence[str]) -> Mapping[str, tuple[Column, ...]]:
        with self._lock:
            known = {path: self._known[path] for path in paths if path in self._known}
        missing = [path for path in paths if path not in known]
        for path, footer in zip(missing, all_footers(self._session, self._store, missing), strict=True):
            leaves = iter(footer.columns)
            known[path] = tuple(_column(field, leaves) for field in footer.schema)
        with self._lock:
            if len(self._known) + len(missing) > self._size:
                self._known.clear()
            self._known |= {path: known[path] for path in missing}
        return known


def _doubtful(plan: ScanPlan) -> list[int]:
    """Return the files that may have other columns than the table: old, compacted, or from elsewhere."""
    if plan.columns_since is None:
        return list(range(plan.files.num_rows))
    begins, first = plan.files.column("begin_snapshot"), plan.files.column("row_id_start")
    young = pc.fill_null(pc.greater(begins, plan.columns_since), False)
    sure = pc.and_(pc.and_(young, pc.is_valid(first)), pc.is_null(plan.files.column("mapping_id")))
    found: list[int] = pc.indices_nonzero(pc.invert(sure)).to_pylist()
    return found


def _column(field: pa.Field, leaves: Iterator[FooterColumn]) -> Column:
    """Return a column of a file. Its id is -1 without a field id, its type ``unknown`` if Spark cannot read it."""
    text = (field.metadata or {}).get(FIELD_ID)
    id_ = -1 if text is None else int(text)
    type_ = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    fields = child_fields(type_)
    if not fields:
        leaf = next(leaves)
        kind = "timestamptz" if leaf.type.physical == "INT96" else leaf.lake_type
        return Column(id_, field.name, kind or "unknown")
    children = tuple(_column(child, leaves) for child in fields)
    kind = "map" if pa.types.is_map(type_) else "struct" if pa.types.is_struct(type_) else "list"
    return Column(id_, field.name, kind, children=children)


def _shape(tree: Sequence[Column], columns: Sequence[Column], mapping: NameMapping | None) -> Shape:
    if mapping is not None:
        by_name = {column.name: column for column in tree}
        entries = mapping.by_target
        tree = [
            _mapped(by_name[entries[column.id].source_name], entries[column.id])
            for column in columns
            if column.id in entries and entries[column.id].source_name in by_name
        ]
    by_id = {column.id: column for column in tree if column.id >= 0}
    found = ((column, by_id.get(column.id)) for column in columns)
    return tuple((column.id, _fitted(stored, column)) for column, stored in found if stored is not None)


def _mapped(stored: Column, entry: MappedColumn) -> Column:
    """Return a column of a file with the ids of its name mapping, at every depth."""
    if stored.type == "struct":
        targets = {child.source_name: child for child in entry.children}
        children = tuple(
            _mapped(child, targets[child.name]) if child.name in targets else replace(child, id=-1)
            for child in stored.children
        )
    else:
        children = tuple(_mapped(child, one) for child, one in zip(stored.children, entry.children, strict=False))
    return replace(stored, id=entry.target_id, children=children)


def _fitted(stored: Column, wanted: Column) -> Column:
    """Return a column of a file as it is read: without fields that the table lacks, with value groups kept whole."""
    if wanted.type == "variant" and stored.type == "struct":
        return replace(stored, type="variant", children=())
    if wanted.type == "timetz" and stored.type == "time":
        return replace(stored, type="timetz")
    if not wanted.nested or stored.type != wanted.type:
        return stored
    if wanted.type != "struct":
        pairs = zip(stored.children, wanted.children, strict=True)
        return replace(stored, children=tuple(_fitted(one, two) for one, two in pairs))
    known = {child.id: child for child in wanted.children}
    kept = tuple(_fitted(child, known[child.id]) for child in stored.children if child.id in known)
    # one field of a struct that shares none with the table, so that NULL differs from other values
    return replace(stored, children=kept or stored.children[:1])
