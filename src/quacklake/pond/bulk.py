"""The short way of a large CSV file into a series: DuckDB reads it once, straight into a data file.

Types are those of the first rows, and every later row is checked against them while it is read. The times are looked at
in the file that was written. Whatever is out of the ordinary, such as a row that does not fit, times out of order or a
time that the series has already, sends the file the long way (``spool``), which knows what to do or say.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from quacklake import telemetry
from quacklake.errors import CorruptFileError, InputError, QuacklakeError
from quacklake.extend.duckdbs import arrow_reader, connect, first_row
from quacklake.extend.inputs import InputFiles
from quacklake.extend.names import fold, literal, quote
from quacklake.extend.schemas import TableSchema
from quacklake.extend.writes import Change, StagedQuery
from quacklake.pond.fs import FS
from quacklake.pond.local_times import changes
from quacklake.pond.spool import Watch
from quacklake.pond.times import TimeColumn, find_column, number_bound, time_literal, utc

LARGE = 16 << 20
"""The bytes of a file from which on the short way is worth a try."""
_SAMPLE = 20_480
_BATCH_ROWS = 1 << 20
_SHRINKS = 4
"""CSV is about so many times as large as the same rows in Parquet."""
_INT, _DOUBLE, _TEXT, _ZONED, _LOCAL = "BIGINT", "DOUBLE", "VARCHAR", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP"
_ARROW = {
    _INT: pa.int64(),
    _DOUBLE: pa.float64(),
    _TEXT: pa.string(),
    _ZONED: pa.timestamp("us", "UTC"),
    _LOCAL: pa.timestamp("us"),
}
_READ = {_INT: _DOUBLE, _LOCAL: _TEXT, _ZONED: _TEXT}
"""Types that are read as others, because DuckDB would read values so that are something else."""
_ZONED_TEXTS = ("{0} LIKE '%Z'", "length({0}) > 19 AND {0}[-6] IN ('+', '-') AND {0}[-3] = ':'")
_LOCAL_TEXTS = (
    "{0} LIKE '____-__-_____:__:__' AND {0} NOT LIKE '%Z'",
    r"regexp_full_match({0}, '\d{{4}}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?')",
)
"""Conditions of texts that are times with a zone, or without: the usual ones, which are found quickly, and others."""
_STORED = {"int64": _INT, "float64": _DOUBLE, "varchar": _TEXT}
_WHOLE = 1 << 53
"""Whole numbers below it are still what they were when they are read as doubles."""


@dataclass(frozen=True, slots=True)
class Bulk:
    """Rows that were written: their number, the bytes of their file, and their first and last time."""

    rows: int
    bytes: int
    first: dt.datetime | None
    last: dt.datetime | None


@dataclass(frozen=True, slots=True)
class BulkPlan:
    """A query that reads a file, the columns it gives, and about how many bytes of Parquet they are.

    ``wholes`` are columns of whole numbers that were read as doubles: exact unless they are very large.
    """

    query: str
    schema: pa.Schema
    time: str
    size: int
    wholes: tuple[str, ...] = ()
    zone: str | None = None
    """The zone of times that are written without one."""


def plan(files: InputFiles, wanted: str | None, zone: str | None, known: TableSchema | None) -> BulkPlan | None:
    """Return how to read a file the short way; None when it has to go the long way.

    ``wanted`` is the time column, if it is known, and ``known`` the other columns of the series, if it exists.
    """
    size = _size(files)
    if size is None:
        return None
    try:
        types = files.sampled()
        name = find_column(list(types), wanted)
        found = None if name is None else _choose_types(types, name, known)
        if name is None or found is None:
            return None
        rows = files.as_sql({column: _READ.get(type_, type_) for column, type_ in found.items()})
        most = _largest(rows, name) if found[name] == _INT else None
        bounds = {name: number_bound(most)}
        checked = ", ".join(
            f"{_guard(column, type_, bounds.get(column))} AS {quote(column)}" for column, type_ in found.items()
        )
        instant = TimeColumn(name, _ARROW[found[name]], zone).expression(most)
    except QuacklakeError:
        return None  # the long way says what is wrong
    fields = [pa.field(column, _ARROW[_ZONED if column == name else type_]) for column, type_ in found.items()]
    query = f"SELECT * REPLACE ({instant} AS {quote(name)}) FROM (SELECT {checked} FROM ({rows}))"
    wholes = tuple(column for column, type_ in found.items() if type_ == _INT and column != name)
    return BulkPlan(query, pa.schema(fields), name, size // _SHRINKS, wholes, zone if found[name] == _LOCAL else None)


def _size(files: InputFiles) -> int | None:
    """Return the bytes of one large plain CSV file of this machine, else None."""
    if files.found.format != "csv" or files.found.folders or len(files.found.paths) != 1 or files.csv.has_values:
        return None
    path = Path(files.found.paths[0])
    if path.suffix.lower() in (".gz", ".zst") or not path.is_file() or path.stat().st_size < LARGE:
        return None
    return path.stat().st_size


def _choose_types(types: Mapping[str, str], name: str, known: TableSchema | None) -> dict[str, str] | None:
    """Return the type of each column, None when one has a type that later rows could change without an error."""
    stored = {} if known is None else {fold(column.name): column.type for column in known.columns}
    found: dict[str, str] = {}
    for column, type_ in types.items():
        if column != name and known is not None:
            type_ = _STORED.get(stored.get(fold(column), ""), "")
        if type_ not in _ARROW or (type_ == _LOCAL and column != name):
            return None
        found[column] = type_
    return found if name in found and found[name] != _TEXT else None


def _guard(column: str, type_: str, bound: int | None) -> str:
    """Return SQL for a column that is an error where a value is not of its type, though DuckDB would read it.

    ``bound`` is what numbers have to stay below, if they are not looked at later.
    """
    name = quote(column)
    refusal = f"error({literal(f'a value of {column} does not fit')})"
    if type_ == _INT:  # DuckDB would round 1.5
        large = "" if bound is None else f"OR abs({name}) >= {bound:d} "
        return f"CASE WHEN {name} <> {name}::BIGINT {large}THEN {refusal} ELSE {name}::BIGINT END"
    if type_ in (_LOCAL, _ZONED):  # DuckDB would ignore a zone, or take a time without one for one of UTC
        usual, other = _ZONED_TEXTS if type_ == _ZONED else _LOCAL_TEXTS
        value = f"CAST({name} AS {type_})"
        fits = f"WHEN {usual.format(name)} THEN {value} WHEN {other.format(name)} THEN {value}"
        return f"CASE {fits} WHEN {name} IS NOT NULL THEN {refusal} END"
    return name


def _largest(rows: str, name: str) -> int:
    """Return the largest number of a column in the first rows."""
    with connect(config={"autoinstall_known_extensions": False}) as connection:
        row = first_row(
            connection, f"SELECT max(abs({quote(name)})) FROM (SELECT {quote(name)} FROM ({rows}) LIMIT {_SAMPLE:d})"
        )
    return 0 if row is None or row[0] is None else int(row[0])


def write(fs: FS, table: str, rows: BulkPlan, accepts: Callable[[Bulk], bool]) -> Bulk | None:
    """Write rows into a table that exists; None when they have to go the long way, and nothing was written.

    They have to when a row does not fit, when times are missing, repeated or out of order, and if ``accepts`` says no.
    """
    change = Change(fs.backend.changes)
    try:
        with telemetry.timed("pond.bulk"), change.write_query(table, rows.query, rows.schema, rows.size) as staged:
            bulk = None if staged is None else _look(staged, rows)
            if staged is None or bulk is None or not accepts(bulk):
                return None
            staged.keep()
            return bulk
    except (InputError, CorruptFileError):
        return None


def _look(staged: StagedQuery, rows: BulkPlan) -> Bulk | None:
    """Return what was written; None unless numbers are exact and each row has a time later than the one before."""
    if any(abs(int(bound)) >= _WHOLE for column in rows.wholes for bound in staged.bounds(column)):
        return None
    watch = Watch()
    for batch in arrow_reader(
        staged.connection, f"SELECT {quote(rows.time)} FROM {staged.relation}", batch_rows=_BATCH_ROWS
    ):
        watch.look(batch.column(0))
        if not watch.increasing:
            return None
    first, last = (None if each is None else utc(each.value) for each in (watch.first, watch.previous))
    if rows.zone is not None and first is not None and last is not None and _is_odd(staged, rows, first, last):
        return None
    return Bulk(staged.rows, staged.bytes, first, last)


def _is_odd(staged: StagedQuery, rows: BulkPlan, first: dt.datetime, last: dt.datetime) -> bool:
    """Return whether a time may have been written as a local one that comes twice or never."""
    assert rows.zone is not None
    day = dt.timedelta(days=1)
    around = changes(rows.zone, first.replace(tzinfo=None) - day, last.replace(tzinfo=None) + day)
    near = []
    for change in around:
        moment, width = change.moment.replace(tzinfo=dt.UTC), abs(change.after - change.before)
        begin, end = time_literal(moment - width), time_literal(moment + width)
        near.append(f"({quote(rows.time)} >= {begin} AND {quote(rows.time)} < {end})")
    if not near:
        return False
    row = first_row(staged.connection, f"SELECT count(*) FROM {staged.relation} WHERE {' OR '.join(near)}")
    return row is not None and bool(row[0])
