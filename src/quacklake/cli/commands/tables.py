"""``quacklake info``, ``tables``, ``describe`` and ``files``: the contents and size of a lake."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from quacklake.cli.context import Context
from quacklake.cli.failures import report_failure
from quacklake.cli.options import AllRows, At, ShownRows, TableName
from quacklake.cli.progress import track
from quacklake.errors import CorruptFileError, PathError, UnsupportedFeatureError

if TYPE_CHECKING:
    from quacklake.lake.lake import Lake, LakeAt
    from quacklake.lake.table import Table

_FILE_COLUMNS = (
    *("data_file_id", "path", "record_count", "deleted_rows", "file_size_bytes"),
    *("begin_snapshot", "delete_path"),
)


@dataclass(frozen=True, slots=True)
class TableSize:
    """A table and its size, with None for values that this version cannot tell. ``bytes`` counts the data files."""

    table: str
    columns: int
    rows: int | None = None
    inlined_rows: int | None = None
    files: int | None = None
    bytes: int | None = None


def _measure(context: Context, view: Lake | LakeAt, names: Sequence[str]) -> list[TableSize]:
    """Return the sizes of tables at one snapshot. Rows are counted from metadata where possible."""
    return [_size_of(context, view.table(name), name) for name in track(names, "measuring tables", len(names))]


def _size_of(context: Context, table: Table, name: str) -> TableSize:
    import pyarrow.compute as pc

    columns = len(table.columns)
    try:
        plan = table.plan()
    except (CorruptFileError, PathError, UnsupportedFeatureError) as error:
        if context.is_log_json:
            report_failure(error, table=name)
        else:
            sys.stderr.write(f"note: {error.message}\n")
        return TableSize(name, columns)
    rows = plan.count()
    return TableSize(
        table=name,
        columns=columns,
        rows=table.count() if rows is None else rows,
        inlined_rows=0 if plan.inlined is None else plan.inlined.num_rows,
        files=plan.files.num_rows,
        bytes=pc.sum(plan.files.column("file_size_bytes")).as_py() or 0,
    )


def info(context: Context, at: At = None) -> None:
    """The size is that of the data files which this snapshot uses; older snapshots may use other files."""
    import quacklake

    with context.open() as lake:
        view = context.view(lake, at or str(lake.current_snapshot()))
        sizes = _measure(context, view, view.tables())
        context.output.facts(
            {
                "url": lake.url,
                "data_path": lake.data_path,
                "format_version": lake.version,
                "snapshot": view.snapshot_id,  # type: ignore[union-attr]
                "schemas": len(view.schemas()),
                "tables": len(sizes),
                "rows": sum(size.rows or 0 for size in sizes),
                "inlined_rows": sum(size.inlined_rows or 0 for size in sizes),
                "data_files": sum(size.files or 0 for size in sizes),
                "data_bytes": sum(size.bytes or 0 for size in sizes),
                "catalog_bytes": lake.catalog_bytes(),
                "quacklake": quacklake.__version__,
            }
        )


def tables(context: Context, limit: ShownRows = None, all_rows: AllRows = False, at: At = None) -> None:
    """Rows are counted from the metadata where possible. Inlined rows are in the catalog, all others in files.

    A terminal shows the first tables; everything else gets all of them.
    """
    import pyarrow as pa

    with context.open() as lake:
        view = context.view(lake, at or str(lake.current_snapshot()))
        names, count = view.tables(), context.terminal_limit(limit, all_rows)
        sizes = _measure(context, view, names[:count])
        schema = pa.schema(
            [(field.name, pa.string() if field.name == "table" else pa.int64()) for field in fields(TableSize)]
        )
        rows = pa.Table.from_pylist([asdict(size) for size in sizes], schema=schema)
        context.print_list(rows, count, len(names))


def describe(context: Context, table: TableName, at: At = None) -> None:
    """JSON output has everything in one object; CSV and Arrow output have the columns only."""
    import pyarrow as pa

    with context.open() as lake:
        found = context.view(lake, at).table(table)
        comments = found.column_comments
        columns = [
            {
                "column": column.name,
                "type": column.duckdb_type(),
                "nullable": column.nullable,
                "default": column.default,
                "comment": comments.get(column.name),
            }
            for column in found.info.schema.columns
        ]
        size = _size_of(context, found, table)
        facts: dict[str, Any] = {
            "comment": found.comment,
            "primary_key": list(found.primary_key),
            "partitioned_by": found.partitioned_by,
            "sorted_by": found.sorted_by,
            "rows": size.rows,
            "inlined_rows": size.inlined_rows,
            "data_files": size.files,
            "data_bytes": size.bytes,
        }
        if context.output.format == "json":
            context.output.facts({"table": found.name, **facts, "columns": columns})
            return
        names = ("column", "type", "nullable", "default", "comment")
        schema = pa.schema([(name, pa.bool_() if name == "nullable" else pa.string()) for name in names])
        rows = pa.Table.from_pylist(columns, schema=schema)
        if not context.output.for_people:
            context.output.rows(rows)
            return
        empty = [name for name in ("default", "comment") if rows.column(name).null_count == rows.num_rows]
        context.output.rows(rows.drop_columns(empty))
        texts = {
            name: ", ".join(map(str, value)) if isinstance(value, list) else value for name, value in facts.items()
        }
        context.output.facts({name: value for name, value in texts.items() if value not in (None, "")})


def files(
    context: Context, table: TableName, limit: ShownRows = None, all_rows: AllRows = False, at: At = None
) -> None:
    """Paths are relative to the data path of the lake. Inlined rows are in no file.

    A terminal shows the first files; everything else gets all of them.
    """
    import pyarrow as pa

    with context.open() as lake:
        plan = context.view(lake, at).table(table).plan()
        ids, counts = (plan.files.column(name).to_pylist() for name in ("data_file_id", "delete_count"))
        # deleted rows are in delete files and in the catalog
        deleted = [(count or 0) + plan.deleted_counts.get(id_, 0) for id_, count in zip(ids, counts, strict=True)]
        rows = plan.files.append_column("deleted_rows", pa.array(deleted, pa.int64()))
        context.print_list(rows.select(_FILE_COLUMNS), context.terminal_limit(limit, all_rows))
