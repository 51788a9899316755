"""Long readings become wide rows: one row for each time, one column for each thing that is measured."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from quacklake.errors import ConstraintError, SchemaMismatchError
from quacklake.extend.duckdbs import arrow_reader, connect, first_row
from quacklake.extend.names import check_name, fold, literal, quote

REFUSE, LAST = "refuse", "last"
"""The choices for two readings of one thing at one time: nothing is taken, or the last one counts."""
ON_CONFLICT = (REFUSE, LAST)
TIME = "timestamp"
_EARLIEST, _LATEST = -62_135_596_800_000_000, 253_402_300_799_000_000
_BATCH_ROWS = 65_536


def open_connection() -> duckdb.DuckDBPyConnection:
    """Return a DuckDB of one's own in which :func:`widen` works; one serves many calls."""
    connection = connect(config={"autoinstall_known_extensions": False, "threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET memory_limit = '512MB'")
    return connection


def widen(connection: duckdb.DuckDBPyConnection, readings: pa.Table, what: str, on_conflict: str = REFUSE) -> pa.Table:
    """Return rows in the order of time: ``timestamp``, and a column for each ``name`` among the readings.

    Readings have ``name``, ``micros`` (microseconds since 1970) and ``value``; those without a value are left out.
    Raise ``ConstraintError`` for two different readings of one name and time, and for numbers that are not times.
    """
    names = sorted({str(each) for each in readings.column("name").unique().to_pylist()})
    _check_names(names, what)
    connection.register("arrived_readings", readings)
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE readings AS SELECT name, micros, value FROM arrived_readings "
        "WHERE value IS NOT NULL"
    )
    connection.unregister("arrived_readings")
    wrong = first_row(
        connection,
        "SELECT name, micros FROM readings "
        f"WHERE micros IS NULL OR micros NOT BETWEEN {_EARLIEST} AND {_LATEST} LIMIT 1",
    )
    if wrong is not None:
        raise ConstraintError(f"{what}: a reading of {wrong[0]} has a number that is not a time")
    if on_conflict == REFUSE:
        _check_conflicts(connection, what)
    chosen = "any_value(value)" if on_conflict == REFUSE else "arg_max(value, rowid)"
    columns = [f"{chosen} FILTER (name = {literal(name)}) AS {quote(name)}" for name in names]
    selected = ", ".join([f"make_timestamptz(micros) AS {TIME}", *columns])
    query = f"SELECT {selected} FROM readings GROUP BY micros ORDER BY micros"
    return arrow_reader(connection, query, [], batch_rows=_BATCH_ROWS).read_all()


def _check_conflicts(connection: duckdb.DuckDBPyConnection, what: str) -> None:
    found = first_row(
        connection,
        "SELECT name, CAST(make_timestamptz(micros) AS VARCHAR) FROM readings "
        "GROUP BY name, micros HAVING min(value) <> max(value) ORDER BY ALL LIMIT 1",
    )
    if found is not None:
        raise ConstraintError(
            f"{what} has two different readings of {found[0]} at {found[1]}",
            hint="on_conflict: last takes the one that comes last",
        )


def _check_names(names: list[str], what: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        check_name(name, "column")
        other = seen.setdefault(fold(name), name)
        if other != name or fold(name) == TIME:
            raise SchemaMismatchError(f"{what}: the columns {other!r} and {name!r} cannot be told apart")
