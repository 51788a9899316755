"""One Spark statement: the lake at the snapshot that it reads, and Spark queries over its tables."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from quacklake import Session
from quacklake.core.format.objects import ViewInfo
from quacklake.core.sql.attached import Attached, missing
from quacklake.core.sql.timetravel import TimeTravel
from quacklake.core.sql.words import caret
from quacklake.errors import NotFoundError, QuacklakeError, SqlError, nearest
from quacklake.extend.names import DEFAULT_SCHEMA
from quacklake.extend.schemas import TableInfo
from quacklake.extend.writes import Transaction
from quacklake.spark.engine import SparkEngine
from quacklake.spark.runtime.local import to_frame
from quacklake.spark.runtime.words import SparkCursor, text_of

_MISSING = re.compile(r"table or view (.+?) cannot be found", re.IGNORECASE)
_PLACE = re.compile(r"\(line (\d+), pos(?:ition)? (\d+)\)")
_WHERE = re.compile(r";? line \d+ pos \d+;?$")
_STATE = re.compile(r"\.? SQLSTATE: \w+(?: \(line \d+, pos \d+\))?$")
_DEFAULT = ["spark_catalog", "default"]


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
        found = self.session.names.default
        assert found is not None
        return found

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

    def find(self, names: Sequence[str], tx: Transaction) -> TableInfo | ViewInfo | None:
        """Return a table or view of the lake, or None. Raise ``NotFoundError`` for a name qualified with the lake."""
        places = list(self.session.names.places(names)) if len(names) <= 3 else []
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

    def moment(self, travel: TimeTravel) -> Any:
        """Return the version, tag or time of a clause. The lake reads a text, as UTC if it has no zone."""
        words = SparkCursor(travel.value).words
        if len(words) != 1 or words[0].kind not in ("string", "number"):
            return self.constant(travel.value)
        text = words[0].text
        if words[0].kind == "string":
            return text_of(text)
        if not text.isdigit():
            raise SqlError(f"{text} is not a snapshot")
        return int(text)

    def constant(self, sql: str) -> Any:
        """Return the value of an expression without columns. Times have their zone."""
        found = self.run(SqlText(f"SELECT {sql} AS v"))
        if found.schema.fields[0].dataType.typeName() == "timestamp":
            micros = self.run(SqlText(f"SELECT unix_micros({sql}) AS v")).collect()[0][0]
            return None if micros is None else dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=micros)
        return found.collect()[0][0]

    @contextmanager
    def translating(self, text: str | None = None) -> Iterator[None]:
        """Translate Spark's errors; ``text`` is the statement, if positions refer to what the user wrote."""
        try:
            yield
        except AnalysisException as error:
            raise self._translate_error(error, text) from error

    def _translate_error(self, error: AnalysisException, text: str | None) -> QuacklakeError:
        said = str(error).strip()
        first = _WHERE.sub("", said.splitlines()[0].strip()).rstrip(";. ") if said else type(error).__name__
        first = _STATE.sub("", first)
        missing = _MISSING.search(first)
        if missing is not None:
            names = [part.strip("`") for part in re.findall(r"`[^`]*`|[^.`]+", missing[1])]
            names = names[2:] if names[:-1] == _DEFAULT else names  # Spark adds these to an unqualified name
            return unknown(names, self.near(names))
        place = _PLACE.search(said) if isinstance(error, ParseException) else None
        if place is None or text is None:
            return SqlError(first)
        lines = text.splitlines(keepends=True)
        before = sum(len(line) for line in lines[: int(place[1]) - 1])
        head = first if "\n" in said and first else "syntax error"
        return SqlError(f"{head}\n\n{caret(text, min(before + int(place[2]), len(text)))}")

    def run(self, query: SqlText, text: str | None = None) -> DataFrame:
        with self.translating(text):
            return self.engine.session.sql(query.sql, None, **query.frames)

    def native(self, cursor: SparkCursor) -> DataFrame:
        """Let Spark run a statement about nothing of the lake, unchanged."""
        return self.run(SqlText(cursor.text), cursor.text)

    def rows(self, table: pa.Table) -> DataFrame:
        """Return a few rows as a DataFrame, in types that Spark takes from Arrow."""
        fields = [
            pa.field(field.name, pa.int64()) if pa.types.is_unsigned_integer(field.type) else field
            for field in table.schema
        ]
        schema = pa.schema(fields)
        # Spark needs at least one chunk, even an empty one
        empty = [pa.array([], field.type) for field in schema]
        return to_frame(self.engine.session, table.cast(schema) if table.num_rows else pa.table(empty, schema))

    def numbers(self, **counts: int) -> DataFrame:
        return self.rows(pa.table({name: pa.array([count], pa.int64()) for name, count in counts.items()}))

    def nothing(self) -> DataFrame:
        return self.engine.session.createDataFrame([], StructType([]))

    def done(self, text: str) -> DataFrame:
        """Let the lake run a statement in its own SQL that has no result."""
        self.session.sql(text)
        return self.nothing()

    def lake_sql(self, text: str, params: Any = None) -> DataFrame:
        """Let the lake run a statement in its own SQL, and return the rows as a DataFrame."""
        table = self.session.sql(text, params).to_arrow()
        return self.nothing() if not table.num_columns else self.rows(table)


def unknown(names: Sequence[str], hint: str | None) -> NotFoundError:
    return NotFoundError(f'Table with name "{".".join(names)}" does not exist', hint=hint)
