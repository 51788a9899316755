"""The destination and the source of dlt, with the real dlt, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import seeds

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "integrations" / "dlt-quacklake"
INSTALLED = REPOSITORY / ".venv" / "dlt"
KILLS = "test_each_row_is_there_once_after_a_kill"
_TESTS, _PLACES = 3, 5

pytestmark = [
    pytest.mark.skipif(not (INSTALLED / "dlt").is_dir(), reason="dlt is not installed: make .venv/dlt"),
    pytest.mark.timeout(7200 if seeds.LONG else 1200),
]


def _tests() -> list[str]:
    """Return the tests of the package."""
    return [
        f"tests/{path.name}::{name}"
        for path in sorted((PACKAGE / "tests").glob("test_*.py"))
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
        if name != KILLS
    ]


def _pytest(*words: str) -> None:
    path = os.pathsep.join([str(INSTALLED), str(PACKAGE / "src")])
    environment = {**os.environ, "PYTHONPATH": path, "RUNTIME__DLTHUB_TELEMETRY": "false"}
    options = ["-q", "-n0", "-W", "ignore", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
    command = [sys.executable, "-m", "pytest", *options, *words]
    done = subprocess.run(
        command, cwd=PACKAGE, env=environment, text=True, capture_output=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert re.search(r"\d+ passed", done.stdout), done.stdout


@pytest.mark.daily(0.5)
def test_pipelines_load_a_lake_and_read_one() -> None:
    _pytest(*seeds.some(_tests(), _TESTS, "tests of dlt"))


@pytest.mark.daily(0.2)
@pytest.mark.parametrize("place", range(_PLACES))
def test_a_pipeline_that_is_killed_loads_each_row_once(place: int) -> None:
    _pytest(f"tests/test_kills.py::{KILLS}[{_places()[place]}]")


def _places() -> list[str]:
    text = (PACKAGE / "tests" / "test_kills.py").read_text()
    return re.findall(r'^    "(.+)",$', text, re.MULTILINE)
