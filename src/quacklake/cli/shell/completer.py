"""Completions of TAB in the shell: keywords, functions, and the names of the lake."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from quacklake.cli.shell.commands import NAMES
from quacklake.format.names import quote

_PATH = re.compile(r'((?:"[^"]*"|[\w$]+)\.)?((?:"[^"]*"?|[\w$])*)$')
_BEFORE = re.compile(r"(\w+)\s+$")
_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*")
_OF_TABLES = {"from", "join", "into", "update", "table", "describe", "truncate", "view"}
"""Keywords that a table follows."""


@dataclass(slots=True)
class CompletionNames:
    """Names to complete: schemas, tables with their columns, and DuckDB's own words."""

    schemas: list[str] = field(default_factory=list)
    tables: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    keywords: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)


class SqlCompleter(Completer):
    """Completes the word before the cursor. The names are loaded when they are first needed."""

    def __init__(self, names: Callable[[], CompletionNames]) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the completions at the cursor."""
        before = document.text_before_cursor
        if before.startswith("."):
            yield from _matching(before, ((name, "command") for name in NAMES))
            return
        match = _PATH.search(before)
        assert match is not None
        parent, word = (match[1] or "").rstrip(".").strip('"'), match[2]
        if not parent and not word and not complete_event.completion_requested:
            return
        names = self._names()
        if parent:
            yield from _matching(word, _below(names, parent))
            return
        previous = _BEFORE.search(before[: match.start()])
        if previous is not None and previous[1].lower() in _OF_TABLES:
            yield from _matching(word, _relations(names))
        else:
            yield from _matching(word, _anything(names, before))


def _below(names: CompletionNames, parent: str) -> Iterator[tuple[str, str]]:
    """Yield the tables of a schema, or the columns of a table."""
    for (schema, table), columns in names.tables.items():
        if schema.lower() == parent.lower():
            yield _spelled(table), "table"
        if table.lower() == parent.lower():
            yield from ((_spelled(column), "column") for column in columns)


def _relations(names: CompletionNames) -> Iterator[tuple[str, str]]:
    for schema, table in names.tables:
        yield (_spelled(table) if schema == "main" else f"{_spelled(schema)}.{_spelled(table)}"), "table"
    yield from ((_spelled(schema), "schema") for schema in names.schemas)


def _anything(names: CompletionNames, text: str) -> Iterator[tuple[str, str]]:
    """Yield all names, with the columns of tables in the statement first."""
    said = set(re.findall(r"\w+", text.lower()))
    near: list[str] = []
    far: list[str] = []
    for (_, table), columns in names.tables.items():
        (near if table.lower() in said else far).extend(columns)
    yield from ((_spelled(column), "column") for column in (*near, *far))
    yield from _relations(names)
    yield from ((keyword, "keyword") for keyword in names.keywords)
    yield from ((function, "function") for function in names.functions)


def _matching(word: str, offers: Iterable[tuple[str, str]]) -> Iterator[Completion]:
    seen = set()
    wanted = word.lower().strip('"')
    for text, kind in offers:
        if text.lower().strip('"').startswith(wanted) and text not in seen:
            seen.add(text)
            shown = text.upper() if kind == "keyword" and word.isupper() else text
            yield Completion(shown, -len(word), display_meta=kind)


def _spelled(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote(name)
