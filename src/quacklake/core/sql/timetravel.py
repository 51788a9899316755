"""Translate every spelling of time travel into DuckDB's own: ``table [alias] AT (VERSION => n)``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from quacklake.core.sql.words import Cursor, Word

_HINTS = {
    "SNAPSHOT": "VERSION",
    "VERSION": "VERSION",
    "TIMESTAMP": "TIMESTAMP",
    "SYSTEM_TIME": "TIMESTAMP",
    "SYSTEM_VERSION": "VERSION",
}
_UNITS = {("AT", word): _HINTS[word] for word in ("SNAPSHOT", "VERSION", "TIMESTAMP")} | {
    (word, "AS", "OF"): unit for word, unit in _HINTS.items()
}
_INTERVALS = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR", "MILLISECOND", "MICROSECOND")
#: Keywords that cannot be an alias where one is allowed.
NO_ALIAS = frozenset(
    """
    WHERE GROUP ORDER HAVING QUALIFY WINDOW LIMIT OFFSET UNION INTERSECT EXCEPT ON USING JOIN INNER LEFT RIGHT FULL
    CROSS NATURAL ASOF POSITIONAL SEMI ANTI TABLESAMPLE SAMPLE SET RETURNING WHEN SELECT FROM PIVOT UNPIVOT AT FOR
    VALUES DO THEN END AND OR
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class TimeTravel:
    """A time travel clause: its position in the text, its kind (version or time), and the text of its value."""

    start: int
    end: int
    unit: str
    value: str


def time_travel(cursor: Cursor) -> list[TimeTravel]:
    """Return the time travel clauses of a statement in every spelling, including DuckDB's ``AT (VERSION => n)``."""
    return list(_clauses(cursor, _read_spelling, _own))


def with_at(sql: str) -> str:
    """Return the statement with every time travel clause written as ``AT (…)`` after the alias."""
    cursor = Cursor(sql)
    if not any(word.upper in _HINTS for word in cursor.words):
        return sql
    parts: list[str] = []
    done = 0
    for found in _clauses(cursor, _read_spelling):
        first, word = cursor.at, cursor.peek()
        if cursor.accept("AS"):
            cursor.name()
        elif word is not None and word.kind in ("word", "name") and word.upper not in NO_ALIAS:
            cursor.take()
        alias = f" {cursor.slice(first, cursor.at)}" if cursor.at > first else ""
        parts += [sql[done : found.start], alias, f" AT ({found.unit} => {found.value})"]
        done = cursor.words[cursor.at - 1].end
    return "".join([*parts, sql[done:]])


def _clauses(cursor: Cursor, *spellings: Callable[[Cursor, Word], TimeTravel | None]) -> Iterator[TimeTravel]:
    while not cursor.done:
        before = cursor.words[cursor.at - 1] if cursor.at else None
        found = (spelling(cursor, before) for spelling in spellings) if before is not None else ()
        clause = next((each for each in found if each is not None), None)
        if clause is None:
            cursor.take()
        else:
            yield clause


def _read_spelling(cursor: Cursor, previous: Word) -> TimeTravel | None:
    """Return the clause that begins here, in another spelling than DuckDB's. None when there is none."""
    if previous.kind not in ("word", "name") or previous.upper in ("SELECT", "AS", "BY"):
        return None
    start, began = cursor.at, cursor.peek()
    assert began is not None
    cursor.accept("FOR")
    for keywords, unit in _UNITS.items():
        if cursor.accept(*keywords):
            value = _value(cursor)
            if value is not None:
                return TimeTravel(began.start, cursor.words[cursor.at - 1].end, unit, value)
            break
    cursor.at = start
    return None


def _own(cursor: Cursor, previous: Word) -> TimeTravel | None:
    """Return the clause that begins here, in DuckDB's spelling."""
    start, began = cursor.at, cursor.peek()
    if began is None or not cursor.accept("AT", "("):
        return None
    for unit in ("VERSION", "TIMESTAMP"):
        if cursor.accept(unit, "=>"):
            value = cursor.until(")")
            cursor.expect(")")
            return TimeTravel(began.start, cursor.words[cursor.at - 1].end, unit, value)
    cursor.at = start
    return None


def _value(cursor: Cursor) -> str | None:
    """Parse one value: a literal, a parameter, a call or parentheses, plus or minus an interval."""
    first = cursor.at
    if not _primary(cursor):
        cursor.at = first
        return None
    while cursor.sees("-") or cursor.sees("+") or cursor.sees("::"):
        cursor.take()
        if not _primary(cursor):
            break
    return cursor.slice(first, cursor.at)


def _primary(cursor: Cursor) -> bool:
    word = cursor.peek()
    if word is None:
        return False
    if word.kind in ("string", "number", "parameter"):
        cursor.take()
        return True
    if word.text == "(":
        cursor.skip_group()
        return True
    if word.kind != "word":
        return False
    cursor.take()
    following = cursor.peek()
    if following is not None and following.text == "(":  # a function call, or a type
        cursor.skip_group()
        return True
    if word.upper == "INTERVAL":
        if not _primary(cursor):
            return False
        unit = cursor.peek()
        if unit is not None and unit.upper.rstrip("S") in _INTERVALS:
            cursor.take()
        return True
    if following is not None and following.kind == "string":  # TIMESTAMP '…'
        cursor.take()
        return True
    return word.upper in ("CURRENT_TIMESTAMP", "NOW", "TIMESTAMPTZ", "TIMESTAMP", "DATE")
