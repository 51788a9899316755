"""The nested columns as they are in data files: which fields, by id and name, a file has.

DuckDB maps the columns of a file by field id, but the fields inside them by name. So the fields of files that may be
older than a change of fields are read, and the files grouped by them. For encrypted files DuckDB returns the names of
fields only; the plan has the history from which their ids follow.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow.compute as pc

from quacklake.core import forks
from quacklake.core.engines.duckdb.connections import file_literal, lend_keys
from quacklake.core.format.objects import FIELD_ROW_ID, FIELD_SNAPSHOT_ID
from quacklake.core.format.schema import Column, same_shape, with_ids
from quacklake.core.format.texts import parse_column
from quacklake.core.scan.plan import ScanPlan
from quacklake.core.storage import Store
from quacklake.errors import QuacklakeError, UnsupportedFeatureError

_KEY = "ql_shape_key"
_INTERNAL = frozenset({FIELD_ROW_ID, FIELD_SNAPSHOT_ID})

#: Nested columns that a file has in another shape than the table: (column id, column as it is in the file).
Shape = tuple[tuple[int, Column], ...]

#: Returns the shapes of a plan's files that differ from the table's, for some columns.
Shapes = Callable[[ScanPlan, Sequence[Column]], Mapping[int, Shape]]


@dataclass(frozen=True, slots=True)
class _Node:
    name: str
    id: int | None
    type: str | None
    children: tuple[_Node, ...]


class ShapeCache:
    """A cache of the shapes of files, which never change. Safe to share between threads."""

    def __init__(self, store: Store, size: int = 16_384) -> None:
        self._store = store
        self._size = size
        self._known: dict[str, _Node] = {}
        self._parse_described: dict[str, dict[str, Column]] = {}
        self._lock = threading.Lock()
        forks.watch(self, forks.new_lock)

    def find(
        self, connection: duckdb.DuckDBPyConnection, plan: ScanPlan, columns: Sequence[Column]
    ) -> Mapping[int, Shape]:
        """Return the shapes of files that differ from the table's, by row in the plan; one query, and one per key."""
        nested = [column for column in columns if column.nested]
        doubtful = _doubtful(plan) if nested else []
        if not doubtful:
            return {}
        keys, paths = (plan.files.column(name).to_pylist() for name in ("encryption_key", "path"))
        urls = dict(zip(doubtful, self._store.readable_urls([paths[index] for index in doubtful]), strict=True))
        trees = self._trees(connection, [urls[index] for index in doubtful if keys[index] is None])
        shapes: dict[int, Shape] = {}
        for index, url in urls.items():
            if keys[index] is None:
                shapes[index] = _shape(trees[url], nested)
            elif plan.reshaped:
                names = self._names(connection, url, keys[index])
                # the snapshot whose columns a file has; None for one that was compacted or is not committed yet
                first, begin = (plan.files.column(name)[index].as_py() for name in ("row_id_start", "begin_snapshot"))
                shapes[index] = _past_shape(names, nested, plan, None if first is None else begin)
        return {index: shape for index, shape in shapes.items() if shape}

    def numbered(self, connection: duckdb.DuckDBPyConnection, plan: ScanPlan) -> set[int]:
        """Return the ids of files that surely hold neither row ids nor snapshots of rows, with at most one query."""
        files = plan.files.filter(pc.is_null(plan.files.column("encryption_key")))
        ids, mapped = files.column("data_file_id").to_pylist(), pc.is_valid(files.column("mapping_id")).to_pylist()
        urls = self._store.readable_urls(files.column("path").to_pylist())
        trees = self._trees(connection, [url for url, foreign in zip(urls, mapped, strict=True) if not foreign])
        return {
            id_
            for id_, url, foreign in zip(ids, urls, mapped, strict=True)
            if foreign or not _INTERNAL.intersection(child.id for child in trees[url].children)
        }

    def _trees(self, connection: duckdb.DuckDBPyConnection, urls: Sequence[str]) -> Mapping[str, _Node]:
        with self._lock:
            known = {url: self._known[url] for url in urls if url in self._known}
        missing = [url for url in urls if url not in known]
        if missing:
            listed = ", ".join(file_literal(url) for url in missing)
            query = f"SELECT file_name, name, num_children, field_id, duckdb_type FROM parquet_schema([{listed}])"
            # in depth-first order, file by file
            rows = iter(connection.execute(query).fetchall())
            trees = {row[0]: _node(row, rows) for row in rows}
            known |= trees
            with self._lock:
                if len(self._known) + len(trees) > self._size:
                    self._known.clear()
                self._known |= trees
        return known

    def _names(self, connection: duckdb.DuckDBPyConnection, url: str, key: str) -> Mapping[str, Column]:
        """Return the columns of an encrypted file by name, without ids. All files of one key are alike."""
        with self._lock:
            known = self._parse_described.get(key)
        if known is None:
            lend_keys(connection, _KEY, [key])
            config = f"{{footer_key_value: getvariable('{_KEY}')[1]}}"
            query = f"DESCRIBE FROM read_parquet({file_literal(url)}, encryption_config={config})"
            known = {row[0]: _parse_described(row[0], row[1]) for row in connection.execute(query).fetchall()}
            with self._lock:
                if len(self._parse_described) >= self._size:
                    self._parse_described.clear()
                self._parse_described[key] = known
        return known


def _doubtful(plan: ScanPlan) -> list[int]:
    """Return the rows of files that may have other fields than the table."""
    if plan.shaped_at is None:
        return []
    begins = plan.files.column("begin_snapshot")
    old = pc.fill_null(pc.less_equal(begins, plan.shaped_at), plan.reshaped)
    if plan.reshaped:
        # stock clients compact old files as they are: the age of a file without a first row id is unknown
        old = pc.or_(old, pc.is_null(plan.files.column("row_id_start")))
    # files from elsewhere have names instead of field ids, and a mapping of them
    old = pc.and_(old, pc.is_null(plan.files.column("mapping_id")))
    indexes: list[int] = pc.indices_nonzero(old).to_pylist()
    return indexes


def _parse_described(name: str, type_: str) -> Column:
    try:
        return parse_column(name, type_)
    except QuacklakeError:
        return Column(0, name, "blob")


def _past_shape(names: Mapping[str, Column], columns: Sequence[Column], plan: ScanPlan, begin: int | None) -> Shape:
    past = (*plan.past, (plan.snapshot_id + 1, plan.schema))
    shape = []
    for column in columns:
        try:
            stored = with_ids(names, column, past, begin)
        except LookupError:
            raise UnsupportedFeatureError(
                f'the fields inside "{column.name}" of {plan.schema_name}.{plan.table_name} cannot be identified in an'
                " encrypted file that is older than a change of them",
                hint="DuckDB does not return their ids, and the history of the column has expired or is ambiguous",
            ) from None
        if stored is not None and not same_shape(stored, column):
            shape.append((column.id, _readable(stored, column)))
    return tuple(shape)


def _node(row: Sequence[Any], rest: Iterator[Sequence[Any]]) -> _Node:
    _, name, count, id_, type_ = row
    children = tuple([_node(next(rest), rest) for _ in range(count or 0)])
    return _Node(name, id_, type_, children)


def _shape(tree: _Node, columns: Sequence[Column]) -> Shape:
    by_id = {node.id: node for node in tree.children}
    shape = []
    for column in columns:
        node = by_id.get(column.id)
        if node is not None:
            stored = _to_column(node, column)
            if not same_shape(stored, column):
                shape.append((column.id, _readable(stored, column)))
    return tuple(shape)


def _to_column(node: _Node, wanted: Column | None) -> Column:
    """Return a node of a file as a column; what the table has too is read as the table's type."""
    id_ = 0 if node.id is None else node.id
    if wanted is not None and not wanted.nested:
        return replace(wanted, name=node.name)
    if not node.children:
        return Column(id_, node.name, _parse_described("", node.type or "").type)
    kind, nodes = wanted.type if wanted is not None else "struct", node.children
    if kind == "struct" or len(nodes) != 1:
        kind = "struct"
    else:
        nodes = nodes[0].children  # lists and maps have a level more
    known = {child.id: child for child in wanted.children} if wanted is not None else {}
    if kind == "struct":
        children = tuple(_to_column(child, known.get(child.id or 0)) for child in nodes)
    else:
        inner = wanted.children if wanted is not None else (None,) * len(nodes)
        names = ("element",) if kind == "list" else ("key", "value")
        parts = zip(nodes, inner, names, strict=True)
        children = tuple(replace(_to_column(child, one), name=name) for child, one, name in parts)
    return Column(id_, node.name, kind, children=children)


def _readable(stored: Column, wanted: Column) -> Column:
    """Return the fields that the table still has; if none, one of a struct, to tell NULL from other values."""
    if not stored.nested:
        return stored
    if stored.type != "struct":
        pairs = zip(stored.children, wanted.children, strict=True)
        return replace(stored, children=tuple(_readable(one, two) for one, two in pairs))
    known = {child.id: child for child in wanted.children}
    kept = tuple(_readable(child, known[child.id]) for child in stored.children if child.id in known)
    return replace(stored, children=kept or stored.children[:1])
