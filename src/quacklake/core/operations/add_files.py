"""Add existing Parquet files to a table in place, without copying them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from quacklake.core.engines.duckdb.connections import file_name
from quacklake.core.format.layout import IDENTITY, PartitionSpec
from quacklake.core.format.mappings import MappedColumn, NameMapping, fits, hive_values
from quacklake.core.format.names import fold
from quacklake.core.format.objects import NAME_ROW_ID, NAME_SNAPSHOT_ID, TableInfo
from quacklake.core.format.schema import FIELD_ID, Column
from quacklake.core.format.snapshots import Operation
from quacklake.core.format.stats import ColumnStats, of_array
from quacklake.core.format.stored_index import stored_index
from quacklake.core.format.types import NESTED, SCALARS, duckdb_type
from quacklake.core.operations.context import LakeContext
from quacklake.core.storage import Footer, FooterColumn, Links, read_footers
from quacklake.core.storage.parquet import Places, child_fields, leaf_places, placed_stats
from quacklake.core.transaction import NewDataFile, Transaction
from quacklake.errors import (
    AlreadyExistsError,
    ConstraintError,
    InputError,
    NotFoundError,
    PathError,
    SchemaMismatchError,
    UnsupportedFeatureError,
    nearest,
)


@dataclass(frozen=True, slots=True)
class AddOptions:
    """The differences between files and table to accept."""

    allow_missing: bool = False
    ignore_extra_columns: bool = False
    hive_partitioning: bool | None = None
    index: bool = True


@dataclass(frozen=True, slots=True)
class Node:
    """A column of a file or a node inside; ``name`` is matched, ``stored`` is in the file, ``path`` is a leaf's."""

    name: str
    kind: str
    path: str = ""
    children: tuple[Node, ...] = ()
    stored: str = ""
    field_id: int | None = None


Nodes = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Matching:
    """A way to find columns of files whose names or places differ from the table's.

    ``rename`` gives the nodes of a file the names of the table, and leaves out those that the table has not.
    ``folders`` are the columns that come from folder names only, each with the name it has there.
    """

    rename: Callable[[str, Nodes], Nodes]
    folders: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Shape:
    """The name mapping that files with one schema share, and the places of the table's leaves in them."""

    mapping: NameMapping
    places: Places
    folders: tuple[Column, ...]
    missing: tuple[Column, ...]


def to_patterns(paths: str | Path | Iterable[str | Path]) -> list[str]:
    """Return paths and patterns as strings. Raise ``InputError`` for anything else."""
    given: list[Any] = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given or not all(isinstance(path, str | Path) and str(path) for path in given):
        raise InputError("add_files needs a path, a pattern or a list of them")
    return [str(path) for path in given]


def add_files(
    context: LakeContext, tx: Transaction, table: TableInfo, patterns: Sequence[str], options: AddOptions
) -> int:
    """Add Parquet files to a table; return the number of their rows."""
    tx.asks(Operation.ADD_FILES)
    check_unencrypted(context)
    spec = _partition(table)
    found: dict[str, None] = {}
    for pattern in patterns:
        files = context.store.find(pattern)
        if not files:
            raise NotFoundError(
                f"Failed to add data files to {table.qualified_name}: there is no file {pattern!r}",
                hint="check the path or pattern",
            )
        found.update(dict.fromkeys(files))
    known = set(tx.plan(table).files.column("path").to_pylist())
    links = Links()
    places = {url: context.store.resolve(url, False, links=links) for url in found}
    for url, place in places.items():
        file_name(url)  # raises for a file that could not be read later
        if place in known:
            raise AlreadyExistsError(f"{url} is a file of {table.qualified_name} already")
        check_own(context, url, place)
    footers = read_footers(context.store, list(places.values()))
    shapes = Shapes(tx, table, options, spec)
    rows = [
        AddedFile(url, place, footer, shapes.of(url, footer))
        for (url, place), footer in zip(places.items(), footers, strict=True)
        if footer.rows
    ]
    values = folder_stats(context, rows)
    pending = tx.pending(table)
    added = [new_file(tx, table, each, values, spec) for each in rows]
    pending.files.extend(added)
    pending.mappings.extend(shapes.new)
    return sum(file.record_count for file in added)


def check_unencrypted(context: LakeContext) -> None:
    """Raise ``UnsupportedFeatureError`` for an encrypted lake."""
    if context.catalog.encrypted:
        raise UnsupportedFeatureError(
            "an encrypted lake takes no files from elsewhere: every file must have its own key",
            hint="append the rows instead",
        )


def check_own(context: LakeContext, url: str, place: str) -> None:
    """Raise ``PathError`` for a file that another catalog of a shared lake may remove."""
    if context.store.is_of_others(place):
        raise PathError(
            f"{url} may be a file of another catalog of this shared lake, which would not know that it must stay",
            hint="append its rows instead, or fork that catalog",
        )


def _partition(table: TableInfo) -> PartitionSpec | None:
    """Return the required partitioning. Raise ``UnsupportedFeatureError`` if folder names cannot prove it."""
    spec = table.partition
    if spec is None or not spec.keys:
        return None
    for key in spec.keys:
        if key.parsed != IDENTITY:
            raise UnsupportedFeatureError(
                f"{table.qualified_name} is partitioned by {key.transform}: the name of a folder does not prove"
                " that all rows of a file belong there",
                hint="append the rows instead",
            )
    return spec


class Shapes:
    """Makes one mapping for all files that look alike, and reuses the mappings of earlier files."""

    def __init__(
        self,
        tx: Transaction,
        table: TableInfo,
        options: AddOptions,
        spec: PartitionSpec | None = None,
        matching: Matching | None = None,
    ) -> None:
        self._matching = matching
        self._keys = () if spec is None else tuple(table.schema.by_id(key.column_id) for key in spec.keys)
        self._table = table
        self._options = options
        self._local_id: Callable[[], int] = tx.local_id
        self._shapes: dict[object, Shape] = {}
        self._known = tx.known_mappings(table)
        self.new: list[NameMapping] = []

    def of(self, url: str, footer: Footer) -> Shape:
        """Return the shape of a file. Raise ``SchemaMismatchError`` when the file does not fit the table."""
        names = () if self._options.hive_partitioning is False else tuple(hive_values(url))
        if self._matching is not None:
            names = tuple(self._matching.folders)
        # field ids are in the metadata of the schema, which Arrow does not compare
        leaves = tuple((column.path, column.lake_type, column.field_id) for column in footer.columns)
        index = stored_index(footer.schema, index=self._options.index) if self._matching is None else {}
        key = (footer.schema, leaves, names, tuple(index.items()))
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._make(url, footer, set(names), index)
        return shape

    def _make(self, url: str, footer: Footer, folders: set[str], index: Mapping[str, str | None]) -> Shape:
        leaves = iter(footer.columns)
        nodes = tuple(_node(field, leaves) for field in footer.schema)
        if any(node.name in (NAME_ROW_ID, NAME_SNAPSHOT_ID) for node in nodes):
            raise SchemaMismatchError(
                f'File "{url}" was written by a lake and keeps the history of its rows: some may be deleted there, and'
                " stock clients cannot delete any of them here",
                hint="append the rows of that table instead",
            )
        nodes = tuple(
            replace(node, name=name) for node in nodes if (name := index.get(node.name, node.name)) is not None
        )
        if self._matching is not None:
            nodes = self._matching.rename(url, nodes)
        mapper = _Mapper(url, self._table, self._options, {} if self._matching is None else self._matching.folders)
        for column in self._keys:
            if column.name not in folders:
                raise SchemaMismatchError(
                    f'File "{url}" contains an invalid partition value for the table configuration:'
                    f' {self._table.qualified_name} is partitioned by "{column.name}", and the file is in no folder'
                    f" {column.name}=…"
                )
        columns = mapper.columns(nodes, self._table.schema.columns, folders)
        mapping = NameMapping(0, columns)
        id_ = self._known.get(mapping.key)
        mapping = replace(mapping, id=self._local_id() if id_ is None else id_)
        if id_ is None:
            self._known[mapping.key] = mapping.id
            self.new.append(mapping)
        by_target = mapping.by_target
        there = [column for column in self._table.schema.columns if column.id in by_target]
        return Shape(
            mapping,
            leaf_places(footer, self._table.schema, mapper.leaves),
            tuple(column for column in there if by_target[column.id].is_partition),
            tuple(mapper.missing),
        )


def _node(field: pa.Field, leaves: Iterator[FooterColumn]) -> Node:
    type_ = field.type
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    children = child_fields(type_)
    id_ = (field.metadata or {}).get(FIELD_ID)
    given: dict[str, Any] = {"stored": field.name, "field_id": None if id_ is None else int(id_)}
    if not children:
        leaf = next(leaves)
        return Node(field.name, leaf.lake_type or "unknown", leaf.path, **given)
    kind = "map" if pa.types.is_map(type_) else "struct" if pa.types.is_struct(type_) else "list"
    return Node(field.name, kind, children=tuple(_node(child, leaves) for child in children), **given)


class _Mapper:
    """Matches the columns of a file with those of the table, at every depth."""

    def __init__(self, url: str, table: TableInfo, options: AddOptions, folders: Mapping[str, str]) -> None:
        self._url, self._table, self._options, self._folders = url, table, options, folders
        self.leaves: dict[str, int] = {}
        self.missing: list[Column] = []

    def columns(
        self, nodes: Sequence[Node], columns: Sequence[Column], folders: set[str], above: str = ""
    ) -> tuple[MappedColumn, ...]:
        """Map the columns of a file, or the fields of a struct, to those of the table."""
        left = {fold(column.name): column for column in columns}
        seen: set[str] = set()
        found: list[MappedColumn] = []
        for node in nodes:
            if fold(node.name) in seen:
                raise self._mismatch(f'has the column "{above}{node.name}" twice')
            seen.add(fold(node.name))
            column = left.pop(fold(node.name), None)
            if column is None:
                if not self._options.ignore_extra_columns:
                    hint = nearest(node.name, (column.name for column in columns))
                    raise SchemaMismatchError(
                        f'Column "{above}{node.name}" exists in file "{self._url}" but was not found in table'
                        f' "{self._table.name}"',
                        hint=hint or "pass ignore_extra_columns=True to leave it out",
                    )
            elif column.name in folders:
                found.append(self._folder(column))
            else:
                found.append(self._column(node, column, above))
        for column in left.values():
            if column.name in folders:
                found.append(self._folder(column))
            elif self._options.allow_missing:
                if not above and not column.nullable and column.initial_default is None:
                    raise ConstraintError(f'{self._url} lacks the NOT NULL column "{column.name}"')
                self.missing.extend(column.leaves())
            else:
                raise SchemaMismatchError(
                    f'Column "{above}{column.name}" exists in table "{self._table.name}" but was not found in file'
                    f' "{self._url}"',
                    hint="pass allow_missing=True to add the file: rows of it then have the default, or NULL",
                )
        return tuple(found)

    def _column(self, node: Node, column: Column, above: str) -> MappedColumn:
        name = f"{above}{node.name}"
        if not column.children:
            if node.children or not fits(node.kind, column.type):
                raise self._other_type(name, node.kind, column)
            self.leaves[node.path] = column.id
            return MappedColumn(node.stored, column.id)
        if node.kind != column.type:
            raise self._other_type(name, node.kind, column)
        if column.type == "struct":
            children = self.columns(node.children, column.children, set(), f"{name}.")
        else:
            names = ("list",) if column.type == "list" else ("key", "value")
            children = tuple(
                self._column(replace(child, name=as_, stored=as_), target, f"{name}.")
                for child, target, as_ in zip(node.children, column.children, names, strict=True)
            )
        return MappedColumn(node.stored, column.id, children=children)

    def _folder(self, column: Column) -> MappedColumn:
        if column.nested:
            raise self._mismatch(f'has "{column.name}" in the name of a folder, the table as {column.type}')
        return MappedColumn(self._folders.get(column.name, column.name), column.id, is_partition=True)

    def _other_type(self, name: str, kind: str, column: Column) -> SchemaMismatchError:
        found = kind.upper() if kind in NESTED or kind == "unknown" else duckdb_type(kind)
        accepted = [duckdb_type(each) for each in SCALARS if fits(each, column.type)] or [column.duckdb_type()]
        why = f"Expected {' or '.join(dict.fromkeys(accepted))}, found type {found}"
        if kind.startswith("decimal") and column.type.startswith("decimal"):
            why = f"Incompatible decimal precision/scale - {why}"
        elif column.type == "geometry" and kind == "blob":
            why = (
                'Expected type "GEOMETRY" but found type "BLOB". Is this a GeoParquet v1.*.* file? DuckLake only'
                " supports GEOMETRY types stored in native Parquet(V3) format, not GeoParquet(v1.*.*)"
            )
        return SchemaMismatchError(
            f'Failed to map column "{name}" from file "{self._url}" to the column in table "{self._table.name}"'
            f"\n* {why}",
            hint="append the rows instead: their values are converted where nothing is lost",
        )

    def _mismatch(self, why: str) -> SchemaMismatchError:
        return SchemaMismatchError(f"{self._url} does not fit {self._table.qualified_name}: it {why}")


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file that a table takes: its URL, its place in the store, its footer and how its columns are mapped."""

    url: str
    place: str
    footer: Footer
    shape: Shape


FolderStats = Mapping[tuple[int, str | None], tuple[ColumnStats, str | None]]


def folder_text(column: Column, file: AddedFile) -> str | None:
    """Return the value in the name of a file's folder; an empty value is NULL unless the column is text."""
    text = hive_values(file.url)[file.shape.mapping.by_target[column.id].source_name]
    return None if text == "" and column.type != "varchar" else text


def folder_stats(context: LakeContext, rows: Sequence[AddedFile]) -> FolderStats:
    """Return the bounds and the partition text of each value in a folder name. Raise ``SchemaMismatchError``."""
    columns = {column.id: column for each in rows for column in each.shape.folders}
    found: dict[tuple[int, str | None], tuple[ColumnStats, str | None]] = {}
    for column in columns.values():
        texts = list(dict.fromkeys(folder_text(column, each) for each in rows if column in each.shape.folders))
        given = pa.array(texts, pa.string())
        values = context.engine.cast(given, column)
        written = context.engine.texts(pa.table({column.name: values}), [column])
        for index, text in enumerate(texts):
            if text is not None and not values[index].is_valid:
                raise SchemaMismatchError(
                    f"Unable to cast '{text}' (from hive partition column '{column.name.upper()}') to:"
                    f" '{column.duckdb_type()}'",
                    hint="pass hive_partitioning=False when the names of the folders mean nothing",
                )
            found[column.id, text] = of_array(values.slice(index, 1), column)[0], written[column.id][index]
    return found


def new_file(
    tx: Transaction, table: TableInfo, added: AddedFile, values: FolderStats, spec: PartitionSpec | None = None
) -> NewDataFile:
    """Return a file as the transaction adds it. Raise ``ConstraintError`` when NOT NULL is not sure."""
    footer, shape = added.footer, added.shape
    stats = list(placed_stats(footer, shape.places, by_name=True))
    texts: dict[int, str | None] = {}
    for column in shape.folders:
        one, texts[column.id] = values[column.id, folder_text(column, added)]
        nulls = footer.rows if one.value_count == 0 else 0
        stats.append(one._replace(size_bytes=0, value_count=footer.rows - nulls, null_count=nulls))
    for column in shape.missing:
        # For a column that is not in the file, only NULL is certain without evaluating the default.
        empty = column.initial_default is None and column in table.schema.columns
        stats.append(ColumnStats(column.id, 0, 0, footer.rows) if empty else ColumnStats(column.id, 0))
    _check_not_null(table, added.url, stats)
    inside = added.place.startswith(table.location) and table.path_is_relative and table.schema_path_is_relative
    return NewDataFile(
        id=tx.local_id(),
        path=added.place.removeprefix(table.location) if inside else added.url,
        record_count=footer.rows,
        file_size_bytes=footer.size_bytes,
        footer_size=footer.footer_size,
        stats=tuple(stats),
        row_groups=footer.row_groups,
        mapping_id=shape.mapping.id,
        partition_id=None if spec is None else spec.id,
        partition_values={} if spec is None else {key.index: texts[key.column_id] for key in spec.keys},
        location=None if inside else added.place,
    )


def _check_not_null(table: TableInfo, url: str, stats: Sequence[ColumnStats]) -> None:
    required = {column.id: column for column in table.schema.columns if not column.nullable and not column.nested}
    for each in stats:
        if each.column_id in required and each.null_count != 0:
            name = required[each.column_id].name
            raise ConstraintError(
                f'{url} has, or may have, NULL in the NOT NULL column "{name}"', hint="append its rows instead"
            )
