"""``timeseries-join``: several series side by side, one row for each time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quacklake.config.mappings import Options
from quacklake.errors import ConfigError
from quacklake.extend.names import fold, quote
from quacklake.pond.factories.column_rename import check_transforms, selected, steps_of
from quacklake.pond.factories.registry import RowsFactory, register
from quacklake.pond.nodes import EntryType
from quacklake.pond.times import parse_bound, require_column, time_filter

if TYPE_CHECKING:
    from quacklake.pond.queries import Relations


@dataclass(frozen=True, slots=True)
class _JoinInput:
    """The rows of a pattern in a range of time; ``scope`` becomes the prefix of their columns."""

    pattern: str
    scope: str
    begin: dt.datetime | None
    end: dt.datetime | None
    transforms: tuple[Any, ...] = ()

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> _JoinInput:
        options = Options("an input of timeseries-join", given)
        pattern, scope = options.text("pattern"), options.text("scope", "")
        limits = Options("a range of timeseries-join", options.mapping("range"))
        begin, end = (parse_bound(limits.text(name, "") or None, name) for name in ("begin", "end"))
        limits.finish()
        transforms = check_transforms(options.what, options.take("transforms", []))
        options.finish()
        return cls(pattern, scope, begin, end, tuple(transforms))


@register
class TimeseriesJoin(RowsFactory):
    """A full outer join on the time of ``inputs``: each has ``pattern``, and may have ``scope``,
    ``range`` and ``transforms``.

    Inputs of one scope are one series, such as an old and a new sensor at one place. The columns of a scope are called
    ``scope.column``. Rows are in the order of time.
    """

    name = "timeseries-join"
    description = "A series with the columns of several series, joined on their times"
    kind = EntryType.SERIES

    def check(self, config: Mapping[str, Any]) -> None:
        self._options(config)

    def define(self, relations: Relations, schema: str, config: Mapping[str, Any]) -> str:
        wanted, inputs = self._options(config)
        scopes: dict[str, list[str]] = {}
        times: dict[str, str] = {}
        for number, each in enumerate(inputs):
            source = f"{schema}.{quote(f'input {number}')}"
            relations.tx.create_view(source, relations.union(each.pattern))
            if each.transforms:
                steps, given = steps_of(relations.fs, each.transforms), source
                source = f"{schema}.{quote(f'transformed {number}')}"
                columns = selected(relations.columns(given), steps)
                relations.tx.create_view(source, f"SELECT {columns} FROM {given}")
            time = require_column(relations.columns(source), wanted, each.pattern)
            times.setdefault(each.scope, time)
            others = [quote(name) for name in relations.columns(source) if name != time]
            columns = ", ".join([f"{quote(time)} AS {quote(times[each.scope])}", *others])
            limits = time_filter(time, each.begin, each.end)
            condition = "" if limits is None else f" WHERE {limits}"
            scopes.setdefault(each.scope, []).append(f"SELECT {columns} FROM {source}{condition}")
        return self._join_scopes(relations, schema, scopes, times)

    def _join_scopes(
        self, relations: Relations, schema: str, scopes: Mapping[str, list[str]], times: Mapping[str, str]
    ) -> str:
        """Return the join of the scopes, each of which becomes a view with the names its columns have in the end."""
        time = next(iter(times.values()))
        names, seen = [], {fold(time)}
        for number, (scope, parts) in enumerate(scopes.items()):
            united, name = f"{schema}.{quote(f'united {number}')}", f"{schema}.{quote(f'scope {number}')}"
            relations.tx.create_view(united, " UNION ALL BY NAME ".join(parts))
            columns = [f"{quote(times[scope])} AS {quote(time)}"]
            for column in relations.columns(united):
                if column == times[scope]:
                    continue
                shown = f"{scope}.{column}" if scope else column
                if fold(shown) in seen:
                    raise ConfigError(f"{self.name}: two inputs have a column {shown!r}", hint="give each a scope")
                seen.add(fold(shown))
                columns.append(f"{quote(column)} AS {quote(shown)}")
            relations.tx.create_view(name, f"SELECT {', '.join(columns)} FROM {united}")
            names.append(name)
        joined = names[0] + "".join(f" FULL OUTER JOIN {name} USING ({quote(time)})" for name in names[1:])
        return f"SELECT * FROM {joined} ORDER BY {quote(time)}"

    def _options(self, config: Mapping[str, Any]) -> tuple[str | None, list[_JoinInput]]:
        options = Options(self.name, config)
        wanted, inputs = options.text("time_column", "") or None, [_JoinInput.of(e) for e in options.mappings("inputs")]
        options.finish()
        if len(inputs) < 2:
            raise ConfigError(f"{self.name} takes two inputs or more", hint="inputs: [{pattern: …, scope: …}, …]")
        return wanted, inputs
