"""The test files: their commands, with loops and variables as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Command", "parse"]

_LOOPS = ("loop", "foreach", "concurrentloop", "concurrentforeach")


@dataclass
class Command:
    """One command: its words, the SQL below it, the lines behind ``----``, and what a loop repeats."""

    line: int
    words: list[str]
    sql: str = ""
    expected: list[str] | None = None
    body: list[Command] = field(default_factory=list)
    conditions: list[list[str]] = field(default_factory=list)


def parse(path: Path) -> list[Command]:
    """The commands of a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    commands, _ = _block(lines, 0)
    return commands


def _block(lines: Sequence[str], at: int) -> tuple[list[Command], int]:
    found: list[Command] = []
    conditions: list[list[str]] = []
    while at < len(lines):
        line = lines[at].strip()
        if not line or line.startswith("#"):
            at += 1
            continue
        words = line.split()
        command = Command(at + 1, words)
        at += 1
        if words[0] == "endloop":
            return found, at
        if words[0] in ("skipif", "onlyif"):
            conditions.append(words)
            continue
        if words[0] in _LOOPS:
            command.body, at = _block(lines, at)
        elif words[0] in ("statement", "query"):
            at = _read(lines, at, command)
        command.conditions, conditions = conditions, []
        found.append(command)
    return found, at


def _read(lines: Sequence[str], at: int, command: Command) -> int:
    sql: list[str] = []
    while at < len(lines) and lines[at].strip() and lines[at].strip() != "----":
        if not lines[at].startswith("#"):
            sql.append(lines[at])
        at += 1
    command.sql = "\n".join(sql)
    if at < len(lines) and lines[at].strip() == "----":
        at += 1
        command.expected = []
        while at < len(lines) and lines[at].strip():
            command.expected.append(lines[at])
            at += 1
    return at


def values(words: Sequence[str]) -> Iterator[str]:
    """Yield the values of a loop's variable."""
    if words[0].endswith("foreach"):
        for word in words[2:]:
            yield from _SETS.get(word, (word,))
        return
    yield from (str(number) for number in range(int(words[2]), int(words[3])))


_SETS = {
    "<signed>": ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    "<unsigned>": ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
    "<integral>": ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    "<numeric>": ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE"),
    "<alltypes>": ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "VARCHAR"),
}
VARIABLE = re.compile(r"\$\{(\w+)\}")
