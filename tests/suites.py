"""The suites that SQLAlchemy and dbt have for what is made for them, each in a process of its own.

``python -m tests.suites dbt`` or ``sqlalchemy`` runs all of one and prints which share of it passes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import quacklake

REPOSITORY = Path(__file__).resolve().parents[1]
ADAPTER = REPOSITORY / "integrations" / "dbt-quacklake"
DBT = REPOSITORY / ".venv" / "dbt"
DIALECT = REPOSITORY / "tests" / "dbapi" / "dialect"
_OPTIONS = ("-q", "-n0", "-W", "ignore", "-p", "no:cacheprovider", "-c", os.devnull, "-rfE", "--tb=short")
_HOURS = 3


@dataclass(frozen=True)
class Outcome:
    """The result of a run of a suite."""

    name: str
    counts: dict[str, int]
    failed: list[str]
    text: str

    @property
    def line(self) -> str:
        """Return the share that passed, of the tests that were not left out."""
        passed, skipped = self.counts.get("passed", 0), self.counts.get("skipped", 0)
        run = passed + len(self.failed)
        share = f"{passed / run:.1%}" if run else "none"
        return f"{self.name}: {passed} of {run} tests pass ({share}), {skipped} are left out with a reason"


def environment_of_dbt(**more: str) -> dict[str, str]:
    """Return the environment in which dbt and its adapter are found."""
    path = os.pathsep.join([str(DBT), str(ADAPTER / "src")])
    return {**os.environ, "PYTHONPATH": path, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false", **more}


def classes_of_dbt() -> list[str]:
    """Return the classes of dbt's suite that have tests for adapters, as the tests of the adapter name them."""
    root = DBT / "dbt" / "tests" / "adapter"
    return [
        "_".join(("Test", *path.relative_to(root).with_suffix("").parts, name))
        for path in sorted(root.rglob("test_*.py"))
        for name, body in re.findall(r"^class (Base\w+)(.*?)(?=^class |\Z)", path.read_text(), re.MULTILINE | re.DOTALL)
        if "    def test" in body
    ]


def run_dbt(classes: Iterable[str] = ()) -> Outcome:
    """Run classes of dbt's suite, by default all of them."""
    chosen = ["-k", " or ".join(classes)] if classes else []
    return _run("dbt's suite", [*chosen, "tests/test_suite.py"], ADAPTER, environment_of_dbt())


def run_sqlalchemy(classes: int = 0) -> Outcome:
    """Run SQLAlchemy's suite for dialects on a new lake: so many classes of it by the seed, by default all."""
    with tempfile.TemporaryDirectory() as home:
        url = f"sqlite:///{home}/lake.db"
        with quacklake.connect(url, f"{home}/data") as lake:
            lake.create_schema("test_schema")
        plugins = ["-p", "sqlalchemy.testing.plugin.pytestplugin", "-p", "tests.dbapi.dialect.sample"]
        places = ["--rootdir", str(DIALECT), "--confcutdir", str(DIALECT), str(DIALECT / "suite.py")]
        environment = {**os.environ, "QUACKLAKE_TEST_CLASSES": str(classes)}
        command = [*plugins, "--dburi", f"quacklake+{url}?ignore_constraints=true", *places]
        return _run("SQLAlchemy's suite", command, REPOSITORY, environment)


def _run(name: str, words: list[str], folder: Path, environment: dict[str, str]) -> Outcome:
    command = [sys.executable, "-m", "pytest", *_OPTIONS, *words]
    done = subprocess.run(
        command, cwd=folder, env=environment, text=True, capture_output=True, timeout=3600 * _HOURS, check=False
    )
    last = done.stdout.strip().rpartition("\n")[2]
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", last)}
    failed = re.findall(r"^(?:FAILED|ERROR) \S*?\.py::(.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return Outcome(name, counts, [_plain(test) for test in failed], done.stdout + done.stderr)


def _plain(test: str) -> str:
    """Return the name of a test without the version of the dialect."""
    return re.sub(r"_quacklake\+quacklake[\d_]*::", "::", test)


if __name__ == "__main__":
    outcome = {"dbt": run_dbt, "sqlalchemy": run_sqlalchemy}[sys.argv[1]]()
    print(*outcome.failed, outcome.line, sep="\n")
