"""A process that is killed at a point of a command leaves the pond as it was before the command or after it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from quacklake.core.faults import Fault, arm
from quacklake.pond import Pond
from quacklake.pond.series import append_series
from quacklake.pond.verifying import verify
from tests.crash.forks import Forks
from tests.pond.conftest import readings

POINTS = (
    "storage.publish.before",
    "pond.large_file.written",
    "pond.large_file.placed",
    "pond.series.append",
    "pond.save",
    "pond.log",
    "pond.commit",
    "pond.committed",
)


def copy(place: str, point: str) -> None:
    """Run the command of the test, and die at a point."""
    with Pond.open(place) as pond, arm(Fault(action="kill", pattern=point)):
        pond.run(["pond", "copy"], _work)


def make_many(place: str, name: str) -> None:
    """Make directories, each by a command of its own."""
    with Pond.open(place) as pond:
        for number in range(4):
            pond.run([name, str(number)], lambda fs, n=number: fs.make_directory(f"/{name}{n}"))


def _work(fs: Any) -> None:
    fs.make_directory("/in")
    fs.write_file("/in/large", b"L" * 300_000)
    append_series(fs, "/in/s.series", readings(50))


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks(["tests.pond.test_kills", "quacklake.pond.pond"]) as opened:
        yield opened


@pytest.mark.crash
@pytest.mark.daily(0.3)
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_leaves_the_state_before_or_after(forks: Forks, tmp_path: Path, template: Path, point: str) -> None:
    place = shutil.copytree(template, tmp_path / "P")
    ended = forks.run("tests.pond.test_kills:copy", place=str(place), point=point)
    assert ended.code == -9, ended.errors
    with Pond.open(place) as pond:
        paths = [each.path for each in pond.fs().glob("**/*")]
        done = point == "pond.committed"
        assert paths == (["/in", "/in/large", "/in/s.series"] if done else [])
        commands = [(each.state, each.command) for each in pond.control.transactions()]
        assert commands == [("completed", "pond init"), ("completed", "pond copy")][: 1 + done]
        left = point in ("storage.publish.before", "pond.large_file.written")
        assert (pond.recover().removed_files, pond.recover().was_needed) == (int(left), False)
        if not done:
            pond.run(["pond", "copy"], _work)
        assert pond.fs().read("/in/large") == b"L" * 300_000
        assert pond.lake.table('pond_data."/in/s.series"').count() == 50
        assert verify(pond).problems == ()
        left = [
            each
            for each in (place / "data/files/_large_files").rglob("*")
            if "tmp" in each.name or each.parent.name == "incoming"
        ]
        assert left == []


@pytest.mark.daily(0.3)
def test_two_processes_write_at_once(forks: Forks, tmp_path: Path, template: Path) -> None:
    """Each command is in the log once, with a number and a snapshot of its own, in which its directory is."""
    place = str(shutil.copytree(template, tmp_path / "P"))
    with ThreadPoolExecutor(1) as beside:
        other = beside.submit(forks.run, "tests.pond.test_kills:make_many", place=place, name="other")
        make_many(place, "own")
        ended = other.result()
    assert ended.code == 0, ended.errors
    with Pond.open(place, read_only=True) as pond:
        _, *commands = pond.control.transactions()
        assert sorted(each.args for each in commands) == [(name, str(n)) for name in ("other", "own") for n in range(4)]
        assert [(each.txn_seq, each.state) for each in commands] == [(n, "completed") for n in range(2, 10)]
        for number, each in enumerate(commands, 1):
            fs = pond.fs(at=each.snapshot_id)
            assert (fs.exists("/" + "".join(each.args)), len(fs.tree)) == (True, number + 1)
