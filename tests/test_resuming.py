"""A run of everything goes on where it was cut, and its shards are the whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.resuming import FOLDER, SHARD, Progress, in_shard, parse_shard

REPOSITORY = Path(__file__).resolve().parent.parent


def test_each_file_is_in_one_shard() -> None:
    files = [f"tests/a/test_{number}.py::test_x[{number}]" for number in range(100)]
    shards = [{name for name in files if in_shard(name, (number, 4))} for number in range(1, 5)]
    assert set.union(*shards) == set(files) and sum(map(len, shards)) == len(files) and all(shards)
    assert in_shard("tests/a.py::test_x", (2, 3)) == in_shard("tests/a.py::test_y[1]", (2, 3))


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "-1/2", "1/2/3"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(pytest.UsageError, match="is no shard"):
        parse_shard(text)


def test_only_a_new_run_leaves_out_what_passed(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "passed", "code")
    progress.begin()
    progress.add(["a.py::test_a[x y]"])
    assert progress.read() == set()
    again = Progress(tmp_path / "passed", "code")
    again.begin()
    assert "a.py::test_a[x y]" in again.read()
    assert Progress(tmp_path / "passed", "other").read() == set()


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_a_second_run_leaves_out_what_passed_in_the_first(tmp_path: Path, workers: list[str]) -> None:
    environment = os.environ | {FOLDER: str(tmp_path / "passed")}
    environment.pop(SHARD, None)
    environment.pop("PYTEST_XDIST_WORKER", None)

    def run(*words: str) -> str:
        """Return the line that pytest closes with."""
        base = f"--basetemp={tmp_path / 'run'}"
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", base, *workers, *words]
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
        return next(line for line in reversed(done.stdout.splitlines()) if line.startswith("=") and " in " in line)

    assert "1 passed" in run("tests/test_marks.py", "-k", "sqlite")
    assert "5 passed" in run("tests/test_marks.py")
    assert " passed" not in run("tests/test_marks.py")
