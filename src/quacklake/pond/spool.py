"""Rows on their way into a series: kept by a DuckDB of their own, checked, put in order, and read again.

Memory does not depend on the number of rows: DuckDB spills what does not fit into a temporary folder.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from quacklake.errors import ConstraintError, SchemaMismatchError
from quacklake.extend.duckdbs import arrow_reader, connect, first_row
from quacklake.extend.names import literal, quote
from quacklake.pond.local_times import instants
from quacklake.pond.times import TimeColumn, is_zoned, utc

_BATCH_ROWS = 65_536
_MEMORY = "256MB"
FUTURE = dt.timedelta(days=1)
"""The most that a clock may be ahead."""


def _row(number: int) -> str:
    return f"row {number}"


@dataclass(frozen=True, slots=True)
class Arrived:
    """Facts about the rows in a spool: their number and times, and whether they came in order, each time once."""

    rows: int
    first: dt.datetime | None
    last: dt.datetime | None
    increasing: bool


class Spool:
    """Rows of one import, and the rows of the series in the same range of time, to compare with."""

    def __init__(
        self, rows: pa.RecordBatchReader, time: TimeColumn, name: str, where: Callable[[int], str] = _row
    ) -> None:
        self._time, self._name, self._where = time, name, where
        self._folder = tempfile.TemporaryDirectory(prefix="pond-")
        self._connection = _open(Path(self._folder.name))
        self._columns = rows.schema.names
        self._known = False
        try:
            self._load(rows)
        except BaseException:
            self.close()
            raise

    def _load(self, rows: pa.RecordBatchReader) -> None:
        passing = _Passing(rows, self._time.name)
        self._connection.register("rows", pa.RecordBatchReader.from_batches(rows.schema, passing.batches()))
        try:
            self._connection.execute("CREATE TABLE arrived AS FROM rows")
        except duckdb.Error:
            if passing.failure is not None:
                raise passing.failure from None
            raise
        self._connection.unregister("rows")
        self._convert(passing.watch)

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Forget the rows, and remove the temporary folder."""
        self._connection.close()
        self._folder.cleanup()

    def _convert(self, watch: Watch) -> None:
        """Give the time column its type, and note what came."""
        odd = False
        if self._time.is_text:
            self._expression, odd = self._texts()
        elif self._time.is_local:
            self._expression, odd = self._local_times()
        else:
            self._expression = self._time.expression(watch.most)
        row = first_row(
            self._connection,
            f"SELECT count(*), count({quote(self._time.name)}), epoch_us(min({self._expression})), "
            f"epoch_us(max({self._expression})) FROM arrived",
        )
        assert row is not None
        rows, timed, first, last = row
        if rows != timed:
            where = first_row(
                self._connection, f"SELECT min(rowid) + 1 FROM arrived WHERE {quote(self._time.name)} IS NULL"
            )
            assert where is not None
            raise ConstraintError(f"{self._where(where[0])} of {self._name} has no time in {self._time.name!r}")
        if self._time.is_text or odd:
            watch = Watch()
            for batch in arrow_reader(
                self._connection, f"SELECT {self._expression} FROM arrived", batch_rows=_BATCH_ROWS
            ):
                watch.look(batch.column(0))
        self.arrived = Arrived(rows, utc(first), utc(last), watch.increasing)

    def _local_times(self) -> tuple[str, bool]:
        """Return SQL for local times, and whether any of them comes twice or never in the zone."""

        def tell(number: int) -> str:
            return f"{self._where(number)} of {self._name}"

        column, zone = quote(self._time.name), self._time.known_zone()
        described = self._connection.execute("DESCRIBE arrived").fetchall()
        texts = [quote(str(name)) for name, type_, *_ in described if type_ == "VARCHAR" and name != self._time.name]
        return instants(self._connection, "arrived", column, zone, self._time.rule, tell, texts)

    def _texts(self) -> tuple[str, bool]:
        """Like ``_local_times``, for texts. Raise ``SchemaMismatchError`` for the first that is not a time."""
        column = quote(self._time.name)
        wrong = first_row(
            self._connection,
            f"SELECT rowid + 1, {column} FROM arrived "
            f"WHERE {column} IS NOT NULL AND TRY_CAST({column} AS TIMESTAMPTZ) IS NULL ORDER BY rowid LIMIT 1",
        )
        if wrong is not None:
            raise SchemaMismatchError(
                f"{self._where(wrong[0])} of {self._name}: {str(wrong[1])[:40]!r} is not a time",
                hint="write times as 2024-01-31T12:00:00Z, or as numbers since 1970",
            )
        zones = first_row(
            self._connection,
            f"SELECT min(rowid) FILTER ({is_zoned(column)}) + 1, min(rowid) FILTER (NOT {is_zoned(column)}) + 1 "
            f"FROM arrived",
        )
        assert zones is not None
        zoned, local = zones
        if zoned is not None and local is not None:
            raise SchemaMismatchError(
                f"{self._where(max(zoned, local))} of {self._name}: only some of the times in {self._time.name!r} "
                f"have a time zone",
                hint="write a zone with every time, or with none and pass --timezone",
            )
        if zoned is None and local is not None:
            return self._local_times()
        return self._time.text_expression(zoned=True), False

    def check_future(self, now: dt.datetime) -> None:
        """Raise ``ConstraintError`` for a time that lies more than a day ahead."""
        last = self.arrived.last
        if last is not None and last > now + FUTURE:
            row = first_row(self._connection, f"SELECT arg_max(rowid, {self._expression}) + 1 FROM arrived")
            assert row is not None
            raise ConstraintError(
                f"{self._where(row[0])} of {self._name} is in the future: {last.isoformat()}",
                hint="check the clock of the sensor and --timezone, or pass --allow-future",
            )

    def compare(self, existing: pa.RecordBatchReader) -> None:
        """Take in the rows of the series in the same range of time: equal ones are not added again."""
        self._connection.register("rows", existing)
        self._connection.execute("CREATE TABLE existing AS FROM rows")
        self._connection.unregister("rows")
        self._known = True

    def settle(self, *, keep_conflicts: bool = False) -> int:
        """Leave out repeated rows, and return how many there were.

        Raise ``ConstraintError`` for two different readings of one time, unless they are to be kept. Columns of text
        tell readings of one time apart, as the name of a sensor does.
        """
        if self.arrived.increasing and not self._known:
            self._ready = f"SELECT {self._select()} FROM arrived"
            return 0
        fresh = f"SELECT DISTINCT {self._select()} FROM arrived"
        if self._known:
            fresh = f"{fresh} EXCEPT SELECT {self._existing(self._columns)} FROM existing"
        self._connection.execute(f"CREATE TABLE fresh AS {fresh}")
        if not keep_conflicts:
            self._check_conflicts()
        self._ready = f"FROM fresh ORDER BY {quote(self._time.name)}"
        left = first_row(self._connection, "SELECT count(*) FROM fresh")
        assert left is not None
        return self.arrived.rows - int(left[0])

    def _check_conflicts(self) -> None:
        described = self._connection.execute("DESCRIBE fresh").fetchall()
        names = [self._time.name, *(str(name) for name, type_, *_ in described if type_ == "VARCHAR")]
        keys = ", ".join(map(quote, names))
        both = f"SELECT {keys} FROM fresh"
        if self._known:
            both = f"{both} UNION ALL SELECT {self._existing(names)} FROM existing"
        found = first_row(
            self._connection,
            f"SELECT CAST({quote(self._time.name)} AS VARCHAR) FROM ({both}) "
            f"GROUP BY {keys} HAVING count(*) > 1 LIMIT 1",
        )
        if found is not None:
            raise ConstraintError(
                f"{self._name} has two different readings at {found[0]}",
                hint="correct one of them, or pass --keep-conflicts to store both",
            )

    def _existing(self, names: Sequence[str]) -> str:
        """Return columns of the rows of the series, NULL for those it lacks."""
        known = {str(each[0]) for each in self._connection.execute("DESCRIBE existing").fetchall()}
        return ", ".join(quote(name) if name in known else f"NULL AS {quote(name)}" for name in names)

    def _select(self) -> str:
        columns = [
            f"{self._expression} AS {quote(name)}" if name == self._time.name else quote(name) for name in self._columns
        ]
        return ", ".join(columns)

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows to add, in the order of time."""
        return arrow_reader(self._connection, self._ready, [], batch_rows=_BATCH_ROWS)

    def bounds(self) -> tuple[dt.datetime | None, dt.datetime | None]:
        """Return the first and last time of the rows to add."""
        time = quote(self._time.name)
        row = first_row(self._connection, f"SELECT epoch_us(min({time})), epoch_us(max({time})) FROM ({self._ready})")
        assert row is not None
        return utc(row[0]), utc(row[1])


class Watch:
    """Looks at times that pass by: whether each is later than the one before."""

    def __init__(self) -> None:
        self.first: pa.Scalar | None = None
        self.previous: pa.Scalar | None = None
        self.increasing = True
        self.most: int | None = None

    def look(self, times: pa.Array) -> None:
        """Look at the next times."""
        if not len(times):
            return
        if pa.types.is_integer(times.type):
            top = pc.max(pc.abs(times)).as_py()
            self.most = max(self.most or 0, top or 0)
        if not self.increasing:
            return
        if times.null_count or pa.types.is_string(times.type):
            self.increasing = False
            return
        self.increasing = bool(pc.all(pc.greater(times[1:], times[:-1]), min_count=0).as_py())
        if self.previous is not None and self.increasing:
            self.increasing = bool(pc.greater(times[0], self.previous).as_py())
        self.first, self.previous = self.first or times[0], times[-1]


class _Passing:
    """Rows that pass by on their way into a spool, and the error that ended them."""

    def __init__(self, rows: pa.RecordBatchReader, column: str) -> None:
        self._rows, self._column = rows, column
        self.watch = Watch()
        self.failure: BaseException | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._rows:
                self.watch.look(batch.column(self._column))
                yield batch
        except GeneratorExit:
            raise
        except BaseException as error:
            self.failure = error
            raise


def _open(folder: Path) -> duckdb.DuckDBPyConnection:
    connection = connect(config={"autoinstall_known_extensions": False})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"SET memory_limit = {literal(_MEMORY)}")
    connection.execute(f"SET temp_directory = {literal(str(folder / 'spill'))}")
    return connection
