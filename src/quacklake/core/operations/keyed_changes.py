"""Merge rows into a table by key: upserts in an order, and the changes of a feed."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.duckdb_versions import arrow_table
from quacklake.core.engines.duckdb.connections import writing
from quacklake.core.format.names import quote
from quacklake.core.format.objects import TableInfo
from quacklake.core.operations import dml, evolution
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.sources import Source
from quacklake.core.transaction import Transaction
from quacklake.errors import ConstraintError, InputError, SchemaMismatchError

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
FEED_NAMES = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
PUT = ("insert", "update_postimage")
TAKEN = ("delete", "update_preimage")


def apply_changes(
    context: LakeContext, tx: Transaction, table: TableInfo, rows: pa.Table, on: Sequence[str], *, evolve: bool = False
) -> int:
    """Apply the changes of a feed: rows with ``_change_type``, the columns, and optionally ``_commit_version``.

    The last change of a key decides whether it is updated, inserted or deleted. Returns how many were deleted. Raise
    ``ConstraintError`` for a key that one commit put twice, ``SchemaMismatchError`` without the columns that describe
    the change.
    """
    if evolve:
        table = _evolve_table(context, tx, table, rows)
    check_names(rows.column_names, (CHANGE_TYPE, *on))
    known = pc.is_in(rows.column(CHANGE_TYPE), value_set=pa.array([*PUT, *TAKEN]))
    if not pc.all(known, min_count=0).as_py():
        raise unknown_change(rows.column(CHANGE_TYPE).filter(pc.invert(known))[0].as_py())
    for name in on:
        if rows.column(name).null_count:
            raise null_key(name)
    version = f"{COMMIT_VERSION} DESC NULLS LAST, " if COMMIT_VERSION in rows.column_names else ""
    # within one commit, deletes come before inserts
    order = f"{version}{CHANGE_TYPE} IN ({', '.join(map(repr, PUT))}) DESC"
    last = _last_rows(context, table, rows, on, order)
    put = pc.is_in(last.column(CHANGE_TYPE), value_set=pa.array(PUT))
    last_rows = last.drop_columns([name for name in FEED_NAMES if name in last.column_names])
    deleted = dml.delete_keys(context, tx, table, last_rows.filter(pc.invert(put)), on)
    put_rows = last_rows.filter(put)
    dml.merge(context, tx, table, Source(put_rows.schema, put_rows), on)
    return deleted


def upsert(
    context: LakeContext,
    tx: Transaction,
    table: TableInfo,
    rows: pa.Table,
    on: Sequence[str],
    order_by: str | None = None,
    *,
    evolve: bool = False,
) -> None:
    """Update or insert rows by key, the last by ``order_by``. Raise ``ConstraintError`` if there is no last."""
    if order_by is not None:
        check_names(rows.column_names, [order_by, *on])
        whole = " OR ".join(f"{quote(name)} IS NULL" for name in on)  # a key with NULL equals no other
        table = _evolve_table(context, tx, table, rows) if evolve else table
        rows = _last_rows(context, table, rows, on, f"{quote(order_by)} DESC NULLS LAST", f" OR {whole}")
    dml.merge(context, tx, table, Source(rows.schema, rows), on, evolve=evolve)


def check_names(given: Sequence[str], needed: Sequence[str]) -> None:
    """Raise ``SchemaMismatchError`` for a column that rows need and lack."""
    lacking = next((name for name in needed if name not in given), None)
    if lacking is not None:
        raise SchemaMismatchError(f"the rows lack the column {lacking!r}", hint=f"they have {', '.join(given)}")


def unknown_change(kind: str | None) -> InputError:
    """Return the error for an unknown change type."""
    return InputError(f"there is no change type {kind!r}", hint=f"one of: {', '.join((*PUT, *TAKEN))}")


def null_key(name: str) -> ConstraintError:
    """Return the error for a change without a key."""
    return ConstraintError(f'NULL in the key "{name}" of a change')


def _evolve_table(context: LakeContext, tx: Transaction, table: TableInfo, rows: pa.Table) -> TableInfo:
    """Widen the table for the rows of a feed, and return it."""
    names = [name for name in rows.column_names if name not in FEED_NAMES]
    return evolution.evolve(context, tx, table, rows.select(names).schema)


def _last_rows(
    context: LakeContext, table: TableInfo, rows: pa.Table, on: Sequence[str], order: str, others: str = ""
) -> pa.Table:
    """Return the first row of each key in an order. ``others`` is a condition for further rows."""
    keys = [table.schema.find(name) for name in on]
    # a key may have several spellings
    values = ", ".join(f"CAST({quote(name)} AS {key.duckdb_type()})" for name, key in zip(on, keys, strict=True))
    rank = f"rank() OVER (PARTITION BY {values} ORDER BY {order})"
    with context.engine.connection() as connection, writing():
        connection.register("ql_source", rows.append_column("_ql_number", pa.array(range(rows.num_rows), pa.int64())))
        found = arrow_table(connection, f"SELECT _ql_number FROM ql_source QUALIFY {rank} = 1{others}")
    return rows.take(found.column("_ql_number"))
