"""The words of a statement in Spark's SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from quacklake.core.sql.words import Cursor, Word, words_of

_LEXER = re.compile(
    r"""
    (?P<space>\s+|--(?:\\\n|[^\r\n])*)
  | (?P<comment>/\*)
  | (?P<string>[rR]?'(?:[^'\\]|\\.|'')*' | [rR]?"(?:[^"\\]|\\.|"")*" | [xX]'[^']*')
  | (?P<name>`(?:[^`]|``)*`)
  | (?P<open>['"`])
  | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:BD|[LSYDF])?\b)
  | (?P<word>[^\W\d]\w*|\d+[^\W\d]\w*)
  | (?P<parameter>\?|(?<![\w`:]):[^\W\d]\w*)
  | (?P<symbol><=>|=>|==|::|\|>|->|<=|>=|<>|!=|\|\||.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a"}


def spark_words(text: str) -> list[Word]:
    """Return the words of a statement."""
    return words_of(text, _LEXER)


def hide_calls(text: str, functions: Sequence[str]) -> str:
    """Return a text of the same length with other names for some functions.

    sqlglot leaves calls by these names as they are.

    >>> hide_calls("SELECT window(ts, '1 hour')", ["WINDOW"])
    "SELECT QL_DOW(ts, '1 hour')"
    """
    return _rename_calls(text, {name: _hide_name(name) for name in functions})


def show_calls(text: str, functions: Sequence[str]) -> str:
    """Undo ``hide_calls``."""
    return _rename_calls(text, {_hide_name(name): name for name in functions})


def _hide_name(name: str) -> str:
    return f"QL_{name[3:]}"


def _rename_calls(text: str, names: Mapping[str, str]) -> str:
    upper = text.upper()
    if not any(name in upper for name in names):
        return text
    for word, following in pairwise(spark_words(text)):
        new = names.get(word.text.upper())
        if word.kind == "word" and new is not None and following.text == "(":
            text = f"{text[: word.start]}{new}{text[word.end :]}"
    return text


class SparkCursor(Cursor):
    """Walks through the words of a Spark statement. Names are in backticks, strings in either kind of quotes."""

    def lexed(self, text: str) -> list[Word]:
        return spark_words(text)

    def string(self) -> str:
        word = self.peek()
        if word is None or word.kind != "string":
            raise self.unexpected()
        self.at += 1
        return text_of(word.text)


def text_of(quoted: str) -> str:
    if quoted[0] in "rR":
        return quoted[2:-1]
    mark = quoted[0]

    def plain(match: re.Match[str]) -> str:
        found = match[1]
        if len(found) > 1:
            return chr(int(found[1:], 16))
        return match[0] if found in "%_" else _ESCAPED.get(found, found)

    return _ESCAPE.sub(plain, quoted[1:-1].replace(mark * 2, mark))
