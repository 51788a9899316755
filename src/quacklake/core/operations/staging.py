"""Write rows into data files of a table first, look at them there, and only then add them to the table, or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa

from quacklake.core.engines.duckdb.connections import file_literal
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.snapshots import Operation
from quacklake.core.operations import conform
from quacklake.core.operations.context import LakeContext
from quacklake.core.transaction import NewDataFile, Transaction


@dataclass
class Staged:
    """Data files that are written and not yet part of their table; ``connection`` can read them."""

    connection: duckdb.DuckDBPyConnection
    relation: str
    table: TableInfo
    files: Sequence[NewDataFile]
    kept: bool = False

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(file.record_count for file in self.files)

    @property
    def bytes(self) -> int:
        """The size of the files."""
        return sum(file.file_size_bytes for file in self.files)

    def bounds(self, column: str) -> list[str]:
        """Return the least and the greatest value of a column in each file, as statistics write them."""
        id = self.table.schema.find(column).id
        found = [stats for file in self.files for stats in file.stats if stats.column_id == id]
        return [bound for stats in found for bound in (stats.min, stats.max) if bound is not None]

    def keep(self) -> None:
        """Let the end of the block add the files to the table, instead of removing them."""
        self.kept = True


@contextmanager
def stage(
    context: LakeContext, tx: Transaction, table: TableInfo, query: str, given: pa.Schema, size: int
) -> Iterator[Staged]:
    """Write the rows of a query, which DuckDB can run by itself, in their order into files of a table without keys.

    ``given`` has the columns of the query and ``size`` about the bytes of its rows. The end of the block adds the
    files to the table if ``keep`` was called, and removes them otherwise.
    """
    tx.asks(Operation.INSERT)
    select = ", ".join(conform.expressions(context.match(given, table, partial=True)))
    with context.engine.connection() as connection:
        files = context.writer.write(
            connection,
            f"SELECT {select} FROM ({query})",
            table,
            replace(context.write_options(table), sort=False),
            tx.wrote,
            tx.local_id,
            size_hint=size,
        )
        paths = [table.location + file.path for file in files]
        staged = Staged(connection, _relation(context, paths), table, files)
        try:
            yield staged
        finally:
            if not staged.kept:
                tx.discard(paths)
        if staged.kept:
            tx.pending(table).files.extend(files)


def _relation(context: LakeContext, paths: list[str]) -> str:
    return f"read_parquet([{', '.join(map(file_literal, context.store.readable_urls(paths)))}])"
