"""A run takes its sample, says so, and no test is left out of every run."""

from __future__ import annotations

import math
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import sampling, seeds

REPOSITORY = Path(__file__).resolve().parent.parent
LEAVING_OUT = re.compile(r"(?:^|\s)(-m|-k|--ignore|--ignore-glob|--deselect)(?:[\s=]|$)")


class Item:
    """As much of a test as sampling looks at."""

    def __init__(self, nodeid: str, share: float | None) -> None:
        self.nodeid = nodeid
        self._share = share

    def get_closest_marker(self, name: str) -> Any:
        return None if self._share is None else SimpleNamespace(name=name, args=(self._share,))


def items() -> list[Any]:
    many = [Item(f"tests/a.py::test_many[{number}]", 0.3) for number in range(20)]
    return [*many, Item("tests/a.py::test_rare", 0.0), Item("tests/a.py::test_always", None)]


def taken(arguments: list[str]) -> list[str]:
    tests = items()
    config: Any = SimpleNamespace(args=arguments, hook=SimpleNamespace(pytest_deselected=lambda items: None))
    assert sampling.take(config, tests)["tests"] == (len(tests), 22)
    return [item.nodeid for item in tests]


def take_names(tests: list[Any]) -> list[str]:
    """Return the names of the tests that a run of them all takes."""
    rest = list(tests)
    config: Any = SimpleNamespace(args=["tests"], hook=SimpleNamespace(pytest_deselected=lambda items: None))
    sampling.take(config, rest)
    return [item.nodeid for item in rest]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "LONG", False)
    monkeypatch.setattr(seeds, "FUNCTIONS", False)


def make_many_items() -> list[Any]:
    """Make tests of each kind: alone and with parameters, with shares on all, some or none of them."""
    tests: list[Any] = []
    for folder in (*sampling.FOLDERS, *sampling.VARIANTS, "tests/format/"):
        for share in (None, 0.05, 0.3, 0.7):
            tests += [Item(f"{folder}test_x.py::test_one_{share}_{number}", share) for number in range(4)]
            tests += [Item(f"{folder}test_x.py::test_many_{share}[{number}]", share) for number in range(7)]
        tests += [Item(f"{folder}test_x.py::test_mixed[{number}]", 0.1 if number % 2 else None) for number in range(6)]
    return tests


@pytest.mark.usefixtures("short")
def test_a_seed_takes_its_share_and_always_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    first = taken(["tests"])
    assert first == taken(["tests"])
    assert len(first) == 7 and "tests/a.py::test_always" in first and "tests/a.py::test_rare" not in first
    monkeypatch.setattr(seeds, "SEED", seeds.SEED + 1)
    assert taken(["tests"]) != first


@pytest.mark.usefixtures("short")
def test_tests_of_slow_folders_are_sampled_unless_they_say_otherwise() -> None:
    found: list[Any] = [Item(f"tests/spark/test_x.py::test_{number}", None) for number in range(200)]
    found += [Item(f"tests/spark/test_x.py::test_marked_{number}", 1) for number in range(9)]
    config: Any = SimpleNamespace(args=["tests"], hook=SimpleNamespace(pytest_deselected=lambda items: None))
    sampling.take(config, found)
    taken = sum("marked" not in item.nodeid for item in found)
    assert abs(taken / 200 - sampling.FOLDERS["tests/spark/"]) < 0.15
    assert sum("marked" in item.nodeid for item in found) == 9


@pytest.mark.usefixtures("short")
def test_a_run_of_all_functions_takes_each_function_and_all_tests_of_the_short_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tests = make_many_items()
    for seed in range(20):
        monkeypatch.setattr(seeds, "SEED", seed)
        monkeypatch.setattr(seeds, "FUNCTIONS", False)
        short = set(take_names(tests))
        monkeypatch.setattr(seeds, "FUNCTIONS", True)
        every = set(take_names(tests))
        assert short < every < {item.nodeid for item in tests}
        assert {name.partition("[")[0] for name in every} == {item.nodeid.partition("[")[0] for item in tests}


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("functions", [False, True])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.3])
def test_every_parameter_has_its_turn(monkeypatch: pytest.MonkeyPatch, share: float, functions: bool) -> None:
    monkeypatch.setattr(seeds, "FUNCTIONS", functions)
    tests = [Item(f"tests/a.py::test_few[{number}]", share) for number in range(3)]
    runs, counts = 400, Counter[str]()
    for seed in range(runs):
        monkeypatch.setattr(seeds, "SEED", seed)
        names = take_names(tests)
        assert len(names) <= 1
        counts.update(names)
    assert abs(counts.total() / runs - (1 if functions else 3 * share)) < 0.1
    assert len(counts) == 3 and min(counts.values()) > counts.total() / 5


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("folder", sampling.VARIANTS)
def test_each_function_of_a_large_folder_runs_with_some_of_its_parameters(folder: str) -> None:
    tests: list[Any] = [Item(f"{folder}test_x.py::test_one_{number}", None) for number in range(9)]
    tests += [Item(f"{folder}test_x.py::test_only[x-{number}]", None) for number in range(1)]
    tests += [Item(f"{folder}test_x.py::test_three_{name}[{number}]", None) for name in "abc" for number in range(3)]
    tests += [Item(f"{folder}test_x.py::test_many[{number}]", None) for number in range(20)]
    taken = Counter(name.partition("::")[2].partition("[")[0] for name in take_names(tests))
    share = sampling.VARIANTS[folder]
    assert [taken[f"test_one_{number}"] for number in range(9)] == [1] * 9
    assert all(math.floor(3 * share) <= taken[f"test_three_{name}"] <= math.ceil(3 * share) for name in "abc")
    assert (taken["test_only"], taken["test_many"]) == (1, int(20 * share))


@pytest.mark.usefixtures("short")
def test_whoever_names_a_file_gets_all_of_it() -> None:
    assert len(taken(["tests/a.py"])) == 22


def test_the_long_profile_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "LONG", True)
    assert len(taken(["tests"])) == 22
    assert seeds.some(range(9), 2, "numbers") == list(range(9))


def test_the_seed_is_the_day_of_the_commit_unless_it_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("QUACKLAKE_TEST_SEED", "7")
    assert seeds.fix() == 7
    assert seeds.find_commit_date(tmp_path) is None
    names = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    when = {"GIT_COMMITTER_DATE": "2026-03-05T23:30:00-0500", "GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z"}
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "Begin"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, env=os.environ | names | when)
    assert seeds.find_commit_date(tmp_path) == 20260306
    monkeypatch.delenv("QUACKLAKE_TEST_SEED")
    known = seeds.find_commit_date(REPOSITORY)
    assert seeds.fix() == (20261119 if known is None else known)


@pytest.mark.usefixtures("short")
def test_a_run_says_what_it_has_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"tests": (90, 100), "functions": (7, 10), "points: sqlite": (3, 40), "points: duckdb": (2, 10)}
    assert sampling.summary(counts) == "samples: points 5 of 50"
    assert sampling.last_line(counts) == f"seed {seeds.SEED}, share: 90 of 100 tests (90%), 7 of 10 functions (70%)"
    assert sampling.headline().startswith(f"seed {seeds.SEED}, share: 13% to 60% of the test functions in slow folders")
    monkeypatch.setattr(seeds, "FUNCTIONS", True)
    assert sampling.headline().startswith(f"seed {seeds.SEED}, share: every test function")


def test_the_first_and_last_line_of_a_run_have_its_seed_and_share(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'run'}"]
    run = subprocess.run(
        [*command, "tests/test_marks.py"],
        cwd=REPOSITORY,
        env=os.environ | {"QUACKLAKE_TEST_SEED": "11", "QUACKLAKE_TEST_PROFILE": "functions"},
        capture_output=True,
        text=True,
    )
    lines = run.stdout.splitlines()
    assert run.returncode == 0, run.stdout
    assert next(line for line in lines if line.startswith("seed")).startswith("seed 11, share: every test function")
    assert lines[-1] == "seed 11, share: 6 of 6 tests (100%), 1 of 1 functions (100%)"


def preview(*command: str) -> list[str]:
    """Return the lines that a call of make would run, whatever the make that runs this test has been told."""
    own = {"MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "FUNCTIONS", "SEED", "ARGS", "DUCKDB", "JOBS", "SHARD"}
    return subprocess.run(
        [*command, "--no-print-directory", "-n", "-o", "setup"],
        cwd=REPOSITORY,
        env={name: value for name, value in os.environ.items() if name not in own},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("nodeid", "arguments"),
    [
        ("tests/a.py::test_b", ["tests/a.py::test_b"]),
        ("tests/a.py::test_b[x y-(1)]", ["tests/a.py::test_b[x y-(1)]"]),
        ("tests/a.py::test_b[it's $x]", ["tests/a.py", "-k", "test_b"]),
    ],
)
def test_a_failure_is_told_with_the_command_that_repeats_it(nodeid: str, arguments: list[str]) -> None:
    (line,) = sampling.repeat([nodeid, nodeid])
    make = shlex.split(line.removeprefix("QUACKLAKE_TEST_LAYOUT=shared "))
    assert make[:3] == ["make", "test", f"SEED={seeds.SEED}"]
    dry = preview(*make)[-1]
    assert f"QUACKLAKE_TEST_SEED={seeds.SEED} " in dry
    assert shlex.split(dry)[-len(arguments) :] == arguments


def test_what_one_run_leaves_out_make_test_all_runs() -> None:
    def commands(target: str) -> list[str]:
        return [line for line in preview("make", target) if "-m pytest" in line]

    (daily,), (plain, shared) = commands("test"), commands("test-all")
    for command in (daily, plain, shared):
        assert LEAVING_OUT.findall(command.partition("-m pytest")[2]) == []
    assert "PROFILE" not in daily and "LAYOUT" not in daily and "LAYOUT" not in plain
    assert "QUACKLAKE_TEST_PROFILE=long" in plain and "QUACKLAKE_TEST_PROFILE=long" in shared
    assert "QUACKLAKE_TEST_LAYOUT=shared" in shared
    options = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert LEAVING_OUT.findall(" ".join(options["addopts"])) == []


def test_continuous_integration_draws_the_sample_of_everybody() -> None:
    lines = [line for line in (REPOSITORY / ".ci" / "run").read_text().splitlines() if line.startswith("make test")]
    assert lines[-1] == "make test FUNCTIONS=all" and not any("SEED" in line for line in lines)
    dry = preview(*lines[-1].split())[-1]
    assert "QUACKLAKE_TEST_PROFILE=functions" in dry and "SEED" not in dry


def test_no_test_is_skipped_in_the_long_profile_only() -> None:
    wrong = [
        str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / "tests").rglob("*.py")
        if re.search(
            r"skipif\(\s*(?:seeds\.)?LONG\b|collect_ignore\s*=.*LONG|if (?:seeds\.)?LONG:\s*pytest\.skip",
            path.read_text(),
        )
    ]
    assert [name for name in wrong if name != "tests/test_sampling.py"] == []
