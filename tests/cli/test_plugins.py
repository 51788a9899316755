"""Commands that another package brings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from quacklake.cli import app
from tests.cli.conftest import Run
from tests.packages import install_package

COMMANDS = '''
from quacklake.cli.commands import Entry

COUNT = Entry("count-all", "Count the tables", "neighbour.commands:count_all", "Read")
HERD = Entry("herd", "Keep animals", panel="Write", commands=(Entry("show", "Show one", "neighbour.commands:show"),))


def count_all(context, extra: int = 0):
    """The answer of a package beside Quacklake."""
    with context.open() as lake:
        print(len(lake.tables()) + extra)


def show(context):
    print("a duck")
'''
ENTRY_POINTS = """
[quacklake.commands]
broken = neighbour.nowhere:COMMAND
count-all = neighbour.commands:COUNT
herd = neighbour.commands:HERD
info = neighbour.commands:COUNT
"""


@pytest.fixture
def neighbour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with commands, installed beside Quacklake."""
    app.command_line.cache_clear()
    with install_package(tmp_path / "site", monkeypatch, "neighbour", {"commands.py": COMMANDS}, ENTRY_POINTS):
        yield
    app.command_line.cache_clear()


@pytest.mark.usefixtures("neighbour")
def test_a_command_of_another_package_runs_like_any_other(run: Run, lake: Path) -> None:
    tables = len(json.loads(run("tables", "--output", "json").out))
    answer = run("count-all", "--extra", "40")
    assert (answer.code, answer.out.strip()) == (0, str(tables + 40))
    assert run("herd", "show").out.strip() == "a duck"


@pytest.mark.usefixtures("neighbour")
def test_help_lists_the_commands_of_another_package(run: Run) -> None:
    shown = run("--help").out
    assert "count-all" in shown
    assert "Count the tables" in shown
    assert "The answer of a package beside Quacklake" in run("count-all", "--help").out


@pytest.mark.usefixtures("neighbour")
def test_a_command_that_cannot_be_loaded_names_its_package_and_hides_no_other(run: Run, lake: Path) -> None:
    answer = run("broken")
    assert (answer.code, answer.out) == (1, "")
    assert "'broken' of the package neighbour" in answer.err
    assert "hint: install a version of it" in answer.err
    assert "broken" in run("--help").out


@pytest.mark.usefixtures("neighbour")
def test_another_package_does_not_replace_a_command(run: Run, lake: Path) -> None:
    assert run("info").code == 0
    assert str(lake) in run("info").out.replace("\n", "")


def test_an_unknown_command_is_wrong_usage(run: Run) -> None:
    assert run("count-all").code == 2
