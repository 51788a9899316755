"""The SQL shell: its commands, what TAB offers, and a person at a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from quacklake.cli.commands.sql import Statements
from quacklake.cli.context import Context, Options
from quacklake.cli.shell import CompletionNames, History, Shell, SqlCompleter, is_whole
from quacklake.core.sql.sessions import session_of

pytestmark = pytest.mark.daily(0.7)

NAMES = CompletionNames(
    ["main", "big"],
    {("main", "people"): ["id", "name"], ("big", "numbers"): ["n", "half"], ("main", "Odd One"): ["a b"]},
    ["select", "set", "from"],
    ["sum", "strlen"],
)


def _offers(text: str) -> list[str]:
    found = SqlCompleter(lambda: NAMES).get_completions(Document(text), CompleteEvent(completion_requested=True))
    return [offer.text for offer in found]


@pytest.mark.parametrize(
    ("text", "offers"),
    [
        ("SELECT * FROM peo", ["people"]),
        ("SELECT * FROM ", ["people", "big.numbers", '"Odd One"', "main", "big"]),
        ("SELECT * FROM big.", ["numbers"]),
        ("SELECT people.", ["id", "name"]),
        ("select na", ["name"]),
        ("se", ["select", "set"]),
        ("SE", ["SELECT", "SET"]),
        ("SELECT su", ["sum"]),
        ("UPDATE p", ["people"]),
        (".t", [".tables", ".timing"]),
        ("SELECT zzz", []),
    ],
)
def test_tab_offers_what_can_stand_there(text: str, offers: list[str]) -> None:
    assert _offers(text) == offers


def test_the_columns_of_a_table_that_is_named_come_first() -> None:
    assert _offers("FROM numbers SELECT ")[:2] == ["n", "half"]
    assert _offers("FROM people SELECT ")[:2] == ["id", "name"]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", True),
        ("SELECT 1;", True),
        ("SELECT 1", False),
        ("SELECT ';", False),
        ("SELECT 1; -- x", True),
        (".help", True),
        ("exit", True),
        (" QUIT ; ", True),
        ("help;", True),
        ("exit now", False),
    ],
)
def test_a_statement_ends_with_its_semicolon(text: str, whole: bool) -> None:
    assert is_whole(text) is whole


def test_a_statement_with_a_password_is_not_remembered(tmp_path: Path) -> None:
    history = History(tmp_path / "state" / "history")
    history.append_string("SELECT 1;")
    history.append_string("ATTACH 'ducklake:postgres:dbname=x password=geheim' AS other;")
    path = tmp_path / "state" / "history"
    assert "SELECT 1;" in path.read_text()
    assert "geheim" not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0


@pytest.fixture
def shell(lake: Path) -> Iterator[Shell]:
    context = Context(Options())
    with context.open(write=True) as opened:
        statements = Statements(session_of(opened.handle))
        yield Shell(context, opened, statements)
        statements.close()


Say = Callable[[str], tuple[str, str]]


@pytest.fixture
def say(shell: Shell, capsys: pytest.CaptureFixture[str]) -> Say:
    """Type a line; gives what is printed on both channels."""

    def say(line: str) -> tuple[str, str]:
        assert shell.take(line)
        printed = capsys.readouterr()
        return printed.out, printed.err

    return say


def test_commands_with_a_dot(shell: Shell, say: Say) -> None:
    assert say(".tables")[0].split() == ["big.numbers", "main.people"]
    assert say(".schema people")[0] == 'CREATE TABLE "main"."people" (\n  "id" BIGINT,\n  "name" VARCHAR\n);\n'
    assert say(".schema")[0].count("CREATE TABLE") == 2
    assert all(name in say(".help")[0] for name in (".tables", ".mode", ".quit"))
    assert say(".timing on")[0] == "timing is on\n"
    assert say("SELECT 1;")[0].splitlines()[-1].endswith(" s")
    assert say(".timing off")[0] == "timing is off\n"
    say(".mode json")
    assert json.loads(say("SELECT 42 AS x;")[0]) == [{"x": 42}]
    assert say(".mode")[0] == "json\n"
    say(".mode table")
    assert "did you mean" in say(".table")[1]
    assert ".mode [table|json|csv]" in say(".mode xml")[1]
    assert "main.nowhere" in say(".schema nowhere")[1]
    assert shell.take(".quit") is False


@pytest.mark.parametrize("word", ["exit", "quit", "exit;", "QUIT", " quit ; ", ".exit"])
def test_words_of_other_shells_leave(word: str, shell: Shell) -> None:
    assert shell.take(word) is False


@pytest.mark.parametrize("word", ["help", "help;", "Help"])
def test_help_shows_help(word: str, say: Say) -> None:
    assert ".tables" in say(word)[0]


def test_statements_are_run_and_errors_show_the_place(say: Say) -> None:
    assert say("INSERT INTO people VALUES (9, 'Zoe');")[0] == "1 row changed\n"
    assert "Zoe" in say("FROM people; SELECT 1;")[0]
    out, err = say("SELECT nme FROM people;")
    assert out == ""
    assert err.splitlines()[0].startswith("error: Binder Error")
    assert any(line.strip() in ("^", "^^^") for line in err.splitlines())
    assert say("CREATE TABLE more(a INTEGER);")[0] == "done\n"
    assert "more" in say(".tables")[0]


def test_the_prompt_tells_that_a_transaction_is_open(shell: Shell, say: Say) -> None:
    say("BEGIN;")
    assert shell.prompt == "quacklake*> "
    say("ROLLBACK;")
    assert shell.prompt == "quacklake> "


def test_names_are_learned_from_the_lake_and_again_after_a_statement(shell: Shell, say: Say) -> None:
    assert ("big", "numbers") in shell._load_names().tables
    assert "select" in shell._load_names().keywords
    say("CREATE TABLE fresh(a INTEGER);")
    assert shell._load_names().tables["main", "fresh"] == ["a"]


_OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Terminal:
    """A program that believes it talks to a person."""

    def __init__(self, *words: str, home: Path) -> None:
        self._own, other = pty.openpty()
        environment = {
            **os.environ,
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "XDG_STATE_HOME": str(home),
            "PYTHONUNBUFFERED": "1",
        }
        # not with preexec_fn: Python code between fork and exec dies where libraries of this process have threads
        command = [sys.executable, "-c", _OWN_TERMINAL, "-m", "quacklake.cli", *words]
        self.process = subprocess.Popen(
            command, stdin=other, stdout=other, stderr=other, env=environment, start_new_session=True
        )
        os.close(other)
        self.seen = ""

    def send(self, text: str) -> None:
        os.write(self._own, text.encode())

    def wait_for(self, text: str, *, again: str | None = None) -> None:
        """Read until it is printed behind what was waited for last; ``again`` is sent now and then until it is."""
        now = time.monotonic()
        end, next_time = now + 60, now + 1
        while text not in self.seen:
            now = time.monotonic()
            assert now < end, self.seen[-2000:]
            self._read(1.0)
            if again is not None and now >= next_time:
                self.send(again)
                next_time = now + 1
        self.seen = self.seen.partition(text)[2]

    def ended(self) -> int:
        """The exit code; what is still printed has to be read for it to end."""
        end = time.monotonic() + 60
        while self.process.poll() is None:
            assert time.monotonic() < end, self.seen
            self._read(0.2)
        return self.process.returncode

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._own], [], [], seconds)
        if ready:
            with suppress(OSError):
                self.seen += os.read(self._own, 65536).decode(errors="replace")
        return bool(ready)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._own)


def test_a_person_at_a_terminal(lake: Path, tmp_path: Path) -> None:
    with Terminal("sql", home=tmp_path / "state") as terminal:
        terminal.wait_for(".quit to leave")
        terminal.wait_for("quacklake>")
        terminal.send("SELECT 6 * 7\r")
        terminal.wait_for("...>")
        terminal.send("AS answer;\r")
        terminal.wait_for("42")
        terminal.wait_for("quacklake>")
        terminal.send("SELECT count(*) FROM range(10000000000000) t(a);\r")
        # Ctrl-C ends the statement and not the shell; at the prompt it only gives up the line
        terminal.wait_for("running")
        terminal.wait_for("cancelled", again="\x03")
        terminal.wait_for("quacklake>")
        terminal.send("SELECT 'still ' || 'here' AS s;\r")
        terminal.wait_for("still here")
        terminal.wait_for("quacklake>")
        terminal.send("\x04")
        assert terminal.ended() == 0
    assert "AS answer;" in (tmp_path / "state" / "quacklake" / "history").read_text()


def test_exit_ends_the_shell(lake: Path, tmp_path: Path) -> None:
    with Terminal("sql", home=tmp_path / "state") as terminal:
        terminal.wait_for("quacklake>")
        terminal.send("exit\r")
        assert terminal.ended() == 0


def test_a_command_that_takes_long_shows_that_it_works(lake: Path, tmp_path: Path) -> None:
    with Terminal("sql", "SELECT count(*) FROM range(10000000000000) t(a)", home=tmp_path / "state") as terminal:
        terminal.wait_for("sql: working")
        terminal.wait_for("interrupted", again="\x03")
        assert terminal.ended() == 130


def test_a_log_is_not_mixed_with_bars(lake: Path, tmp_path: Path) -> None:
    with Terminal("sql", "SELECT count(*) FROM range(3000000000) t(a)", "-v", home=tmp_path / "state") as terminal:
        assert terminal.ended() == 0
        assert "quacklake.sql" in terminal.seen
        assert "working" not in terminal.seen


def test_a_question_is_asked_before_something_is_removed(lake: Path, tmp_path: Path) -> None:
    with Terminal("tag", "none", "--delete", home=tmp_path) as terminal:
        terminal.wait_for("[y/N]")
        terminal.send("n\r")
        terminal.wait_for("nothing was changed")
        assert terminal.ended() == 1
