"""The words of the command line: what is understood, and what is said about what is not."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import quacklake
from quacklake.cli.commands import COMMANDS
from quacklake.cli.entry import Entry
from tests.cli.conftest import Run


def _paths(entries: tuple[Entry, ...] = COMMANDS, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for entry in entries:
        if entry.commands:
            yield from _paths(entry.commands, (*before, entry.name))
        else:
            yield (*before, entry.name)


def test_options_may_stand_before_or_after_the_command(run: Run) -> None:
    before = run("--lake", "sqlite:///a.db", "--output", "json", "config", "show")
    after = run("config", "show", "--lake", "sqlite:///a.db", "--output", "json")
    assert before.json == after.json
    assert before.json[0] == {"name": "url", "value": "sqlite:///a.db", "source": "flag"}


def test_the_nearer_of_two_options_counts(run: Run) -> None:
    answer = run("--output", "json", "config", "get", "pool_size", "--output", "csv")
    assert answer.out.startswith("name,value\n")


def test_the_version_is_the_package_s(run: Run) -> None:
    answer = run("--version")
    assert (answer.code, answer.out) == (0, f"quacklake {quacklake.__version__}\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("fly",), "no such command 'fly'"),
        (("tabels",), 'did you mean "tables"?'),
        (("tables", "--output", "xml"), "'xml' is not table, json, csv or arrow"),
        (("tables", "--outp", "json"), 'did you mean "--output"'),
        (("show",), "missing argument 'TABLE'"),
        (("show", "t", "u"), "unexpected extra argument"),
        (("show", "t", "--limit", "-1"), "'-1' is neither a number nor all"),
        (("compact", "--delete-threshold", "x"), "'x' is not a number"),
        (("expire", "--keep-last", "1.5"), "'1.5' is not a whole number"),
        (("expire", "--versions", "1,x"), "'x' is not the number of a snapshot"),
        (("maintain", "--interval", "soon"), "a duration such as 30s"),
        (("alter", "drop-colum"), 'did you mean "drop-column"'),
        (("rollback",), "missing option '--to'"),
    ],
)
def test_wrong_usage_ends_with_2_and_two_lines(run: Run, words: tuple[str, ...], told: str) -> None:
    answer = run(*words)
    assert (answer.code, answer.out) == (2, "")
    assert told in answer.err
    first, second = answer.err.splitlines()
    assert first.startswith("error: ")
    assert second.startswith("  hint: ")


def test_wrong_usage_is_json_when_json_is_asked_for(run: Run) -> None:
    answer = run("show", "-o", "json")
    assert answer.code == 2
    assert json.loads(answer.err) == {
        "code": "usage",
        "message": "missing argument 'TABLE'",
        "hint": "`quacklake show --help` tells how it is used",
    }


def test_without_any_words_the_commands_are_listed(run: Run) -> None:
    answer = run()
    assert answer.code == 2
    assert all(entry.name in answer.out for entry in COMMANDS)


@pytest.mark.parametrize("path", list(_paths()), ids=" ".join)
def test_every_command_has_help(run: Run, path: tuple[str, ...]) -> None:
    answer = run(*path, "--help")
    assert (answer.code, answer.err) == (0, "")
    assert f"Usage: quacklake {' '.join(path)} " in answer.out
    assert "--output" in answer.out
    assert "-h" in answer.out


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--help"], ["duckdb", "pyarrow", "sqlalchemy", "sqlglot", "pydantic", "prompt_toolkit", "quacklake.lake"]),
        (["sql", "SELECT 1"], ["sqlalchemy", "sqlglot", "pandas", "prompt_toolkit", "quacklake.catalog"]),
    ],
    ids=" ".join,
)
def test_what_takes_long_to_load_is_loaded_only_where_it_is_needed(words: list[str], heavy: list[str]) -> None:
    import subprocess
    import sys

    code = (
        f"import sys; from quacklake.cli import main; code = main({words!r});"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "[]\n")
