"""``synthetic-timeseries``: a series of waves, for examples and tests."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quacklake.config import parse_duration
from quacklake.config.mappings import Options
from quacklake.errors import ConfigError, nearest
from quacklake.extend.names import check_name, fold, quote
from quacklake.pond.factories.registry import RowsFactory, register
from quacklake.pond.nodes import EntryType
from quacklake.pond.times import parse_bound, time_literal

if TYPE_CHECKING:
    from quacklake.pond.queries import Relations

TIME = "timestamp"
_MAX_COUNT = 1_000_000_000
_PERIODIC = {
    "sine": "sin(2 * pi() * {turn})",
    "triangle": "(1 - 4 * abs(({turn} + 0.75) - floor({turn} + 0.75) - 0.5)) * -1",
    "square": "CASE WHEN {turn} - floor({turn}) < 0.5 THEN 1.0 ELSE -1.0 END",
}
"""The waves, from -1 to 1, by the number of turns since the begin. All but the square begin at 0 and rise."""
_KINDS = (*_PERIODIC, "line", "noise")


@dataclass(frozen=True, slots=True)
class _Component:
    """A part of a value: SQL over ``s``, the seconds since the begin."""

    sql: str

    @classmethod
    def of(cls, given: Mapping[str, Any], seed: int) -> _Component:
        options = Options("a component of synthetic-timeseries", given)
        kind = options.text("type")
        offset = _number(options, "offset", 0.0)
        if kind == "line":
            return cls(_finish_options(options, f"{offset} + s * {_number(options, 'slope', 0.0)}"))
        if kind not in _KINDS:
            raise ConfigError(f"there is no component {kind!r}", hint=nearest(kind, _KINDS) or ", ".join(_KINDS))
        amplitude = _number(options, "amplitude", 1.0)
        if kind == "noise":
            own = _whole(options, "seed", seed)
            return cls(
                _finish_options(options, f"{offset} + {amplitude} * (hash(s, {own}) / 9223372036854775808.0 - 1)")
            )
        period, phase = _seconds(options, "period"), _number(options, "phase", 0.0)
        wave = _PERIODIC[kind].format(turn=f"(s / {period} + {phase})")
        return cls(_finish_options(options, f"{offset} + {amplitude} * {wave}"))


def _finish_options(options: Options, sql: str) -> str:
    options.finish()
    return f"({sql})"


def _number(options: Options, key: str, default: float) -> float:
    found = options.take(key, default)
    if isinstance(found, bool) or not isinstance(found, int | float) or found != found or abs(found) == float("inf"):
        raise ConfigError(f"{key} of synthetic-timeseries is a number, not {found!r:.40}")
    return float(found)


def _whole(options: Options, key: str, default: int) -> int:
    found = options.take(key, default)
    if isinstance(found, bool) or not isinstance(found, int):
        raise ConfigError(f"{key} of synthetic-timeseries is a whole number, not {found!r:.40}")
    return found


def _seconds(options: Options, key: str) -> float:
    text = options.text(key)
    try:
        found = parse_duration(text, bare=False).total_seconds()
    except ValueError as error:
        raise ConfigError(f"{key} of synthetic-timeseries: {error}") from None
    if found <= 0:
        raise ConfigError(f"{key} of synthetic-timeseries is zero", hint=f"{key}: 1h")
    return found


@register
class SyntheticTimeseries(RowsFactory):
    """A reading each ``interval`` from ``start`` to ``end``, both included; ``points`` are the columns.

    A point has a ``name`` and ``components``, which are added up: ``sine``, ``triangle`` and ``square`` with
    ``amplitude``, ``period``, ``phase`` (in turns) and ``offset``, ``line`` with ``slope`` (a second) and ``offset``,
    ``noise`` with ``amplitude`` and ``seed``. The same options always give the same numbers.
    """

    name = "synthetic-timeseries"
    description = "A series of waves, lines and noise, for examples and tests"
    kind = EntryType.SERIES

    def check(self, config: Mapping[str, Any]) -> None:
        self._query(config)

    def define(self, relations: Relations, schema: str, config: Mapping[str, Any]) -> str:
        return self._query(config)

    def _query(self, config: Mapping[str, Any]) -> str:
        options = Options(self.name, config)
        start, end = (_moment(options, key) for key in ("start", "end"))
        interval, seed = _seconds(options, "interval"), _whole(options, "seed", 0)
        points = options.mappings("points")
        options.finish()
        count = int((end - start).total_seconds() // interval) + 1 if end >= start else 0
        if not 0 < count <= _MAX_COUNT:
            raise ConfigError(f"{self.name} would have {count:,} readings", hint="choose start, end and interval")
        columns, seen = [], {TIME}
        for each in points:
            point = Options("a point of synthetic-timeseries", each)
            name = check_name(point.text("name"), "column")
            parts = [_Component.of(part, seed).sql for part in point.mappings("components")]
            point.finish()
            if fold(name) in seen or not parts:
                raise ConfigError(f"the point {name!r} is there twice, or has no components")
            seen.add(fold(name))
            columns.append(f"CAST({' + '.join(parts)} AS DOUBLE) AS {quote(name)}")
        if not columns:
            raise ConfigError(f"{self.name} has no points", hint="points: [{name: temp, components: [{type: sine}]}]")
        micros = round(interval * 1_000_000)
        seconds = f"SELECT i * {micros} AS u, i * {interval} AS s FROM range({count}) r(i)"
        return f"SELECT {time_literal(start)} + to_microseconds(u) AS {TIME}, {', '.join(columns)} FROM ({seconds})"


def _moment(options: Options, key: str) -> dt.datetime:
    found = parse_bound(options.text(key), key)
    assert found is not None
    return found
