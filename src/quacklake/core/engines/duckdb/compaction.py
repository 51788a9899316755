"""Writing the files of a compaction: rows keep their ids, and their snapshots where history needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.catalog import DatedDeletes
from quacklake.core.duckdb_versions import arrow_table
from quacklake.core.engines.duckdb.connections import reading, writing
from quacklake.core.engines.duckdb.deletes import Vectors
from quacklake.core.engines.duckdb.engine import DuckDBEngine
from quacklake.core.engines.duckdb.expressions import sort_value
from quacklake.core.engines.duckdb.rows import fits_in_file
from quacklake.core.engines.duckdb.sql import Field, Reads, ScanSql
from quacklake.core.engines.duckdb.writer import FileWriter, WriteOptions
from quacklake.core.format.names import quote, uuid7
from quacklake.core.format.objects import FIELD_ROW_ID, FIELD_SNAPSHOT_ID, NAME_ROW_ID, NAME_SNAPSHOT_ID, TableInfo
from quacklake.core.format.schema import Column
from quacklake.core.scan import ScanPlan
from quacklake.core.scan.plan import column_key, unreadable_key
from quacklake.core.transaction import NewDataFile, PastDeleteFile, TouchedFile, Transaction

_SNAPSHOT = "_ql_came"


@dataclass(frozen=True, slots=True)
class CompactionFiles:
    """Writes files for one lake. ``options`` and ``vectors`` return how those of a table are written."""

    engine: DuckDBEngine
    writer: FileWriter
    options: Callable[[TableInfo], WriteOptions]
    vectors: Callable[[TableInfo], Vectors]

    def merge(self, tx: Transaction, table: TableInfo, plan: ScanPlan, folder: str) -> list[NewDataFile]:
        """Write the rows of a plan without deletes as one file of one partition, which keeps their history."""
        with self.engine.connection() as lent, self.engine.last_reads.over(lent) as connection:
            query = self._rows(connection, plan, snapshots=True)
            return self._write(tx, connection, query, replace(table, partition=None), 0, snapshots=True, folder=folder)

    def rewrite(self, tx: Transaction, table: TableInfo, plan: ScanPlan) -> list[NewDataFile]:
        """Write the live rows of a plan as files of the table, partitioned and sorted as it says."""
        with self.engine.connection() as lent, self.engine.last_reads.over(lent) as connection:
            query = self._rows(connection, plan, snapshots=False)
            size = pc.sum(plan.files.column("file_size_bytes")).as_py() or 0
            return self._write(tx, connection, query, table, size, snapshots=False)

    def flush(
        self, tx: Transaction, table: TableInfo, rows: pa.Table
    ) -> tuple[list[NewDataFile], list[PastDeleteFile]]:
        """Write inlined rows as files; rows with an ``end_snapshot`` are deleted there at that snapshot."""
        columns = table.schema.columns
        select = [f"CAST({column_key(column)} AS {column.duckdb_type()}) AS {quote(column.name)}" for column in columns]
        select += [f"row_id AS {quote(NAME_ROW_ID)}", f"begin_snapshot AS {quote(NAME_SNAPSHOT_ID)}"]
        with self.engine.connection() as connection:
            with writing():
                connection.register("ql_flushed", rows)
            # in the order of insertion, unless the table has a sort order
            query = f"SELECT {', '.join(select)} FROM ql_flushed ORDER BY row_id, begin_snapshot"
            files = self._write(tx, connection, query, table, rows.nbytes, snapshots=True)
            gone = self._find_deleted(connection, table, files, rows)
        deletes = []
        for index, file in enumerate(files):
            mine = gone.filter(pc.equal(gone.column("file_index"), index))
            if mine.num_rows:
                pairs = zip(mine.column("position").to_pylist(), mine.column("end_snapshot").to_pylist(), strict=True)
                written = TouchedFile(table.location + file.path, None, None, None, record_count=file.record_count)
                deletes.append(self.dated_deletes(tx, table, file.id, written, DatedDeletes(tuple(pairs), None)))
        return files, deletes

    def unwritable(self, table: TableInfo, rows: pa.Table) -> pa.Array:
        """Return the row ids of inlined rows that no file holds as they are, or that cannot be read."""
        found = [
            rows.filter(pc.fill_null(rows.column(key), False)).column("row_id")
            for key in map(unreadable_key, table.schema.columns)
            if key in rows.column_names
        ]
        condition = fits_in_file(table.schema)
        if condition is not None:
            columns = table.schema.columns
            values = [f"CAST({column_key(c)} AS {c.duckdb_type()}) AS {quote(c.name)}" for c in columns]
            query = f"SELECT {', '.join(values)}, row_id AS ql_row_id FROM ql_flushed"
            with self.engine.connection() as connection, reading():
                connection.register("ql_flushed", rows)
                found.append(
                    arrow_table(connection, f"SELECT ql_row_id FROM ({query}) WHERE NOT ({condition})").column(0)
                )
        chunks = [chunk for ids in found for chunk in ids.chunks]
        return pa.chunked_array(chunks, pa.int64()).unique()

    def dated_deletes(
        self, tx: Transaction, table: TableInfo, file_id: int, file: TouchedFile, dated: DatedDeletes
    ) -> PastDeleteFile:
        """Write all that was deleted of a data file up to now, with the snapshots."""
        return self.writer.write_past_deletes(
            table, file_id, file, tx.wrote, tx.base.id, dated, vectors=self.vectors(table)
        )

    def _rows(self, connection: duckdb.DuckDBPyConnection, plan: ScanPlan, *, snapshots: bool) -> str:
        """Return the query of a plan's rows with their ids, and with the snapshots they came with."""
        virtual = {"snapshot_id": _SNAPSHOT} if snapshots else {}
        query = self.engine.bind(connection, plan, rows=True, virtual=virtual)
        select = [quote(column.name) for column in plan.schema.columns] + [f"_ql_row_id AS {quote(NAME_ROW_ID)}"]
        select += [f"{_SNAPSHOT} AS {quote(NAME_SNAPSHOT_ID)}"] if snapshots else []
        return f"SELECT {', '.join(select)} FROM ({query})"

    def _write(
        self,
        tx: Transaction,
        connection: duckdb.DuckDBPyConnection,
        query: str,
        table: TableInfo,
        size: int,
        *,
        snapshots: bool,
        folder: str = "",
    ) -> list[NewDataFile]:
        options = replace(self.options(table), sort=True)
        files = self.writer.write(
            connection,
            query,
            table,
            options,
            tx.wrote,
            tx.local_id,
            row_ids=True,
            snapshot_ids=snapshots,
            size_hint=size,
            folder=folder,
        )
        return [replace(file, moved=True) for file in files]

    def _find_deleted(
        self, connection: duckdb.DuckDBPyConnection, table: TableInfo, files: Sequence[NewDataFile], rows: pa.Table
    ) -> pa.Table:
        """Return where in the files the deleted rows are: ``file_index``, ``position``, ``end_snapshot``."""
        ended = rows.filter(pc.is_valid(rows.column("end_snapshot")))
        if not ended.num_rows:
            return pa.schema([("file_index", pa.int64())]).empty_table()
        prefix = f"ql_{uuid7().hex}"
        reads = Reads(self.engine.store, f"{prefix}_keys")
        fields = [Field(FIELD_ROW_ID, "row_id", "BIGINT"), Field(FIELD_SNAPSHOT_ID, "came", "BIGINT")]
        paths = [table.location + file.path for file in files]
        source = reads.source(paths, [file.encryption_key for file in files], fields, rows.num_rows)
        query = (
            "SELECT p.file_index::BIGINT AS file_index, p.file_row_number::BIGINT AS position, e.end_snapshot"
            f" FROM {source} p JOIN {prefix}_ended e ON e.row_id = p.row_id AND e.begin_snapshot = p.came"
        )
        tables = ((f"{prefix}_ended", ended.select(["row_id", "begin_snapshot", "end_snapshot"])),)
        with reading():
            prepared = self.engine.prepare(connection, ScanSql(query, tables, (), reads.variable, tuple(reads.keys)))
            return arrow_table(connection, prepared)


def z_order(columns: Sequence[Column]) -> str:
    """Return an expression that orders rows along a z-order curve through columns.

    Each column counts by the rank of its value among all rows, so that every type and every distribution fills the
    curve evenly; then the bits of the ranks alternate.
    """
    bits = min(16, 62 // len(columns))
    terms = []
    for place, column in enumerate(columns):
        order = f"ORDER BY {sort_value(quote(column.name))} NULLS FIRST"
        rank = f"((rank() OVER ({order}) - 1) * {1 << bits:d} // count(*) OVER ())"
        terms += [
            f"((({rank} >> {bit:d}) & 1) << {bit * len(columns) + len(columns) - 1 - place:d})" for bit in range(bits)
        ]
    return f"({' | '.join(terms)})"
