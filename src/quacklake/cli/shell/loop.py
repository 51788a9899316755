"""The shell: read a statement, run it, print the result."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer

from quacklake.cli.commands.sql import run_text
from quacklake.cli.context import Context
from quacklake.cli.failures import report
from quacklake.cli.progress import hush, waiting
from quacklake.cli.shell.commands import as_command, run_command
from quacklake.cli.shell.completer import CompletionNames, SqlCompleter
from quacklake.cli.shell.history import History, history_file
from quacklake.errors import CancelledError, QuacklakeError, SqlError
from quacklake.sql.words import words_of

if TYPE_CHECKING:
    from quacklake.cli.statements import Statements
    from quacklake.lake.lake import Lake, LakeAt

_ROWS = 100
"""The most rows of a result that are printed."""


def run_shell(context: Context, view: Lake | LakeAt, statements: Statements) -> None:
    """Run statements until Ctrl-D, ``exit``, ``quit`` or ``.quit``."""
    Shell(context, view, statements).run()


class Shell:
    """A shell on a terminal."""

    def __init__(self, context: Context, view: Lake | LakeAt, statements: Statements) -> None:
        self.context = context
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
            completer=SqlCompleter(self._known),
            complete_while_typing=False,
            lexer=PygmentsLexer(SqlLexer),
            multiline=True,
            key_bindings=_keys(),
            prompt_continuation=lambda width, *_: "...> ".rjust(width),
        )
        self.say(f"{getattr(self.view, 'url', 'the lake')}: help tells more, exit leaves")
        while True:
            try:
                text = prompt.prompt(self._prompt())
            except KeyboardInterrupt:
                continue  # only the line is abandoned, not the shell
            except EOFError:
                return
            if text.strip() and not self.take(text):
                return

    def take(self, text: str) -> bool:
        """Run the input, and report errors. Return False when the shell should end."""
        begun = time.perf_counter()
        try:
            command = as_command(text)
            if command is not None:
                return run_command(self, command)
            self._names = None
            with waiting("running"):
                run_text(self.context, self.statements, text, _ROWS)
        except CancelledError:
            sys.stderr.write("cancelled\n")
        except Exception as error:
            options = self.context.options
            known = isinstance(error, QuacklakeError)
            report(error, json_wanted=self.context.output.format == "json", debug=options.debug and not known)
        if self.timing:
            self.say(f"{time.perf_counter() - begun:.3f} s")
        return True

    def say(self, text: str) -> None:
        """Print a line for people, whatever the output format is."""
        sys.stdout.write(f"{text}\n")

    def _prompt(self) -> str:
        return "quacklake*> " if self.statements.session.work.explicit else "quacklake> "

    def _history(self) -> History | InMemoryHistory:
        try:
            return History(history_file())
        except OSError:
            return InMemoryHistory()  # there is no home folder, or it is not writable

    def _known(self) -> CompletionNames:
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
