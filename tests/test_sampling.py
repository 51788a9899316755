"""A run takes its sample, says so, and no test is left out of every run."""

from __future__ import annotations

import datetime as dt
import math
import re
import shlex
import subprocess
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
    found = items()
    config: Any = SimpleNamespace(args=arguments, hook=SimpleNamespace(pytest_deselected=lambda items: None))
    assert sampling.take(config, found)["tests"] == (len(found), 22)
    return [item.nodeid for item in found]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "LONG", False)


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
@pytest.mark.parametrize("share", [0.05, 0.2, 0.3])
def test_of_a_few_tests_alike_every_other_run_has_one_at_least(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    config: Any = SimpleNamespace(args=["tests"], hook=SimpleNamespace(pytest_deselected=lambda items: None))
    runs, seen = 400, Counter[str]()
    for seed in range(runs):
        monkeypatch.setattr(seeds, "SEED", seed)
        found: list[Any] = [Item(f"tests/a.py::test_few[{number}]", share) for number in range(3)]
        sampling.take(config, found)
        assert len(found) <= 1
        seen.update(item.nodeid for item in found)
    assert abs(seen.total() / runs - max(0.5, 3 * share)) < 0.1
    assert len(seen) == 3 and min(seen.values()) > runs / 10


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("folder", sampling.VARIANTS)
def test_each_function_of_a_large_folder_runs_every_day_with_some_of_its_parameters(folder: str) -> None:
    found: list[Any] = [Item(f"{folder}test_x.py::test_one_{number}", None) for number in range(9)]
    found += [Item(f"{folder}test_x.py::test_only[x-{number}]", None) for number in range(1)]
    found += [Item(f"{folder}test_x.py::test_three_{name}[{number}]", None) for name in "abc" for number in range(3)]
    found += [Item(f"{folder}test_x.py::test_many[{number}]", None) for number in range(20)]
    found += [Item(f"{folder}test_x.py::test_mixed[{number}]", 0.1 if number % 2 else None) for number in range(20)]
    config: Any = SimpleNamespace(args=["tests"], hook=SimpleNamespace(pytest_deselected=lambda items: None))
    sampling.take(config, found)
    taken = Counter(item.nodeid.partition("::")[2].partition("[")[0] for item in found)
    share = sampling.VARIANTS[folder]
    assert [taken[f"test_one_{number}"] for number in range(9)] == [1] * 9
    assert [taken[f"test_three_{name}"] for name in "abc"] == [math.ceil(3 * share)] * 3
    assert (taken["test_only"], taken["test_many"]) == (1, math.ceil(20 * share))
    assert taken["test_mixed"] == math.ceil(10 * share) + 1


@pytest.mark.usefixtures("short")
def test_whoever_names_a_file_gets_all_of_it() -> None:
    assert len(taken(["tests/a.py"])) == 22


def test_the_long_profile_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "LONG", True)
    assert len(taken(["tests"])) == 22
    assert seeds.some(range(9), 2, "numbers") == list(range(9))


def test_the_seed_is_that_of_the_day_unless_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUACKLAKE_TEST_SEED", "7")
    assert seeds.fix() == 7
    monkeypatch.delenv("QUACKLAKE_TEST_SEED")
    days = {int(f"{dt.datetime.now(dt.UTC):%Y%m%d}")}
    seed = seeds.fix()
    assert seed in days | {int(f"{dt.datetime.now(dt.UTC):%Y%m%d}")}


@pytest.mark.usefixtures("short")
def test_a_run_says_what_it_has_sampled() -> None:
    counts = {"tests": (90, 100), "crash points: sqlite": (3, 40), "crash points: duckdb": (2, 10), "rules": (2, 4)}
    assert sampling.summary(counts) == f"seed {seeds.SEED} took 90 of 100 tests, crash points 5 of 50, rules 2 of 4"
    assert f"seed {seeds.SEED}: " in sampling.headline() and "make test-all" in sampling.headline()


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
    dry = subprocess.run(
        [*make, "--no-print-directory", "-n", "-o", "setup"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.splitlines()[-1]
    assert f"QUACKLAKE_TEST_SEED={seeds.SEED} " in dry
    assert shlex.split(dry)[-len(arguments) :] == arguments


def test_what_one_run_leaves_out_make_test_all_runs() -> None:
    def commands(target: str) -> list[str]:
        words = ["make", "--no-print-directory", "-n", "-o", "setup", target]
        lines = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.splitlines()
        return [line for line in lines if "-m pytest" in line]

    (daily,), (plain, shared) = commands("test"), commands("test-all")
    for command in (daily, plain, shared):
        assert LEAVING_OUT.findall(command.partition("-m pytest")[2]) == []
    assert "PROFILE" not in daily and "LAYOUT" not in daily and "LAYOUT" not in plain
    assert "QUACKLAKE_TEST_PROFILE=long" in plain and "QUACKLAKE_TEST_PROFILE=long" in shared
    assert "QUACKLAKE_TEST_LAYOUT=shared" in shared
    options = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert LEAVING_OUT.findall(" ".join(options["addopts"])) == []


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
