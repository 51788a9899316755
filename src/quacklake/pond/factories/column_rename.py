"""``column-rename``: a table or series with other names of columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quacklake.errors import ConfigError
from quacklake.format.names import check_name, quote
from quacklake.pond.factories.options import Options
from quacklake.pond.factories.registry import RowsFactory, register
from quacklake.pond.nodes import EntryType

if TYPE_CHECKING:
    from quacklake.pond.queries import Relations

_TYPE = re.compile(r"[A-Za-z][A-Za-z ]*(\(\d+(, *\d+)?\))?")


@register
class ColumnRename(RowsFactory):
    """The rows of ``in_pattern`` with columns renamed by rules, in their order; the first rule that fits counts.

    A rule is ``{type: direct, from, to, cast?}`` or ``{type: pattern, pattern, replacement}``, a regular expression.
    """

    name = "column-rename"
    description = "A series with other names of columns"
    kind = EntryType.SERIES

    def check(self, config: Mapping[str, Any]) -> None:
        self._options(config)

    def define(self, relations: Relations, schema: str, config: Mapping[str, Any]) -> str:
        pattern, rules = self._options(config)
        relations.tx.create_view(f"{schema}.source", relations.union(pattern))
        columns = []
        for column in relations.columns(f"{schema}.source"):
            rule = next((rule for rule in rules if rule.fits(column)), None)
            columns.append(quote(column) if rule is None else rule.expression(column))
        return f"SELECT {', '.join(columns)} FROM source"

    def _options(self, config: Mapping[str, Any]) -> tuple[str, list[_Rule]]:
        options = Options(self.name, config)
        pattern, rules = options.text("in_pattern"), [_Rule(each) for each in options.mappings("rules")]
        options.finish()
        if not rules:
            raise ConfigError(f"{self.name} has no rules", hint="rules: [{type: direct, from: a, to: b}]")
        return pattern, rules


class _Rule:
    """One rule."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        options = Options("a rule of column-rename", given)
        kind = options.text("type", "direct")
        self._cast = options.text("cast", "") or None
        if kind == "direct":
            self._pattern = re.compile(re.escape(options.text("from")))
            self._to = check_name(options.text("to"), "column").replace("\\", "\\\\")
        elif kind == "pattern":
            try:
                self._pattern = re.compile(options.text("pattern"))
            except re.error as error:
                raise ConfigError(f"a pattern of column-rename is no regular expression: {error}") from None
            self._to = options.text("replacement")
        else:
            raise ConfigError(f"a rule of column-rename cannot be {kind!r}", hint="direct or pattern")
        options.finish()
        if self._cast is not None and not _TYPE.fullmatch(self._cast):
            raise ConfigError(f"{self._cast!r} is no type", hint="cast: DOUBLE")

    def fits(self, column: str) -> bool:
        """Return whether the rule is about a column."""
        return self._pattern.fullmatch(column) is not None

    def expression(self, column: str) -> str:
        """Return the column under its new name, as SQL."""
        try:
            name = check_name(self._pattern.sub(self._to, column, count=1), "column")
        except re.error as error:
            raise ConfigError(f"the replacement of column-rename does not fit its pattern: {error}") from None
        value = quote(column) if self._cast is None else f"CAST({quote(column)} AS {self._cast})"
        return f"{value} AS {quote(name)}"
