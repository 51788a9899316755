from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from quacklake.cli import progress as module
from quacklake.cli.progress import hush, progress, stages, track, waiting


def _console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=80)


def _printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_what_is_quick_shows_no_bar() -> None:
    console = _console(terminal=True)
    with progress("working", 10, console=console) as advance:
        advance(10)
    assert "working" not in _printed(console)


def test_what_takes_long_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELAY", 0.0)
    console = _console(terminal=True)
    with progress("working", 10, console=console) as advance:
        advance(4)
    assert "working" in _printed(console)
    assert "/10" in _printed(console)


def test_there_is_no_bar_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELAY", 0.0)
    console = _console(terminal=False)
    with progress("working", 10, console=console) as advance:
        advance(4)
    assert _printed(console) == ""


def test_tracking_gives_the_same_things() -> None:
    assert list(track("abc", "letters", 3)) == ["a", "b", "c"]


def _await(console: Console, text: str) -> None:
    end = time.monotonic() + 10
    while text not in _printed(console):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_work_that_tells_nothing_shows_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELAY", 0.01)
    console = _console(terminal=True)
    with waiting("looking", console=console):
        _await(console, "looking")
    console = _console(terminal=True)
    with stages(console=console):
        _await(console, "working")


def test_what_shows_that_work_goes_on_gives_way_to_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELAY", 0.01)
    console = _console(terminal=True)
    with waiting("looking", console=console):
        _await(console, "looking")
        hush()
        console.file.seek(0)
        console.file.truncate()
        _await(console, "looking")  # and comes back while work goes on
        hush(for_good=True)
        console.file.seek(0)
        console.file.truncate()
        time.sleep(0.1)
        assert _printed(console) == ""


def test_something_appears_within_a_second() -> None:
    assert module.DELAY < 1
