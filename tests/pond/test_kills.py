"""A process that is killed at a point of a command leaves the pond as it was before the command or after it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quacklake.faults import Fault, arm
from quacklake.pond import Pond
from quacklake.pond.series import append_series
from quacklake.pond.verifying import verify
from tests.crash.forks import Forks
from tests.pond.conftest import readings

POINTS = (
    "pond.control.begun",
    "pond.large_file.written",
    "pond.large_file.placed",
    "pond.series.append",
    "pond.save",
    "pond.commit",
    "pond.committed",
)


def copy(place: str, point: str) -> None:
    """Run the command of the test, and die at a point."""
    with Pond.open(place) as pond, arm(Fault(action="kill", pattern=point)):
        pond.run(["pond", "copy"], _work)


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
        report = pond.recover()
        assert (report.was_needed, report.recovered_count, report.failed_count) == (True, int(done), int(not done))
        assert [each.state for each in pond.control.transactions()] == ["completed", "completed" if done else "failed"]
        if not done:
            pond.run(["pond", "copy"], _work)
        assert pond.fs().read("/in/large") == b"L" * 300_000
        assert pond.lake.table('pond_data."/in/s.series"').count() == 50
        assert verify(pond).problems == ()
        left = [
            each
            for each in (place / "data/files/_large_files").rglob("*")
            if "incoming" in each.name or "tmp" in each.name
        ]
        assert left == []
