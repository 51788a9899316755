"""Reductions of series: one row for each bucket of time. They are data and SQL; nothing here looks at a pond."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from quacklake.config import parse_duration
from quacklake.config.mappings import Options
from quacklake.errors import ConfigError, nearest
from quacklake.extend.names import quote

AGGREGATES = ("avg", "min", "max", "sum", "count")
"""The aggregates of a reduction. The column ``temp`` becomes ``temp.avg`` and so on."""
_MONTHS = re.compile(r"(\d+) *(mo|months?|y|years?)")


@dataclass(frozen=True, slots=True)
class Resolution:
    """The width of the buckets: so many microseconds, or so many months."""

    text: str
    micros: int = 0
    months: int = 0

    @classmethod
    def parse(cls, text: str) -> Resolution:
        """Return the width that a text means: ``15m``, ``1h``, ``1d``, ``1 month``. Raise ``ConfigError``.

        >>> Resolution.parse("1h").width, Resolution.parse("1 year").months
        (datetime.timedelta(seconds=3600), 12)
        """
        found = _MONTHS.fullmatch(text.strip().lower())
        if found is not None:
            width = cls(text, months=int(found[1]) * (12 if found[2].startswith("y") else 1))
        else:
            try:
                width = cls(text, micros=parse_duration(text, bare=False) // dt.timedelta(microseconds=1))
            except ValueError as error:
                raise ConfigError(f"{text!r} is not a resolution: {error}", hint="1m, 15m, 1h, 1d or 1 month") from None
        if not width.micros and not width.months:
            raise ConfigError(f"{text!r} is not a resolution: it is zero", hint="1m, 15m, 1h, 1d or 1 month")
        return width

    @property
    def width(self) -> dt.timedelta:
        """The width of a bucket; that of a month is about the mean."""
        return dt.timedelta(microseconds=self.micros) if self.micros else dt.timedelta(days=30.4 * self.months)

    def bucket(self, column: str) -> str:
        """Return SQL for the begin of the bucket of a time."""
        width = f"{self.micros} microseconds" if self.micros else f"{self.months} months"
        return f"time_bucket(INTERVAL '{width}', {quote(column)})"


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An aggregate, and patterns of the columns it is taken of; none for all numbers."""

    type: str
    columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: Any) -> Aggregation:
        """Return the aggregation that options describe: ``avg``, or ``{type: avg, columns: [temp]}``."""
        options = Options("an aggregation", {"type": given} if isinstance(given, str) else given)
        kind, columns = options.text("type"), tuple(options.texts("columns"))
        options.finish()
        if kind not in AGGREGATES:
            hint = nearest(kind, AGGREGATES) or f"one of {', '.join(AGGREGATES)}"
            raise ConfigError(f"there is no aggregation {kind!r}", hint=hint)
        return cls(kind, columns)

    def takes(self, column: str) -> bool:
        """Return whether it is taken of a column."""
        return not self.columns or any(fnmatchcase(column, pattern) for pattern in self.columns)


EVERYTHING = tuple(Aggregation(kind) for kind in ("avg", "min", "max", "count"))
"""The aggregations of a reduction that names none."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """The resolution and the aggregates of each bucket of time."""

    resolution: Resolution
    aggregations: tuple[Aggregation, ...]

    def columns(self, numbers: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return the columns it makes of number columns: each name with the aggregate and the column it is of."""
        pairs = [(each.type, column) for column in numbers for each in self.aggregations if each.takes(column)]
        return {f"{column}.{kind}": (kind, column) for kind, column in pairs}

    def query(
        self,
        source: str,
        time: str,
        numbers: Sequence[str],
        where: str | None = None,
        values: Mapping[str, str] | None = None,
    ) -> str:
        """Return the rows of the reduction of a relation, as SQL. Raise ``ConfigError`` when no column is taken.

        Not-a-number counts as missing, as in charts of the readings.
        ``values`` are the columns as SQL, if the relation calls them by other names.
        """
        known_as = values or {}
        found = self.columns(numbers)
        if not found:
            wanted = ", ".join(pattern for each in self.aggregations for pattern in each.columns)
            known = ", ".join(numbers) or "no number"
            raise ConfigError(f"a reduction takes {wanted or 'numbers'}, and the series has {known}")
        columns = [
            f"{kind}({(value := known_as.get(column) or quote(column))}) FILTER (NOT isnan(CAST({value} AS DOUBLE)))"
            f" AS {quote(name)}"
            for name, (kind, column) in found.items()
        ]
        condition = "" if where is None else f" WHERE {where}"
        return (
            f"SELECT {self.resolution.bucket(time)} AS {quote(time)}, {', '.join(columns)} FROM {source}{condition}"
            f" GROUP BY 1 ORDER BY 1"
        )


def view_name(path: str, resolution: Resolution, query: str) -> str:
    """Return the name of the materialized view that holds the rows of a query over the series at a path."""
    mark = hashlib.sha256(query.encode()).hexdigest()[:12]
    return f"{path} res={resolution.text} {mark}"


def aggregations_of(given: Sequence[Any]) -> tuple[Aggregation, ...]:
    """Return the aggregations of options, the usual ones when there are none."""
    return tuple(Aggregation.of(each) for each in given) or EVERYTHING


def as_options(given: Aggregation) -> Mapping[str, Any]:
    """Return an aggregation as the options that describe it."""
    return {"type": given.type, "columns": list(given.columns)} if given.columns else {"type": given.type}
