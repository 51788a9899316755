"""The examples of the guide run, in the session that all tests share."""

from __future__ import annotations

import json
import runpy
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import REPOSITORY, blocks
from tests.docs.test_snippets import _run_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.needs_spark("4.1")


@pytest.mark.parametrize(
    ("name", "count"), [("guides/spark", 8), ("guides/streams", 6), ("connectors/kafka-and-spark", 1)]
)
def test_the_examples_of_the_guide_run(
    name: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: SparkSession
) -> None:
    page = REPOSITORY / "docs" / f"{name}.md"
    monkeypatch.chdir(tmp_path)
    assert session.getActiveSession() is not None
    namespace: dict[str, object] = {"__name__": "example"}
    ours = (block for block in blocks(page) if not (block.not_run or "").startswith("it needs a server"))
    found = [block for block in ours if block.language == "python"]
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


def test_the_notebook_runs_from_top_to_bottom(
    session: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert session.getActiveSession() is not None
    notebook = json.loads((REPOSITORY / "examples" / "spark_notebook.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    namespace: dict[str, object] = {"__name__": "notebook"}
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), namespace)
    printed = capsys.readouterr().out
    for text in (
        "1 updated, 1 inserted, 1 deleted",
        "batch 0: 2 rows",
        "3 update_postimage 7 7",
        "|   2| 25001|1250005|",
        "|   3| 25000|1275000|",
    ):
        assert text in printed, printed
