"""A process that is killed in a backup, restore or pull breaks nothing, and the next run goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from quacklake.config import resolve
from quacklake.core.faults import Fault, arm
from quacklake.pond import Pond
from quacklake.pond.backup import BackupPlace, backup, pull, restore
from quacklake.pond.places import find
from quacklake.pond.pruning import prune
from quacklake.pond.series import append_series
from quacklake.pond.verifying import verify
from tests.crash.forks import Forks
from tests.pond.conftest import readings

POINTS = {
    "backup": ("pond.backup.data", "pond.backup.large", "pond.backup.manifest"),
    "restore": ("restore.catalog.before", "pond.restore.large"),
    "prune": ("prune.marked", "pond.prune.manifests", "pond.prune.lake"),
    "pull": ("pond.pull.large", "restore.catalog.before", "pond.pull.data"),
}


def run(step: str, folder: str, point: str | None = None) -> None:
    """Do one step on the ponds in a folder: P is pushed to B, R is restored from it."""
    home = Path(folder)
    place = BackupPlace(str(home / "B"), resolve({}))
    fault = nullcontext() if point is None else arm(Fault(action="kill", pattern=point))
    if step == "restore":
        with fault:
            restore(place, find(home / "R")).close()
        return
    if step == "prune":
        with fault:
            prune(place, keep_last=1)
        return
    with Pond.open(home / ("P" if step == "backup" else "R")) as pond, fault:
        (backup if step == "backup" else pull)(pond, place)


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders before each step: a pond, its backup too, and also an older copy."""
    top = tmp_path_factory.mktemp("homes")
    first = top / "backup"
    with Pond.create(first / "P") as pond:
        pond.run(["fill"], lambda fs: (append_series(fs, "/s", readings(200)), fs.write_file("/big", b"L" * 100_000)))
    second = shutil.copytree(first, top / "restore")
    run("backup", str(second))
    third = shutil.copytree(second, top / "pull")
    run("restore", str(third))
    with Pond.open(third / "P") as pond:
        pond.run(["more"], lambda fs: (append_series(fs, "/s", readings(50, 200)), fs.write_file("/b", b"M" * 100_000)))
    run("backup", str(third))
    fourth = shutil.copytree(third, top / "prune")
    shutil.rmtree(fourth / "R")
    return {"backup": first, "restore": second, "pull": third, "prune": fourth}


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks(["tests.pond.test_backup_kills", "quacklake.pond.backup"]) as opened:
        yield opened


@pytest.mark.crash
@pytest.mark.daily(0.2)
@pytest.mark.parametrize(("step", "point"), [(step, point) for step, points in POINTS.items() for point in points])
def test_a_kill_breaks_nothing_and_the_next_run_goes_on(
    forks: Forks, homes: dict[str, Path], tmp_path: Path, step: str, point: str
) -> None:
    home = shutil.copytree(homes[step], tmp_path / "H")
    ended = forks.run("tests.pond.test_backup_kills:run", step=step, folder=str(home), point=point)
    assert ended.code == -9, ended.errors
    if step == "backup":
        assert BackupPlace(str(home / "B"), resolve({})).backups() == []
    run(step, str(home))
    if step == "prune":
        assert len(BackupPlace(str(home / "B"), resolve({})).backups()) == 1
    if step in ("backup", "prune"):
        run("restore", str(home))
    with Pond.open(home / "R") as pond:
        assert pond.fs().read("/big") == b"L" * 100_000
        assert pond.lake.table('pond_data."/s"').count() == (250 if step in ("pull", "prune") else 200)
        assert verify(pond).problems == ()
        states = [each.state for each in pond.control.transactions()]
        assert states == ["completed"] * (3 if step in ("pull", "prune") else 2)
