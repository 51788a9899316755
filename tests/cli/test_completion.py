"""The completions that a shell offers for TAB."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.fixture
def offers(run: Run, monkeypatch: pytest.MonkeyPatch) -> object:
    """Press TAB behind a line; gives what bash is offered."""

    def offers(line: str) -> list[str]:
        monkeypatch.setenv("_QUACKLAKE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        answer = run()
        assert answer.err == ""
        return answer.out.split()

    return offers


def test_names_of_commands_tables_tags_and_settings_are_offered(offers: object, run: Run, lake: Path) -> None:
    assert callable(offers)
    run("tag", "first", "--version", "1")
    assert offers("quacklake des") == ["describe"]
    assert offers("quacklake alter rename") == ["rename-column", "rename"]
    assert offers("quacklake show p") == ["people"]
    assert offers("quacklake head big.") == ["big.numbers"]
    assert offers("quacklake show people --at f") == ["first"]
    assert offers("quacklake config get pool_s") == ["pool_size"]
    assert offers("quacklake show --lake sqlite:///none.db p") == []
    assert not Path("none.db").exists()
