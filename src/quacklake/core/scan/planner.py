"""Planning: a snapshot, a table and a filter become a scan plan.

A filter is SQL text, a ``pyarrow.compute`` expression or a Spark column. What a predicate cannot say of it becomes
"anything": the engine applies the whole filter in any case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from quacklake import telemetry
from quacklake.core.catalog import Catalog, Reader
from quacklake.core.catalog.reading.known_bounds import Window
from quacklake.core.format.bounds import ANYTHING, Predicate
from quacklake.core.format.mappings import NameMapping
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import Column, Past, TableSchema
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.lazy import provided
from quacklake.core.scan.inlined_rows import KnownRows, read_inlined
from quacklake.core.scan.legacy_files import map_by_names
from quacklake.core.scan.plan import (
    FILES,
    POSITIONS,
    VIRTUAL,
    ScanPlan,
    virtual_column,
    with_virtual,
)
from quacklake.core.storage import Store
from quacklake.errors import (
    CorruptFileError,
    InputError,
    PredicateError,
    UnsupportedFeatureError,
    nearest,
)


def plan_scan(
    reader: Reader,
    catalog: Catalog,
    store: Store,
    snapshot: Snapshot,
    table: TableInfo,
    *,
    predicate: Predicate = ANYTHING,
    max_files: int | None = None,
    windows: Sequence[Window] | None = None,
    with_inlined: bool = True,
    remains: bool = False,
    known: KnownRows | None = None,
) -> ScanPlan:
    """Return the plan of a table at a snapshot, with the files that the predicate rules out left out.

    With ``windows`` it has the files there, whatever the predicate. Without ``with_inlined`` it is one of files only;
    with ``remains`` what is left of an expired snapshot will do. ``known`` inlined rows help at the newest snapshot.

    Raise ``SnapshotExpiredError`` when the snapshot is gone, ``PathError`` for a path in the catalog that leaves the
    data root, ``CorruptFileError`` for a file of an encrypted lake that has no key,
    ``UnsupportedFeatureError`` for files this version cannot read.
    """
    with telemetry.timed("scan.plan"):
        if windows is None:
            matching = reader.files.matching(snapshot, table, predicate)
        else:
            matching = reader.files.in_windows(snapshot, table, windows)
        if max_files is not None and matching.num_rows > max_files:
            raise InputError(
                f"the scan of {table.qualified_name} needs {matching.num_rows} files, plan_max_files is {max_files}",
                hint="filter more, compact the table, or raise the setting",
            )
        files = plan_files(matching, table, store, snapshot.id, encrypted=catalog.encrypted)
        files, mappings = map_by_names(reader, store, snapshot, table, files, plan_mappings(reader, files))
        # read first what shows that the snapshot has expired: the rest may be gone with it
        rows = None
        if with_inlined and known is not None:
            rows = known.read(reader, snapshot, table, catalog.encoding)
        elif with_inlined:
            rows = read_inlined(reader, snapshot, table, catalog.encoding, remains=remains)
        deletes = reader.inlined.deletes(snapshot, table.id)
        reshaped = reader.tables.reshaped(snapshot, table)
        past = plan_past(reader, snapshot, table, files)
    if deletes.num_rows:  # others belong to files that are pruned or gone
        planned = files.column("data_file_id").combine_chunks()
        deletes = deletes.filter(pc.is_in(deletes.column("file_id"), value_set=planned))
    else:
        deletes = POSITIONS.empty_table()
    return ScanPlan(
        table_id=table.id,
        schema_name=table.schema_name,
        table_name=table.name,
        snapshot_id=snapshot.id,
        root=store.root,
        schema=table.schema,
        files=files,
        deletes=deletes,
        inlined=rows,
        pruned=predicate != ANYTHING or windows is not None,
        shaped_at=reshaped.at,
        reshaped=reshaped.changed,
        mappings=mappings,
        columns_since=table.columns_since,
        past=past,
    )


def plan_files(
    files: pa.Table, table: TableInfo, store: Store, snapshot_id: int, *, encrypted: bool = False
) -> pa.Table:
    """Return files as the catalog has them as a plan lists them (``FILES``). Raise as ``plan_scan`` does."""
    if encrypted:
        _check_keys(files, "path", "encryption_key", table)
        _check_keys(files, "delete_path", "delete_encryption_key", table)
    deleted = files.column("delete_file_id").null_count < files.num_rows
    formats = set(files.column("delete_format").unique().to_pylist()) - {None, "parquet", "puffin"} if deleted else ()
    for other in formats:
        raise UnsupportedFeatureError(f"{table.qualified_name} has deletes in the format {other}")
    # paths below the data root instead of below the table
    relative = table.path_is_relative and table.schema_path_is_relative
    base = table.location if relative else store.resolve(table.location, False)
    known = dict(zip(files.column_names, files.columns, strict=True))
    columns = {name: known.get(name) for name in FILES.names}
    for name in ("path", "delete_path"):
        columns[name] = _resolve_paths(files.column(name), files.column(f"{name}_is_relative"), base, store)
    if deleted:
        # a delete file of several snapshots counts rows that are not yet deleted at an older one: then it says nothing
        later = pc.fill_null(pc.greater(files.column("delete_partial_max"), snapshot_id), False)
        columns["delete_count"] = pc.if_else(later, None, files.column("delete_count"))
    return pa.table(columns, schema=FILES)


def plan_mappings(reader: Reader, files: pa.Table) -> tuple[NameMapping, ...]:
    mapped = [id_ for id_ in files.column("mapping_id").unique().to_pylist() if id_ is not None]
    return reader.files.name_mappings(mapped) if mapped else ()


def plan_past(reader: Reader, snapshot: Snapshot, table: TableInfo, files: pa.Table) -> Past:
    """Return the columns of a table as they were, when it has nested ones in encrypted files, and so needs to know."""
    keys = files.column("encryption_key")
    if keys.null_count == len(keys) or not any(column.nested for column in table.schema.columns):
        return ()
    return reader.tables.past_columns(snapshot, table)


def _check_keys(files: pa.Table, path: str, key: str, table: TableInfo) -> None:
    parquet = pc.fill_null(pc.not_equal(files.column("delete_format"), "puffin"), True) if path != "path" else True
    lacking = files.filter(pc.and_(pc.and_(pc.is_valid(files.column(path)), pc.is_null(files.column(key))), parquet))
    if lacking.num_rows:
        raise CorruptFileError(
            f"the lake is encrypted, but the catalog has no key for {lacking.column(path)[0].as_py()!r}"
            f" of {table.qualified_name}"
        )


def _resolve_paths(paths: pa.ChunkedArray, relative: pa.ChunkedArray, base: str, store: Store) -> pa.ChunkedArray:
    if paths.null_count == len(paths):
        return paths
    hostile = pc.match_substring_regex(paths, r"(^|/)\.{1,2}(/|$)|//|\\|%|\x00|^$")
    plain = pc.fill_null(pc.and_(pc.fill_null(relative, True), pc.invert(pc.fill_null(hostile, False))), False)
    if pc.all(plain).as_py():
        return pc.binary_join_element_wise(base, paths, "")
    resolved = [
        None if path is None else store.resolve(path, bool(is_relative), base)
        for path, is_relative in zip(paths.to_pylist(), relative.to_pylist(), strict=True)
    ]
    return pa.chunked_array([pa.array(resolved, pa.string())])


Filter: TypeAlias = "str | pc.Expression"
"""A filter inside. Users may pass a column of Spark too, which ``as_filter`` turns into SQL text."""

_WORD = re.compile(r"\w+")


def as_filter(where: Any) -> Any:
    """Return a filter as it is, or as SQL text if it is a column of Spark."""
    if not type(where).__module__.startswith("pyspark."):
        return where
    return from_column(where)


@provided
def from_column(column: Any) -> str:
    """Return a column of Spark as SQL; raise ``UnsupportedFeatureError`` for one that only Spark can compute."""
    raise NotImplementedError


def to_predicate(where: Filter | None, schema: TableSchema) -> Predicate:
    """Return what a filter says about column bounds. Raise ``PredicateError`` for SQL that is not one expression.

    >>> schema = TableSchema((Column(1, "id", "int32"),))
    >>> to_predicate("id > 5 AND random() < 0.5", schema).text, to_predicate("id % 2 = 0", schema) == ANYTHING
    ('5', True)
    """
    if where is None:
        return ANYTHING
    if isinstance(where, pc.Expression):
        from quacklake.core.scan.substrait import from_arrow_expression

        return from_arrow_expression(where, with_virtual(schema))
    if not isinstance(where, str):
        raise PredicateError(
            f"a filter must be SQL text, a pyarrow.compute expression or a Spark column, not {type(where).__name__}",
            hint="for example where=\"id > 5 AND name = 'x'\"",
        )
    from quacklake.core.scan.sql_filters import from_sql

    return from_sql(where, schema)


def unknown_columns(where: str, schema: TableSchema) -> str | None:
    """Return a hint that names the nearest known columns when the filter speaks of unknown ones."""
    from quacklake.core.scan.sql_filters import column_names

    unknown = next((name for name in column_names(where) if schema.get(name) is None), None)
    return None if unknown is None else nearest(unknown, schema.names)


def virtual_columns(schema: TableSchema, columns: Sequence[str] | None, where: Filter | None) -> tuple[Column, ...]:
    """Return the virtual columns that a read needs: the chosen ones and those its filter may speak of."""
    names: Iterable[str] = columns or ()
    if isinstance(where, pc.Expression):
        # an expression does not list its columns: any word in it may be one
        names = [*names, *_WORD.findall(str(where))]
    elif where is not None and any(name in where.lower() for name in VIRTUAL):
        from quacklake.core.scan.sql_filters import column_names

        names = [*names, *column_names(where)]
    chosen = {column.name: column for name in names if (column := virtual_column(schema, name)) is not None}
    return tuple(column for name, column in VIRTUAL.items() if name in chosen)
