"""Queries for the rows that go into the files of a partitioned or sorted table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from quacklake.errors import InputError, UnsupportedFeatureError
from quacklake.format.layout import EPOCH, PartitionSpec, directory
from quacklake.format.names import fold, literal, quote
from quacklake.format.objects import TableInfo
from quacklake.format.schema import TableSchema
from quacklake.format.transforms import duckdb_expression

_UNWRITTEN = ("null", "timestamptz_ns")
"""Types that no file is written with; a whole column of the first is left out."""
_ENDLESS = 9_000_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Keys:
    """The partition keys of a table: the names they have in a query, and the SQL that computes each."""

    spec: PartitionSpec
    schema: TableSchema
    names: tuple[str, ...]
    expressions: tuple[str, ...]

    def query(self, rows: str) -> str:
        """Return a query with the keys after its columns."""
        keys = ", ".join(f"{sql} AS {name}" for sql, name in zip(self.expressions, self.names, strict=True))
        return f"SELECT *, {keys} FROM ({rows})"

    def values(self, texts: Sequence[str | None]) -> dict[int, str | None]:
        """Return the texts of the keys, in their order, as the catalog has them. Raise ``InputError`` for a NUL."""
        if any(text is not None and "\0" in text for text in texts):
            raise InputError("a partition value contains a NUL character, which no catalog can store")
        return {key.index: text for key, text in zip(self.spec.keys, texts, strict=True)}

    def folder(self, values: Mapping[int, str | None], *, hive: bool) -> str:
        """Return the folder of files with these values, below the table's."""
        return directory(self.spec, self.schema, values, hive=hive)


def partition_keys(table: TableInfo, *, epochs: bool = True) -> Keys | None:
    """Return the keys by which new files of a table are partitioned, if it has any.

    Raise ``UnsupportedFeatureError`` for a partitioning by epochs where the lake's version has none.
    """
    spec = table.partition
    if spec is None or not spec.keys:
        return None
    prefix = "_ql_key"
    while any(fold(column.name).startswith(prefix) for column in table.schema.columns):
        prefix += "_"
    expressions = []
    for key in spec.keys:
        transform, column = key.parsed, table.schema.by_id(key.column_id)
        if transform.name in EPOCH and not epochs:
            raise UnsupportedFeatureError(
                f"{table.qualified_name} is partitioned by {transform}, which needs a later version of the format",
                hint='lake.migrate("1.1") brings the lake there',
            )
        expressions.append(duckdb_expression(transform, quote(column.name), column.type))
    names = tuple(f"{prefix}{index}" for index in range(len(expressions)))
    return Keys(spec, table.schema, names, tuple(expressions))


def stored_columns(table: TableInfo) -> TableInfo:
    """Return the table with the columns that its files hold: one of the type ``null`` is in none, and reads as NULL.

    Raise ``UnsupportedFeatureError`` for types whose values DuckDB cannot write.
    """
    kept = tuple(column for column in table.schema.columns if column.type != "null")
    for node in (node for column in kept for node in column.walk()):
        if node.type in _UNWRITTEN:
            raise UnsupportedFeatureError(
                f'the column "{node.name}" of {table.qualified_name} has the type {node.type}, which cannot be written'
            )
    if not kept:
        raise UnsupportedFeatureError(f"{table.qualified_name} has no column that a file could hold")
    return table if len(kept) == len(table.schema.columns) else replace(table, schema=TableSchema(kept))


def without_nulls(query: str, table: TableInfo, names: Sequence[str]) -> str:
    """Return a query for the columns that files hold; a value in a column of the type ``null`` is an error."""
    nothing = [quote(column.name) for column in table.schema.columns if column.type == "null"]
    message = literal("a column of the type null holds nothing but NULL")
    wrong = " OR ".join(f"{name} IS NOT NULL" for name in nothing)
    kept = ", ".join(map(quote, names))
    return f"SELECT {kept} FROM ({query}) WHERE CASE WHEN {wrong} THEN error({message}) ELSE true END"


def by_one_thread(rows: str) -> str:
    """Return a query whose rows DuckDB writes in order, also into several files: a limit keeps it to one thread."""
    return f"SELECT * FROM ({rows}) LIMIT {_ENDLESS:d}"
