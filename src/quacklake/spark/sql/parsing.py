"""Parse Spark SQL, and find the relations and common tables in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from quacklake.errors import InputError, SqlError
from quacklake.format.names import fold
from quacklake.sql.words import caret

_SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement for a part of a text."""

    start: int
    end: int
    text: str


def edited(text: str, edits: Sequence[Edit]) -> str:
    """Return a text with its parts replaced."""
    parts: list[str] = []
    done = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        parts += [text[done : edit.start], edit.text]
        done = edit.end
    return "".join([*parts, text[done:]])


def parse(text: str) -> exp.Expr:
    """Return the tree of one query or expression. Raises ``SqlError`` with the position."""
    try:
        found = sqlglot.parse(text, dialect=_SPARK)
    except sqlglot.errors.ParseError as error:
        first = error.errors[0] if error.errors else {}
        raise SqlError(f"{first.get('description') or 'syntax error'}\n\n{_marked(text, first)}") from None
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise SqlError(f"the query cannot be understood: {error}") from None
    if len(found) != 1 or found[0] is None:
        raise SqlError("this is not one query")
    return found[0]


def _marked(text: str, error: dict[str, object]) -> str:
    line, column = error.get("line"), error.get("col")
    lines = text.splitlines(keepends=True)
    if not isinstance(line, int) or not isinstance(column, int) or line > len(lines):
        return text
    return caret(text, min(sum(map(len, lines[: line - 1])) + max(column - 1, 0), len(text)))


def names_of(node: exp.Table | exp.Column) -> list[str]:
    """Return the parts of a dotted name."""
    return [part.name for part in node.parts]


def span(parts: Sequence[exp.Expr]) -> tuple[int, int]:
    """Return the start and end of a dotted name in the text."""
    return int(parts[0].meta["start"]), int(parts[-1].meta["end"]) + 1


def _common_tables(node: exp.Expr) -> exp.With | None:
    """Return the WITH clause of a query, or None."""
    found = node.args.get("with_") or node.args.get("with")
    return found if isinstance(found, exp.With) else None


def declaration(table: exp.Table) -> exp.CTE | None:
    """Return the common table that a name refers to at its place, or None."""
    if len(table.parts) != 1:
        return None
    name = fold(table.name)
    node: exp.Expr = table
    inside: exp.CTE | None = None
    found: list[exp.CTE]
    while node.parent is not None:
        parent = node.parent
        if isinstance(node, exp.CTE):
            inside = node
        if isinstance(node, exp.With):
            place = next(number for number, each in enumerate(node.expressions) if each is inside)
            earlier = node.expressions[: place + 1 if node.recursive else place]
            found = [each for each in earlier if fold(each.alias) == name]
            if found:
                return found[-1]
        else:
            with_ = _common_tables(parent)
            found = [] if with_ is None else [each for each in with_.expressions if fold(each.alias) == name]
            if found:
                return found[-1]
        node = parent
    return None


# -- between dialects --------------------------------------------------------------------------------------------------


def to_lake(text: str, what: str = "expression") -> str:
    """Translate Spark SQL into the SQL of the lake. The meaning may differ. Raises ``InputError``."""
    try:
        found = sqlglot.parse(text, dialect=_SPARK)
        if len(found) != 1 or found[0] is None:
            raise InputError(f"{what} is not one statement")
        return str(found[0].sql("duckdb", unsupported_level=sqlglot.ErrorLevel.RAISE))
    except (sqlglot.errors.SqlglotError, ValueError, RecursionError):
        raise InputError(f"{what} cannot be translated") from None
