"""Partitionings, sort orders, and the partition values of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from quacklake.catalog.statements import CatalogStatements, visible
from quacklake.format.bounds import Compare, IsNull, Predicate, columns_of
from quacklake.format.layout import PartitionKey, PartitionSpec, SortKey, SortSpec

_FEW = 500
"""Files up to which their values are asked for by id, not those of the whole table."""

Values = Mapping[int, str | None]
Test = Callable[[Values], bool]


def partitionings(
    sql: CatalogStatements, snapshot: int, table_ids: Sequence[int] | None = None
) -> dict[int, PartitionSpec]:
    """Return the partitioning of tables at a snapshot, by table."""
    info, columns = sql.meta["partition_info"], sql.meta["partition_column"]
    mine = sa.and_(columns.c.partition_id == info.c.partition_id, columns.c.table_id == info.c.table_id)
    keys = columns.c["partition_key_index", "column_id", "transform"]
    select = sa.select(info.c.table_id, info.c.partition_id, *keys).select_from(info.outerjoin(columns, mine))
    order = (info.c.partition_id, columns.c.partition_key_index)
    return dict(_specs(sql.run("partitions", _at(select, info, snapshot, table_ids).order_by(*order))))


def sorts(sql: CatalogStatements, snapshot: int, table_ids: Sequence[int] | None = None) -> dict[int, SortSpec]:
    """Return the order of tables at a snapshot, by table."""
    if "sort_info" not in sql.meta:
        return {}
    info, keys = sql.meta["sort_info"], sql.meta["sort_expression"]
    mine = sa.and_(keys.c.sort_id == info.c.sort_id, keys.c.table_id == info.c.table_id)
    columns = keys.c["expression", "sort_direction", "null_order", "dialect"]
    select = sa.select(info.c.table_id, info.c.sort_id, *columns).select_from(info.join(keys, mine))
    statement = _at(select, info, snapshot, table_ids).order_by(info.c.sort_id, keys.c.sort_key_index)
    by_table: dict[int, tuple[int, list[SortKey]]] = {}
    for table_id, id_, *key in sql.run("sorts", statement):
        if by_table.get(table_id, (id_,))[0] != id_:
            del by_table[table_id]
        by_table.setdefault(table_id, (id_, []))[1].append(SortKey(*key))
    return {table_id: SortSpec(id_, tuple(spec_keys)) for table_id, (id_, spec_keys) in by_table.items()}


def _at(select: sa.Select[Any], info: sa.Table, snapshot: int, table_ids: Sequence[int] | None) -> sa.Select[Any]:
    chosen = select.where(visible(info, snapshot))
    return chosen if table_ids is None else chosen.where(info.c.table_id.in_(list(table_ids)))


def _specs(rows: Iterable[Any]) -> Iterator[tuple[int, PartitionSpec]]:
    keys: dict[tuple[int, int], list[PartitionKey]] = {}
    for table_id, id_, index, column_id, transform in rows:
        spec_keys = keys.setdefault((table_id, id_), [])
        if index is not None:
            spec_keys.append(PartitionKey(index, column_id, transform))
    for (table_id, id_), spec_keys in keys.items():
        yield table_id, PartitionSpec(id_, tuple(spec_keys))


# -- files -------------------------------------------------------------------------------------------------------------


def specs(sql: CatalogStatements, table_id: int) -> list[PartitionSpec]:
    """Return every partitioning that a table ever had."""
    t = sql.meta["partition_column"]
    columns = t.c["table_id", "partition_id", "partition_key_index", "column_id", "transform"]
    statement = sa.select(*columns).where(t.c.table_id == table_id).order_by(t.c.partition_id, t.c.partition_key_index)
    return [spec for _, spec in _specs(sql.run("partition_specs", statement))]


def values_by_file(sql: CatalogStatements, table_id: int, file_ids: Sequence[int]) -> dict[int, dict[int, str | None]]:
    """Return the partition values of files (of all when these are many): data file -> key index -> text."""
    t = sql.meta["file_partition_value"]
    select = sa.select(t.c.data_file_id, t.c.partition_key_index, t.c.partition_value).where(t.c.table_id == table_id)
    statement = select.where(t.c.data_file_id.in_(list(file_ids))) if len(file_ids) <= _FEW else select
    values: dict[int, dict[int, str | None]] = {}
    for file_id, index, text in sql.run("partition_values", statement):
        values.setdefault(file_id, {})[index] = text
    return values


def constant_types(sql: CatalogStatements, table_id: int) -> dict[int, str]:
    """Return the type of each column of a table that has had one type only."""
    t = sql.meta["column"]
    statement = sa.select(t.c.column_id, t.c.column_type).where(t.c.table_id == table_id).distinct()
    types: dict[int, list[str]] = {}
    for id_, type_ in sql.run("column_types", statement):
        types.setdefault(id_, []).append(type_)
    return {id_: seen[0] for id_, seen in types.items() if len(seen) == 1}


def in_buckets(
    sql: CatalogStatements, partition_id: int, index: int, numbers: sa.BindParameter[Any]
) -> sa.ColumnElement[bool]:
    """Return the condition that leaves out data files of a partitioning in other buckets of a key."""
    f, v = sql.meta["data_file"], sql.meta["file_partition_value"]
    elsewhere = (
        sa.select(sa.literal(1))
        .where(
            f.c.partition_id == partition_id,
            v.c.table_id == f.c.table_id,
            v.c.data_file_id == f.c.data_file_id,
            v.c.partition_key_index == index,
            # a text that is not a number is unknown
            sql.backend.bound(v.c.partition_value, "integer").not_in(numbers),
        )
        .correlate(f)
    )
    return ~sa.exists(elsewhere)


def useful(predicate: Predicate, known: Iterable[PartitionSpec]) -> list[PartitionSpec]:
    """Return the partitionings that speak of a column of the predicate; buckets tell nothing of a range."""
    compared, exact = columns_of(predicate), _exact_columns(predicate)
    return [
        spec
        for spec in known
        if any(key.column_id in (exact if key.transform.startswith("bucket") else compared) for key in spec.keys)
    ]


def _exact_columns(predicate: Predicate) -> frozenset[int]:
    """Return the columns that are compared with a value or NULL for equality somewhere in a predicate."""
    if isinstance(predicate, Compare):
        return frozenset([predicate.column_id] if predicate.operator == "=" else [])
    if isinstance(predicate, IsNull):
        return frozenset([predicate.column_id])
    return frozenset().union(*(_exact_columns(part) for part in predicate.parts))


def prune(files: pa.Table, tests: Mapping[int, Test], values: Mapping[int, Values]) -> pa.Table:
    """Return the files that pass, and those of other partitionings or with unknown values."""
    answers: dict[tuple[int, frozenset[tuple[int, str | None]]], bool] = {}

    def passes(file_id: int, partition_id: int | None) -> bool:
        test = None if partition_id is None else tests.get(partition_id)
        known = values.get(file_id)
        if partition_id is None or test is None or known is None:
            return True
        key = (partition_id, frozenset(known.items()))
        if key not in answers:
            answers[key] = test(known)
        return answers[key]

    ids, partition_ids = (files.column(name).to_pylist() for name in ("data_file_id", "partition_id"))
    keep = [passes(*pair) for pair in zip(ids, partition_ids, strict=True)]
    return files if all(keep) else files.filter(pa.array(keep, pa.bool_()))
