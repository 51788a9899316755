"""The example for Dagster, in a process with the packages of Dagster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = Path(sys.prefix) / "dagster"


def test_the_assets_of_the_example_are_tables_and_a_second_try_doubles_nothing(tmp_path: Path) -> None:
    if not (PACKAGES / "dagster").is_dir():
        pytest.skip("Dagster is not installed: make test-dagster installs it")
    paths = [str(PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "integrations" / "dagster" / "orders.py")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "DAGSTER_DISABLE_TELEMETRY": "1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "[('2024-01-01', 1237.5), ('2024-01-02', 1237.5)]"
    assert "RUN_SUCCESS" in done.stderr
    assert list(tmp_path.iterdir()) == []
