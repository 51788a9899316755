"""Insert rows from a DuckDB connection into a table: as files, or inlined if they are few."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from quacklake.duckdb_versions import arrow_table, first_row
from quacklake.engines.duckdb.engine import places_to_target
from quacklake.errors import ConstraintError
from quacklake.format import inline
from quacklake.format.names import quote
from quacklake.format.objects import NAME_ROW_ID, TableInfo
from quacklake.format.schema import Column
from quacklake.format.stats import ColumnStats, of_array
from quacklake.operations.context import LakeContext
from quacklake.scan import ScanPlan
from quacklake.scan.plan import LOCAL_VERSION
from quacklake.transaction import InlinedInsert, Transaction


def encoded_insert(
    context: LakeContext, table: TableInfo, rows: pa.Table, row_ids: Sequence[int | None]
) -> InlinedInsert:
    """Encode rows, which must have the exact types of the table, for the catalog."""
    rows = _in_utc(table, rows)
    database = context.catalog.encoding
    columns: list[list[Any] | None] = []
    stats: list[ColumnStats] = []
    for index, column in enumerate(table.schema.columns):
        array = rows.column(index)
        columns.append(inline.encode(array, column, database))
        if column.nested and column.travels_as_text:
            stats.extend(ColumnStats(leaf.id) for leaf in column.leaves())
        else:
            stats.extend(of_array(array, column))
    hard = [column for column, values in zip(table.schema.columns, columns, strict=True) if values is None]
    texts = context.engine.texts(rows, hard)
    encoded = [
        texts[column.id] if values is None else values
        for column, values in zip(table.schema.columns, columns, strict=True)
    ]
    return InlinedInsert(rows, tuple(zip(*encoded, strict=True)), tuple(row_ids), tuple(stats))


def _in_utc(table: TableInfo, rows: pa.Table) -> pa.Table:
    """Convert times to UTC, as in all inlined rows; DuckDB returns them in the time zone of the session."""
    for index, column in enumerate(table.schema.columns):
        wanted, given = column.arrow_field(), rows.schema.field(index)
        if not column.travels_as_text and "tz=" in str(given.type) and given.type != wanted.type:
            rows = rows.set_column(index, given.with_type(wanted.type), rows.column(index).cast(wanted.type))
    return rows


def check_not_null(connection: duckdb.DuckDBPyConnection, rows: str, columns: Sequence[Column]) -> None:
    """Raise ``ConstraintError`` when rows have NULL in a required one of these columns."""
    for column in columns:
        if not column.nullable:
            found = first_row(connection, f"SELECT 1 FROM {rows} WHERE {quote(column.name)} IS NULL LIMIT 1")
            if found is not None:
                raise ConstraintError(f'NOT NULL constraint failed: NULL in the NOT NULL column "{column.name}"')


def write_rows(
    context: LakeContext,
    tx: Transaction,
    connection: duckdb.DuckDBPyConnection,
    query: str,
    table: TableInfo,
    *,
    row_ids: bool = False,
    size: int | None = None,
) -> int:
    """Write the rows of a query to files of a table; return how many."""
    files = context.writer.write(
        connection, query, table, context.write_options(table), tx.wrote, tx.local_id, row_ids=row_ids, size_hint=size
    )
    tx.pending(table).files.extend(files)
    return sum(file.record_count for file in files)


def insert_query(
    context: LakeContext, tx: Transaction, connection: duckdb.DuckDBPyConnection, query: str, table: TableInfo
) -> int:
    """Insert the rows of a query, inlined if they are few."""
    counted = first_row(connection, f"SELECT count(*) FROM ({query})")
    count = int(counted[0]) if counted else 0
    if count and count <= context.inline_limit(table):
        rows = arrow_table(connection, f"SELECT {_fetched(table)} FROM ({query})")
        tx.pending(table).add_insert(encoded_insert(context, table, rows, [None] * count))
    elif count:
        write_rows(context, tx, connection, query, table)
    return count


def insert_kept(
    context: LakeContext, tx: Transaction, connection: duckdb.DuckDBPyConnection, query: str, table: TableInfo
) -> int:
    """Insert the rows of a query with the row ids in its column ``NAME_ROW_ID``, inlined if they are few."""
    counted = first_row(connection, f"SELECT count(*) FROM ({query})")
    count = int(counted[0]) if counted else 0
    if count and count <= context.inline_limit(table):
        row_id = quote(NAME_ROW_ID)
        rows = arrow_table(connection, f"SELECT {_fetched(table)}, {row_id} FROM ({query})")
        row_ids = rows.column(NAME_ROW_ID).to_pylist()
        rows = rows.select(range(len(table.schema.columns)))
        tx.pending(table).add_insert(encoded_insert(context, table, rows, row_ids))
    elif count:
        write_rows(context, tx, connection, query, table, row_ids=True)
    return count


def replace_rows(
    context: LakeContext,
    tx: Transaction,
    connection: duckdb.DuckDBPyConnection,
    table: TableInfo,
    plan: ScanPlan,
    changed: str,
) -> int:
    """Delete the rows that changed rows were made from, and insert the changed rows with the same row ids."""
    pending = tx.pending(table)
    places = arrow_table(connection, f"SELECT _ql_file_id, _ql_version, _ql_position FROM {changed}")
    if not places.num_rows:
        return 0
    kept = pending.known_row_ids()
    pending.delete(plan, places_to_target(places))
    select = ", ".join(quote(column.name) for column in table.schema.columns)
    if places.num_rows <= context.inline_limit(table):
        fetched = _fetched(table)
        rows = arrow_table(connection, f"SELECT {fetched}, _ql_row_id, _ql_version FROM {changed}")
        versions, ids = rows.column("_ql_version").to_pylist(), rows.column("_ql_row_id").to_pylist()
        row_ids = [
            kept.get(id_) if version == LOCAL_VERSION else id_ for id_, version in zip(ids, versions, strict=True)
        ]
        pending.add_insert(encoded_insert(context, table, rows.select(range(len(table.schema.columns))), row_ids))
        return int(places.num_rows)
    with _mapped_ids(connection, changed, kept) as rows:
        with_id = f"SELECT {select}, _ql_row_id AS {quote(NAME_ROW_ID)} FROM {rows} WHERE _ql_row_id IS NOT NULL"
        without = f"SELECT {select} FROM {rows} WHERE _ql_row_id IS NULL"
        if first_row(connection, f"SELECT 1 FROM {rows} WHERE _ql_row_id IS NOT NULL LIMIT 1"):
            write_rows(context, tx, connection, with_id, table, row_ids=True)
        if first_row(connection, f"SELECT 1 FROM {rows} WHERE _ql_row_id IS NULL LIMIT 1"):
            write_rows(context, tx, connection, without, table)
    return int(places.num_rows)


def _fetched(table: TableInfo) -> str:
    """Return a select list for fetching columns through Arrow, with types that Arrow lacks as text."""
    names = [(quote(column.name), column.travels_as_text) for column in table.schema.columns]
    return ", ".join(f"{name}::VARCHAR AS {name}" if text else name for name, text in names)


@contextmanager
def _mapped_ids(connection: duckdb.DuckDBPyConnection, changed: str, kept: Mapping[int, int | None]) -> Iterator[str]:
    """Yield a relation of changed rows with committed row ids instead of ids local to the transaction."""
    if not kept:
        yield changed
        return
    mapping = pa.table({"local": pa.array(list(kept), pa.int64()), "kept": pa.array(list(kept.values()), pa.int64())})
    connection.register("ql_kept", mapping)
    try:
        own = "(SELECT kept FROM ql_kept WHERE local = _ql_row_id)"
        row_id = f"CASE WHEN _ql_version = {LOCAL_VERSION:d} THEN {own} ELSE _ql_row_id END"
        yield f"(SELECT * REPLACE ({row_id} AS _ql_row_id) FROM {changed})"
    finally:
        connection.unregister("ql_kept")
