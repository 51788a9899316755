from __future__ import annotations

import pytest

import quacklake
from quacklake.cli import build_parser
from tests.cli.conftest import Run


def test_options_may_stand_before_or_after_the_command() -> None:
    parser = build_parser()
    before = parser.parse_args(["--lake", "sqlite:///a.db", "--output", "json", "tables"])
    after = parser.parse_args(["tables", "--lake", "sqlite:///a.db", "--output", "json"])
    assert (before.url, before.output) == (after.url, after.output) == ("sqlite:///a.db", "json")


def test_options_that_are_not_given_have_their_defaults() -> None:
    arguments = build_parser().parse_args(["tables"])
    assert (arguments.url, arguments.output, arguments.verbose) == (None, "table", 0)


def test_the_version_is_the_package_s(run: Run) -> None:
    answer = run("--version")
    assert (answer.code, answer.out) == (0, f"quacklake {quacklake.__version__}\n")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("fly",),
        ("tables", "--output", "xml"),
        ("tables", "--outp", "json"),
        ("show",),
        ("show", "t", "--at", "1", "--at", "2024-01-01"),
        ("show", "t", "--at", "-1"),
        ("show", "t", "--limit", "-1"),
    ],
)
def test_wrong_usage_ends_with_2(run: Run, words: tuple[str, ...]) -> None:
    answer = run(*words)
    assert answer.code == 2
    assert "usage: quacklake" in answer.err


def test_every_command_has_help(run: Run) -> None:
    for command in ("demo", "info", "tables", "show", "snapshots", "files", "history", "append", "settings"):
        answer = run(command, "--help")
        assert answer.code == 0
        assert "--output" in answer.out
