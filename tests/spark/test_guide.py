"""The examples of the guide run, in the session that all tests share."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import REPOSITORY, blocks
from tests.docs.test_snippets import _run_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(("name", "count"), [("spark", 7), ("streams", 5)])
def test_the_examples_of_the_guide_run(
    name: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: SparkSession
) -> None:
    page = REPOSITORY / "docs" / "guides" / f"{name}.md"
    monkeypatch.chdir(tmp_path)
    assert session.getActiveSession() is not None
    namespace: dict[str, object] = {"__name__": "example"}
    found = [block for block in blocks(page) if block.language == "python"]
    assert len(found) == count
    for block in found:
        _run_python(page, block, namespace)
    namespace["lake"].close()  # type: ignore[attr-defined]


def test_the_example_runs(tmp_path: Path, session: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(REPOSITORY / "examples" / "spark_streams.py"))
    example["main"](session, tmp_path)
    printed = capsys.readouterr().out
    for text in (
        "5 drivers, longest trip 99.9 km",
        "now 990 trips, before 1000",
        "stream in: 0 rows",
        "|     9|  7.5|",
    ):
        assert text in printed, printed
