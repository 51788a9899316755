"""``timeseries-pivot``: a column of many series, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quacklake.config.mappings import Options
from quacklake.errors import ConfigError, NotFoundError
from quacklake.extend.names import fold, quote
from quacklake.pond.factories.registry import RowsFactory, register
from quacklake.pond.nodes import EntryType
from quacklake.pond.times import require_column

if TYPE_CHECKING:
    from quacklake.pond.queries import Relations


@register
class TimeseriesPivot(RowsFactory):
    """The ``columns`` of every series that ``pattern`` names, one row for each time that any of them has.

    What the wildcards stand for is the prefix: ``/sensors/*.series`` and ``temp`` give ``dock.temp``. A series that
    lacks a column, or a time, has NULL there.
    """

    name = "timeseries-pivot"
    description = "A series with some columns of many series side by side"
    kind = EntryType.SERIES

    def check(self, config: Mapping[str, Any]) -> None:
        self._options(config)

    def define(self, relations: Relations, schema: str, config: Mapping[str, Any]) -> str:
        pattern, columns, wanted = self._options(config)
        sources = relations.matching(pattern)
        if not sources:
            raise NotFoundError(f"no table or series is called {pattern}", hint="`pond list` shows what there is")
        time, parts, shown, seen = "", [], [], set[str]()
        for found in sources:
            prefix = ".".join(part.strip("/").replace("/", ".") for part in found.captures if part.strip("/"))
            own = relations.columns(relations.shown(found))
            its_time = require_column(own, wanted, found.path)
            time = time or its_time
            kept = [f"{quote(its_time)} AS {quote(time)}"]
            for column in columns:
                name = f"{prefix}.{column}" if prefix else column
                if fold(name) in seen:
                    raise ConfigError(f"{self.name}: two series would give {name!r}", hint="use more wildcards")
                seen.add(fold(name))
                value = quote(column) if column in own else "CAST(NULL AS DOUBLE)"
                kept.append(f"{value} AS {quote(name)}")
                shown.append(f"any_value({quote(name)}) AS {quote(name)}")
            parts.append(f"SELECT {', '.join(kept)} FROM {relations.shown(found)}")
        # one pass over the rows: a join of each series with all times would make as many joins as there are series
        united = f"{schema}.{quote('united')}"
        relations.tx.create_view(united, " UNION ALL BY NAME ".join(parts))
        return f"SELECT {quote(time)}, {', '.join(shown)} FROM {united} GROUP BY {quote(time)} ORDER BY {quote(time)}"

    def _options(self, config: Mapping[str, Any]) -> tuple[str, list[str], str | None]:
        options = Options(self.name, config)
        pattern, columns = options.text("pattern"), options.texts("columns")
        wanted = options.text("time_column", "") or None
        options.finish()
        if not columns:
            raise ConfigError(f"{self.name} has no columns", hint="columns: [temp]")
        return pattern, columns, wanted
