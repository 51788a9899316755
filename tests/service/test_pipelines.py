"""Pipelines over HTTP: listed, described, started in the process of the service, and stopped."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from quacklake.lake import Lake
from quacklake.pipelines.definitions import Definitions
from tests.pipelines.tables import connect, definition
from tests.service.serving import Served, is_problem, served


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with connect(tmp_path) as opened:
        opened.sql("CREATE TABLE orders (id BIGINT, v BIGINT)")
        opened.sql("INSERT INTO orders SELECT i, i FROM range(100) r(i)")
        Definitions(opened).apply(definition(tmp_path, ("lake",)))
        yield opened


def until(look: Callable[[], Any], wanted: Callable[[Any], bool], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while not wanted(found := look()):
        assert time.monotonic() < end, found
    return found


def describe(service: Served) -> dict[str, Any]:
    found: dict[str, Any] = service.reader.get("/api/v1/pipelines/p").json()
    return found


def test_a_pipeline_is_started_watched_and_stopped(lake: Lake) -> None:
    with served(lake) as found:
        [listed] = found.reader.get("/api/v1/pipelines").json()["pipelines"]
        assert (listed["name"], listed["source"], listed["running"]) == ("p", "lake", False)
        assert describe(found)["checkpoint"] is None
        is_problem(found.writer.post("/api/v1/pipelines/p/start"), 403, "not_permitted")
        heard: list[dict[str, Any]] = []
        listening = threading.Thread(target=_listen, args=(found, heard), daemon=True)
        listening.start()
        until(lambda: bool(heard), bool)
        assert found.admin.post("/api/v1/pipelines/p/start").status_code == 202
        until(
            lambda: lake.sql("SELECT count(*) FROM copied").fetchone() if "main.copied" in lake.tables() else (0,),
            lambda row: row == (100,),
        )
        lake.sql("INSERT INTO orders VALUES (100, 100)")
        now = until(lambda: describe(found), lambda facts: facts["lag"] == 0 and facts["run"]["rows"] == 101)
        assert now["here"] and now["running"] and now["run"]["last_batch"]["sinks"] == {"lake": 1}
        assert now["run"]["rows_per_second"] > 0 and json.loads(now["position"])
        is_problem(found.admin.post("/api/v1/pipelines/p/start"), 409, "lease_held")
        assert found.admin.post("/api/v1/pipelines/p/stop").status_code == 202
        ended = until(lambda: describe(found), lambda facts: not facts["running"])
        assert not ended["here"] and ended["run"]["error"] is None
        until(lambda: sum(each.get("rows", 0) for each in heard), lambda rows: rows == 101)
        assert lake.sql("SELECT count(*), sum(v) FROM copied").fetchone() == (101, 2 * sum(range(101)))


def _listen(service: Served, heard: list[dict[str, Any]]) -> None:
    """Collect what is told of pipelines, after a first entry that says that somebody listens."""
    with suppress(httpx.HTTPError), service.reader.stream("GET", "/api/v1/events") as answer:
        kind = ""
        for line in answer.iter_lines():
            if line.startswith(":"):
                heard.append({})
            elif line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: ") and kind == "pipeline":
                heard.append(json.loads(line.removeprefix("data: ")))


def test_the_end_of_the_service_ends_its_pipelines_after_their_batches(lake: Lake) -> None:
    with served(lake) as found:
        assert found.admin.post("/api/v1/pipelines/p/start").status_code == 202
        until(lambda: describe(found)["checkpoint"], lambda checkpoint: checkpoint is not None)
    assert not [each for each in threading.enumerate() if each.name.startswith("pipeline ")]
    assert lake.handle.context.catalog.closed


def test_one_that_fails_tells_why_and_what_cannot_run_here_is_refused(lake: Lake, tmp_path: Path) -> None:
    definitions = Definitions(lake)
    broken = {**definition(tmp_path, ("lake",)), "pipeline": "broken", "restart": {"attempts": 0}}
    definitions.apply({**broken, "source": {"type": "lake", "table": "gone"}})
    spark = {**definition(tmp_path, ("lake",)), "pipeline": "big", "engine": "spark"}
    definitions.apply(spark)
    with served(lake) as found:
        is_problem(found.admin.post("/api/v1/pipelines/none/start"), 404, "not_found")
        is_problem(found.admin.post("/api/v1/pipelines/big/start"), 422, "unsupported")
        assert found.admin.post("/api/v1/pipelines/broken/start").status_code == 202
        failed = until(
            lambda: found.reader.get("/api/v1/pipelines/broken").json()["run"], lambda run: run["error"] is not None
        )
        assert failed["error"]["code"].startswith("not_found")
        assert found.admin.post("/api/v1/pipelines/broken/stop").json()["state"] == "stopped"


def test_no_more_pipelines_run_than_the_settings_allow(lake: Lake, tmp_path: Path) -> None:
    Definitions(lake).apply({**definition(tmp_path, ("lake",)), "pipeline": "second"})
    with served(lake, max_pipelines=1) as found:
        assert found.admin.post("/api/v1/pipelines/p/start").status_code == 202
        is_problem(found.admin.post("/api/v1/pipelines/second/start"), 429, "limit.busy")
