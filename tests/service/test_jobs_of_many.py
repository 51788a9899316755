"""Jobs of many processes: each shows all of them, and one that died with its process is told as lost."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.core import faults
from quacklake.core.faults import Fault
from quacklake.extend.marks import open_marks
from quacklake.lake import Lake
from quacklake.service import jobs as module
from quacklake.service.identity import TokenGate
from quacklake.service.job_records import JobRecords
from quacklake.service.jobs import Jobs
from quacklake.service.problems import TooBusyError
from tests.service.serving import TOKENS, client, is_problem, sample_lake, served
from tests.service.test_work import finished


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with sample_lake(tmp_path) as found:
        yield found


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


@contextmanager
def opened(most: int = 10, lease: float = 30.0) -> Iterator[Jobs]:
    found = Jobs(most, lambda _: None, lease)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let ``verify`` wait until the event is set."""
    free = threading.Event()

    def wait(*_: Any) -> dict[str, bool]:
        return {"waited": free.wait(30)}

    monkeypatch.setattr(module, "KINDS", {**module.KINDS, "verify": wait})
    yield free
    free.set()


def test_every_process_shows_the_jobs_of_all(tmp_path: Path) -> None:
    with served(sample_lake(tmp_path)) as first, served(quacklake.connect(f"sqlite:///{tmp_path}/lake.db")) as second:
        done = finished(first, "expire", dry_run=True, keep_last=1)
        failed = finished(second, "restore", table="nowhere", to=1)
        for each in (first, second):
            assert each.admin.get(f"/api/v1/jobs/{done['id']}").json() == done
            assert each.admin.get("/api/v1/jobs").json() == {"jobs": [failed, done]}
            is_problem(each.admin.get(f"/api/v1/jobs/{done['id'][:-1]}"), 404, "not_found")
            is_problem(each.admin.get("/api/v1/jobs/%25"), 404, "not_found")
        assert first.lake.streams.list().num_rows == 0


def test_jobs_of_two_principals_never_meet(lake: Lake) -> None:
    with opened() as jobs, opened() as others:
        mine = jobs.start(lake, "a", "verify", {}, dry_run=False).id
        for each in (jobs, others):
            assert [job["id"] for job in each.of(lake, "a")] == [mine]
            assert each.of(lake, "b") == []
            with pytest.raises(quacklake.errors.NotFoundError):
                each.get(lake, mine, "b")


def test_a_long_job_is_not_lost_while_its_process_lives(lake: Lake, held: threading.Event) -> None:
    def end_of_lease() -> int:
        with open_marks(lake, "job") as marks:
            [mark] = marks.list()
        return int(json.loads(mark.position or "{}")["until"])

    with opened(lease=1.5) as jobs, opened() as others:
        id_ = jobs.start(lake, "a", "verify", {}, dry_run=False).id
        _until(lambda: others.get(lake, id_, "a")["state"] == "running")
        for _ in range(2):
            before = end_of_lease()
            _until(lambda before=before: end_of_lease() > before)  # type: ignore[misc]
        held.set()
        _until(lambda: others.get(lake, id_, "a")["state"] == "done")
        assert others.get(lake, id_, "a")["result"] == {"waited": True}


_CHILD = """
import sys, time
import quacklake
from quacklake.service import jobs
jobs.KINDS = {**jobs.KINDS, "verify": lambda *_: time.sleep(60)}
found = jobs.Jobs(10, lambda job: print(job.id, flush=True), 1.5)
found.start(quacklake.connect(sys.argv[1]), "a", "verify", {}, dry_run=False)
time.sleep(60)
"""


def test_a_job_whose_process_was_killed_is_lost_after_its_lease(lake: Lake, tmp_path: Path) -> None:
    line = [sys.executable, "-c", _CHILD, f"sqlite:///{tmp_path}/lake.db"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as child, opened() as others:
        assert child.stdout is not None
        id_ = child.stdout.readline().strip()
        assert others.get(lake, id_, "a")["state"] == "running"
        os.kill(child.pid, signal.SIGKILL)
        _until(lambda: others.get(lake, id_, "a")["state"] == "failed")
        assert others.of(lake, "a")[0]["error"]["code"] == "lost"


_STEPS = """
import sys, time
import quacklake
from quacklake.service import jobs

def steps(lake, given, dry_run, progress):
    for number in range(10_000):
        progress("step", number, 10_000)
        time.sleep(0.005)

jobs.KINDS = {**jobs.KINDS, "verify": steps}
found = jobs.Jobs(10, lambda job: print(job.id, job.state, flush=True), 30.0, 0.05)
with quacklake.connect(sys.argv[1]) as lake:
    for _ in range(3):
        found.start(lake, sys.argv[2], "verify", {}, dry_run=False)
    sys.stdin.read()
    found.close()
"""


def test_a_job_is_cancelled_and_listened_to_through_another_process(tmp_path: Path) -> None:
    with served(sample_lake(tmp_path), poll_seconds=0.05) as service:
        principal = TokenGate(service.lake, TOKENS).enter("admin-token").principal
        line = [sys.executable, "-c", _STEPS, f"sqlite:///{tmp_path}/lake.db", principal]
        heard: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        listening = threading.Event()

        def listen() -> None:
            with client(service.url, "admin-token") as own, own.stream("GET", "/api/v1/events") as stream:
                for text in stream.iter_lines():
                    listening.set()
                    if text.startswith("data: ") and "state" in (found := json.loads(text[6:])):
                        heard.put((found["id"], found["state"]))

        threading.Thread(target=listen, daemon=True).start()
        assert listening.wait(20)
        with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None and child.stdin is not None
            assert {child.stdout.readline().split()[1] for _ in range(2)} == {"running"}
            _until(lambda: len(service.admin.get("/api/v1/jobs").json()["jobs"]) == 3)
            ids = [job["id"] for job in service.admin.get("/api/v1/jobs").json()["jobs"]]
            for id_ in ids:
                answer = service.admin.delete(f"/api/v1/jobs/{id_}").json()
                assert answer["cancelling"] or answer["state"] == "cancelled"
            wanted = {(id_, "cancelled") for id_ in ids}
            while wanted:
                wanted.discard(heard.get(timeout=20))
            assert {job["state"] for job in service.admin.get("/api/v1/jobs").json()["jobs"]} == {"cancelled"}
            assert service.admin.delete(f"/api/v1/jobs/{ids[0]}").json()["state"] == "cancelled"
            child.stdin.close()


def test_a_request_to_end_is_not_lost_when_the_state_is_written_at_that_moment(lake: Lake) -> None:
    job = {"id": "j", "kind": "verify", "state": "running", "cancelling": False, "result": None}
    records = JobRecords(lake, "a")
    records.add(job, "holder", 30.0, 10)
    found = records.cancel("j")
    assert found is not None and found["cancelling"]
    assert records.save(job, "holder", 30.0)  # the process has not looked yet, and hears of it now
    assert records.all()[0]["cancelling"]
    assert not records.save({**job, "state": "done"}, "holder", 30.0)
    assert records.cancel("j") == {**job, "state": "done"}
    assert records.cancel("k") is None


def test_a_job_that_was_lost_cannot_be_asked_to_end(lake: Lake) -> None:
    job = {"id": "j", "kind": "verify", "state": "running", "cancelling": False, "result": None}
    JobRecords(lake, "a").add(job, "holder", 0.0, 10)
    with opened() as jobs:
        found = jobs.cancel(lake, "j", "a")
    assert (found["state"], found["error"]["code"], found["cancelling"]) == ("failed", "lost", False)


def test_jobs_that_wait_when_their_service_stops_are_told_as_failed(lake: Lake, held: threading.Event) -> None:
    jobs = Jobs(10, lambda _: None)
    ids = [jobs.start(lake, "a", "verify", {}, dry_run=False).id for _ in range(4)]
    _until(lambda: sum(jobs.get(lake, id_, "a")["state"] == "running" for id_ in ids) == 2)
    closing = threading.Thread(target=jobs.close)
    closing.start()
    held.set()
    closing.join()
    with opened() as others:
        found = {job["id"]: job["state"] for job in others.of(lake, "a")}
    assert set(found) == set(ids)
    assert sorted(found.values())[:2] == ["done", "done"] and set(found.values()) <= {"done", "failed"}


def test_as_many_jobs_are_kept_as_the_setting_says(lake: Lake, held: threading.Event) -> None:
    held.set()
    with opened(most=3) as jobs, opened(most=3) as others:
        ids = []
        for number in range(8):
            chosen = (jobs, others)[number % 2]
            ids.append(chosen.start(lake, "a", "verify", {}, dry_run=False).id)
            _until(lambda: all(job["state"] == "done" for job in JobRecords(lake, "a").all()))
        assert [job["id"] for job in JobRecords(lake, "a").all()] == ids[:-4:-1]
        held.clear()
        for _ in range(3):
            jobs.start(lake, "a", "verify", {}, dry_run=False)
        for each in (jobs, others):
            with pytest.raises(TooBusyError):
                each.start(lake, "a", "verify", {}, dry_run=False)
        assert jobs.start(lake, "b", "verify", {}, dry_run=False).state in ("waiting", "running"), (
            "others have their own"
        )
        held.set()


@pytest.mark.parametrize("at", [1, 2])
def test_a_state_that_the_catalog_did_not_take_is_told_again(lake: Lake, at: int) -> None:
    with opened(lease=0.2) as jobs, opened() as others:
        with faults.arm(Fault(at=at, pattern="catalog.update_stream.before")):
            id_ = jobs.start(lake, "a", "verify", {}, dry_run=False).id
            _until(lambda: others.get(lake, id_, "a")["state"] == "done")


def test_a_result_that_is_too_long_is_left_out_of_the_catalog(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "x" * 300_000
    monkeypatch.setattr(module, "KINDS", {**module.KINDS, "verify": lambda *_: {"text": long}})
    with opened() as jobs, opened() as others:
        id_ = jobs.start(lake, "a", "verify", {}, dry_run=False).id
        _until(lambda: others.get(lake, id_, "a")["state"] == "done")
        assert others.get(lake, id_, "a")["result"] is None
        assert jobs.get(lake, id_, "a")["result"] == {"text": long}
