"""The example of the guide runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import REPOSITORY, blocks


def test_the_example_of_the_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = [each for each in blocks(REPOSITORY / "docs" / "extending.md") if each.not_run is not None]
    exec(compile(block.text, "extending.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == ["[{'name': 'merged', 'n': 1}, {'name': 'new', 'n': 6}]", "9"]
