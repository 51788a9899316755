"""Run the query of a materialized view on Spark: its rows become staged files, which DuckDB reads in the refresh.

The query is translated as views of the lake are; what is not known to mean the same in Spark is refused. Spark reads
the tables at the snapshot of the transaction, which commits the rows with the position, as on DuckDB.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import duckdb

from quacklake.core.materialized.spark_text import FEEDS
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.handles import LakeHandle
from quacklake.errors import PredicateError, UnsupportedFeatureError
from quacklake.extend.names import fold, literal
from quacklake.extend.plans import ScanPlan
from quacklake.extend.predicates import ANYTHING
from quacklake.extend.schemas import Column, TableInfo, parse_type
from quacklake.extend.writes import Transaction
from quacklake.spark.runtime.settings import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from quacklake.spark.engine import SparkEngine
    from quacklake.spark.sql.view_queries import Named, Relation
    from quacklake.spark.write.tasks import Staging

_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_CARRIED = (*_INTEGERS, "boolean", "varchar", "float32", "float64", "date", "timestamp", "timestamptz", "uuid")
"""Types of columns that Spark reads and writes without loss, and that DuckDB takes back by a cast; decimals too."""

_TIMES = ("date", "timestamp", "timestamptz")
"""Types with infinite values, which Spark does not have."""


def spark_queries(context: LakeContext, tx: Transaction, place: TableInfo, *, start: bool) -> SparkQueries | None:
    """Return what runs queries in the active session of Spark; without one None, or in a new one if it may ``start``.

    Rows are staged below the folder of the table ``place``. Raise ``MissingExtraError`` where Spark cannot start.
    """
    session = _active_session()
    if session is None and not start:
        return None
    require_pyspark()
    from quacklake.spark.engine import SparkEngine

    return SparkQueries(SparkEngine.of(LakeHandle(context), session), tx, place)


def _active_session() -> SparkSession | None:
    """Return the classic session that is active in this process, or None. None is started."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    from quacklake.spark.runtime.session import is_connect

    found = SparkSession.getActiveSession()
    return None if found is None or is_connect(found) else found


@dataclass
class SparkQueries:
    """Runs queries over the tables of a transaction, and over rows that came, until ``close``."""

    engine: SparkEngine
    tx: Transaction
    place: TableInfo
    """The table below whose folder rows are staged."""
    _staging: Staging | None = None
    _frames: dict[str, DataFrame] = field(default_factory=dict)

    def run(self, sql: str, feeds: Mapping[str, tuple[ScanPlan, TableInfo]], *, dry: bool = False) -> str | None:
        """Return the query of the staged rows, whose columns are ``c0`` and so on; None when ``dry``.

        Raise ``UnsupportedFeatureError`` for what is not known to mean the same in Spark.
        """
        if self.engine.context.catalog.encrypted:
            raise UnsupportedFeatureError("views of an encrypted lake are not computed on Spark")
        made = self._translate_query(sql, feeds)
        names = [f"c{n}" for n in range(len(made.columns))]
        if dry:
            return None
        frame = self.engine.session.sql(f"SELECT * FROM {made.sql}", None, **self._frames).toDF(*names)
        if self._staging is None:
            self._staging = self.engine.staging(self.place)
        paths = self._staging.write(frame, names)
        if not paths:
            return f"SELECT {', '.join(f'NULL AS {name}' for name in names)} WHERE false"
        urls = self.engine.writer.store.urls(paths)
        return f"SELECT {', '.join(names)} FROM read_parquet([{', '.join(map(literal, urls))}])"

    def close(self) -> None:
        """Remove the staged rows."""
        if self._staging is not None:
            self._staging.discard()

    def _translate_query(self, sql: str, feeds: Mapping[str, tuple[ScanPlan, TableInfo]]) -> Relation:
        from quacklake.spark.runtime.session import has_time
        from quacklake.spark.sql.pruning import where_predicate
        from quacklake.spark.sql.view_queries import Relation, ViewQuery

        engine = self.engine

        def find(named: Named) -> Relation:
            if named.schema == FEEDS:
                plan, table = feeds[named.name]
                self._check_times(table, sql)
                return Relation(self._add_frame(engine.scan.frame(plan)), _find_carried(table))
            table = self.tx.find_table(named.schema or "main", named.name)
            self._check_times(table, sql)
            predicate = where_predicate(named, table.schema) if named.where else ANYTHING
            return Relation(self._add_frame(engine.frame(self.tx, table, predicate)), _find_carried(table))

        self._frames.clear()
        with engine.context.engine.connection() as connection:
            query = ViewQuery(connection, find, time=has_time(engine.session), fractions=True)
            try:
                made = query.translated(sql)
            except (duckdb.Error, PredicateError) as error:  # a column of a type that is not carried is not there
                told = str(error).partition("\n")[0]
                raise UnsupportedFeatureError(f"Spark cannot compute this view: {told}") from error
        if query.strict and engine.session.conf.get("spark.sql.ansi.enabled") != "true":
            raise UnsupportedFeatureError(
                "the session would go on with a wrong number where one is too large",
                hint="set spark.sql.ansi.enabled to true, as it is by default in Spark 4",
            )
        wrong = next((column for column in made.columns if not _is_carried(column, computed=True)), None)
        if wrong is not None:
            raise UnsupportedFeatureError(f'Spark cannot compute the column "{wrong.name}" of type {wrong.type}')
        return made

    def _check_times(self, table: TableInfo, sql: str) -> None:
        """Raise ``UnsupportedFeatureError`` where a query names a column that may hold an infinite time.

        Spark has none, and computes with a large finite one.
        """
        text = fold(sql)
        times = [
            column.id
            for column in table.schema.columns
            if column.type in _TIMES and fold(column.name).replace('"', '""') in text
        ]
        if not times:
            return
        with self.engine.context.catalog.read() as reader:
            endless = reader.tables.endless(table, times)
        if endless:
            raise UnsupportedFeatureError(
                f"Spark cannot compute with infinite times, which {table.qualified_name} may hold"
            )

    def _add_frame(self, frame: DataFrame) -> str:
        name = f"ql_{len(self._frames)}"
        self._frames[name] = frame
        return f"{{{name}}}"


def _find_carried(table: TableInfo) -> tuple[Column, ...]:
    return tuple(column for column in table.schema.columns if _is_carried(column))


def _is_carried(column: Column, *, computed: bool = False) -> bool:
    if column.children:
        return False
    # a sum of whole numbers is computed as a decimal with all its digits
    return (
        column.type in _CARRIED or parse_type(column.type).base == "decimal" or (computed and column.type == "int128")
    )
