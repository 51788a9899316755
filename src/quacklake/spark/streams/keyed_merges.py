"""Merge batches of a stream into a table by key on the executors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from quacklake.operations.keyed_changes import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    PUT,
    TAKEN,
    check_names,
    null_key,
    unknown_change,
)
from quacklake.operations.statements import DUPLICATES_SHOWN, duplicate_keys
from quacklake.spark.changes.merge import SparkMerge
from quacklake.spark.runtime.types import quote

_RANK = "_ql_rank"


def upserted_rows(frame: DataFrame, on: Sequence[str], order_by: str | None) -> DataFrame:
    """Return the rows of an upsert: all, or the last of each key in an order. Raises ``SchemaMismatchError``."""
    if order_by is None:
        return frame
    check_names(frame.columns, [order_by, *on])
    return _last(frame, on, [_column(order_by).desc_nulls_last()], _any(_column(name).isNull() for name in on))


def upsert_merge(merge: SparkMerge, on: Sequence[str]) -> SparkMerge:
    """Update the rows that have the keys and insert the others. Repeated keys are an error that shows them."""
    merge._check = lambda source: _check_keys(source, on)
    return merge.when_matched_update_all().when_not_matched_insert_all()


def changed_rows(frame: DataFrame, on: Sequence[str]) -> DataFrame:
    """Return the last change of each key, and rows without a valid change type. Raises ``SchemaMismatchError``."""
    check_names(frame.columns, (CHANGE_TYPE, *on))
    order = [_column(COMMIT_VERSION).desc_nulls_last()] if COMMIT_VERSION in frame.columns else []
    # within one commit, deletes come before inserts
    rows = _last(frame, on, [*order, _is(PUT).desc()], ~(_is(PUT) | _is(TAKEN)))
    return rows.drop(COMMIT_VERSION, COMMIT_TIMESTAMP)


def changes_merge(merge: SparkMerge, on: Sequence[str]) -> SparkMerge:
    """Update, insert or delete keys by their changes. Invalid changes raise the errors of ``apply_changes``."""

    def check(source: DataFrame) -> None:
        wrong = source.filter(~(_is(PUT) | _is(TAKEN)) | _any(_column(name).isNull() for name in on))
        for row in wrong.select(CHANGE_TYPE, *map(_column, on)).limit(1).collect():
            if row[0] not in (*PUT, *TAKEN):
                raise unknown_change(row[0])
            raise null_key(next(name for name, value in zip(on, row[1:], strict=True) if value is None))
        _check_keys(source.filter(_is(PUT)), on)

    merge._beside, merge._check = (CHANGE_TYPE,), check
    put, taken = (f.expr(f"source.{CHANGE_TYPE}").isin(*kinds) for kinds in (PUT, TAKEN))
    return merge.when_matched_delete(taken).when_matched_update_all().when_not_matched_insert_all(put)


def _last(frame: DataFrame, on: Sequence[str], order: Sequence[SparkColumn], others: SparkColumn) -> DataFrame:
    """Return the first row of each key in an order, and the rows for which ``others`` holds."""
    rank = f.rank().over(Window.partitionBy(*map(_column, on)).orderBy(*order))
    return frame.withColumn(_RANK, rank).filter((f.col(_RANK) == 1) | others).drop(_RANK)


def _check_keys(source: DataFrame, on: Sequence[str]) -> None:
    names = [_column(name) for name in on]
    several = source.filter(~_any(name.isNull() for name in names)).groupBy(*names).agg(f.expr("count(*) AS _ql_count"))
    found = several.filter("_ql_count > 1").orderBy(*names).limit(DUPLICATES_SHOWN + 1).collect()
    if found:
        raise duplicate_keys(on, [tuple(row)[:-1] for row in found])


def _column(name: str) -> SparkColumn:
    return f.col(quote(name))


def _is(kinds: Sequence[str]) -> SparkColumn:
    return f.coalesce(f.col(CHANGE_TYPE).isin(*kinds), f.lit(False))


def _any(conditions: Iterable[SparkColumn]) -> SparkColumn:
    return reduce(SparkColumn.__or__, conditions)
