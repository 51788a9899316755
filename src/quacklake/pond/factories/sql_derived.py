"""``sql-derived-table`` and ``sql-derived-series``: the result of a query over other tables and series."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quacklake.config.mappings import Options
from quacklake.errors import ConfigError
from quacklake.extend.names import check_name, quote
from quacklake.pond.factories.column_rename import check_transforms, selected, steps_of
from quacklake.pond.factories.registry import RowsFactory, register
from quacklake.pond.nodes import EntryType

if TYPE_CHECKING:
    from quacklake.pond.queries import Relations

_ALL = "SELECT * FROM source"


class _SqlDerived(RowsFactory):
    """A query over the rows that patterns name: ``patterns: {source: /sensors/*.series}``, ``query: SELECT …``."""

    def check(self, config: Mapping[str, Any]) -> None:
        patterns, *_ = self._options(config)
        for name, pattern in patterns.items():
            check_name(name, "pattern")
            if not isinstance(pattern, str):
                raise ConfigError(f"{self.name}: the pattern {name} is a text, not {pattern!r:.40}")

    def define(self, relations: Relations, schema: str, config: Mapping[str, Any]) -> str:
        patterns, query, transforms = self._options(config)
        steps = steps_of(relations.fs, transforms)
        for name, pattern in patterns.items():
            united = relations.union(pattern)
            if steps:
                given = f"{schema}.{quote(f'{name} as it is')}"
                relations.tx.create_view(given, united)
                united = f"SELECT {selected(relations.columns(given), steps)} FROM {given}"
            relations.tx.create_view(f"{schema}.{quote(name)}", united)
        return query

    def _options(self, config: Mapping[str, Any]) -> tuple[dict[str, Any], str, list[Any]]:
        options = Options(self.name, config)
        patterns = options.mapping("patterns")
        query = options.text("query", _ALL)
        transforms = check_transforms(self.name, options.take("transforms", []))
        options.finish()
        if not patterns:
            raise ConfigError(f"{self.name} has no patterns", hint="patterns: {source: /sensors/*.series}")
        return patterns, query, transforms


@register
class SqlDerivedTable(_SqlDerived):
    """The result of a query as a table."""

    name = "sql-derived-table"
    description = "A table: the result of a query over tables and series"
    kind = EntryType.TABLE


@register
class SqlDerivedSeries(_SqlDerived):
    """The result of a query as a series."""

    name = "sql-derived-series"
    description = "A series: the result of a query over tables and series"
    kind = EntryType.SERIES
