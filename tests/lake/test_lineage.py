"""Events of OpenLineage, as a collector gets them."""

from __future__ import annotations

import json
import os
import queue
import threading
import time
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake import telemetry
from quacklake.errors import ConfigError
from quacklake.pipelines import Pipeline

SECRET = "not-for-anybody"


class Collector:
    """An HTTP server that keeps what it gets."""

    def __init__(self) -> None:
        self.got: queue.Queue[tuple[str, str | None, Any]] = queue.Queue()
        got = self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                got.put((self.path, self.headers.get("Authorization"), json.loads(body)))
                self.send_response(201)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def events(self) -> list[Any]:
        """The events that came so far; closing a lake sends the rest."""
        found = []
        while not self.got.empty():
            found.append(self.got.get()[2])
        return found


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.server.shutdown()
    made.thread.join()
    made.server.server_close()


def connect(tmp_path: Path, **settings: Any) -> quacklake.Lake:
    return quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", **settings)


def named(datasets: list[Any]) -> list[str]:
    return [dataset["name"] for dataset in datasets]


def test_reads_and_writes_are_told_with_their_columns_and_no_values(tmp_path: Path, collector: Collector) -> None:
    with connect(tmp_path, openlineage_url=collector.url, openlineage_namespace="shop") as lake:
        lake.create_table("a", [{"id": 1, "word": SECRET}])
        lake.create_table("b", {"id": "BIGINT", "word": "VARCHAR"})
        with lake.transaction(message=SECRET) as tx:
            tx.sql("INSERT INTO b SELECT * FROM a WHERE word = $1", [SECRET])
        assert lake.table("b").to_pylist() == [{"id": 1, "word": SECRET}]
        url = lake.url
    events = collector.events()
    told = [(event["job"]["name"], named(event["inputs"]), named(event["outputs"])) for event in events]
    assert ("write main.a", [], ["main.a"]) in told
    assert ("write main.b", ["main.a"], ["main.b"]) in told
    assert ("read main.b", ["main.b"], []) in told
    written = next(event for event in events if event["job"]["name"] == "write main.b" and event["inputs"])
    assert written["eventType"] == "COMPLETE"
    assert written["job"]["namespace"] == "shop"
    uuid.UUID(written["run"]["runId"])
    (output,) = written["outputs"]
    assert output["namespace"] == url
    assert output["facets"]["schema"]["fields"] == [
        {"name": "id", "type": "BIGINT"},
        {"name": "word", "type": "VARCHAR"},
    ]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert SECRET not in json.dumps(events)


def test_every_event_has_the_shape_of_the_specification(tmp_path: Path, collector: Collector) -> None:
    with connect(tmp_path, openlineage_url=collector.url) as lake:
        lake.create_table("a", [{"id": 1}])
        lake.table("a").to_arrow()
    events = collector.events()
    assert len(events) == 2
    for event in events:
        assert set(event) == {"eventType", "eventTime", "producer", "schemaURL", "run", "job", "inputs", "outputs"}
        for dataset in [*event["inputs"], *event["outputs"]]:
            for facet in dataset["facets"].values():
                assert facet["_schemaURL"].startswith("https://openlineage.io/spec/facets/") and facet["_producer"]


def test_nothing_is_sent_unless_the_settings_name_a_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENLINEAGE_URL", raising=False)
    with connect(tmp_path) as lake:
        assert lake.handle.context.lineage is None
    with pytest.raises(ConfigError, match="openlineage_url"):
        connect(tmp_path, openlineage_url="ftp://collector")


def test_only_writes_are_told_where_reads_are_many(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = str(uuid.uuid4())
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/nightly.load/{run}")
    with connect(tmp_path, openlineage_url=collector.url, openlineage_reads=False, openlineage_api_key=SECRET) as lake:
        lake.create_table("a", [{"id": 1}])
        assert lake.table("a").to_pylist() == [{"id": 1}]
        assert lake.sql("SELECT * FROM a").fetchall() == [(1,)]
    path, key, event = collector.got.get(timeout=5)
    assert (path, key) == ("/api/v1/lineage", f"Bearer {SECRET}")
    parent = event["run"]["facets"]["parent"]
    assert (parent["run"]["runId"], parent["job"]) == (run, {"namespace": "airflow", "name": "nightly.load"})
    assert collector.got.empty()


def test_a_pipeline_is_told_when_it_begins_and_how_it_ends(tmp_path: Path, collector: Collector) -> None:
    with connect(tmp_path, openlineage_url=collector.url, openlineage_reads=False) as lake:
        lake.create_table("a", [{"id": 1}, {"id": 2}])
        definition = {
            "pipeline": "copy",
            "source": {"type": "lake", "table": "a"},
            "sinks": [{"type": "lake", "table": "copied"}],
        }
        Pipeline(lake, definition).run(until_caught_up=True)
    events = [event for event in collector.events() if event["job"]["name"] == "pipeline copy"]
    assert [(event["eventType"], named(event["inputs"]), named(event["outputs"])) for event in events] == [
        ("START", ["main.a"], ["main.copied"]),
        ("COMPLETE", ["main.a"], ["main.copied"]),
    ]
    assert len({event["run"]["runId"] for event in events}) == 1


def test_a_collector_that_is_dead_or_hangs_neither_fails_nor_slows_the_work(tmp_path: Path) -> None:
    before = telemetry.snapshot().counters.get("lineage.dropped", 0)
    hanging = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # accepts nothing: nobody serves
    try:
        for name, port in (("hanging", hanging.server_address[1]), ("dead", 1)):
            url = f"http://127.0.0.1:{port}"
            begun = time.monotonic()
            place = tmp_path / name
            place.mkdir()
            with connect(place, openlineage_url=url, openlineage_queue=2, openlineage_timeout="1 second") as lake:
                table = lake.create_table("a", [{"id": 1}])
                for _ in range(8):
                    table.append([{"id": 2}])
                assert table.count() == 9
            assert time.monotonic() - begun < 30
    finally:
        hanging.server_close()
    assert telemetry.snapshot().counters["lineage.dropped"] - before >= 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_begins_with_an_empty_queue(tmp_path: Path, collector: Collector) -> None:
    with connect(tmp_path, openlineage_url=collector.url) as lake:
        lake.create_table("a", [{"id": 1}])
        lineage = lake.handle.context.lineage
        assert lineage is not None
        old = lineage._queue
        lineage._begin()
        assert lineage._queue is not old and lineage._thread is None
        lake.table("a").append([{"id": 2}])
    assert "write main.a" in [event["job"]["name"] for event in collector.events()]
