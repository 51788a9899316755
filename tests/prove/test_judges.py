"""The judges of the proofs see what is wrong when something is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake import Lake
from quacklake.core.catalog.writing.files import FileUpdates
from tests.crash.operations import OPERATIONS
from tests.prove import pairs, steps
from tests.prove.kills import Journal, _check_history, journal, perform, resolve, signature
from tests.prove.places import Places
from tests.prove.stands import Stand
from tests.prove.steps import Step

STEP: Step = {"name": "append", "worker": 0, "table": "t", "start": 0, "count": 3}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path / 'lake.db'}", data_path=tmp_path / "data") as lake:
        steps.setup(lake)
        yield lake


def begun(folder: Path, *, done: bool | None) -> Journal:
    log = Journal(folder / "worker0.journal")
    log.begin(STEP)
    if done is not None:
        log.end(done=done)
    return log


@pytest.mark.parametrize("times", [0, 1])
def test_a_step_that_nobody_heard_the_end_of_is_found_or_not(lake: Lake, tmp_path: Path, times: int) -> None:
    log = begun(tmp_path, done=None)
    for _ in range(times):
        assert perform(lake, STEP, signature(0, 1))
    model = resolve(lake, 0, log)
    assert (log.ended, log.found) == ([times == 1], [True])
    assert model.t == ({0: 0, 1: 0, 2: 0} if times else {})
    assert Journal(tmp_path / "worker0.journal").model() == model


@pytest.mark.parametrize(("done", "times"), [(True, 0), (True, 2), (None, 2), (False, 1)])
def test_what_is_lost_or_twice_or_should_not_be_is_seen(
    lake: Lake, tmp_path: Path, done: bool | None, times: int
) -> None:
    log = begun(tmp_path, done=done)
    for _ in range(times):
        perform(lake, STEP, signature(0, 1))
    with pytest.raises(AssertionError, match="worker 0"):
        resolve(lake, 0, log)


def test_half_of_a_step_is_seen(lake: Lake, tmp_path: Path) -> None:
    log = begun(tmp_path, done=None)
    perform(lake, {**STEP, "count": 2}, signature(0, 1))
    with pytest.raises(AssertionError, match="worker 0"):
        resolve(lake, 0, log)


@pytest.mark.parametrize(("done", "times"), [(True, 0), (True, 2), (False, 1)])
def test_the_history_is_counted(tmp_path: Path, done: bool, times: int) -> None:
    home = Places(tmp_path, lambda name: pytest.fail(name)).make("sqlite")
    with home.connect() as lake:
        steps.setup(lake)
        log = Journal(journal(home, 0))
        log.begin(STEP)
        log.end(done=done)
        for _ in range(times):
            perform(lake, STEP, signature(0, 1))
        with pytest.raises(AssertionError, match="worker 0"):
            _check_history(lake, home, 1)


@pytest.mark.parametrize(
    ("first", "second", "block"),
    [
        ("file_update", "file_delete", True),
        ("file_optimize", "file_delete", False),
        ("files_optimize", "files_grow", False),
    ],
)
def test_pairs_see_that_a_file_which_took_the_place_of_others_is_taken_for_the_one_that_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str, block: bool
) -> None:
    monkeypatch.setenv("QUACKLAKE_SQLITE_JOURNAL", "wal")  # else nobody commits while another reads
    stand = Stand("sqlite", tmp_path / "stand", None)
    early = pairs.phases(stand, first, block=block)[1]
    meeting = pairs.Meeting(first, second, early[-1], block)
    pairs.meet(stand, meeting)
    real = FileUpdates.live
    monkeypatch.setattr(FileUpdates, "live", lambda self, table, files, until=None: real(self, table, files))
    with pytest.raises(AssertionError, match="not as if"):
        pairs.meet(stand, meeting)
    stand.close()


def test_pairs_that_are_not_serial_are_seen() -> None:
    delete, update = OPERATIONS["delete_few"], OPERATIONS["update"]
    start = {"main.t": [(2, "x2", 0.5), (37, "x37", 9.25)]}
    both = delete.mean(update.mean(start))
    pairs._judge(both, start, (delete, update), [None, None])
    with pytest.raises(AssertionError, match="not as if"):
        pairs._judge(delete.mean(start), start, (delete, update), [None, None])
    conflict = quacklake.errors.CommitConflict("too late")
    with pytest.raises(AssertionError, match="not as if"):
        pairs._judge(both, start, (delete, update), [None, conflict])
    gone = quacklake.errors.NotFoundError("no table t")
    with pytest.raises(AssertionError, match="was refused"):
        pairs._judge(delete.mean(start), start, (delete, update), [None, gone])
    pairs._judge({}, start, (OPERATIONS["drop"], update), [None, gone])
    restore, expire = OPERATIONS["restore"], OPERATIONS["expire"]
    pairs._judge(start, start, (expire, restore), [None, quacklake.errors.SnapshotExpiredError("2")])
    with pytest.raises(AssertionError, match="was refused"):
        pairs._judge(start, start, (OPERATIONS["flush"], restore), [None, quacklake.errors.SnapshotExpiredError("2")])
