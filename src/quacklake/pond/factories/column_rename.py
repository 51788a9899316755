"""``column-rename``: a table or series with other names of columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quacklake.config.mappings import Options
from quacklake.errors import ConfigError
from quacklake.extend.names import check_name, fold, quote
from quacklake.pond.factories.registry import RowsFactory, register
from quacklake.pond.nodes import CONFIG, FACTORY, EntryType

if TYPE_CHECKING:
    from quacklake.pond.fs import FS
    from quacklake.pond.queries import Relations

_TYPE = re.compile(r"[A-Za-z][A-Za-z ]*(\(\d+(, *\d+)?\))?")
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "INT", "BIGINT", "FLOAT", "REAL", "DOUBLE", "DECIMAL", "NUMERIC")


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
        return f"SELECT {selected(relations.columns(f'{schema}.source'), [rules])} FROM source"

    def rules(self, config: Mapping[str, Any]) -> list[Rule]:
        """Return the rules of a node."""
        return self._options(config)[1]

    def _options(self, config: Mapping[str, Any]) -> tuple[str, list[Rule]]:
        options = Options(self.name, config)
        pattern, rules = options.text("in_pattern"), [Rule(each) for each in options.mappings("rules")]
        options.finish()
        if not rules:
            raise ConfigError(f"{self.name} has no rules", hint="rules: [{type: direct, from: a, to: b}]")
        return pattern, rules


class Rule:
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
                raise ConfigError(f"a pattern of column-rename is not a regular expression: {error}") from None
            self._to = options.text("replacement")
        else:
            raise ConfigError(f"a rule of column-rename cannot be {kind!r}", hint="direct or pattern")
        options.finish()
        if self._cast is not None and not _TYPE.fullmatch(self._cast):
            raise ConfigError(f"{self._cast!r} is not a type", hint="cast: DOUBLE")

    def fits(self, column: str) -> bool:
        """Return whether the rule is about a column."""
        return self._pattern.fullmatch(column) is not None

    def renamed(self, column: str) -> str:
        """Return the new name of a column."""
        try:
            return check_name(self._pattern.sub(self._to, column, count=1), "column")
        except re.error as error:
            raise ConfigError(f"the replacement of column-rename does not fit its pattern: {error}") from None

    def value(self, expression: str) -> str:
        """Return the value of a column with the type that the rule gives it, as SQL."""
        return expression if self._cast is None else f"CAST({expression} AS {self._cast})"

    @property
    def makes_number(self) -> bool:
        """True for a rule that makes numbers of whatever a column has."""
        return self._cast is not None and self._cast.split("(")[0].strip().upper() in _NUMBERS


def check_transforms(what: str, given: Any) -> list[Any]:
    """Return transforms: paths of ``column-rename`` nodes, and rules. Raise ``ConfigError`` for anything else."""
    if not isinstance(given, list) or not all(isinstance(each, str | Mapping) for each in given):
        hint = "transforms: [/renamed, {type: direct, from: a, to: b}]"
        raise ConfigError(f"{what}: transforms is a list of paths and rules, not {given!r:.40}", hint=hint)
    for each in given:
        if isinstance(each, Mapping):
            Rule(each)
    return given


def steps_of(fs: FS, transforms: Sequence[Any]) -> list[list[Rule]]:
    """Return the rules of transforms, one list for each. Raise ``ConfigError`` for a path of another node."""
    steps = []
    for each in transforms:
        if isinstance(each, Mapping):
            steps.append([Rule(each)])
            continue
        node = fs.get(each).node
        if node.attribute(FACTORY) != ColumnRename.name:
            raise ConfigError(f"{each} is not a {ColumnRename.name} node", hint="transforms name such nodes")
        steps.append(ColumnRename().rules(node.attribute(CONFIG) or {}))
    return steps


@dataclass(frozen=True, slots=True)
class Shown:
    """A column after transforms: its name, its value as SQL, and whether a rule made a number of it."""

    name: str
    value: str
    is_number: bool = False


def transformed(columns: Sequence[str], steps: Sequence[Sequence[Rule]]) -> dict[str, Shown]:
    """Return what becomes of each column. In each step the first rule that fits a column counts."""
    found: dict[str, Shown] = {}
    taken: dict[str, str] = {}
    for column in columns:
        shown = Shown(column, quote(column))
        for rules in steps:
            rule = next((rule for rule in rules if rule.fits(shown.name)), None)
            if rule is not None:
                shown = Shown(rule.renamed(shown.name), rule.value(shown.value), rule.makes_number or shown.is_number)
        if fold(shown.name) in taken:
            both = f"{taken[fold(shown.name)]!r} and {column!r}"
            raise ConfigError(f"the columns {both} would both be called {shown.name!r}", hint="change a rule")
        taken[fold(shown.name)] = column
        found[column] = shown
    return found


def selected(columns: Sequence[str], steps: Sequence[Sequence[Rule]]) -> str:
    """Return the columns after transforms, as the SQL of a SELECT."""
    return ", ".join(f"{shown.value} AS {quote(shown.name)}" for shown in transformed(columns, steps).values())
