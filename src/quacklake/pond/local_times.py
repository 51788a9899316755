"""Read local times: which of them a zone has twice or not at all, and what to take them for.

When clocks go back, an hour of local times comes twice, and when they go forward, an hour never comes. Where the rows
of a file are in order, they tell which pass of the hour is meant. What they do not tell is refused, unless a rule does.

>>> for each in changes("America/New_York", dt.datetime(2024, 1, 1), dt.datetime(2024, 12, 31)):
...     print(each.begin, each.end, "twice" if each.repeated else "never")
2024-03-10 02:00:00 2024-03-10 03:00:00 never
2024-11-03 01:00:00 2024-11-03 02:00:00 twice
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from zoneinfo import ZoneInfo

import duckdb

from quacklake.config.mappings import Options
from quacklake.errors import ConstraintError
from quacklake.extend.duckdbs import first_row
from quacklake.extend.names import literal

REFUSE, EARLIER, LATER, SHIFT = "refuse", "earlier", "later", "shift"
AMBIGUOUS = (REFUSE, EARLIER, LATER)
"""Rules for a local time that comes twice, where the order of rows does not tell which it is."""
NONEXISTENT = (REFUSE, SHIFT)
"""Rules for a local time that never comes: with ``shift``, a clock that was not set forward has shown it."""
_FIRST, _LAST = 1850, 2200


@dataclass(frozen=True, slots=True)
class LocalRule:
    """Rules for local times that a zone has twice or not at all."""

    ambiguous: str = REFUSE
    nonexistent: str = REFUSE


REFUSING = LocalRule()


@dataclass(frozen=True, slots=True)
class ClockChange:
    """A change of the clocks: local times from ``begin`` to before ``end`` come twice or never.

    ``moment`` is the instant of the change in UTC, ``before`` and ``after`` are the offsets from UTC around it.
    """

    moment: dt.datetime
    before: dt.timedelta
    after: dt.timedelta

    @property
    def repeated(self) -> bool:
        """True for local times that come twice."""
        return self.after < self.before

    @property
    def begin(self) -> dt.datetime:
        """The first local time that comes twice or never."""
        return self.moment + min(self.before, self.after)

    @property
    def end(self) -> dt.datetime:
        """The first local time that comes once again."""
        return self.moment + max(self.before, self.after)

    def holds(self, local: str) -> str:
        """Return SQL that tells whether a local time comes twice or never."""
        return f"({local} >= {_timestamp(self.begin)} AND {local} < {_timestamp(self.end)})"


def local_rule_of(options: Options) -> LocalRule:
    """Return the rule that options say as ``ambiguous`` and ``nonexistent``."""
    return LocalRule(options.choice("ambiguous", AMBIGUOUS, REFUSE), options.choice("nonexistent", NONEXISTENT, REFUSE))


def changes(zone: str, first: dt.datetime, last: dt.datetime) -> list[ClockChange]:
    """Return the changes of the clocks whose local times lie between two local times, both included."""
    years = range(max(first.year - 1, _FIRST), min(last.year + 1, _LAST) + 1)
    found = (each for year in years for each in _changes_of(zone, year))
    return [each for each in found if each.begin <= last and first < each.end]


@lru_cache(maxsize=2048)
def _changes_of(zone: str, year: int) -> tuple[ClockChange, ...]:
    place, found = ZoneInfo(zone), []

    def offset(moment: dt.datetime) -> dt.timedelta:
        return moment.replace(tzinfo=dt.UTC).astimezone(place).utcoffset() or dt.timedelta()

    day, end = dt.datetime(year, 1, 1), dt.datetime(year + 1, 1, 1)
    while day < end:
        low, high = day, day + dt.timedelta(days=1)
        before, after = offset(low), offset(high)
        day = high
        if before == after:
            continue
        while high - low > dt.timedelta(seconds=1):
            middle = low + (high - low) // 2
            low, high = (low, middle) if offset(middle) != before else (middle, high)
        found.append(ClockChange(high.replace(microsecond=0), before, after))
    return tuple(found)


def instants(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    column: str,
    zone: str,
    rule: LocalRule,
    tell: Callable[[int], str],
    keys: Sequence[str] = (),
) -> tuple[str, bool]:
    """Return SQL for the instants of the local times in a table, and whether any of them comes twice or never.

    ``column`` is SQL, and the rowids of the table are the order of the rows. ``keys`` are columns, as SQL, that tell
    apart the readings of one time, such as the name of a sensor. Raise ``ConstraintError`` for a time that comes twice
    or never, of which neither the order of the rows nor the rule tells what it is; ``tell`` names its row.
    """
    local = f"CAST({column} AS TIMESTAMP)"
    plain = f"timezone({literal(zone)}, {local})"
    known = f"{local} BETWEEN TIMESTAMP '{_FIRST}-01-01' AND TIMESTAMP '{_LAST}-01-01'"
    bounds = first_row(connection, f"SELECT min({local}), max({local}) FROM {table} WHERE {known}")
    if bounds is None or bounds[0] is None:
        return plain, False
    cases = []
    for change in changes(zone, *bounds):
        where = change.holds(local)
        row = first_row(connection, f"SELECT count(*), min(rowid) FROM {table} WHERE {where}")
        assert row is not None
        count, first = row
        if not count:
            continue
        before, after = (_shift_time(local, offset) for offset in (change.before, change.after))
        if not change.repeated:
            if rule.nonexistent == REFUSE:
                raise _error(connection, table, local, first, zone, change, tell)
            cases.append(f"WHEN {where} THEN {before}")
            continue
        second = _second_pass(connection, table, local, change, keys)
        if second is not None:
            cases.append(f"WHEN {where} THEN CASE WHEN {second} THEN {after} ELSE {before} END")
        elif rule.ambiguous == REFUSE:
            raise _error(connection, table, local, first, zone, change, tell)
        else:
            cases.append(f"WHEN {where} THEN {before if rule.ambiguous == EARLIER else after}")
    return (f"CASE {' '.join(cases)} ELSE {plain} END", True) if cases else (plain, False)


def _second_pass(
    connection: duckdb.DuckDBPyConnection, table: str, local: str, change: ClockChange, keys: Sequence[str]
) -> str | None:
    """Return SQL that tells whether a row is of the second pass of an hour; None when the order does not tell.

    Rows are looked at together, and then those of each value of ``keys`` alone, such as those of each sensor.
    """
    for by in ([], keys) if keys else ([],):
        name = f"second_pass_{change.begin:%Y%m%d%H%M%S}"
        sensor = f"struct_pack({', '.join(f'k{n} := {key}' for n, key in enumerate(by))})" if by else "1"
        rows = f"SELECT rowid AS place, {local} AS moment, {sensor} AS sensor FROM {table}"
        over = "OVER (PARTITION BY sensor ORDER BY place)"
        rows = f"SELECT *, row_number() {over} AS nth FROM ({rows})"
        inside = f"SELECT *, moment < lag(moment) {over} AS back FROM ({rows}) WHERE {change.holds('moment')}"
        passes = f"SELECT *, count(*) FILTER (back) {over} AS pass FROM ({inside})"
        row = first_row(
            connection,
            f"SELECT bool_and(told) FROM (SELECT max(pass) = 1 AND max(nth) - min(nth) + 1 = count(*) AS told"
            f" FROM ({passes}) GROUP BY sensor)",
        )
        if row is not None and row[0]:
            connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT place FROM ({passes}) WHERE pass = 1")
            return f"rowid IN (SELECT place FROM {name})"
    return None


def _shift_time(local: str, offset: dt.timedelta) -> str:
    return f"timezone('UTC', {local} - to_seconds({int(offset.total_seconds())}))"


def _timestamp(moment: dt.datetime) -> str:
    return f"TIMESTAMP {literal(moment.isoformat(sep=' '))}"


def _error(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    local: str,
    row: int,
    zone: str,
    change: ClockChange,
    tell: Callable[[int], str],
) -> ConstraintError:
    found = first_row(connection, f"SELECT CAST({local} AS VARCHAR) FROM {table} WHERE rowid = {row:d}")
    time = "" if found is None else found[0]
    if change.repeated:
        return ConstraintError(
            f"{tell(row + 1)}: the time {time} comes twice in {zone}, where clocks go back",
            hint="write an offset with the times, or say which is meant: --ambiguous earlier or later"
            " (the option ambiguous of a collector)",
        )
    return ConstraintError(
        f"{tell(row + 1)}: the time {time} does not exist in {zone}, where clocks go forward",
        hint="correct --timezone, or pass --nonexistent shift for clocks that are not set forward"
        " (the option nonexistent of a collector)",
    )
