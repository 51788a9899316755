"""One Spark statement: the lake at the snapshot that it reads, and Spark queries over its tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quacklake.errors import NotFoundError, SqlError, nearest
from quacklake.format.objects import TableInfo, ViewInfo
from quacklake.operations.reference import DEFAULT_SCHEMA
from quacklake.spark.runtime.local import to_frame
from quacklake.spark.sql.failures import translated
from quacklake.spark.sql.lexer import SparkCursor, text_of
from quacklake.sql.attached import Attached, Target, missing
from quacklake.sql.timetravel import TimeTravel
from quacklake.sql.words import Word
from quacklake.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from quacklake.spark.engine import SparkEngine
    from quacklake.sql.session import Session


@dataclass(frozen=True, slots=True)
class SqlText:
    """A query for Spark, in whose text names in braces refer to DataFrames."""

    sql: str
    frames: Mapping[str, DataFrame] = field(default_factory=dict)


@dataclass
class Statement:
    """The parts of one statement. ``session`` is its own session of the lake; names are looked up in ``tx``."""

    engine: SparkEngine
    session: Session
    tx: Transaction | None = None

    @property
    def attached(self) -> Attached:
        """The lake."""
        found = self.session.names.default
        assert found is not None
        return found

    # -- names -------------------------------------------------------------------------------------------------------

    def view(self, travel: TimeTravel | None = None) -> Transaction:
        """Return the lake at the snapshot that the statement reads, or at a past one."""
        if travel is not None:
            return self.session.at(self.attached, travel.unit, self.moment(travel))
        if self.tx is None:
            self.tx = self.engine.handle.view()
        return self.tx

    def within(self, tx: Transaction) -> Statement:
        """Return the same statement in a transaction that changes the lake."""
        return Statement(self.engine, self.session, tx)

    def places(self, names: Sequence[str]) -> Iterable[Target]:
        """Return the places in the lake where an object of this name may be."""
        return self.session.names.places(names) if len(names) <= 3 else ()

    def find(self, names: Sequence[str], tx: Transaction) -> TableInfo | ViewInfo | None:
        """Return the table or view with a name, or None when the name is not one of the lake.

        Raises ``NotFoundError`` for a missing name that is qualified with the lake.
        """
        places = list(self.places(names))
        for place in places:
            found = tx.get_table(place.schema, place.name) or tx.objects.get_view(place.schema, place.name)
            if found is not None:
                return found
        if places and self.session.names.explicit(names):
            raise missing(places[0], tx)
        return None

    def table(self, names: Sequence[str]) -> TableInfo | None:
        """Return the table that a statement changes, or None when it is not one of the lake."""
        found = self.find(names, self.view())
        if isinstance(found, ViewInfo):
            raise SqlError(f'"{found.name}" is a view: only tables can be changed')
        return found

    def near(self, names: Sequence[str]) -> str | None:
        """Return a hint for an unknown name, or None."""
        tx = self.view()
        known = [info.qualified_name for info in tx.tables()] + [info.qualified_name for info in tx.objects.views()]
        return nearest(".".join(names), [name.removeprefix(f"{DEFAULT_SCHEMA}.") for name in known])

    # -- values ------------------------------------------------------------------------------------------------------

    def moment(self, travel: TimeTravel) -> Any:
        """Return the version, tag or time of a clause. The lake reads a text, as UTC if it has no zone."""
        words = SparkCursor(travel.value).words
        if len(words) == 1 and words[0].kind in ("string", "number"):
            return _plain(words[0])
        return self.constant(travel.value)

    def constant(self, sql: str) -> Any:
        """Return the value of an expression without columns. Times have their zone."""
        column = self.run(SqlText(f"SELECT {sql} AS v")).schema.fields[0]
        if column.dataType.typeName() == "timestamp":
            micros = self.run(SqlText(f"SELECT unix_micros({sql}) AS v")).collect()[0][0]
            return None if micros is None else dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=micros)
        return self.run(SqlText(f"SELECT {sql} AS v")).collect()[0][0]

    # -- running -----------------------------------------------------------------------------------------------------

    def translating(self, text: str | None = None) -> AbstractContextManager[None]:
        """Translate Spark's errors about statements."""
        return translated(self.near, text)

    def run(self, query: SqlText, text: str | None = None) -> DataFrame:
        """Let Spark run a query or a command."""
        session = self.engine.session
        with self.translating(text):
            return session.sql(query.sql, None, **query.frames)

    def rows(self, table: pa.Table) -> DataFrame:
        """Return a few rows as a DataFrame."""
        return to_frame(self.engine.session, _for_spark(table))

    def numbers(self, **counts: int) -> DataFrame:
        """Return the counts of a statement as one row."""
        return self.rows(pa.table({name: pa.array([count], pa.int64()) for name, count in counts.items()}))

    def nothing(self) -> DataFrame:
        """Return the empty result of a statement."""
        from pyspark.sql.types import StructType

        return self.engine.session.createDataFrame([], StructType([]))

    def lake_sql(self, text: str, params: Any = None) -> DataFrame:
        """Let the lake run a statement in its own SQL, and return the rows as a DataFrame."""
        result = self.session.sql(text, params)
        table = result.to_arrow()
        return self.nothing() if not table.num_columns else self.rows(table)


def _plain(word: Word) -> Any:
    if word.kind == "string":
        return text_of(word.text)
    if not word.text.isdigit():
        raise SqlError(f"{word.text} is not a snapshot")
    return int(word.text)


def _for_spark(table: pa.Table) -> pa.Table:
    """Convert a table to types that Spark takes from Arrow."""
    fields = [
        pa.field(field.name, pa.int64()) if pa.types.is_unsigned_integer(field.type) else field
        for field in table.schema
    ]
    schema = pa.schema(fields)
    # Spark needs at least one chunk, even an empty one
    return table.cast(schema) if table.num_rows else pa.table([pa.array([], field.type) for field in schema], schema)


def unknown(names: Sequence[str], hint: str | None) -> NotFoundError:
    """Return the error for an unknown name."""
    return NotFoundError(f'Table with name "{".".join(names)}" does not exist', hint=hint)
