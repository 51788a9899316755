"""``quacklake files``: the data files of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quacklake.cli.context import Context
from quacklake.cli.options import At, TableName

if TYPE_CHECKING:
    import pyarrow as pa

    from quacklake.scan import ScanPlan

_COLUMNS = ("data_file_id", "path", "record_count", "deleted_rows", "file_size_bytes", "begin_snapshot", "delete_path")


def files(context: Context, table: TableName, at: At = None) -> None:
    """Paths are below the data path. Inlined rows are in no file."""
    with context.open() as lake:
        context.output.rows(_files(context.view(lake, at).table(table).plan()))


def _files(plan: ScanPlan) -> pa.Table:
    """Return the files with their deleted rows, both from delete files and from the catalog."""
    import pyarrow as pa

    ids, counts = (plan.files.column(name).to_pylist() for name in ("data_file_id", "delete_count"))
    deleted = [(count or 0) + plan.deleted_counts.get(id_, 0) for id_, count in zip(ids, counts, strict=True)]
    return plan.files.append_column("deleted_rows", pa.array(deleted, pa.int64())).select(_COLUMNS)
