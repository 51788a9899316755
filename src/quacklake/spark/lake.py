"""A lake in Spark: read tables as DataFrames, and write DataFrames into tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quacklake.errors import InputError
from quacklake.format.objects import TableInfo
from quacklake.format.operations import Operation
from quacklake.operations import dml, evolution
from quacklake.operations.expression import Expression
from quacklake.operations.handles import HasHandle, LakeHandle
from quacklake.operations.reference import TableRef
from quacklake.scan import to_predicate
from quacklake.spark.changes.partition_overwrite import DYNAMIC, MODES, overwrite_partitions
from quacklake.spark.datasource.registration import has_sources, require_pyspark
from quacklake.spark.maintenance import SparkMaintaining
from quacklake.spark.runtime.settings import parse_version
from quacklake.spark.runtime.settings import spark_settings as settings_for
from quacklake.spark.streaming import SparkStreaming
from quacklake.spark.streams.options import choice
from quacklake.sql.sessions import LakeSessions
from quacklake.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from quacklake.spark.changes.merge import SparkMerge
    from quacklake.spark.changes.staged_changes import ChangeMetrics
    from quacklake.spark.write.rows import SparkRows


def spark(lake: HasHandle, session: SparkSession | None = None) -> SparkLake:
    """Return a lake for reading and writing with Spark.

    ``session`` is a Spark session, classic or Connect; the default is the active session, or a new one. The lake also
    becomes the one that ``format("quacklake")`` refers to in this session. Raises ``MissingExtraError`` when
    ``pyspark`` or Java is not installed, ``UnsupportedVersionError`` for a version of Spark that does not work.
    """
    require_pyspark()
    return SparkLake(_whole(lake), session)


def spark_settings(lake: HasHandle, version: str | None = None) -> dict[str, str]:
    """Return the Spark settings for a lake, without secrets, for ``spark-defaults.conf`` or a session builder.

    ``version`` is the version of Spark, such as ``"4.1"``; the default is the installed one. No session is needed.
    """
    return settings_for(lake.handle.context.store, None if version is None else parse_version(version))


def _whole(lake: HasHandle) -> LakeHandle:
    handle = lake.handle
    if not isinstance(handle, LakeHandle):
        raise InputError("Spark works on a whole lake, not on a past snapshot or an open transaction")
    return handle


class SparkLake(SparkMaintaining, SparkStreaming):
    """A lake in a Spark session. Only the driver uses the catalog; executors only read and write files."""

    def __init__(self, handle: LakeHandle, session: SparkSession | None = None) -> None:
        from quacklake.spark.engine import SparkEngine
        from quacklake.spark.runtime.compat import is_connect

        self.handle = handle
        self._context = handle.context
        self._sessions = LakeSessions(handle)
        self._engine = SparkEngine.of(handle, session)
        self.session: SparkSession = self._engine.session
        if has_sources() and not is_connect(self.session):
            from quacklake.spark.datasource.format import SparkFormat

            SparkFormat.of(self.session).add(handle)

    def __repr__(self) -> str:
        return f"<SparkLake over {self._context.catalog.url}>"

    def sql(self, text: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> DataFrame:
        """Run one statement in Spark SQL, over tables of the lake and of Spark, and return its rows.

        Name tables of the lake ``table``, ``schema.table`` or ``lake.schema.table``, also at a past state (``table
        VERSION AS OF 3``); other names are Spark's. A change of the lake is committed at once, as one snapshot, and
        returns its counts as a row. ``params`` are values for ``?`` (a list) or ``:name`` (a dictionary). Raises
        ``SqlError``, ``NotFoundError``, or the error of the operation itself.
        """
        from quacklake.spark.sql.dispatch import run

        return run(self._engine, self._sessions, text, params)

    # -- reading -----------------------------------------------------------------------------------------------------

    def table(self, name: str, *, at: int | dt.datetime | str | None = None, where: str | None = None) -> DataFrame:
        """Return a table as a DataFrame, in its current state or ``at`` a snapshot or a time.

        ``where`` is a filter in the SQL of the lake. It skips files and is applied to the rows. The DataFrame does not
        change when the table does.
        """
        ref = TableRef.parse(name)
        if at is None:
            view = self.handle.view()
        else:
            view = (self.handle.at(version=at) if isinstance(at, int) else self.handle.at(timestamp=at)).view()
        info = view.find_table(ref.schema, ref.name)
        frame = self._engine.frame(view, info, to_predicate(where, info.schema))
        if where is None:
            return frame
        return frame.filter(self._engine.scope(table=info.schema).condition(where))

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(self, frame: DataFrame, name: str) -> None:
        """Add the rows of a DataFrame to a table, in one snapshot. Raises the errors of ``Table.append``."""
        ref = TableRef.parse(name)
        self._engine.write(frame, lambda tx, rows: rows.add_to(tx, tx.find_table(ref.schema, ref.name)))

    def overwrite(
        self, frame: DataFrame, name: str, *, where: str | None = None, partition_overwrite_mode: str = "static"
    ) -> None:
        """Replace the rows that match a filter (all without one) by those of a DataFrame, in one snapshot.

        With ``partition_overwrite_mode="dynamic"``, replace the partitions that the DataFrame has rows for. The
        DataFrame may read the table itself.
        """
        ref = TableRef.parse(name)
        dynamic = choice("partition_overwrite_mode", partition_overwrite_mode, MODES) == DYNAMIC
        if dynamic and where is not None:
            raise InputError("where and dynamic overwriting both say which rows go", hint="leave one of them out")

        def work(tx: Transaction, rows: SparkRows) -> None:
            table = tx.find_table(ref.schema, ref.name)
            if dynamic:
                overwrite_partitions(self._context, tx, table, lambda: rows.add_to(tx, table))
            else:
                dml.delete(self._context, tx, table, where, asked=Operation.OVERWRITE)
                rows.add_to(tx, table)

        self._engine.write(frame, work)

    def create_table(
        self,
        name: str,
        columns: DataFrame | StructType,
        *,
        partition_by: str | Sequence[str] = (),
        sort_by: str | Sequence[str] = (),
    ) -> None:
        """Create a table with the columns of a schema, or of a DataFrame whose rows fill it in the same snapshot.

        Columns of a schema that are not nullable reject NULL; all columns of a DataFrame may be NULL. ``partition_by``
        and ``sort_by`` are keys as in ``Lake.create_table``.
        """
        from pyspark.sql.types import StructType

        from quacklake.spark.engine import schema_of

        ref = TableRef.parse(name)
        schema = schema_of(columns)

        def create(tx: Transaction) -> TableInfo:
            return evolution.create_table(self._context, tx, ref, schema, partition_by, sort_by)

        if isinstance(columns, StructType):
            self.handle.run(create)
        else:
            self._engine.write(columns, lambda tx, rows: rows.add_to(tx, create(tx)))

    # -- changing ----------------------------------------------------------------------------------------------------

    def delete(self, name: str, where: str | None = None) -> ChangeMetrics:
        """Delete the rows that match a filter in the SQL of the lake, or all rows, in one snapshot.

        Executors find the rows. Raises the errors of ``Table.delete``.
        """
        from quacklake.spark.changes.clauses import delete

        return self.handle.run(lambda tx: delete(self._engine, tx, TableRef.parse(name), where))

    def update(self, name: str, set: Mapping[str, Any], where: str | None = None) -> ChangeMetrics:
        """Set columns of the rows that match a filter, or of all rows, in one snapshot. Row ids stay the same.

        Values are those of ``Table.update``; pass a computed value as ``quacklake.expr("n + 1")`` or as a Spark column.
        """
        from quacklake.spark.changes.clauses import update

        return self.handle.run(lambda tx: update(self._engine, tx, TableRef.parse(name), set, where))

    def merge(self, name: str, source: DataFrame, on: str | Sequence[str] | Expression | SparkColumn) -> SparkMerge:
        """Merge the rows of a DataFrame into a table: add clauses to the returned builder, then ``execute()`` it.

        ``on`` is the name of one key column or several; or a condition in the SQL of the lake (or a Spark column) on
        ``target`` and ``source``.
        """
        from quacklake.spark.changes.merge import SparkMerge
        from quacklake.spark.runtime.compat import require

        require(self.session, "to merge rows")
        return SparkMerge(self._engine, TableRef.parse(name), source, on)

    # -- settings ----------------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, str]:
        """Return the settings that a session for this lake should have, without secrets."""
        return spark_settings(self, self.session.version)

    def spark_defaults(self) -> str:
        """Return the settings as lines for ``spark-defaults.conf``."""
        return "".join(f"{key} {value}\n" for key, value in self.settings().items())
