"""Write files with DuckDB on the executors that Spark's own writer cannot write.

Spark writes no field ids inside lists and maps, so its files need a name mapping, and files with a mapping cannot have
row ids inside. Spark also has no keys for encrypted files. In these cases, and when rows come through Spark's interface
for Python data sources, each task passes its rows to DuckDB. Small results of Spark are fetched and staged here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from quacklake.core.engines.duckdb import DuckDBEngine, FileWriter, WriteOptions
from quacklake.core.engines.duckdb.connections import writing as duckdb_writing
from quacklake.core.format.objects import FIELD_ROW_ID, FIELD_SNAPSHOT_ID, RESERVED_FIELDS
from quacklake.core.operations import conform
from quacklake.core.operations.signed_zeros import split_at_negative_zero
from quacklake.core.transaction import NewDataFile
from quacklake.errors import ConstraintError, UnsupportedFeatureError
from quacklake.extend.duckdbs import arrow_table
from quacklake.extend.names import quote, uuid7
from quacklake.spark.read.file_index import READ_OPTIONS
from quacklake.spark.runtime.failures import writing
from quacklake.spark.runtime.session import WRITING, settings, to_arrow
from quacklake.spark.runtime.settings import spark_path, spark_uri
from quacklake.spark.runtime.types import RAISED

if TYPE_CHECKING:
    from quacklake.core.operations.conform import Match
    from quacklake.core.operations.context import LakeContext
    from quacklake.extend.schemas import TableInfo, TableSchema
    from quacklake.extend.stores import Store

_NEVER = ("variant", "geometry", "time_ns")  # types that cannot be transferred from Spark to DuckDB


@dataclass(frozen=True, slots=True)
class TaskRows:
    """The result of a task: files of a table, or the rows themselves if they are few."""

    table: TableInfo
    files: tuple[NewDataFile, ...] = ()
    few: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class WriteTask:
    """A task that writes its rows as files of the table.

    ``values`` is the SQL of the table's columns. ``kept`` are columns with internal values of existing rows, by field
    id. Up to ``limit`` rows are returned instead of written. A task that is killed leaves files that nothing refers to.
    """

    store: Store = field(repr=False)
    table: TableInfo
    options: WriteOptions
    values: tuple[str, ...]
    kept: Mapping[int, str]
    folder: str = ""
    encrypted: bool = False
    limit: int = 0

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> TaskRows:
        try:
            return self._write(batch for batch in batches if batch.num_rows)
        except ConstraintError as error:
            raise RuntimeError(f"{RAISED}{error.message}\n") from None

    def _write(self, rows: Iterator[pa.RecordBatch]) -> TaskRows:
        begin: list[pa.RecordBatch] = []
        for batch in rows:
            begin.append(batch)
            if sum(each.num_rows for each in begin) > self.limit:
                break
        if not begin:
            return TaskRows(self.table)
        few = sum(each.num_rows for each in begin) <= self.limit
        engine = DuckDBEngine(self.store, threads=1, reuse=not self.encrypted)
        with closing(engine), engine.connection() as connection:
            reader = pa.RecordBatchReader.from_batches(begin[0].schema, chain(begin, rows))
            if few:
                with duckdb_writing():
                    connection.register("ql_source", reader)
                    return TaskRows(self.table, few=arrow_table(connection, self._query()))
            writer, files = FileWriter(self.store, encrypted=self.encrypted), list[NewDataFile]()
            try:
                for part, negative_zeros in split_at_negative_zero(reader):
                    with duckdb_writing():
                        connection.register("ql_source", part)
                    files += self.files(connection, writer, negative_zeros=negative_zeros)
            except BaseException:
                self.store.delete([self.table.location + file.path for file in files])
                raise
            return TaskRows(self.table, tuple(files))

    def files(
        self,
        connection: duckdb.DuckDBPyConnection,
        writer: FileWriter,
        size: int | None = None,
        negative_zeros: bool | None = None,
    ) -> tuple[NewDataFile, ...]:
        """Write the rows of ``ql_source`` on a connection as files. ``size`` is their size in memory, if known.

        Rows that cannot be read twice come with ``negative_zeros``, as for ``FileWriter.write``.
        """
        begun: list[str] = []
        try:
            found = writer.write(
                connection,
                self._query(),
                self.table,
                self.options,
                begun.append,
                lambda: 0,
                row_ids=FIELD_ROW_ID in self.kept,
                snapshot_ids=FIELD_SNAPSHOT_ID in self.kept,
                size_hint=size,
                folder=self.folder,
                negative_zeros=negative_zeros,
            )
        except BaseException:
            self.store.delete(begun)
            raise
        return tuple(found)

    def _query(self) -> str:
        kept = ((id_, self.kept[id_]) for id_ in (FIELD_ROW_ID, FIELD_SNAPSHOT_ID) if id_ in self.kept)
        select = [*self.values, *(f"{quote(name)} AS {quote(RESERVED_FIELDS[id_])}" for id_, name in kept)]
        return f"SELECT {', '.join(select)} FROM ql_source"


def write_task(
    context: LakeContext, table: TableInfo, matches: Sequence[Match], given: TableSchema, kept: Mapping[int, str]
) -> WriteTask:
    """Return the task that writes rows as Spark shows them. Raise ``UnsupportedFeatureError`` for hard types."""
    for found in matches:
        if found.source is None:
            continue
        column = found.column
        leaves = [*column.leaves(), *given.find(found.source).leaves()]
        hard = [leaf for leaf in leaves if leaf.type in _NEVER or (leaf.type == "timestamp_ns" and column.nested)]
        if hard:
            raise UnsupportedFeatureError(
                f"rows with a column of type {hard[0].type} cannot go from Spark to such files",
                hint="write such rows with lake.table(…)",
            )
    shown: dict[int, str | None] = {}  # values that Spark shows in a form that a cast does not accept
    for found in matches:
        name = found.source
        number = name is not None and found.column.type == given.find(name).type == "timestamp_ns"
        shown[found.column.id] = f"make_timestamp_ns({quote(name)})" if name is not None and number else None
    values = conform.expressions(matches, shown)
    options = context.write_options(table)
    return WriteTask(context.store, table, options, tuple(values), dict(kept), encrypted=context.catalog.encrypted)


_OPTIONS = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false", "compression": "snappy"}


@dataclass
class Staging:
    """Folders of rows below ``location``, which no snapshot refers to. ``discard`` removes them.

    Rows that are computed once are written there, and every later step reads them back. All steps then see the same
    rows, whatever their source is and whichever task has to run again.

    With ``sealed``, rows are never in a file of the store; if an executor that holds some is lost, the operation fails.
    """

    session: SparkSession
    store: Store
    location: str
    sealed: bool = False
    _folders: list[str] = field(default_factory=list)

    def put(self, frame: DataFrame, select: Sequence[str], schema: StructType | str) -> DataFrame:
        """Stage the values of SQL expressions over a DataFrame, and return them. They are read back with ``schema``."""
        if self.sealed:
            with settings(self.session, WRITING), writing():
                return frame.selectExpr(*select).localCheckpoint()
        folder = self._folder(frame, select)
        reader = self.session.read.options(**READ_OPTIONS).schema(schema)
        return reader.parquet(spark_path(self.store.url(folder)))

    def write(self, frame: DataFrame, select: Sequence[str]) -> list[str]:
        """Stage the values of SQL expressions over a DataFrame, and return the paths of the Parquet files."""
        folder = self._folder(frame, select)
        return [entry.path for entry in self.store.list(folder) if entry.path.endswith(".parquet")]

    def _folder(self, frame: DataFrame, select: Sequence[str]) -> str:
        folder = f"{self.location}staged-{uuid7()}"
        self._folders.append(folder)
        self.store.make_parent(f"{folder}/rows")
        with settings(self.session, WRITING), writing():
            rows = frame.selectExpr(*select)
            rows.write.mode("append").options(**_OPTIONS).parquet(spark_uri(self.store.url(folder)))
        return folder

    def discard(self) -> None:
        """Remove the files. A file that cannot be removed is left to maintenance as an orphan."""
        folders, self._folders = self._folders, []
        for folder in folders:
            self.store.delete([entry.path for entry in self.store.list(folder)])
            self.store.prune(f"{folder}/")


_FIRST = 1_000  # the most rows that are fetched while their size is unknown
_BYTES = 64 << 20  # the most bytes of rows that are fetched, which take memory of the driver


@dataclass
class Fetch:
    """Fetches the rows of small DataFrames, at most ``limit``, mostly with one Spark job.

    The size of a row and the number of rows of the last DataFrame predict the next: that saves large batches a job.
    """

    limit: int = 0
    row_bytes: float | None = None
    last: int = 0

    def few(self, frame: DataFrame, always: int = 0, *, more: bool = True) -> pa.Table | None:
        """Return all rows if they are few (with ``more``) or at most ``always``, else None; fetches one row more."""
        guessed, most = self.row_bytes is None, max(always, self._most() if more else 0)
        if self.last and not most:
            return None
        rows = self._rows(frame, most)
        if rows is None and guessed and more and self._most() > most:
            rows = self._rows(frame, self._most())
        return rows

    def _most(self) -> int:
        room = _FIRST if self.row_bytes is None else int(_BYTES / max(self.row_bytes, 1))
        most = min(self.limit, room)
        return most if self.last <= most else 0

    def _rows(self, frame: DataFrame, most: int) -> pa.Table | None:
        with writing():
            rows = to_arrow(frame.limit(most + 1))
        if rows.num_rows:
            self.row_bytes = rows.nbytes / rows.num_rows
        return rows if rows.num_rows <= most else None
