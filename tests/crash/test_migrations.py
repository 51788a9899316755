"""A process that is killed in the middle of a migration leaves the old version or the new one, whole."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.core import faults
from quacklake.core.catalog.tables import VERSION
from tests.catalog.test_migration import check_history, connect, dump
from tests.crash.forks import Forks
from tests.golden.lakes import LAKES, CopiedLake, GoldenLake

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

PATTERN = "catalog.*"
STEPS = 4


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks(["tests.crash.test_migrations"]) as found:
        yield found


def migrate(url: str, data_path: str, at: int) -> str:
    """Migrate a lake in a child process, which is killed when it reaches the given point."""
    with quacklake.connect(url, data_path=data_path, override_data_path=True, duckdb_threads=1) as lake:
        with faults.arm(faults.Fault(at=at, action="kill", pattern=PATTERN)):
            return lake.migrate()


def points(copy: CopiedLake) -> int:
    """Return the number of points that a whole migration reaches."""
    with connect(copy) as lake, faults.record() as found:
        lake.migrate()
    return sum(point.startswith("catalog.") for point in found)


@pytest.mark.daily(0.5)
@pytest.mark.parametrize("golden", [LAKES[0], LAKES[3]], ids=lambda lake: lake.name)
def test_a_migration_that_is_killed_leaves_the_old_version_or_the_new(
    golden: GoldenLake, tmp_path: Path, forks: Forks
) -> None:
    last = points(golden.copy(tmp_path / "whole"))
    copy = golden.copy(tmp_path / "lake")
    before, versions = dump(copy.url), []
    for at in sorted({1, last, *range(last // STEPS, last, last // STEPS)}):
        ended = forks.run("tests.crash.test_migrations:migrate", url=copy.url, data_path=str(copy.data_path), at=at)
        assert ended.code == -signal.SIGKILL, ended.errors
        with connect(copy) as lake:
            versions.append(lake.version)
        if versions[-1] == golden.version:
            assert dump(copy.url) == before, f"killed at {at}"
            continue
        with connect(copy) as lake:
            check_history(lake, golden)
        copy = golden.copy(tmp_path / f"after {at}")
    assert (versions[0], versions[-1]) == (golden.version, VERSION), "the last point is after the commit"
    assert set(versions) == {golden.version, VERSION}
    with connect(copy, migrate=True) as lake:
        assert lake.version == VERSION
        check_history(lake, golden)
