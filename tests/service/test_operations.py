"""Running the service: its log, its traces, its figures, and the files that start it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from quacklake import telemetry
from quacklake.errors import MissingExtraError
from quacklake.service.app import create_app
from quacklake.service.identity import TokenGate
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from quacklake.service.tracing import Tracing, configured
from tests.docs.blocks import REPOSITORY
from tests.service.serving import TOKENS, Served, client, sample_lake, served
from tests.service.test_serve import running


@pytest.fixture
def loud(capfd: pytest.CaptureFixture[str]) -> Iterator[pytest.CaptureFixture[str]]:
    telemetry.configure_logging("info", "json")
    yield capfd
    logger = logging.getLogger(telemetry.LOGGER_NAME)
    for handler in [each for each in logger.handlers if not isinstance(each, logging.NullHandler)]:
        logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


def test_each_request_is_a_line_of_json_without_tokens_and_values(
    loud: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with served(sample_lake(tmp_path)) as found:
        found.reader.get("/api/v1/tables/t/rows", params={"limit": 1, "cursor": "hidden-value"})
        found.writer.get("/api/v1/lake", headers={"X-Request-Id": "mine"})
        found.anonymous.get("/api/v1/lake?lake=hidden-value")
    told = loud.readouterr().err
    lines = [json.loads(line) for line in told.splitlines() if '"quacklake.service"' in line and '"route"' in line]
    assert "hidden-value" not in told and not any(token in told for token in TOKENS)
    assert [(line["route"], line["status"], line["method"]) for line in lines] == [
        ("/api/v1/tables/{table}/rows", 400, "GET"), ("/api/v1/lake", 200, "GET"), ("/api/v1/lake", 401, "GET"),
    ]  # fmt: skip
    assert lines[1]["request_id"] == "mine" and lines[1]["principal"].startswith("token-") and lines[1]["ms"] > 0
    assert lines[2]["principal"] in (None, "None")


def test_the_command_logs_requests_as_json_where_that_is_asked_for() -> None:
    with running("--log-format", "json", command="serve-demo") as (process, url, token):
        with client(url, token) as own:
            assert own.get("/api/v1/lake?lake=lake").status_code == 200
        process.terminate()
        _, told = process.communicate(timeout=30)
        assert token not in told
        [line] = [json.loads(line) for line in told.splitlines() if '"/api/v1/lake"' in line]
        assert (line["status"], line["route"], line["level"]) == (200, "/api/v1/lake", "info")


@pytest.fixture
def spans(tmp_path: Path) -> Iterator[tuple[Served, object]]:
    """A service that keeps its spans in memory."""
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    exporter = memory.InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    lake = sample_lake(tmp_path)
    settings = ServiceSettings(port=0)
    app = create_app(TokenGate(lake, TOKENS), settings, tracing=Tracing(provider, provider.shutdown))
    with BackgroundService(app, settings) as url, client(url, "writer-token") as own:
        yield Served(lake, url, own, own, own, own), exporter
    assert not telemetry.is_traced()


def test_requests_statements_and_commits_are_spans_of_one_trace(spans: tuple[Served, object]) -> None:
    service, exporter = spans
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    sql = {"sql": "SELECT 'a-secret-value' || name AS x FROM t", "parameters": []}
    assert service.writer.post("/api/v1/sql", json=sql, headers={"traceparent": caller}).status_code == 200
    assert service.writer.post("/api/v1/sql", json={"sql": "INSERT INTO t VALUES (7, 'x')"}).status_code == 200
    assert service.writer.get("/api/v1/tables/t/rows?cursor=a-secret-value").status_code == 400
    found = list(exporter.get_finished_spans())  # type: ignore[attr-defined]
    names = [span.name for span in found]
    assert {"POST /api/v1/sql", "sql", "commit", "GET /api/v1/tables/{table}/rows"} <= {*names}
    asked = next(span for span in found if span.name == "POST /api/v1/sql")
    statement = next(span for span in found if span.name == "sql" and span.parent is not None)
    assert format(asked.context.trace_id, "032x") == caller.split("-")[1] == format(statement.context.trace_id, "032x")
    assert asked.attributes["http.response.status_code"] == 200
    assert asked.attributes["enduser.id"].startswith("token-")
    inserted = [span for span in found if span.name == "POST /api/v1/sql"][1]
    commit = next(span for span in found if span.name == "commit")
    assert commit.context.trace_id == inserted.context.trace_id
    assert not any("a-secret-value" in span.to_json() or "writer-token" in span.to_json() for span in found)


def test_nothing_is_traced_unless_the_environment_says_where_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    assert configured() is None and not telemetry.is_traced()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(MissingExtraError, match="opentelemetry"):
        configured()


def test_the_figures_have_what_operators_watch_from_the_start(tmp_path: Path) -> None:
    lake = sample_lake(tmp_path)
    lake.create_materialized_view("m", "SELECT count(*) AS n FROM t")
    with served(lake) as found:
        found.rows("SELECT 1 AS x")
        before = {family.name: family for family in text_string_to_metric_families(found.admin.get("/metrics").text)}
        found.writer.post("/api/v1/tables/t/rows", json=[{"id": 1, "name": "x"}])
        after = {family.name: family for family in text_string_to_metric_families(found.admin.get("/metrics").text)}
    expected = [
        "quacklake_catalog_commits",
        "quacklake_commit_failures",
        "quacklake_commit_retries",
        "quacklake_commit_replans",
        "quacklake_commit_run_seconds",
        "quacklake_storage_retries",
        "quacklake_service_append_failures",
        "quacklake_http_seconds",
        "quacklake_http_requests",
        "quacklake_http_open_requests",
        "quacklake_open_scans",
        "quacklake_service_sessions_made",
        "quacklake_service_sessions_reused",
        "quacklake_lake_snapshots",
        "quacklake_lake_catalog_bytes",
        "quacklake_lake_bytes",
        "quacklake_lake_small_files",
        "quacklake_lake_inlined_rows",
        "quacklake_pipeline_lag",
        "quacklake_pipeline_running",
        "quacklake_pipeline_checkpoint_age_seconds",
        "quacklake_materialized_view_lag",
    ]
    assert [name for name in expected if name not in after] == []

    def value(families: dict[str, object], name: str) -> float:
        [sample] = families[name].samples  # type: ignore[attr-defined]
        return float(sample.value)

    assert value(after, "quacklake_lake_snapshots") == value(before, "quacklake_lake_snapshots") + 1
    assert value(after, "quacklake_materialized_view_lag") > value(before, "quacklake_materialized_view_lag")
    assert value(after, "quacklake_lake_inlined_rows") == value(before, "quacklake_lake_inlined_rows") + 1


def test_the_unit_of_systemd_is_valid(tmp_path: Path) -> None:
    unit = REPOSITORY / "contrib/quacklake.service"
    text = unit.read_text(encoding="utf-8")
    assert "Type=" in text and "KillSignal=SIGTERM" in text
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not here")
    command = shutil.which("true")
    copy = tmp_path / "quacklake.service"
    copy.write_text(text.replace("/opt/quacklake/bin/quacklake", str(command)), encoding="utf-8")
    found = subprocess.run([analyze, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False)
    own = [line for line in found.stderr.splitlines() if "quacklake.service" in line]
    assert own == [], found.stderr


def test_the_compose_file_has_what_the_example_needs() -> None:
    found = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8"))
    services = found["services"]
    assert {"minio", "minio-init", "nats", "redis", "pipeline", "api"} <= services.keys()
    assert "ducklake-data" in services["minio-init"]["entrypoint"]
    shared = {
        name: [each for each in services[name]["volumes"] if each.startswith("ducklake:")]
        for name in ("pipeline", "api")
    }
    assert shared["pipeline"] == shared["api"] == ["ducklake:/data/ducklake"]
    for name in ("pipeline", "api"):
        environment = services[name]["environment"]
        assert environment["DUCKLAKE_CATALOG_PATH"] == "/data/ducklake/catalog.sqlite"
        assert environment["MINIO_ENDPOINT"] == "minio:9000" and environment["NATS_SUBJECT"] == "transactions"
