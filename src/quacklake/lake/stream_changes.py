"""The changes of another table, made to a table of the lake: of each key the last one counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.engines.duckdb.failures import writing
from quacklake.errors import ConstraintError, InputError, SchemaMismatchError
from quacklake.format.names import quote
from quacklake.format.objects import TableInfo
from quacklake.lake import operations
from quacklake.lake.frames import to_source
from quacklake.lake.settings import Shared
from quacklake.transaction import Transaction

__all__ = ["CHANGE_TYPE", "COMMIT_TIMESTAMP", "COMMIT_VERSION", "FEED_NAMES", "ChangeCounts", "apply_changes"]

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
FEED_NAMES = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
"""What a stream of changes has beside the columns of its table."""

_PUT = ("insert", "update_postimage")
_TAKEN = ("delete", "update_preimage")


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """What changes did."""

    updated: int
    inserted: int
    deleted: int


def apply_changes(
    shared: Shared, tx: Transaction, table: TableInfo, rows: pa.Table, on: Sequence[str], *, evolve: bool = False
) -> ChangeCounts:
    """Make the changes that a feed tells: rows with ``_change_type``, the columns, and ``_commit_version`` if need be.

    Keys are updated or inserted as their last change says, or deleted. Raises ``ConstraintError`` for a key that was
    put twice by one commit, ``SchemaMismatchError`` without the columns that tell what happened.
    """
    last = _last(shared, rows, on)
    put = pc.is_in(last.column(CHANGE_TYPE), value_set=pa.array(_PUT))
    last_rows = last.drop_columns([name for name in FEED_NAMES if name in last.column_names])
    deleted = operations.delete_keys(shared, tx, table, last_rows.filter(pc.invert(put)), on)
    source = to_source(last_rows.filter(put))
    merged = operations.merge(shared, tx, table, source, on, evolve=evolve)
    return ChangeCounts(merged.updated, merged.inserted, deleted)


def _last(shared: Shared, rows: pa.Table, on: Sequence[str]) -> pa.Table:
    """The rows of the last change of each key."""
    lacking = [name for name in (CHANGE_TYPE, *on) if name not in rows.column_names]
    if lacking:
        raise SchemaMismatchError(
            f"changes need the column {lacking[0]!r}", hint=f"the rows have {', '.join(rows.column_names)}"
        )
    known = pc.is_in(rows.column(CHANGE_TYPE), value_set=pa.array([*_PUT, *_TAKEN]))
    if not pc.all(known, min_count=0).as_py():
        strange = rows.column(CHANGE_TYPE).filter(pc.invert(known))[0].as_py()
        raise InputError(f"there is no change type {strange!r}", hint=f"one of: {', '.join((*_PUT, *_TAKEN))}")
    for name in on:
        if rows.column(name).null_count:
            raise ConstraintError(f'NULL in the key "{name}" of a change')
    keys = ", ".join(map(quote, on))
    put = f"{CHANGE_TYPE} IN ({', '.join(map(repr, _PUT))})"
    version = f"{COMMIT_VERSION} DESC, " if COMMIT_VERSION in rows.column_names else ""
    # of one commit: what went, went before what came
    order = f"rank() OVER (PARTITION BY {keys} ORDER BY {version}{put} DESC)"
    with shared.engine.connection() as connection, writing():
        connection.register("ql_source", rows.append_column("_ql_number", pa.array(range(rows.num_rows), pa.int64())))
        found = connection.execute(f"SELECT _ql_number FROM ql_source QUALIFY {order} = 1").to_arrow_table()
    return rows.take(found.column("_ql_number"))
