"""Parse Spark SQL: its words and values, and the relations and common tables in a query."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import sqlglot
from sqlglot import exp

from quacklake.core.sql.words import caret, split
from quacklake.errors import InputError, SqlError, nearest
from quacklake.extend.names import fold
from quacklake.spark.runtime.types import literal
from quacklake.spark.runtime.words import hide_calls, spark_words

_SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Edit:
    start: int
    end: int
    text: str


def edited(text: str, edits: Sequence[Edit], keep: Callable[[str], str] = str) -> str:
    """Return a text with its parts replaced, and ``keep`` applied to the rest."""
    parts: list[str] = []
    done = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        parts += [keep(text[done : edit.start]), edit.text]
        done = edit.end
    return "".join([*parts, keep(text[done:])])


def parse(text: str) -> exp.Expr:
    """Return the tree of one query or expression. Raise ``SqlError`` with the position."""
    try:
        found = sqlglot.parse(hide_calls(text, ["WINDOW"]), dialect=_SPARK)
    except sqlglot.errors.ParseError as error:
        first = error.errors[0] if error.errors else {}
        line, column, shown = first.get("line"), first.get("col"), text
        lines = text.splitlines(keepends=True)
        if isinstance(line, int) and isinstance(column, int) and line <= len(lines):
            shown = caret(text, min(sum(map(len, lines[: line - 1])) + max(column - 1, 0), len(text)))
        raise SqlError(f"{first.get('description') or 'syntax error'}\n\n{shown}") from None
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise SqlError(f"the query cannot be understood: {error}") from None
    if len(found) != 1 or found[0] is None:
        raise SqlError("this is not one query")
    return found[0]


def names_of(node: exp.Table | exp.Column) -> list[str]:
    return [part.name for part in node.parts]


def span(parts: Sequence[exp.Expr]) -> tuple[int, int]:
    """Return the start and end of a dotted name in the text."""
    return int(parts[0].meta["start"]), int(parts[-1].meta["end"]) + 1


def declaration(table: exp.Table) -> exp.CTE | None:
    """Return the common table that a name refers to at its place, or None."""
    if len(table.parts) != 1:
        return None
    name = fold(table.name)
    node: exp.Expr = table
    inside: exp.CTE | None = None
    while (parent := node.parent) is not None:
        if isinstance(node, exp.CTE):
            inside = node
        if isinstance(node, exp.With):
            place = next(number for number, each in enumerate(node.expressions) if each is inside)
            known = node.expressions[: place + 1 if node.recursive else place]
        else:
            with_ = parent.args.get("with_") or parent.args.get("with")
            known = with_.expressions if isinstance(with_, exp.With) else []
        found: list[exp.CTE] = [each for each in known if fold(each.alias) == name]
        if found:
            return found[-1]
        node = parent
    return None


def to_lake(text: str, what: str = "expression") -> str:
    """Translate Spark SQL into the SQL of the lake. The meaning may differ. Raise ``InputError``."""
    try:
        found = sqlglot.parse(text, dialect=_SPARK)
        if len(found) != 1 or found[0] is None:
            raise InputError(f"{what} is not one statement")
        return str(found[0].sql("duckdb", unsupported_level=sqlglot.ErrorLevel.RAISE))
    except (sqlglot.errors.SqlglotError, ValueError, RecursionError):
        raise InputError(f"{what} cannot be translated") from None


Parameters: TypeAlias = "Sequence[Any] | Mapping[str, Any] | None"


def only_statement(text: str) -> str:
    """Return the one statement of a text. Raise ``SqlError`` when there is not exactly one."""
    if not isinstance(text, str):
        raise InputError(f"a statement must be text, not {type(text).__name__}")
    found = split(text, spark_words(text))
    if len(found) != 1:
        raise SqlError(
            "there is no statement" if not found else "there is more than one statement",
            hint="Spark runs one statement at a time",
        )
    return found[0]


def with_values(text: str, params: Parameters) -> str:
    """Replace the parameters of a statement by values: ``?`` in order, ``:name`` by name."""
    if params is None:
        return text
    if isinstance(params, str | bytes) or not isinstance(params, Sequence | Mapping):
        raise InputError("parameters must be a list for ?, or a dictionary for :name")
    parts: list[str] = []
    done = count = 0
    for word in spark_words(text):
        if word.kind != "parameter":
            continue
        parts += [text[done : word.start], as_literal(_value(word.text, count, params))]
        done = word.end
        count += 1
    if not isinstance(params, Mapping) and count != len(params):
        raise InputError(f"the statement has {count} parameters, {len(params)} values were given")
    return "".join([*parts, text[done:]])


def _value(parameter: str, place: int, params: Sequence[Any] | Mapping[str, Any]) -> Any:
    if parameter == "?":
        if isinstance(params, Mapping):
            raise InputError("the statement has parameters without names", hint="pass a list of values")
        if place >= len(params):
            raise InputError(f"the statement has more parameters than the {len(params)} values that were given")
        return params[place]
    if not isinstance(params, Mapping):
        raise InputError(f"the parameter {parameter} has a name", hint="pass a dictionary of values")
    if parameter[1:] not in params:
        raise InputError(f"no value was given for {parameter}", hint=nearest(parameter[1:], params))
    return params[parameter[1:]]


def as_literal(value: Any) -> str:
    """Return a Python value as a literal in Spark SQL. Raise ``InputError`` for a value without a literal."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case int():
            return str(value) if value >= 0 else f"({value})"
        case float() if math.isfinite(value):
            return f"({value!r}D)"
        case float():
            return f"double('{value!r}')"
        case Decimal() if value.is_finite():
            return f"({value:f}BD)"
        case str():
            return literal(value)
        case bytes() | bytearray():
            return f"X'{bytes(value).hex()}'"
        case dt.datetime() if value.tzinfo is None:
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        case dt.datetime():
            return f"TIMESTAMP_LTZ '{value.astimezone(dt.UTC).isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case dt.timedelta():
            return f"make_dt_interval({value.days}, 0, 0, {value.seconds}.{value.microseconds:06d})"
        case list() | tuple():
            return f"array({', '.join(map(as_literal, value))})"
        case dict():
            return f"map({', '.join(as_literal(item) for pair in value.items() for item in pair)})"
    raise InputError(f"Spark has no literal for a value of type {type(value).__name__}")
