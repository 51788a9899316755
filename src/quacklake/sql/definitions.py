"""Write the CREATE statement of an existing table or view."""

from __future__ import annotations

from quacklake.engines.duckdb.trees import LAKE
from quacklake.format.evolution import PRIMARY_KEY, key_columns
from quacklake.format.layout import key_texts
from quacklake.format.names import literal, quote
from quacklake.format.objects import TableInfo, ViewInfo
from quacklake.format.schema import Column
from quacklake.transaction import Transaction


def default_of(column: Column) -> str | None:
    """Return the default of a column as SQL."""
    if column.default is None or column.default_kind == "expression":
        return column.default
    return literal(column.default)


def declared(column: Column) -> str:
    """Return a column definition for CREATE TABLE."""
    text = f"{quote(column.name)} {column.duckdb_type()}"
    default = default_of(column)
    if default is not None:
        text += f" DEFAULT {default}" if column.default_kind != "expression" else f" DEFAULT ({default})"
    return text if column.nullable else f"{text} NOT NULL"


def table_definition(tx: Transaction, table: TableInfo) -> str:
    """Return the statement that creates a table, with its columns, primary key, partitioning and sort order."""
    parts = [declared(column) for column in table.schema.columns]
    key = key_columns(table.schema, tx.objects.tags(table).own.get(PRIMARY_KEY))
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(quote(name) for name in key)})")
    lines = ",\n".join(f"  {part}" for part in parts)
    text = f"CREATE TABLE {_place(table)} (\n{lines}\n)"
    partitioned = key_texts(table.partition, table.schema)
    if partitioned:
        text += f"\nPARTITIONED BY ({', '.join(partitioned)})"
    if table.sort is not None and table.sort.keys:
        text += f"\nSORTED BY ({', '.join(str(key) for key in table.sort.keys)})"
    return f"{text};"


def view_definition(view: ViewInfo) -> str:
    """Return the statement that creates a view."""
    columns = f" ({', '.join(quote(name) for name in view.aliases)})" if view.aliases else ""
    return f"CREATE VIEW {_place(view)}{columns} AS {view.sql.replace(LAKE, '')};"


def _place(found: TableInfo | ViewInfo) -> str:
    return f"{quote(found.schema_name)}.{quote(found.name)}"
