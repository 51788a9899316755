"""Event times: which column of rows has them, and what an instant is when it is written in one of many ways."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from quacklake.errors import InputError, SchemaMismatchError, nearest
from quacklake.extend.inputs import before
from quacklake.extend.names import literal, quote
from quacklake.pond.local_times import REFUSING, LocalRule

TIMESTAMP_NAMES = ("timestamp", "time", "event_time", "ts", "datetime", "date time", "date_time")
"""The names by which a time column is recognized, whatever their case."""
_UNITS = ((10**11, "s", 10**6), (10**14, "ms", 10**3), (10**17, "us", 1))
"""Numbers below a bound count seconds, milliseconds or microseconds since 1970: bound, unit, microseconds."""

_MAX_VALUE = 1 << 53
_ZONE = r":[^-+A-Za-z]*([-+]\d|[A-Za-z])"
"""A time of day, and after it an offset or the name of a time zone."""


def number_bound(most: int | None) -> int:
    """Return the number below which numbers count the same unit since 1970 as ``most``, at most 2 to the 53rd."""
    return min(next((bound for bound, *_ in _UNITS if (most or 0) < bound), _MAX_VALUE), _MAX_VALUE)


def utc(micros: int | None) -> dt.datetime | None:
    """Return the instant that is some microseconds after 1970."""
    return None if micros is None else dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)


def find_column(names: Sequence[str], wanted: str | None = None) -> str | None:
    """Return the time column among names: the wanted one, or one that is called like one, else None.

    >>> find_column(["Timestamp", "value"]), find_column(["a", "b"])
    ('Timestamp', None)
    """
    if wanted is not None:
        return next((name for name in names if name.lower() == wanted.lower()), None)
    by_name = {name.strip().lower(): name for name in reversed(names)}
    return next((by_name[known] for known in TIMESTAMP_NAMES if known in by_name), None)


def require_column(names: Sequence[str], wanted: str | None, what: str) -> str:
    """Return the time column. Raise ``SchemaMismatchError`` when there is none."""
    found = find_column(names, wanted)
    if found is not None:
        return found
    if wanted is not None:
        raise SchemaMismatchError(f"{what} has no column {wanted!r}", hint=nearest(wanted, names))
    raise SchemaMismatchError(
        f"{what} has no time column among {', '.join(names)}",
        hint=f"name it with --timestamp-column; {', '.join(TIMESTAMP_NAMES[:5])} are recognized",
    )


def check_zone(name: str) -> str:
    """Return the name of a time zone. Raise ``InputError`` for an unknown one."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InputError(f"there is no time zone {name!r}", hint="write UTC, or a name such as Europe/Berlin") from None
    return name


def is_zoned(text: str) -> str:
    """Return SQL that tells whether a text that is a time names its time zone; ``text`` is SQL, too."""
    return f"regexp_matches({text}, {literal(_ZONE)})"


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """The time column of an import: its name, its type there, and the zone of times without one."""

    name: str
    type: pa.DataType
    zone: str | None = None
    rule: LocalRule = REFUSING

    @property
    def is_text(self) -> bool:
        """True when times are texts, of which each has to be looked at."""
        return bool(pa.types.is_string(self.type) or pa.types.is_large_string(self.type))

    def text_expression(self, *, zoned: bool) -> str:
        """Return SQL that gives the instant of texts that are times, all of them with a zone or none of them.

        Raise ``InputError`` for local times whose zone is not known.
        """
        if zoned:
            return f"CAST({quote(self.name)} AS TIMESTAMPTZ)"
        return f"timezone({literal(self.known_zone())}, CAST({quote(self.name)} AS TIMESTAMP))"

    @property
    def is_local(self) -> bool:
        """True when times are of a type that has no zone."""
        return bool(pa.types.is_date(self.type) or (pa.types.is_timestamp(self.type) and self.type.tz is None))

    def known_zone(self) -> str:
        """Return the zone of times without one. Raise ``InputError`` when it is not known."""
        if self.zone is None:
            raise InputError(
                f"the times in {self.name!r} have no time zone",
                hint="say which with --timezone UTC or --timezone Europe/Berlin, or once and for all with "
                "`pond config set timezone UTC`",
            )
        return self.zone

    def expression(self, most: int | None) -> str:
        """Return SQL that gives the instant as TIMESTAMPTZ; ``most`` is the largest number among whole numbers.

        Raise ``InputError`` for local times whose zone is not known, ``SchemaMismatchError`` for what is not a time.
        """
        column, kind = quote(self.name), self.type
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            return f"CAST({column} AS TIMESTAMPTZ)"
        if self.is_local:
            return f"timezone({literal(self.known_zone())}, CAST({column} AS TIMESTAMP))"
        if pa.types.is_integer(kind):
            factor = next((factor for bound, _, factor in _UNITS if (most or 0) < bound), None)
            micros = f"CAST({column} AS BIGINT) // 1000" if factor is None else f"CAST({column} AS BIGINT) * {factor}"
            return f"make_timestamptz({micros})"
        if pa.types.is_floating(kind):
            return f"to_timestamp(CAST({column} AS DOUBLE))"
        raise SchemaMismatchError(
            f"the column {self.name!r} holds {kind}, not times",
            hint="write times as 2024-01-31T12:00:00Z, or as numbers since 1970",
        )


def parse_bound(text: str | None, what: str) -> dt.datetime | None:
    """Return the instant of an option: milliseconds since 1970, or a time in ISO form (UTC without an offset).

    >>> parse_bound("1704067200000", "--time-start").isoformat()
    '2024-01-01T00:00:00+00:00'
    """
    if text is None:
        return None
    try:
        if text.lstrip("-").isdigit():
            return dt.datetime.fromtimestamp(int(text) / 1000, dt.UTC)
        if "-" not in text:
            raise ValueError  # a span, such as 7d, is no time
        return before(text)
    except (InputError, ValueError, OverflowError, OSError):
        raise InputError(
            f"{what} {text!r} is not a time", hint="write 2024-01-31T12:00:00Z, or milliseconds since 1970"
        ) from None


def time_literal(moment: dt.datetime) -> str:
    """Return an instant as SQL."""
    return f"TIMESTAMPTZ {literal(moment.astimezone(dt.UTC).isoformat(sep=' '))}"


def time_filter(column: str, first: dt.datetime | None, last: dt.datetime | None) -> str | None:
    """Return the SQL condition for times from ``first`` to ``last``, both included; None for all."""
    found = [f"{quote(column)} {sign} {time_literal(bound)}" for sign, bound in ((">=", first), ("<=", last)) if bound]
    return " AND ".join(found) or None
