"""Jobs, events and consumers over HTTP."""

from __future__ import annotations

import json
import queue
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.errors import NotFoundError
from quacklake.service.jobs import Jobs
from tests.seeds import SEED
from tests.service.serving import Served, client, is_problem, sample_lake, served


def finished(service: Served, kind: str, dry_run: bool = False, **arguments: Any) -> dict[str, Any]:
    answer = service.admin.post("/api/v1/jobs", json={"kind": kind, "arguments": arguments, "dry_run": dry_run})
    assert answer.status_code == 202, answer.text
    until = time.monotonic() + 30
    while True:
        found: dict[str, Any] = service.admin.get(f"/api/v1/jobs/{answer.json()['id']}").json()
        if found["state"] in ("done", "failed"):
            return found
        assert time.monotonic() < until


def test_jobs_try_do_and_undo(tmp_path: Path) -> None:
    with served(sample_lake(tmp_path)) as found:
        before = found.lake.current_snapshot()
        tried = finished(found, "rollback", dry_run=True, to=2)
        assert tried["state"] == "done" and found.lake.current_snapshot() == before
        assert finished(found, "rollback", to=2)["state"] == "done"
        assert found.lake.table("t").count() == 100
        assert finished(found, "restore", table="t", to=3)["state"] == "done"
        assert found.lake.table("t").count() == 90
        assert finished(found, "verify")["state"] == "done"
        would = finished(found, "expire", dry_run=True, keep_last=1)["result"]["snapshots"]
        assert would == finished(found, "expire", keep_last=1)["result"]["snapshots"] != []
        assert finished(found, "cleanup", dry_run=True)["state"] == "done"
        assert finished(found, "maintain")["state"] == "done"
        failed = finished(found, "restore", table="nowhere", to=1)
        assert failed["state"] == "failed" and failed["error"]["code"].startswith("not_found")
        assert len(found.admin.get("/api/v1/jobs").json()["jobs"]) == 9
        assert str(tmp_path) not in found.admin.get("/api/v1/jobs").text


@pytest.mark.parametrize(
    "body", [{"kind": "drop"}, {"kind": "expire", "arguments": {"x": 1}}, {"kind": "verify", "more": 1}, {}]
)
def test_jobs_that_there_are_not_are_refused(service: Served, body: dict[str, Any]) -> None:
    assert service.admin.post("/api/v1/jobs", json=body).status_code in (400, 422)


def test_jobs_are_for_administrators_and_each_sees_its_own(service: Served) -> None:
    is_problem(service.writer.post("/api/v1/jobs", json={"kind": "verify"}), 403, "not_permitted")
    is_problem(service.admin.get("/api/v1/jobs/none"), 404, "not_found")


def test_events_tell_of_commits_and_go_on_after_the_last_id(tmp_path: Path) -> None:
    with served(sample_lake(tmp_path), poll_seconds=0.05) as found:
        newest = found.lake.current_snapshot()

        def listen(count: int, headers: dict[str, str], params: dict[str, int]) -> list[dict[str, Any]]:
            heard = []
            with client(found.url, "admin-token") as own:
                with own.stream("GET", "/api/v1/events", headers=headers, params=params) as stream:
                    assert stream.headers["content-type"].startswith("text/event-stream")
                    for line in stream.iter_lines():
                        if line == ": listening" and not params and not headers:
                            found.lake.table("t").append([{"id": 1, "name": "x"}])
                            own_job = found.admin.post("/api/v1/jobs", json={"kind": "verify"})
                            assert own_job.status_code == 202
                        if line.startswith("data: "):
                            heard.append(json.loads(line[6:]))
                            if len(heard) == count:
                                return heard
            return heard

        assert [event["snapshot"] for event in listen(newest, {}, {"since": 0})] == list(range(1, newest + 1))
        assert listen(1, {"Last-Event-ID": str(newest - 1)}, {})[0]["snapshot"] == newest
        live = listen(3, {}, {})
        assert {event.get("snapshot") for event in live if "snapshot" in event} == {newest + 1}
        assert {event["state"] for event in live if "state" in event} <= {"running", "done"}


def test_a_stream_of_events_ends_with_the_service(tmp_path: Path) -> None:
    began = time.monotonic()
    with served(sample_lake(tmp_path)) as found:
        own = client(found.url, "reader-token")
        stream = own.send(own.build_request("GET", "/api/v1/events"), stream=True)
        lines = stream.iter_lines()
        assert next(lines) == ": listening"
    list(lines)
    own.close()
    assert time.monotonic() - began < 20


def test_a_consumer_goes_on_where_the_last_one_acknowledged(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    with served(sample_lake(tmp_path), poll_seconds=0.05) as found:
        base = "/api/v1/consumers/c"
        table = found.lake.table("t")
        turn = found.reader.post(f"{base}/claim", json={"table": "t", "since": 4}).json()
        is_problem(found.reader.post(f"{base}/claim", json={"table": "t"}), 409, "lease_held")
        other = found.writer.post(f"{base}/claim", json={"table": "t", "since": 1})
        assert other.json()["next"] == 1, "consumers of two principals never meet"
        taken: list[int] = []
        sent: list[int] = []
        for number in range(12):
            rows = [number * 10 + each for each in range(dice.randrange(1, 4))]
            table.append([{"id": id_, "name": "c"} for id_ in rows])
            sent += rows
            answer = found.reader.get(f"{base}/changes", params={"lease": turn["lease"]})
            got = [row["id"] for row in answer.json()["rows"]]
            if dice.random() < 0.4:
                continue  # it dies before it acknowledges
            taken += got
            done = {"lease": turn["lease"], "snapshot": int(answer.headers["X-Quacklake-Snapshot"]), "seconds": 0}
            assert found.reader.post(f"{base}/ack", json=done).status_code == 200
            stale, turn = turn, found.reader.post(f"{base}/claim", json={"table": "t"}).json()
            is_problem(found.reader.post(f"{base}/ack", json={**done, "lease": stale["lease"]}), 409, "stream.fenced")
        taken += [
            row["id"] for row in found.reader.get(f"{base}/changes", params={"lease": turn["lease"]}).json()["rows"]
        ]
        assert sorted(taken) == sorted(sent)
        assert found.lake.streams.list().num_rows == 0
        wrong = {"lease": turn["lease"], "snapshot": 10_000}
        is_problem(found.reader.post(f"{base}/ack", json=wrong), 400, "input")
        assert found.reader.delete(base).status_code == 204
        is_problem(found.reader.delete(base), 404, "not_found")
        is_problem(found.reader.get(f"{base}/changes", params={"lease": turn["lease"]}), 404, "not_found")


def test_a_principal_has_no_more_consumers_than_it_may(tmp_path: Path) -> None:
    with served(sample_lake(tmp_path), max_consumers=2) as found:
        claim = {"table": "t", "seconds": 0.001}
        for name in ("a", "b", "a"):
            assert found.reader.post(f"/api/v1/consumers/{name}/claim", json=claim).status_code == 200
        told = is_problem(found.reader.post("/api/v1/consumers/c/claim", json=claim), 403, "limit.consumers")
        assert "DELETE" in told["hint"]
        assert found.writer.post("/api/v1/consumers/c/claim", json=claim).status_code == 200, "each has its own"
        assert found.reader.delete("/api/v1/consumers/a").status_code == 204
        assert found.reader.post("/api/v1/consumers/c/claim", json=claim).status_code == 200
        is_problem(found.reader.post("/api/v1/consumers/d/claim", json=claim), 403, "limit.consumers")


def test_a_turn_ends_with_its_lease_and_a_poll_waits_for_changes(tmp_path: Path) -> None:
    with served(sample_lake(tmp_path), poll_seconds=0.05) as found:
        base = "/api/v1/consumers/c"
        found.reader.post(f"{base}/claim", json={"table": "t", "seconds": 0.05})
        until = time.monotonic() + 10
        while (turn := found.reader.post(f"{base}/claim", json={"table": "t"})).status_code != 200:
            assert time.monotonic() < until
        lease = {"lease": turn.json()["lease"]}
        nothing = found.reader.get(f"{base}/changes", params=lease)
        assert nothing.json()["rows"] == []
        assert int(nothing.headers["X-Quacklake-Snapshot"]) == found.lake.current_snapshot()
        import threading

        timer = threading.Timer(0.1, lambda: found.lake.table("t").append([{"id": 5, "name": "late"}]))
        timer.start()
        waited = found.reader.get(f"{base}/changes", params={**lease, "wait": 20})
        timer.join()
        assert [row["id"] for row in waited.json()["rows"]] == [5]
        is_problem(found.reader.post(f"{base}/claim", json={"table": "no"}), 404, "not_found")


def test_a_job_is_cancelled_before_it_begins_or_after_a_step(tmp_path: Path) -> None:
    reached, go_on = threading.Event(), threading.Event()
    told: queue.SimpleQueue[str] = queue.SimpleQueue()

    def work(_: Any, __: Any, ___: bool, progress: Any) -> str:
        progress("one", 1, 2)
        reached.set()
        assert go_on.wait(30)
        progress("two", 2, 2)
        return "all of it"

    jobs, elsewhere = Jobs(10, lambda job: told.put(job.state)), Jobs(10, lambda _: None)
    with (
        pytest.MonkeyPatch.context() as patch,
        quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake,
    ):
        patch.setattr("quacklake.service.jobs.KINDS", {"verify": work})
        first = jobs.start(lake, "ann", "verify", {}, dry_run=False)
        assert reached.wait(30)
        others = [jobs.start(lake, "ann", "verify", {}, dry_run=False) for _ in range(2)]
        with pytest.raises(NotFoundError):
            jobs.cancel(lake, first.id, "ben")
        with pytest.raises(NotFoundError):
            elsewhere.cancel(lake, first.id, "ben")
        assert not first.cancelling
        assert jobs.cancel(lake, first.id, "ann")["cancelling"]
        assert jobs.cancel(lake, others[1].id, "ann")["cancelling"]
        go_on.set()
        heard = [told.get(timeout=30) for _ in range(6)]
        jobs.close()
        for process in (jobs, elsewhere):
            assert process.cancel(lake, others[0].id, "ann")["state"] == "done"
            assert process.get(lake, first.id, "ann")["state"] == "cancelled"
        elsewhere.close()
    assert [job.state for job in (first, *others)] == ["cancelled", "done", "cancelled"]
    assert (first.result, others[0].result, others[1].stage) == (None, "all of it", "")
    assert not others[0].cancelling
    assert heard.count("cancelled") == 2 and heard.count("running") == 3
