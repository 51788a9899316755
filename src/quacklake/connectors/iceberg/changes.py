"""Changes of rows between two snapshots of an Iceberg table.

A snapshot that only added files has new rows. Of any other, the files that it removed or whose deleted rows changed are
compared with those in their place: rows of the one that the other lacks have gone, or come. With a key, a row that has
gone and one that has come are the two sides of an update.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyiceberg.table import FileScanTask, Table

from quacklake.connectors.change_feed import KIND
from quacklake.connectors.upserts import load, restored, spilling_duckdb
from quacklake.extend.duckdbs import arrow_reader
from quacklake.extend.names import quote


def changed_files(table: Table, before: int | None, after: int) -> tuple[list[FileScanTask], list[FileScanTask]]:
    """Return the files of the one snapshot that the other does not have in the same state, in both directions."""
    old, new = _files(table, before), _files(table, after)
    gone = [task for state, task in sorted(old.items()) if state not in new]
    come = [task for state, task in sorted(new.items()) if state not in old]
    return gone, come


def _files(table: Table, snapshot: int | None) -> dict[tuple[str, ...], FileScanTask]:
    """Return the files of a snapshot by their path and those of their deleted rows."""
    if snapshot is None:
        return {}
    tasks = table.scan(snapshot_id=snapshot).plan_files()
    return {(task.file.file_path, *sorted(each.file_path for each in task.delete_files)): task for task in tasks}


def compared(
    gone: Iterable[pa.RecordBatch],
    come: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    key: Sequence[str],
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that only one side has, with the kind of change, always in the same order.

    DuckDB compares them, and spills to a temporary folder what does not fit in memory.
    """
    with spilling_duckdb() as connection:
        load(connection, "old_rows", gone, schema)
        load(connection, "new_rows", come, schema)
        connection.execute("CREATE TEMP TABLE gone AS FROM old_rows EXCEPT ALL FROM new_rows")
        connection.execute("CREATE TEMP TABLE come AS FROM new_rows EXCEPT ALL FROM old_rows")
        reader = arrow_reader(connection, _query(schema.names, key), batch_rows=batch_rows)
        shape = pa.schema([*schema, pa.field(KIND, pa.string())])
        for batch in reader:
            yield restored(batch, shape)


def _query(columns: Sequence[str], key: Sequence[str]) -> str:
    """Return the statement that names changes. Rows that go are first: who follows ends with those that come."""
    names, kind = ", ".join(map(quote, columns)), quote(KIND)
    same = " AND ".join(f"a.{quote(name)} IS NOT DISTINCT FROM b.{quote(name)}" for name in key) or "false"
    sides = (
        f"SELECT {place} AS _quacklake_side, {names}, "
        f"CASE WHEN EXISTS (FROM {other} b WHERE {same}) THEN '{paired}' ELSE '{alone}' END AS {kind} FROM {side} a"
        for place, side, other, alone, paired in (
            (0, "gone", "come", "delete", "update_preimage"),
            (1, "come", "gone", "insert", "update_postimage"),
        )
    )
    return f"FROM ({' UNION ALL '.join(sides)}) ORDER BY _quacklake_side, {kind}, {names}"
