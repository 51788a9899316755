"""Tests that were written for plain lakes pass on catalogs of shared ones: a few files of them in each run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import seeds

REPOSITORY = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("lake", "sql", "transaction")
#: Tests with a server would start one more; ``make test-all`` runs them on shared lakes too.
PLAIN = "not postgres and not mysql and not s3 and not moto"


def sample(folder: str) -> str:
    """Return one of the files of a folder, by the seed."""
    files = sorted((REPOSITORY / "tests" / folder).glob("test_*.py"))
    name = seeds.chance("shared layout", folder).choice(files).name
    seeds.SAMPLED[f"files on shared lakes: {folder}"] = 1, len(files)
    return f"tests/{folder}/{name}"


@pytest.mark.timeout(900)
def test_the_tests_of_plain_lakes_pass_on_shared_ones(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"QUACKLAKE_TEST_LAYOUT": "shared", "QUACKLAKE_TEST_SEED": str(seeds.SEED)}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", f"--basetemp={tmp_path}/run", "-m", PLAIN]
    files = [sample(folder) for folder in FOLDERS]
    run = subprocess.run(
        [*command, *files], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
    assert " passed" in run.stdout
