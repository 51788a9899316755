"""Equalities in the ON of a MERGE between a column of the table and a value of the source.

A UUID or a time of day is a text in Spark, with many spellings. The value of the source is converted to the form in
which Spark shows the column, as DuckDB casts a text that is compared with such a column.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import StringType
from sqlglot import exp

from quacklake.errors import UnsupportedFeatureError
from quacklake.format.names import fold
from quacklake.format.schema import Column, TableSchema
from quacklake.spark.runtime.types import TEXT_KEYS, text_as_key
from quacklake.spark.sql.parsing import Edit, SparkCursor, edited, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from quacklake.sql.words import Word

_SPELLED = ("interval", "timetz", "time_ns")
"""Types whose values are texts in Spark, which cannot normalise them."""
_OPEN, _CLOSE = ("(", "[", "CASE"), (")", "]", "END")
_HINT = "compare the column with one value of the source, beside AND alone; or compute that in the source"


def with_stored_keys(text: str, rows: DataFrame, schema: TableSchema, *, time: bool) -> str:
    """Return a condition in which texts of the source have the form of the columns that they are compared with.

    The sides of the merge are named ``target`` and ``source`` in it. Raises ``UnsupportedFeatureError`` when the form
    of a column is not known, or the equality is nested in another condition.
    """
    own = {fold(column.name): column for column in schema.columns if column.type in (*TEXT_KEYS, *_SPELLED)}
    if not own:
        return text
    names = _Names(own, frozenset(map(fold, rows.columns)))
    left = sum(names.pair(equal) is not None for equal in parse(text).find_all(exp.EQ, exp.NullSafeEQ))
    edits = []
    for start, middle, end in _equalities(text, SparkCursor(text).words):
        sides = (text[start : middle.start], text[middle.end : end])
        pair = names.pair(exp.EQ(this=parse(sides[0]), expression=parse(sides[1])))
        if pair is None:
            continue
        left -= 1
        column, number = pair
        kind = rows.alias("source").select(f.expr(sides[number])).schema.fields[0].dataType
        if not isinstance(kind, StringType):
            continue
        if column.type in _SPELLED:
            raise UnsupportedFeatureError(
                f'Spark cannot compare keys of type {column.type}, as "{column.name}" has', hint="use lake.sql"
            )
        place = (start, middle.start) if number == 0 else (middle.end, end)
        edits.append(Edit(*place, f" {text_as_key(f'({sides[number]})', column, time=time)} "))
    if left:
        raise UnsupportedFeatureError(f"Spark compares texts in a part of {text!r}", hint=_HINT)
    return edited(text, edits)


class _Names:
    """The columns of a condition: those of the table that Spark shows as texts, and those of the source."""

    def __init__(self, own: dict[str, Column], given: frozenset[str]) -> None:
        self._own = own
        self._given = given

    def pair(self, equal: exp.Expr) -> tuple[Column, int] | None:
        """Return the column of the table in an equality, and the number of the side that is a value of the source."""
        sides = [equal.this.unnest(), equal.expression.unnest()]
        for number, (one, two) in enumerate((sides, sides[::-1])):
            column = self._column(one)
            if column is not None and not any(map(self._is_target, two.find_all(exp.Column))):
                return column, 1 - number
        return None

    def _column(self, node: exp.Expr) -> Column | None:
        if not isinstance(node, exp.Column) or not self._is_target(node):
            return None
        return self._own.get(fold(node.name)) if len(node.parts) <= 2 else None

    def _is_target(self, column: exp.Column) -> bool:
        if len(column.parts) == 1:
            return fold(column.name) not in self._given
        return fold(column.parts[0].name) == "target"


def _equalities(text: str, words: list[Word]) -> Iterator[tuple[int, Word, int]]:
    """Yield the equalities that must all hold: the start of each, its operator, and its end."""
    words = _bare(words)
    parts: list[list[Word]] = [[]]
    between = 0
    for word, depth in _depths(words):
        if depth == 0 and word.upper in ("OR", "NOT", "!"):
            return
        between += depth == 0 and word.upper == "BETWEEN"
        if depth == 0 and word.upper == "AND" and not between:
            parts.append([])
            continue
        between -= depth == 0 and word.upper == "AND"
        parts[-1].append(word)
    for part in parts:
        if len(parts) > 1 or len(_bare(part)) < len(part):
            yield from _equalities(text, part)
            continue
        signs = [word for word, depth in _depths(part) if depth == 0 and word.upper in ("=", "==", "<=>")]
        if len(signs) == 1:
            yield part[0].start, signs[0], part[-1].end


def _depths(words: list[Word]) -> Iterator[tuple[Word, int]]:
    """Yield words with the number of brackets around them. A bracket counts itself."""
    depth = 0
    for word in words:
        depth += word.upper in _OPEN
        yield word, depth
        depth -= word.upper in _CLOSE


def _bare(words: list[Word]) -> list[Word]:
    """Return words without the parentheses around all of them."""
    while len(words) > 2 and words[0].text == "(" and all(depth > 0 for _, depth in _depths(words)):
        words = words[1:-1]
    return words
