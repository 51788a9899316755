"""The interactive SQL shell: read a statement, run it, print the result."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer

from quacklake.cli.commands.sql import Statements, run_text
from quacklake.cli.context import Context
from quacklake.cli.failures import Form, report
from quacklake.cli.progress import hush, waiting
from quacklake.config import redact
from quacklake.errors import CancelledError, InputError, QuacklakeError, SqlError, nearest
from quacklake.extend.names import TableRef, quote
from quacklake.extend.sql import words_of

if TYPE_CHECKING:
    from quacklake.lake.lake import Lake, LakeAt


class Shell:
    """A shell on a terminal."""

    def __init__(self, context: Context, view: Lake | LakeAt, statements: Statements) -> None:
        self.context = context
        context.output.way_to_all = ".mode csv prints all"
        self.view = view
        self.statements = statements
        self.timing = False
        self._names: CompletionNames | None = None

    def run(self) -> None:
        """Read and run statements until the end."""
        from pygments.lexers.sql import SqlLexer

        hush(for_good=True)
        prompt: PromptSession[str] = PromptSession(
            history=self._history(),
            completer=SqlCompleter(self._load_names),
            complete_while_typing=False,
            lexer=PygmentsLexer(SqlLexer),
            multiline=True,
            key_bindings=_keys(),
            prompt_continuation=lambda width, *_: "...> ".rjust(width),
        )
        self.say(f"{getattr(self.view, 'url', 'the lake')}: enter .help for help, or .quit to leave")
        while True:
            try:
                text = prompt.prompt(self.prompt)
            except KeyboardInterrupt:
                continue  # only the line is abandoned, not the shell
            except EOFError:
                return
            if text.strip() and not self.take(text):
                return

    @property
    def prompt(self) -> str:
        """The prompt, with a star while a transaction is open."""
        return "quacklake*> " if self.statements.session.work.explicit else "quacklake> "

    def take(self, text: str) -> bool:
        """Run the input, and report errors. Return False when the shell should end."""
        begun = time.perf_counter()
        try:
            command = as_command(text)
            if command is not None:
                return run_command(self, command)
            self._names = None
            with waiting("running"):
                run_text(self.context, self.statements, text, self.context.config.shown_rows)
        except CancelledError:
            sys.stderr.write("cancelled\n")
        except Exception as error:
            options = self.context.options
            known = isinstance(error, QuacklakeError)
            form = Form(self.context.output.format == "json", self.context.config.log_format == "json")
            report(error, form, debug=options.debug and not known)
        if self.timing:
            self.say(f"{time.perf_counter() - begun:.3f} s")
        return True

    def say(self, text: str) -> None:
        """Print a line for people, whatever the output format is."""
        sys.stdout.write(f"{text}\n")

    def _history(self) -> History | InMemoryHistory:
        try:
            return History(history_file())
        except OSError:
            return InMemoryHistory()  # there is no home folder, or it is not writable

    def _load_names(self) -> CompletionNames:
        """Return the names of the lake, which are loaded again after each statement."""
        if self._names is None:
            try:
                self._names = self._ask()
            except Exception:
                self._names = CompletionNames()  # no error may disturb the line being typed
        return self._names

    def _ask(self) -> CompletionNames:
        connection = self.statements.session.attachments.root.cursor()

        def texts(sql: str) -> list[str]:
            return [row[0] for row in connection.execute(sql).fetchall()]

        return CompletionNames(
            self.view.schemas(),
            {(info.schema_name, info.name): list(info.schema.names) for info in self.view._tables()},
            texts("SELECT keyword_name FROM duckdb_keywords() ORDER BY 1"),
            texts(
                "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_name ~ '^[a-z]\\w+$' ORDER BY 1"
            ),
        )


def is_whole(text: str) -> bool:
    """Return True when the input is complete: a statement with its semicolon, a command, or nothing.

    >>> is_whole("SELECT 1;"), is_whole("SELECT ';"), is_whole(".tables"), is_whole("exit"), is_whole("SELECT 1")
    (True, False, True, True, False)
    """
    if not text.strip() or as_command(text) is not None:
        return True
    try:
        words = words_of(text)
    except SqlError:
        return False  # an unfinished string or quoted name
    return bool(words) and words[-1].kind == "symbol" and words[-1].text == ";"


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> Any:
        buffer = event.current_buffer
        if is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


# -- commands with a leading dot, and a few without --------------------------------------------------------------------

_HELP = {
    ".help": "show this list",
    ".tables": "list the tables and views of the lake",
    ".schema [TABLE]": "show the definition of a table, or of all tables",
    ".timing [on|off]": "show the time that each statement takes",
    ".mode [table|json|csv]": "show or set the output format",
    ".quit": "leave the shell, like exit, quit and Ctrl-D",
}
NAMES = tuple(words.split()[0] for words in _HELP)
"""The commands, as they are typed."""
_BARE = {"exit": ".quit", "quit": ".quit", "help": ".help"}
"""Commands without a dot, as in other shells."""
_MODES = ("table", "json", "csv")


def as_command(text: str) -> str | None:
    """Return the command in the input, typed with or without a dot; None for a statement.

    >>> as_command(" quit; "), as_command(".tables"), as_command("SELECT 1")
    ('.quit', '.tables', None)
    """
    line = text.strip()
    if line.startswith("."):
        return line
    return _BARE.get(line.rstrip(";").strip().lower())


def run_command(shell: Shell, line: str) -> bool:
    """Run a command. Return False when the shell should end. Raise ``InputError`` for an unknown command."""
    name, *arguments = line.rstrip(";").split()
    match name, arguments:
        case ".quit" | ".exit", []:
            return False
        case ".help", []:
            shell.say("End a statement with ; it may have several lines. Ctrl-C cancels it, and TAB completes names.")
            for words, meaning in _HELP.items():
                shell.say(f"  {words:<24}{meaning}")
        case ".tables", []:
            for relation in shell.view.tables() + shell.view.views():
                shell.say(relation)
        case ".schema", [] | [_]:
            for table in (shell.view[name] for name in arguments or shell.view.tables()):
                _, definition = shell.view.sql(f"SHOW CREATE TABLE {TableRef.parse(table.name).sql}").fetchall()[0]
                shell.say(definition)
        case ".timing", [] | ["on" | "off"]:
            shell.timing = not shell.timing if not arguments else arguments == ["on"]
            shell.say(f"timing is {'on' if shell.timing else 'off'}")
        case ".mode", []:
            shell.say(shell.context.output.format)
        case ".mode", [mode] if mode in _MODES:
            shell.context.output.format = mode
        case _ if name in NAMES:
            usage = next(words for words in _HELP if words.startswith(name))
            raise InputError(f"wrong arguments for {name}", hint=f"use {usage}")
        case _:
            raise InputError(f"unknown command {name}", hint=nearest(name, NAMES) or ".help lists all commands")
    return True


# -- completion of keywords, functions, and the names of the lake ------------------------------------------------------

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
            yield _spell_name(table), "table"
        if table.lower() == parent.lower():
            yield from ((_spell_name(column), "column") for column in columns)


def _relations(names: CompletionNames) -> Iterator[tuple[str, str]]:
    for schema, table in names.tables:
        yield (_spell_name(table) if schema == "main" else f"{_spell_name(schema)}.{_spell_name(table)}"), "table"
    yield from ((_spell_name(schema), "schema") for schema in names.schemas)


def _anything(names: CompletionNames, text: str) -> Iterator[tuple[str, str]]:
    """Yield all names, with the columns of tables in the statement first."""
    said = set(re.findall(r"\w+", text.lower()))
    near: list[str] = []
    far: list[str] = []
    for (_, table), columns in names.tables.items():
        (near if table.lower() in said else far).extend(columns)
    yield from ((_spell_name(column), "column") for column in (*near, *far))
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


def _spell_name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote(name)


# -- history -----------------------------------------------------------------------------------------------------------

#: Statements about secrets, in any spelling.
_SECRET = re.compile(r"\s*(?:CREATE\b.{0,60}\bSECRET\b|PRAGMA\s+add_parquet_key\b)", re.IGNORECASE | re.DOTALL)


def history_file() -> Path:
    """Return the path of the history file, in the user's state folder."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "quacklake" / "history"


class History(FileHistory):
    """The statements of earlier sessions. A statement that seems to contain a password is not stored."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        super().__init__(str(path))

    def store_string(self, string: str) -> None:
        if redact(string) == string and not _SECRET.match(string):
            super().store_string(string)
