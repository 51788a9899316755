"""The command line understands its words, and says what is wrong with others."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.cli.commands import COMMANDS, Entry
from quacklake.telemetry import configure_logging
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
        (("show", "t", "--limit", "-1"), "'-1' is not a whole number or"),
        (("compact", "--delete-threshold", "x"), "'x' is not a number"),
        (("expire", "--keep-last", "1.5"), "'1.5' is not a whole number"),
        (("expire", "--versions", "1,x"), "'x' is not a whole number"),
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
        "hint": "see `quacklake show --help`",
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
        (
            "--help",
            "duckdb pyarrow sqlalchemy sqlglot pydantic prompt_toolkit pandas.core attr._make asyncio"
            " quacklake.lake quacklake.core.sql quacklake.core.format",
        ),
        (
            "sql|SELECT 1",
            "sqlalchemy sqlglot prompt_toolkit pandas.core numpy.core numpy._core pyarrow.compute pyarrow._fs asyncio"
            " quacklake.core.catalog quacklake.core.storage.store quacklake.core.format.stats quacklake.core.scan.plan",
        ),
        (
            "sql|SELECT * FROM people",
            "sqlglot prompt_toolkit pandas.core quacklake.lake.lake quacklake.core.maintenance quacklake.core.operations.dml"
            " quacklake.core.tenancy.tenancy quacklake.core.catalog.expiring",
        ),
        ("tables", "sqlglot prompt_toolkit pandas.core numpy.core numpy._core"),
    ],
)
def test_what_takes_long_to_load_is_loaded_only_where_it_is_needed(words: str, heavy: str, lake: Path) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-X", "importtime", "-m", "quacklake.cli", *words.split("|")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0
    assert "quacklake.cli.app" in loaded
    assert loaded & {*heavy.split()} == set()


def test_importing_the_package_loads_nothing_heavy() -> None:
    import subprocess
    import sys

    command = [sys.executable, "-X", "importtime", "-c", "import quacklake"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "quacklake.core.lazy" in loaded
    heavy = "duckdb pyarrow pyarrow.lib numpy pandas sqlalchemy sqlglot typer rich asyncio logging yaml pyspark polars"
    assert loaded & {*heavy.split()} == set()


@pytest.mark.parametrize(
    ("words", "hidden"),
    [
        ("sql|select 1", "numpy pandas"),
        ("sql|SELECT\n1 + 1|--output|json", "numpy pandas"),
        ("tables", "numpy pandas"),
        # a name may be that of a source of messages, whose reader needs numpy
        ("sql|select * from t", "pandas"),
        ("sql|select 1;\nFROM t", "pandas"),
        ("sql|select (table t)", "pandas"),
        ("sql|create source s", "pandas"),
        ("sql|-f|select.sql", "pandas"),
        ("sql", "pandas"),
        ("--lake|tables|sql|from t", "pandas"),
        ("pipeline|run|p", "pandas"),
        ("--help", "attr numpy pandas"),
        ("pipeline|run|-h", "attr numpy pandas"),
        # a command of another package may need anything
        ("demo", ""),
        ("demo|tables", ""),
        ("--lake|sqlite:///l.db|demo", ""),
        ("spark-settings", ""),
        ("", "pandas"),
    ],
)
def test_packages_are_hidden_only_from_commands_that_cannot_need_them(words: str, hidden: str) -> None:
    from quacklake.cli.app import unneeded

    assert unneeded(words.split("|") if words else []) == set(hidden.split())


@pytest.mark.parametrize("logging", [False, True])
def test_a_misspelt_variable_is_told_once(run: Run, lake: Path, logging: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUACKLAKE_DATAPATH", "x")
    monkeypatch.setattr("quacklake.config.resolver.TOLD", told := set[str]())
    monkeypatch.setattr("quacklake.cli.failures.TOLD", told)
    if logging:
        configure_logging()
    answer = run("tables", "--output", "csv")
    assert answer.code == 0
    assert answer.err == (
        "warning: the variable QUACKLAKE_DATAPATH is not a setting and has no effect\n"
        '  hint: did you mean "QUACKLAKE_DATA_PATH"?\n'
    )
    assert json.loads(run("tables", "--output", "json").err)["code"] == "warning"


def test_commands_do_without_pandas_until_spark_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from quacklake.cli.app import _Without

    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    with pytest.raises(ModuleNotFoundError):
        _Without(frozenset({"pandas"})).find_spec("pandas")
    monkeypatch.setitem(sys.modules, "pyspark", sys)
    assert _Without(frozenset({"pandas"})).find_spec("pandas") is None, "another finder may find it"
