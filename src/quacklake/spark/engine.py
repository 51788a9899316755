"""Read and write the tables of one lake in one Spark session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from quacklake.core.format.schema import from_arrow
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.handles import LakeHandle
from quacklake.errors import UnsupportedFeatureError
from quacklake.extend.predicates import Predicate
from quacklake.extend.schemas import TableInfo, TableSchema
from quacklake.spark.expressions.translator import ExpressionScope
from quacklake.spark.read.scan import SparkScan
from quacklake.spark.runtime.local import arrow_schema, with_variants
from quacklake.spark.runtime.session import find_session, has_time
from quacklake.spark.write.rows import SparkRows
from quacklake.spark.write.tasks import Staging
from quacklake.spark.write.writer import SparkWriter

if TYPE_CHECKING:
    from quacklake.extend.writes import Transaction


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Reads the tables of a lake as DataFrames, and writes DataFrames into them."""

    handle: LakeHandle
    scan: SparkScan
    writer: SparkWriter

    @classmethod
    def of(cls, handle: LakeHandle, session: SparkSession | None) -> SparkEngine:
        """Return the engine of a lake in the given session, else in the active one, else in a new one."""
        handle.check_whole("Spark")
        store = handle.context.store
        found = find_session(session, store)
        return cls(handle, SparkScan(found, store), SparkWriter(found, store))

    @property
    def context(self) -> LakeContext:
        return self.handle.context

    @property
    def session(self) -> SparkSession:
        return self.writer.session

    def scope(self, **tables: TableSchema) -> ExpressionScope:
        """Return the scope that resolves names in expressions over these tables, by their aliases."""
        ansi = self.session.conf.get("spark.sql.ansi.enabled") == "true"
        return ExpressionScope(self.context.engine, tables, ansi, has_time(self.session))

    def frame(self, view: Transaction, table: TableInfo, predicate: Predicate) -> DataFrame:
        """Return a table as a DataFrame, without files that a predicate rules out."""
        return self.scan.frame(view.plan(table, predicate, max_files=self.context.config.plan_max_files))

    def write(self, frame: DataFrame, work: Callable[[Transaction, SparkRows], None], *, partial: bool = False) -> None:
        """Change the lake with the rows of a DataFrame, in one snapshot. Remove their files if that fails."""
        rows = SparkRows(self.context, self.writer, frame, partial=partial)
        with rows.discarded_on_failure():
            self.handle.run(lambda tx: work(tx, rows))

    def staging(self, table: TableInfo) -> Staging:
        """Return a place for rows that are computed once. Raise ``UnsupportedFeatureError`` for TIME, if encrypted."""
        sealed = self.context.catalog.encrypted
        times = any(leaf.type == "time" for column in table.schema.columns for leaf in column.leaves())
        if sealed and times and not has_time(self.session):
            raise UnsupportedFeatureError(
                "rows with times of an encrypted lake can be changed only in a session with the type TIME",
                hint="set spark.sql.timeType.enabled, or change them with lake.table(…)",
            )
        return Staging(self.session, self.writer.store, table.location, sealed)


def schema_of(columns: DataFrame | StructType) -> TableSchema:
    """Return the table schema for the columns of a Spark schema or a DataFrame."""
    given = columns if isinstance(columns, StructType) else columns.schema
    return with_variants(from_arrow(arrow_schema(given, required=given is columns)), given)
