"""The differences between the versions of DuckDB that a lake can run on: 1.5 and 2.x.

2.x lets nobody use a connection whose last answer is not read to its end, and warns when the answer of ``execute`` is
taken as Arrow; 1.5 would read all rows of a query with parameters before ``sql`` gives the first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import duckdb

if TYPE_CHECKING:
    import pyarrow as pa

Connection = duckdb.DuckDBPyConnection

VERSION: tuple[int, ...] = tuple(int(part) for part in re.findall(r"\d+", duckdb.__version__)[:3])
"""The installed version."""
IS_2 = VERSION >= (2,)

TRANSACTION_POLICY = ("default_transaction_invalidation_policy", "SYNTACTIC_ERRORS_DO_NOT_INVALIDATE")
"""The setting of 2.x with which a statement that is not understood leaves its transaction as it was, as in 1.5."""

SETTINGS: Mapping[str, Any] = (
    {
        "lambda_syntax": "ENABLE_SINGLE_ARROW",  # views that were stored before may have it
        "error_on_division_by_zero": False,  # NULL, as in 1.5 and in views that were stored there
        "legacy_disable_null_type": True,  # no format before 1.1 has such a type
        TRANSACTION_POLICY[0]: TRANSACTION_POLICY[1],
    }
    if IS_2
    else {}
)
"""The settings of 2.x with which it does as 1.5 did."""


def connect(
    database: str = ":memory:", *, read_only: bool = False, config: Mapping[str, Any] | None = None
) -> Connection:
    """Open a database on which statements mean the same in all versions.

    >>> first_row(connect(), "SELECT 42")
    (42,)
    """
    return duckdb.connect(database, read_only=read_only, config={**SETTINGS, **(config or {})})


def first_row(connection: Connection, sql: str, values: Any = None) -> tuple[Any, ...] | None:
    """Run a query that has few rows and return the first; None when there is none.

    >>> first_row(connect(), "SELECT 1 WHERE ?", [False]) is None
    True
    """
    rows = connection.execute(sql, values).fetchall()
    return rows[0] if rows else None


def arrow_table(connection: Connection, sql: str, values: Any = None) -> pa.Table:
    """Return the rows of a query.

    >>> arrow_table(connect(), "SELECT ? AS n", [7]).to_pylist()
    [{'n': 7}]
    """
    if IS_2:
        return connection.sql(sql, params=values).to_arrow_table()
    return connection.execute(sql, values).to_arrow_table()


def arrow_reader(connection: Connection, sql: str, values: Any = None, *, batch_rows: int) -> pa.RecordBatchReader:
    """Return the rows of a query as a stream; the connection does nothing else until that is read or gone.

    >>> [batch.num_rows for batch in arrow_reader(connect(), "FROM range(5)", batch_rows=2048)]
    [5]
    """
    if IS_2:
        return connection.sql(sql, params=values).to_arrow_reader(batch_rows)
    return connection.execute(sql, values).to_arrow_reader(batch_rows)


def run(
    connection: Connection, sql: str, values: Any = None, *, batch_rows: int
) -> tuple[tuple[str, ...], pa.RecordBatchReader | None]:
    """Run any statement; return the types of its columns and its rows, None for a statement that has no answer."""
    answer: Any = connection.sql(sql, params=values) if IS_2 else connection.execute(sql, values)
    description = (answer.description if answer is not None else None) or []
    if not description:
        return (), None
    return tuple(str(column[1]) for column in description), answer.to_arrow_reader(batch_rows)
