"""The steps that change a lake, each written once for Quacklake, the reference implementation and the model.

The model is a plain DuckDB database in memory that runs the same SQL as the reference implementation. It shows what the
lake must hold after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

import quacklake
from quacklake.core.duckdb_versions import arrow_table
from quacklake.core.format.names import format_path, literal, parse_path, quote
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.operations.reference import TableRef

from .clients import plain_duckdb

__all__ = [
    "AddColumn",
    "AlterColumn",
    "Append",
    "Both",
    "Comment",
    "Create",
    "CreateFrom",
    "CreateSchema",
    "Delete",
    "Drop",
    "DropColumn",
    "DropSchema",
    "Maintain",
    "Merge",
    "Overwrite",
    "Partition",
    "Rename",
    "RenameColumn",
    "SetDefault",
    "SetNullable",
    "Sort",
    "Step",
    "Stock",
    "Together",
    "Update",
    "rows_of",
    "table_schema",
]

#: A lake, or an open transaction of one.
Writer = Any


class Step(Protocol):
    """One change that makes one snapshot."""

    def sql(self) -> Sequence[str]:
        """The statements that do it in DuckDB."""
        ...

    def run(self, lake: Writer) -> None:
        """Do it with Quacklake."""
        ...


def rows_of(select: str) -> pa.Table:
    """The rows of a query as Arrow."""
    with plain_duckdb() as connection:
        return arrow_table(connection, select)


_NAMES = {
    "BOOLEAN": "boolean",
    "TINYINT": "int8",
    "SMALLINT": "int16",
    "INTEGER": "int32",
    "BIGINT": "int64",
    "HUGEINT": "int128",
    "UTINYINT": "uint8",
    "USMALLINT": "uint16",
    "UINTEGER": "uint32",
    "UBIGINT": "uint64",
    "UHUGEINT": "uint128",
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "TIME": "time",
    "TIME WITH TIME ZONE": "timetz",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_S": "timestamp_s",
    "TIMESTAMP_MS": "timestamp_ms",
    "TIMESTAMP_NS": "timestamp_ns",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "INTERVAL": "interval",
    "VARCHAR": "varchar",
    "BLOB": "blob",
    "JSON": "json",
    "UUID": "uuid",
    "TIME_NS": "time_ns",
    "VARIANT": "variant",
    "GEOMETRY": "geometry",
}


def table_schema(columns: str) -> TableSchema:
    """Return the columns that DuckDB declares as Quacklake's; ids are assigned depth first, as every client does."""
    with plain_duckdb() as connection:
        connection.execute(f"CREATE TABLE declared({columns})")
        described = connection.execute("DESCRIBE declared").fetchall()
        types = connection.sql("FROM declared").types
    return _schema(described, types)


def _schema(described: Sequence[Sequence[Any]], types: Sequence[Any]) -> TableSchema:
    columns: list[Column] = []
    next_id = 1
    for (name, _, null, *_), type_ in zip(described, types, strict=True):
        column = _column(name, type_, next_id, nullable=null == "YES")
        columns.append(column)
        next_id += sum(1 for _ in column.walk())
    return TableSchema(tuple(columns))


def _column(name: str, type_: Any, id_: int, *, nullable: bool = True) -> Column:
    kind = str(type_) if str(type_) == "JSON" else type_.id
    if kind not in ("list", "struct", "map"):
        text = str(type_).lower() if kind == "decimal" else _NAMES[str(type_)]
        return Column(id_, name, text, nullable)
    names = {"list": ["element"], "map": ["key", "value"]}.get(kind)
    children: list[Column] = []
    next_id = id_ + 1
    parts = [part for _, part in type_.children]
    for child_name, part in zip(names or [label for label, _ in type_.children], parts, strict=True):
        child = _column(child_name, part, next_id)
        children.append(child)
        next_id += sum(1 for _ in child.walk())
    return Column(id_, name, kind, nullable, children=tuple(children))


def _sql(table: str) -> str:
    """A table name as a user writes it for Quacklake, quoted for SQL."""
    ref = TableRef.parse(table)
    return f"{quote(ref.schema)}.{quote(ref.name)}"


@dataclass(frozen=True)
class Create:
    """Create a table with columns as DuckDB declares them."""

    table: str
    columns: str

    def sql(self) -> Sequence[str]:
        return [f"CREATE TABLE {_sql(self.table)}({self.columns})"]

    def run(self, lake: Writer) -> None:
        lake.create_table(self.table, table_schema(self.columns))


@dataclass(frozen=True)
class CreateFrom:
    """Create a table from rows."""

    table: str
    select: str

    def sql(self) -> Sequence[str]:
        return [f"CREATE TABLE {_sql(self.table)} AS {self.select}"]

    def run(self, lake: Writer) -> None:
        lake.create_table(self.table, rows_of(self.select))


@dataclass(frozen=True)
class Append:
    """Append rows, with all columns or some."""

    table: str
    select: str
    columns: Sequence[str] = ()

    def sql(self) -> Sequence[str]:
        names = f"({', '.join(map(quote, self.columns))}) " if self.columns else ""
        return [f"INSERT INTO {_sql(self.table)} {names}{self.select}"]

    def run(self, lake: Writer) -> None:
        table = lake.table(self.table)
        table.append(rows_of(self.select).rename_columns(list(self.columns or table.columns)))


@dataclass(frozen=True)
class Delete:
    """Delete the rows that satisfy a condition, or all."""

    table: str
    where: str | None = None

    def sql(self) -> Sequence[str]:
        return [f"DELETE FROM {_sql(self.table)}" + (f" WHERE {self.where}" if self.where else "")]

    def run(self, lake: Writer) -> None:
        lake.table(self.table).delete(self.where)


@dataclass(frozen=True)
class Update:
    """Set columns to SQL expressions."""

    table: str
    values: Mapping[str, str]
    where: str | None = None

    def sql(self) -> Sequence[str]:
        assignments = ", ".join(f"{quote(name)} = {value}" for name, value in self.values.items())
        return [f"UPDATE {_sql(self.table)} SET {assignments}" + (f" WHERE {self.where}" if self.where else "")]

    def run(self, lake: Writer) -> None:
        values = {name: quacklake.expr(value) for name, value in self.values.items()}
        lake.table(self.table).update(values, self.where)


@dataclass(frozen=True)
class Merge:
    """An upsert; the query's columns are all of the table's, by name."""

    table: str
    select: str
    on: str

    def sql(self) -> Sequence[str]:
        return [
            f"MERGE INTO {_sql(self.table)} AS target USING ({self.select}) AS source"
            f" ON (target.{quote(self.on)} = source.{quote(self.on)})"
            " WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT"
        ]

    def run(self, lake: Writer) -> None:
        lake.table(self.table).merge(rows_of(self.select), on=self.on)


@dataclass(frozen=True)
class Overwrite:
    """Replace rows by others."""

    table: str
    select: str
    where: str | None = None

    def sql(self) -> Sequence[str]:
        return ["BEGIN", *Delete(self.table, self.where).sql(), *Append(self.table, self.select).sql(), "COMMIT"]

    def run(self, lake: Writer) -> None:
        table = lake.table(self.table)
        table.overwrite(rows_of(self.select).rename_columns(table.columns), self.where)


@dataclass(frozen=True)
class Rename:
    """Rename a table within its schema."""

    table: str
    name: str

    def sql(self) -> Sequence[str]:
        return [f"ALTER TABLE {_sql(self.table)} RENAME TO {quote(self.name)}"]

    def run(self, lake: Writer) -> None:
        lake.rename_table(self.table, quote(self.name))


def _alter(table: str, clause: str) -> Sequence[str]:
    return [f"ALTER TABLE {_sql(table)} {clause}"]


def _path(path: str) -> str:
    return format_path(parse_path(path))


def _value(value: int | str | None) -> str:
    if value is None:
        return "NULL"
    return literal(value) if isinstance(value, str) else str(value)


@dataclass(frozen=True)
class AddColumn:
    """Add a column, or a field of a struct."""

    table: str
    path: str
    type: str
    default: int | str | None = None

    def sql(self) -> Sequence[str]:
        default = "" if self.default is None else f" DEFAULT {_value(self.default)}"
        return _alter(self.table, f"ADD COLUMN {_path(self.path)} {self.type}{default}")

    def run(self, lake: Writer) -> None:
        lake.table(self.table).add_column(self.path, self.type, self.default)


@dataclass(frozen=True)
class DropColumn:
    """Drop a column or field."""

    table: str
    path: str

    def sql(self) -> Sequence[str]:
        return _alter(self.table, f"DROP COLUMN {_path(self.path)}")

    def run(self, lake: Writer) -> None:
        lake.table(self.table).drop_column(self.path)


@dataclass(frozen=True)
class RenameColumn:
    """Rename a column or field."""

    table: str
    path: str
    name: str

    def sql(self) -> Sequence[str]:
        return _alter(self.table, f"RENAME COLUMN {_path(self.path)} TO {quote(self.name)}")

    def run(self, lake: Writer) -> None:
        lake.table(self.table).rename_column(self.path, self.name)


@dataclass(frozen=True)
class AlterColumn:
    """Widen the type of a column."""

    table: str
    path: str
    type: str

    def sql(self) -> Sequence[str]:
        return _alter(self.table, f"ALTER {_path(self.path)} SET DATA TYPE {self.type}")

    def run(self, lake: Writer) -> None:
        lake.table(self.table).alter_column(self.path, self.type)


@dataclass(frozen=True)
class SetDefault:
    """Set the default of a column."""

    table: str
    path: str
    value: int | str | None

    def sql(self) -> Sequence[str]:
        default = "DROP DEFAULT" if self.value is None else f"SET DEFAULT {_value(self.value)}"
        return _alter(self.table, f"ALTER {_path(self.path)} {default}")

    def run(self, lake: Writer) -> None:
        table = lake.table(self.table)
        if self.value is None:
            table.drop_default(self.path)
        else:
            table.set_default(self.path, self.value)


@dataclass(frozen=True)
class SetNullable:
    """Let a column be NULL, or not."""

    table: str
    path: str
    nullable: bool

    def sql(self) -> Sequence[str]:
        return _alter(self.table, f"ALTER {_path(self.path)} {'DROP' if self.nullable else 'SET'} NOT NULL")

    def run(self, lake: Writer) -> None:
        table = lake.table(self.table)
        change = table.drop_not_null if self.nullable else table.set_not_null
        change(self.path)


@dataclass(frozen=True)
class Partition:
    """Set the partitions of new files; none without keys."""

    table: str
    keys: Sequence[str] = ()

    def sql(self) -> Sequence[str]:
        return _alter(
            self.table, f"SET PARTITIONED BY ({', '.join(self.keys)})" if self.keys else "RESET PARTITIONED BY"
        )

    def run(self, lake: Writer) -> None:
        table = lake.table(self.table)
        table.set_partitioned_by(*self.keys) if self.keys else table.reset_partitioned_by()


@dataclass(frozen=True)
class Sort:
    """Set the order of the rows in new files; none without keys."""

    table: str
    keys: Sequence[str] = ()

    def sql(self) -> Sequence[str]:
        return _alter(self.table, f"SET SORTED BY ({', '.join(self.keys)})" if self.keys else "RESET SORTED BY")

    def run(self, lake: Writer) -> None:
        table = lake.table(self.table)
        table.set_sorted_by(*self.keys) if self.keys else table.reset_sorted_by()


@dataclass(frozen=True)
class Comment:
    """Set the comment of a table."""

    table: str
    text: str

    def sql(self) -> Sequence[str]:
        return [f"COMMENT ON TABLE {_sql(self.table)} IS {literal(self.text)}"]

    def run(self, lake: Writer) -> None:
        lake.table(self.table).set_comment(self.text)


@dataclass(frozen=True)
class Drop:
    """Drop a table."""

    table: str

    def sql(self) -> Sequence[str]:
        return [f"DROP TABLE {_sql(self.table)}"]

    def run(self, lake: Writer) -> None:
        lake.drop_table(self.table)


@dataclass(frozen=True)
class CreateSchema:
    """Create a schema."""

    name: str

    def sql(self) -> Sequence[str]:
        return [f"CREATE SCHEMA {quote(self.name)}"]

    def run(self, lake: Writer) -> None:
        lake.create_schema(self.name)


@dataclass(frozen=True)
class DropSchema:
    """Drop a schema with all its tables."""

    name: str

    def sql(self) -> Sequence[str]:
        return [f"DROP SCHEMA {quote(self.name)} CASCADE"]

    def run(self, lake: Writer) -> None:
        lake.drop_schema(self.name, cascade=True)


@dataclass(frozen=True)
class Together:
    """Several changes in one transaction."""

    steps: Sequence[Step]

    def sql(self) -> Sequence[str]:
        inner = [statement for step in self.steps for statement in step.sql()]
        return ["BEGIN", *(statement for statement in inner if statement not in ("BEGIN", "COMMIT")), "COMMIT"]

    def run(self, lake: Writer) -> None:
        with lake.transaction() as transaction:
            for step in self.steps:
                step.run(transaction)


#: Each kind of maintenance as the reference implementation calls it; it has none that sorts.
_MAINTENANCE = {
    "flush": "flush_inlined_data('l')",
    "merge": "merge_adjacent_files('l')",
    "rewrite": "rewrite_data_files('l', delete_threshold => 0.3)",
    "optimize": "rewrite_data_files('l', delete_threshold => 0)",
}


@dataclass(frozen=True)
class Maintain:
    """Compaction of every table, which changes no row; it may make several snapshots, or none."""

    kind: str
    model: Sequence[str] = ()

    def sql(self) -> Sequence[str]:
        return [f"CALL ducklake_{_MAINTENANCE[self.kind]}"]

    def run(self, lake: Writer) -> None:
        assert isinstance(lake, quacklake.Lake)
        match self.kind:
            case "flush":
                lake.maintenance.flush_inlined_data()
            case "merge":
                lake.maintenance.merge_adjacent_files()
            case "rewrite":
                lake.maintenance.rewrite_data_files(delete_threshold=0.3)
            case _:
                for name in lake.tables():
                    lake.table(name).optimize()


@dataclass(frozen=True)
class Both:
    """A step with its own words for each client; ``model`` is its meaning in plain SQL."""

    statements: str | Sequence[str]
    operation: Callable[[Any], object]
    model: Sequence[str] = ()

    def sql(self) -> Sequence[str]:
        return [self.statements] if isinstance(self.statements, str) else self.statements

    def run(self, lake: Writer) -> None:
        self.operation(lake)


@dataclass(frozen=True)
class Stock:
    """A step that only the reference implementation takes, in anyone's turn; ``model`` is its meaning in plain SQL."""

    statement: str
    model: Sequence[str] = field(default_factory=tuple)

    def sql(self) -> Sequence[str]:
        return [self.statement]

    def run(self, lake: Writer) -> None:
        raise AssertionError("only the reference implementation does this")
