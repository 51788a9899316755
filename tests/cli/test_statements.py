"""Statements of a person at a terminal: what they see while one runs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

import quacklake
from quacklake.cli import progress as module
from quacklake.cli.commands.sql import Statements
from quacklake.core.sql.sessions import session_of


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=80)


@pytest.fixture
def statements(tmp_path: Path, console: Console) -> Iterator[Statements]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        found = Statements(session_of(lake.handle), console)
        yield found
        found.close()


def _printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("statement", ["CREATE TABLE t AS {}", "INSERT INTO t {}"])
def test_rows_are_counted_while_they_are_written(
    statements: Statements, console: Console, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setattr(module, "DELAY", 0.0)
    monkeypatch.setattr("quacklake.cli.commands.sql._GLANCE", 0.001)
    if statement.startswith("INSERT"):
        statements.execute("CREATE TABLE t (id BIGINT)")
    count = statements.execute(statement.format("SELECT range AS id FROM range(3000000)"))
    assert count.rowcount == 3_000_000
    assert "writing rows" in _printed(console)


def test_a_quick_statement_shows_nothing(statements: Statements, console: Console) -> None:
    assert statements.execute("SELECT 1").fetchall() == [(1,)]
    assert _printed(console) == ""
