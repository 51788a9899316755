"""Rows on their way into the files of a partitioned or sorted table, as DuckDB SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quacklake.errors import InputError
from quacklake.format.names import fold, quote
from quacklake.format.objects import TableInfo
from quacklake.format.partitions import PartitionSpec, directory
from quacklake.format.schema import TableSchema
from quacklake.format.transforms import duckdb_expression

__all__ = ["Keys", "by_one_thread", "partition_keys"]

_ENDLESS = 9_000_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Keys:
    """The partition keys of a table: the names they have in a query, and the SQL that computes each."""

    spec: PartitionSpec
    schema: TableSchema
    names: tuple[str, ...]
    expressions: tuple[str, ...]

    def query(self, rows: str) -> str:
        """A query with the keys after its columns."""
        keys = ", ".join(f"{sql} AS {name}" for sql, name in zip(self.expressions, self.names, strict=True))
        return f"SELECT *, {keys} FROM ({rows})"

    def values(self, texts: Sequence[str | None]) -> dict[int, str | None]:
        """The texts of the keys, in their order, as the catalog has them. Raises ``InputError`` for a NUL."""
        if any(text is not None and "\0" in text for text in texts):
            raise InputError("a partition value contains a NUL character, which no catalog can store")
        return {key.index: text for key, text in zip(self.spec.keys, texts, strict=True)}

    def folder(self, values: Mapping[int, str | None], *, hive: bool) -> str:
        """The folder of files with these values, below the table's."""
        return directory(self.spec, self.schema, values, hive=hive)


def partition_keys(table: TableInfo) -> Keys | None:
    """The keys by which new files of a table are partitioned, if it has any."""
    spec = table.partition
    if spec is None or not spec.keys:
        return None
    prefix = "_ql_key"
    while any(fold(column.name).startswith(prefix) for column in table.schema.columns):
        prefix += "_"
    expressions = []
    for key in spec.keys:
        transform, column = key.parsed, table.schema.by_id(key.column_id)
        expressions.append(duckdb_expression(transform, quote(column.name), column.type))
    names = tuple(f"{prefix}{index}" for index in range(len(expressions)))
    return Keys(spec, table.schema, names, tuple(expressions))


def by_one_thread(rows: str) -> str:
    """A query whose rows DuckDB writes in their order, also into several files: a limit keeps it to one thread."""
    return f"SELECT * FROM ({rows}) LIMIT {_ENDLESS:d}"
