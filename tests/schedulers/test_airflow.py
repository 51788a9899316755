"""The provider of Airflow, in a process with the packages of Airflow."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "integrations" / "airflow-provider-quacklake"
PACKAGES = Path(sys.prefix) / "airflow"


def install(folder: Path) -> None:
    """Make what an editable installation leaves behind, by which Airflow finds a provider."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    facts = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8"
    )
    lines = [
        line
        for group, names in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in names.items()))
    ]
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.daily(0.5)
def test_the_provider_runs_in_airflow(tmp_path: Path) -> None:
    if not (PACKAGES / "airflow").is_dir():
        pytest.skip("Airflow is not installed: make test-airflow installs it")
    install(tmp_path)
    paths = [PACKAGES, PACKAGE / "src", tmp_path, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "AIRFLOW_HOME": str(tmp_path / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(PACKAGE / "example"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }
    options = ["-q", "-n0", "-W", "ignore", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--basetemp", str(tmp_path / "tests"), "tests"],
        cwd=PACKAGE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
