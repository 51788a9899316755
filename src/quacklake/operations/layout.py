"""The layout of a table's new files: partitioning and sorting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from quacklake.errors import InputError
from quacklake.format.layout import PartitionSpec, SortSpec, make_sort, make_spec
from quacklake.format.objects import MacroInfo, TableInfo
from quacklake.format.schema import TableSchema
from quacklake.operations.context import LakeContext
from quacklake.operations.macros import order_macros
from quacklake.operations.reference import TableRef
from quacklake.transaction import Transaction, objects

Keys = str | Sequence[str]


def create_table(
    context: LakeContext, tx: Transaction, ref: TableRef, schema: TableSchema, partition_by: Keys, sort_by: Keys
) -> TableInfo:
    """Create a table with its partitioning and sort order."""
    partitioned = _partition_spec(tx, schema, texts(partition_by)) if partition_by else None
    ordered = sort_spec(context, tx.local_id(), schema, texts(sort_by), tx.objects.macros) if sort_by else None
    table = tx.create_table(ref.schema, ref.name, schema)
    if partitioned is None and ordered is None:
        return table
    return tx.alter_table(table, replace(table, partition=partitioned, sort=ordered))


def partition(tx: Transaction, table: TableInfo, keys: Sequence[str]) -> TableInfo:
    """Partition new files by these keys; repeating the current keys changes nothing."""
    spec = _partition_spec(tx, table.schema, keys)
    if table.partition is not None and table.partition.keys == spec.keys:
        return table
    return tx.alter_table(table, replace(table, partition=spec))


def reset_partition(tx: Transaction, table: TableInfo) -> TableInfo:
    """Stop partitioning new files."""
    if table.partition is None or not table.partition.keys:
        return table
    # Stock clients express this as a partitioning without keys.
    return tx.alter_table(table, replace(table, partition=PartitionSpec(tx.local_id(), ())))


def sort(context: LakeContext, tx: Transaction, table: TableInfo, keys: Sequence[str]) -> TableInfo:
    """Sort the rows of each new file by these keys; repeating the current keys changes nothing."""
    spec = sort_spec(context, tx.local_id(), table.schema, keys, tx.objects.macros)
    if table.sort is not None and table.sort.keys == spec.keys:
        return table
    return tx.alter_table(table, replace(table, sort=spec))


def reset_sort(tx: Transaction, table: TableInfo) -> TableInfo:
    """Stop sorting; new files keep rows in the order in which they arrive."""
    return table if table.sort is None else tx.alter_table(table, replace(table, sort=None))


def _partition_spec(tx: Transaction, schema: TableSchema, keys: Sequence[str]) -> PartitionSpec:
    _check_keys(keys, "partition", "reset_partitioned_by")
    spec = make_spec(tx.local_id(), keys, schema)
    objects.check_partition(tx.catalog, spec)
    return spec


def sort_spec(
    context: LakeContext,
    id_: int,
    schema: TableSchema,
    keys: Sequence[str],
    find_macros: Callable[[], Sequence[MacroInfo]] = tuple,
) -> SortSpec:
    """Return the sort order of keys. Raises ``InputError`` when a key is invalid for these columns."""
    _check_keys(keys, "sort", "reset_sorted_by")
    macros = order_macros(keys, find_macros)
    return make_sort(id_, keys, schema, lambda text: context.engine.canonical_expression(text, schema, macros))


def texts(keys: Keys) -> Sequence[str]:
    """Return one or several keys as a sequence."""
    return [keys] if isinstance(keys, str) else keys


def _check_keys(keys: Sequence[Any], what: str, reset: str) -> None:
    if not keys:
        raise InputError(f"no {what} keys are given", hint=f"to have none, call {reset}()")
    wrong = next((key for key in keys if not isinstance(key, str)), None)
    if wrong is not None:
        raise InputError(f"a {what} key must be text, not {type(wrong).__name__}")
