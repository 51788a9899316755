"""Partitionings, sort orders, and the partition values of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from quacklake.catalog.databases.database import Database
from quacklake.catalog.tables import Tables
from quacklake.format.bounds import Compare, IsNull, Predicate, columns_of
from quacklake.format.layout import PartitionKey, PartitionSpec, SortKey, SortSpec

_FEW = 500
"""Files up to which their values are asked for by id, not those of the whole table."""

Values = Mapping[int, str | None]
Test = Callable[[Values], bool]
Rows = Iterable[Any]


def select_partitions(tables: Tables, snapshot: int, table_ids: Sequence[int] | None) -> sa.Select[Any]:
    """Return the partitioning of tables at a snapshot, a row for each key and one for a partitioning without any."""
    info, columns = tables["partition_info"], tables["partition_column"]
    mine = sa.and_(columns.c.partition_id == info.c.partition_id, columns.c.table_id == info.c.table_id)
    keys = (columns.c.partition_key_index, columns.c.column_id, columns.c.transform)
    select = sa.select(info.c.table_id, info.c.partition_id, *keys).select_from(info.outerjoin(columns, mine))
    return _at(select, info, snapshot, table_ids).order_by(info.c.partition_id, columns.c.partition_key_index)


def select_sorts(tables: Tables, snapshot: int, table_ids: Sequence[int] | None) -> sa.Select[Any]:
    """Return the order of tables at a snapshot, a row for each key."""
    info, keys = tables["sort_info"], tables["sort_expression"]
    mine = sa.and_(keys.c.sort_id == info.c.sort_id, keys.c.table_id == info.c.table_id)
    columns = (keys.c.expression, keys.c.sort_direction, keys.c.null_order, keys.c.dialect)
    select = sa.select(info.c.table_id, info.c.sort_id, *columns).select_from(info.join(keys, mine))
    return _at(select, info, snapshot, table_ids).order_by(info.c.sort_id, keys.c.sort_key_index)


def _at(select: sa.Select[Any], info: sa.Table, snapshot: int, table_ids: Sequence[int] | None) -> sa.Select[Any]:
    ended = sa.or_(info.c.end_snapshot.is_(None), info.c.end_snapshot > snapshot)
    chosen = select.where(info.c.begin_snapshot <= snapshot, ended)
    return chosen if table_ids is None else chosen.where(info.c.table_id.in_(list(table_ids)))


def by_table(rows: Rows) -> dict[int, PartitionSpec]:
    """Return the rows of :func:`select_partitions` by table."""
    return dict(_specs(rows))


def _specs(rows: Rows) -> Iterator[tuple[int, PartitionSpec]]:
    keys: dict[tuple[int, int], list[PartitionKey]] = {}
    for table_id, id_, index, column_id, transform in rows:
        spec_keys = keys.setdefault((table_id, id_), [])
        if index is not None:
            spec_keys.append(PartitionKey(index, column_id, transform))
    for (table_id, id_), spec_keys in keys.items():
        yield table_id, PartitionSpec(id_, tuple(spec_keys))


def sorts(rows: Rows) -> dict[int, SortSpec]:
    """Return the rows of :func:`select_sorts` by table."""
    keys: dict[int, tuple[int, list[SortKey]]] = {}
    for table_id, id_, *key in rows:
        if keys.get(table_id, (id_,))[0] != id_:
            del keys[table_id]
        keys.setdefault(table_id, (id_, []))[1].append(SortKey(*key))
    return {table_id: SortSpec(id_, tuple(spec_keys)) for table_id, (id_, spec_keys) in keys.items()}


# -- files -------------------------------------------------------------------------------------------------------------


def select_specs(tables: Tables, table_id: int) -> sa.Select[Any]:
    """Return every partitioning that a table ever had."""
    t = tables["partition_column"]
    columns = (t.c.table_id, t.c.partition_id, t.c.partition_key_index, t.c.column_id, t.c.transform)
    return sa.select(*columns).where(t.c.table_id == table_id).order_by(t.c.partition_id, t.c.partition_key_index)


def specs(rows: Rows) -> list[PartitionSpec]:
    """Return the rows of :func:`select_specs`."""
    return [spec for _, spec in _specs(rows)]


def select_values(tables: Tables, table_id: int, file_ids: Sequence[int]) -> sa.Select[Any]:
    """Return the partition values of files; of all files of the table when these are many."""
    t = tables["file_partition_value"]
    select = sa.select(t.c.data_file_id, t.c.partition_key_index, t.c.partition_value).where(t.c.table_id == table_id)
    return select.where(t.c.data_file_id.in_(list(file_ids))) if len(file_ids) <= _FEW else select


def values_by_file(rows: Rows) -> dict[int, dict[int, str | None]]:
    """Return the rows of :func:`select_values`: data file -> key index -> text."""
    values: dict[int, dict[int, str | None]] = {}
    for file_id, index, text in rows:
        values.setdefault(file_id, {})[index] = text
    return values


def select_types(tables: Tables, table_id: int) -> sa.Select[Any]:
    """Return every type that a column of a table ever had: column, type."""
    t = tables["column"]
    return sa.select(t.c.column_id, t.c.column_type).where(t.c.table_id == table_id).distinct()


def constant(rows: Rows) -> dict[int, str]:
    """Return the columns, of the rows of :func:`select_types`, that have had one type only."""
    types: dict[int, list[str]] = {}
    for id_, type_ in rows:
        types.setdefault(id_, []).append(type_)
    return {id_: seen[0] for id_, seen in types.items() if len(seen) == 1}


def in_buckets(
    tables: Tables, database: Database, partition_id: int, index: int, numbers: sa.BindParameter[Any]
) -> sa.ColumnElement[bool]:
    """Return the condition that leaves out data files of a partitioning in other buckets of a key."""
    f, v = tables["data_file"], tables["file_partition_value"]
    elsewhere = (
        sa.select(sa.literal(1))
        .where(
            f.c.partition_id == partition_id,
            v.c.table_id == f.c.table_id,
            v.c.data_file_id == f.c.data_file_id,
            v.c.partition_key_index == index,
            # a text that is not a number is unknown
            database.bound(v.c.partition_value, "integer").not_in(numbers),
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
