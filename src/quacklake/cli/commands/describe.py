"""``quacklake describe``: the columns of a table, and facts about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quacklake.cli.commands.tables import size_of
from quacklake.cli.context import Context
from quacklake.cli.options import At, TableName

if TYPE_CHECKING:
    from quacklake.lake.table import Table


def describe(context: Context, table: TableName, at: At = None) -> None:
    """JSON has everything in one object; CSV and Arrow have the columns."""
    import pyarrow as pa

    with context.open() as lake:
        view = context.view(lake, at)
        found = view.table(table)
        columns = _columns(found)
        names = ("column", "type", "nullable", "default", "comment")
        types = {"nullable": pa.bool_()}
        schema = pa.schema([(name, types.get(name, pa.string())) for name in names])
        facts = _facts(found) | _sizes(view, table)
        if context.output.format == "json":
            context.output.facts({"table": found.name, **facts, "columns": columns})
            return
        rows = pa.Table.from_pylist(columns, schema=schema)
        if not context.output.for_people:
            context.output.rows(rows)
            return
        empty = [name for name in ("default", "comment") if rows.column(name).null_count == rows.num_rows]
        context.output.rows(rows.drop_columns(empty))
        context.output.facts({name: _text(value) for name, value in facts.items() if value not in (None, [], "")})


def _columns(table: Table) -> list[dict[str, Any]]:
    comments = table.column_comments
    return [
        {
            "column": column.name,
            "type": column.duckdb_type(),
            "nullable": column.nullable,
            "default": column.default,
            "comment": comments.get(column.name),
        }
        for column in table.info.schema.columns
    ]


def _facts(table: Table) -> dict[str, Any]:
    return {
        "comment": table.comment,
        "primary_key": list(table.primary_key),
        "partitioned_by": table.partitioned_by,
        "sorted_by": table.sorted_by,
    }


def _sizes(view: Any, table: str) -> dict[str, Any]:
    size = size_of(view, table)
    return {"rows": size.rows, "inlined_rows": size.inlined_rows, "data_files": size.files, "data_bytes": size.bytes}


def _text(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list) else value
