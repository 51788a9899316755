"""Whole partitions that new rows replace: the dynamic overwrite of Spark, for any engine."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.engines.duckdb.connections import writing
from quacklake.core.engines.duckdb.rows import Keys, partition_keys
from quacklake.core.format.bounds import ANYTHING, Comparable, IsNull, Predicate, compare, every, some
from quacklake.core.format.layout import IDENTITY, decode_value
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.snapshots import Operation
from quacklake.core.operations import dml
from quacklake.core.operations.context import LakeContext
from quacklake.core.scan import ScanPlan
from quacklake.core.scan.plan import LOCAL_VERSION
from quacklake.core.transaction import Transaction

__all__ = ["overwrite_partitions"]

T = TypeVar("T")
_Texts: TypeAlias = tuple[str | None, ...]
_Values: TypeAlias = tuple[Comparable | None, ...]
_MAX_COMPARED = 100  # the most partitions that are compared one by one with concurrent changes


def overwrite_partitions(context: LakeContext, tx: Transaction, table: TableInfo, add: Callable[[], T]) -> T:
    """Call ``add`` to insert rows, and remove the previous rows of their partitions, or all without partitions.

    Rows are chosen by their values, also those from before the table had this partitioning.

    >>> from quacklake.extend.example import example_lake
    >>> from quacklake.extend.writes import run
    >>> def overwrite(change):
    ...     events, tx = change.transaction.table("events"), change.transaction.handle.view()
    ...     add = lambda: events.append({"id": [9, 9], "name": ["c", "new"]})
    ...     return overwrite_partitions(lake.handle.context, tx, events.info, add)
    >>> with example_lake() as lake:
    ...     lake.table("events").set_partitioned_by("name")
    ...     run(lake, overwrite).value, lake.table("events").to_arrow().column("id").to_pylist()
    (2, [0, 3, 4, 10, 11, 9, 9])
    """
    tx.asks(Operation.OVERWRITE)
    keys = partition_keys(table)
    if keys is None:
        dml.delete(context, tx, table, None, asked=Operation.OVERWRITE)
        return add()
    before = tx.plan(table)
    pending = tx.pending(table)
    files = len(pending.files)
    done = add()
    new = {tuple(file.partition_values[key.index] for key in keys.spec.keys) for file in pending.files[files:]}
    after = tx.plan(table).inlined if pending.inserts else None
    if after is not None:
        mine = after.filter(pc.equal(after.column("schema_version"), LOCAL_VERSION))
        new |= _keys_of(context, keys, replace(before, files=before.files.slice(0, 0), inlined=mine))
    if new:
        _remove(context, tx, table, keys, before, new)
    return done


def _keys_of(context: LakeContext, keys: Keys, plan: ScanPlan) -> set[_Texts]:
    with context.engine.connection() as connection, writing():
        query = keys.query(context.engine.bind(connection, plan))
        names = ", ".join(f"CAST({name} AS VARCHAR)" for name in keys.names)
        return {tuple(row) for row in connection.execute(f"SELECT DISTINCT {names} FROM ({query})").fetchall()}


def _remove(
    context: LakeContext, tx: Transaction, table: TableInfo, keys: Keys, plan: ScanPlan, gone: Collection[_Texts]
) -> None:
    """Delete the rows of partitions: whole files that belong to one partition, single rows of other files."""
    pending = tx.pending(table)
    pending.add_read(_predicate(keys, gone))
    whole = _whole_files(context, table, keys, plan)
    values = {_decode_texts(keys, texts) for texts in gone}
    pending.end_files(plan, {id_ for id_, own in whole.items() if own in values})
    known = pa.array(sorted(whole), pa.int64())
    rest = plan.files.filter(pc.invert(pc.is_in(plan.files.column("data_file_id"), value_set=known)))
    if not rest.num_rows and (plan.inlined is None or not plan.inlined.num_rows):
        return
    with context.engine.connection() as connection:
        query = context.engine.bind(connection, replace(plan, files=rest), rows=True)
        with writing():
            texts = [pa.array([each[number] for each in gone], pa.string()) for number in range(len(keys.names))]
            connection.register("ql_partitions", pa.table(texts, names=list(keys.names)))
        same = " AND ".join(f"CAST(t.{name} AS VARCHAR) IS NOT DISTINCT FROM p.{name}" for name in keys.names)
        found = f"SELECT t.* FROM ({keys.query(query)}) t SEMI JOIN ql_partitions p ON {same}"
        pending.delete(plan, context.engine.find(connection, found, None, table.schema))


def _whole_files(context: LakeContext, table: TableInfo, keys: Keys, plan: ScanPlan) -> dict[int, _Values]:
    """Return the partition of each file that was written under these keys and is identified by them."""
    if any(table.schema.by_id(key.column_id).type.startswith("float") for key in keys.spec.keys):
        return {}  # an older file may have the value with fewer digits
    mine = pc.equal(plan.files.column("partition_id"), keys.spec.id)
    ids = plan.files.filter(mine).column("data_file_id").to_pylist()
    if not ids:
        return {}
    with context.catalog.read() as reader:
        known = reader.files.partition_values(table.id, ids)
    return {
        id_: _decode_texts(keys, tuple(known[id_].get(key.index) for key in keys.spec.keys))
        for id_ in ids
        if id_ in known
    }


def _decode_texts(keys: Keys, texts: _Texts) -> _Values:
    types = [keys.schema.by_id(key.column_id).type for key in keys.spec.keys]
    parts = zip(keys.spec.keys, types, texts, strict=True)
    return tuple(decode_value(text, type_, key.parsed) for key, type_, text in parts)


def _predicate(keys: Keys, gone: Collection[_Texts]) -> Predicate:
    """Return a predicate for these partitions, as far as single columns determine it."""
    if len(gone) > _MAX_COMPARED or any(key.parsed != IDENTITY for key in keys.spec.keys):
        return ANYTHING
    columns = [keys.schema.by_id(key.column_id) for key in keys.spec.keys]
    return some(
        every(
            IsNull(column.id) if value is None else compare(column, "=", value)
            for column, value in zip(columns, _decode_texts(keys, texts), strict=True)
        )
        for texts in gone
    )
