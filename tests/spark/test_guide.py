"""The examples of the guide run, in the session that all tests share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import REPOSITORY, blocks
from tests.docs.test_snippets import _run_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_examples_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: SparkSession) -> None:
    page = REPOSITORY / "docs" / "guides" / "spark.md"
    monkeypatch.chdir(tmp_path)
    assert session.getActiveSession() is not None
    namespace: dict[str, object] = {"__name__": "example"}
    found = [block for block in blocks(page) if block.language == "python"]
    assert len(found) == 6
    for block in found:
        _run_python(page, block, namespace)
    namespace["lake"].close()  # type: ignore[attr-defined]
