"""``quacklake pipeline``: from a YAML file to rows in every sink."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.core.catalog import own_tables
from quacklake.core.maintenance.holders import new_holder
from quacklake.core.maintenance.scheduler import claim
from quacklake.extend.checkpoints import StreamLease
from tests.cli.conftest import Run

pytestmark = pytest.mark.daily(0.5)

YAML = """
source: {type: lake, table: orders}
query: SELECT id, price FROM source WHERE price > 1
sinks:
  - {name: table, type: lake, table: copied}
  - {name: files, type: delta, location: delta}
every: 20 ms
lease: 2 seconds
"""


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[quacklake.Lake]:
    monkeypatch.setenv("QUACKLAKE_URL", f"sqlite:///{tmp_path}/lake.db")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "orders.yaml").write_text(YAML)
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data")) as opened:
        opened.sql("CREATE TABLE orders (id BIGINT, price DOUBLE)")
        opened.sql("INSERT INTO orders VALUES (1, 1.0), (2, 2.0), (3, 3.0)")
        yield opened


def count(lake: quacklake.Lake) -> int:
    return lake.table("copied").count() if "main.copied" in lake.tables() else 0


def until(condition: object) -> None:
    deadline = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_pipeline_is_applied_run_and_shown(lake: quacklake.Lake, run: Run) -> None:
    assert "The lake has the pipeline orders" in run("pipeline", "apply", "orders.yaml").out
    answer = run("pipeline", "run", "orders", "--until-caught-up", "--output", "json")
    assert (answer.json["rows"], answer.json["sinks"]) == (3, {"table": 2, "files": 2})
    assert count(lake) == 2
    status = run("pipeline", "status", "--output", "json").json
    assert [(row["pipeline"], row["running"], row["checkpoint"], row["behind"]) for row in status] == [
        ("orders", False, 0, 0)
    ]
    assert run("pipeline", "list", "--output", "json").json[0]["sinks"] == "table, files"
    explained = run("pipeline", "explain", "orders").out
    assert "local" in explained
    assert "commits with the checkpoint" in explained
    run("pipeline", "drop", "orders")
    assert run("pipeline", "list", "--output", "json").json == []


def test_a_file_is_run_without_being_kept(lake: quacklake.Lake, run: Run) -> None:
    answer = run("pipeline", "run", "orders.yaml", "--until-caught-up")
    assert "read 3 rows in 1 batch; files 2; table 2." in answer.out
    assert "read 0 rows in 0 batches" in run("pipeline", "run", "orders.yaml", "--until-caught-up").out
    assert run("pipeline", "list", "--output", "json").json == []


def test_errors_have_a_code_and_a_hint(lake: quacklake.Lake, run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(YAML.replace("type: delta", "type: delto"))
    for words in (("apply", "bad.yaml"), ("run", "gone"), ("apply", "gone.yaml"), ("stop", "gone"), ("logs", "gone")):
        answer = run("pipeline", *words)
        assert answer.code == 1, words
        assert answer.err, words
    run("pipeline", "apply", "orders.yaml")
    run("pipeline", "run", "orders", "--until-caught-up")
    (tmp_path / "orders.yaml").write_text(YAML.replace("price > 1", "price > 2"))
    run("pipeline", "apply", "orders.yaml")
    answer = run("pipeline", "run", "orders", "--until-caught-up")
    assert answer.code == 1
    assert "has changed since its checkpoint" in answer.err
    assert run("pipeline", "run", "orders", "--until-caught-up", "--accept").code == 0


def test_a_started_pipeline_runs_on_until_it_is_stopped(
    lake: quacklake.Lake, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("pipeline", "apply", "orders.yaml")
    (tmp_path / "other.toml").write_text(f'url = "sqlite:///{tmp_path}/lake.db"\n')
    with monkeypatch.context() as patch:
        patch.delenv("QUACKLAKE_URL")
        process = run("--config", "other.toml", "pipeline", "start", "orders", "--output", "json").json["process"]
    try:
        assert run("pipeline", "start", "orders").code == 1
        until(lambda: count(lake) == 2)
        assert run("pipeline", "status", "orders", "--output", "json").json[0]["running"] is True
        assert run("pipeline", "drop", "orders").code == 1
        lake.sql("INSERT INTO orders VALUES (4, 4.0)")
        until(lambda: count(lake) == 3)
        stopped = run("pipeline", "stop", "orders", "--output", "json").json
        assert stopped["stopped"] is True
        lake.sql("INSERT INTO orders VALUES (5, 5.0)")
        assert run("pipeline", "run", "orders", "--until-caught-up", "--output", "json").json["rows"] == 1
        assert "batch 0: 3 rows" in run("pipeline", "logs", "orders").out
        assert len(run("pipeline", "logs", "orders", "--lines", "1", "--output", "json").json["lines"]) == 1
    finally:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass


def test_a_killed_pipeline_does_not_run(lake: quacklake.Lake, run: Run, tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text(YAML.replace("2 seconds", "1 hour"))
    run("pipeline", "apply", "orders.yaml")
    process = run("pipeline", "start", "orders", "--output", "json").json["process"]
    try:
        until(lambda: count(lake) == 2)
        (alive,) = run("pipeline", "status", "orders", "--output", "json").json
        assert alive["running"] is True and alive["heartbeat"] < alive["lease_until"]
    finally:
        os.kill(process, signal.SIGKILL)
    until(lambda: not run("pipeline", "status", "orders", "--output", "json").json[0]["running"])
    (killed,) = run("pipeline", "status", "orders", "--output", "json").json
    assert killed["lease_until"] is not None  # another machine could not know
    assert run("pipeline", "stop", "orders", "--output", "json").json["stopped"] is True


def test_a_holder_of_another_machine_may_run(lake: quacklake.Lake, run: Run) -> None:
    run("pipeline", "apply", "orders.yaml")
    catalog = lake.handle.context.catalog
    for holder in (str(uuid.uuid4()), str(uuid.UUID(new_holder(), version=4)), new_holder()):
        claim(catalog, StreamLease("orders"), dt.timedelta(seconds=30), holder)
        assert run("pipeline", "status", "--output", "json").json[0]["running"] is True
        with catalog.commit() as writer:
            own_tables.end_lease(writer, int(StreamLease("orders")), holder)
    (status,) = run("pipeline", "status", "--output", "json").json
    assert (status["running"], status["heartbeat"], status["lease_until"]) == (False, None, None)


def test_a_signal_ends_a_run_after_its_batch(lake: quacklake.Lake, run: Run) -> None:
    command = [sys.executable, "-m", "quacklake.cli", "pipeline", "run", "orders.yaml", "--output", "json"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: count(lake) == 2)
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 0, err
    batch, whole = map(json.loads, out.splitlines())
    assert (batch["rows"], whole["batches"]) == (3, 1)


def test_a_pipeline_that_cannot_start_says_so(lake: quacklake.Lake, run: Run) -> None:
    run("pipeline", "apply", "orders.yaml")
    lake.sql("DROP TABLE orders")
    answer = run("pipeline", "start", "orders")
    assert answer.code == 1
    assert "did not start" in answer.err
