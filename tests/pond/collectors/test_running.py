"""``pond run``: once, and on schedules."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from quacklake.pond import Pond
from quacklake.pond.running import Event, Watcher
from quacklake_sensors.simulators import HydroVuSimulator
from tests.cli.conftest import Run
from tests.pond.collectors.conftest import AT500, collector
from tests.pond.conftest import csv


def documents(server: HydroVuSimulator) -> str:
    return f"""
kind: HydroVu
name: dock
spec:
  url: {server.url}
  client_id: client
  devices: [{{name: AT500, id: {AT500}}}]
  schedule: "*/15 * * * *"
---
kind: Inbox
name: drop
spec: {{folder: drop, path: "/drop/{{name}}.series", settle: 0s, schedule: every 1s}}
"""


def test_collectors_of_yaml_run_by_name_and_by_path(new: Run, hydrovu: HydroVuSimulator) -> None:
    Path("drop").mkdir()
    Path("drop/a.csv").write_text(csv(2))
    Path("pond.yaml").write_text(documents(hydrovu))
    assert new("apply", "-f", "pond.yaml").out == "created   HydroVu dock\ncreated   Inbox drop\n"
    assert new("apply", "-f", "pond.yaml").out == "unchanged HydroVu dock\nunchanged Inbox drop\n"
    series = f"/hydrovu/devices/{AT500}/AT500_active.series"
    assert new("run", "dock").out == f"collected 48 rows to {series} (v1)\n"
    assert new("run", "dock").out == "nothing is new\n"
    found = new("run", "/collectors/drop", "-o", "json").json
    assert (found["rows"], found["series"][0]["path"]) == (2, "/drop/a.series")
    Path("drop/b.csv").write_text("timestamp,temp\n2024-01-01T00:00:00Z,1,2\n")
    bad = new("run", "drop")
    assert (bad.code, bad.out.startswith("failed b.csv: ")) == (1, True)
    missing = new("run", "dok")
    assert (missing.code, 'did you mean "dock"?' in missing.err) == (1, True)
    assert "which nothing runs" in new("run", series).err
    assert "a collector is needed" in new("run").err
    assert new("list-factories", "-o", "csv").out.count("\nhydrovu,dynamic,") == 1
    # a change of the options is a change, and the schedule is checked
    Path("pond.yaml").write_text(documents(hydrovu).replace("every 1s", "every 2s"))
    assert "changed   Inbox drop" in new("apply", "-f", "pond.yaml").out
    Path("pond.yaml").write_text(documents(hydrovu).replace("every 1s", "often"))
    assert "the schedule 'often'" in new("apply", "-f", "pond.yaml").err
    Path("pond.yaml").write_text(documents(hydrovu).replace("client_id:", "client_secret: abc\n  client_id:"))
    assert "is a secret, which a pond does not keep" in new("apply", "-f", "pond.yaml").err


def test_failures_of_collectors_are_lines_of_a_json_log(new: Run) -> None:
    """P53: of a run, of a file in a run, and of a watch."""
    Path("drop").mkdir()
    Path("drop/b.csv").write_text("timestamp,temp\n2024-01-01T00:00:00Z,1,2\n")
    inbox = 'kind: Inbox\nname: {0}\nspec: {{folder: {0}, path: "/{{name}}.series", settle: 0s, schedule: every 1h}}\n'
    Path("pond.yaml").write_text(inbox.format("drop") + "---\n" + inbox.format("none"))
    assert new("apply", "-f", "pond.yaml").code == 0

    def lines(*words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in new("run", *words, "--log-format", "json").err.splitlines()]

    (failed,) = lines("drop")
    assert (failed["level"], failed["path"], failed["item"]) == ("error", "drop", "b.csv")
    assert failed["code"].startswith("input")
    (missing,) = lines("none")
    assert missing["code"] == "input"
    watched = {line["path"]: line for line in lines("--watch", "--for", "2s")}
    assert set(watched) == {"/collectors/drop", "/collectors/none"}
    assert watched["/collectors/drop"]["message"] == failed["message"]
    assert watched["/collectors/none"]["code"] == "input"
    assert watched["/collectors/none"]["retry_in"] > 0


def test_watching_runs_everything_and_a_failure_disturbs_nobody(folder: Path, tmp_path: Path) -> None:
    with Pond.open(folder) as pond:
        _watch(pond, tmp_path)


def _watch(pond: Pond, tmp_path: Path) -> None:
    drop = tmp_path / "drop"
    drop.mkdir()
    (drop / "a.csv").write_text(csv(2))
    options = {"folder": str(drop), "path": "/watched/{name}.series", "settle": "0s"}
    collector(pond, "good", "inbox", options, schedule="every 1s")
    collector(pond, "bad", "inbox", {**options, "folder": str(tmp_path / "none")}, schedule="every 1s")
    events: list[Event] = []
    took = threading.Event()
    stop = threading.Event()

    def tell(event: Event) -> None:
        events.append(event)
        if event.report is not None and any(each.path == "/watched/b.series" for each in event.report.imported):
            took.set()
        elif event.report is not None and event.report.rows:
            (drop / "b.csv").write_text(csv(3))  # after the first run

    watcher = Watcher(pond, "/collectors", ["pond", "run", "--watch"], tell, stop)
    thread = threading.Thread(target=watcher.run, args=(20,))
    begun = time.monotonic()
    thread.start()
    assert took.wait(15)
    # one that is removed is let go of
    pond.run(["test"], lambda fs: fs.remove("/collectors/bad"))
    watcher.stop()
    thread.join(10)
    assert not thread.is_alive()
    pond.run(["test"], lambda fs: fs.remove("/collectors", recursive=True))
    failed = [each for each in events if each.error is not None]
    assert {each.path for each in failed} == {"/collectors/bad"}, failed
    assert failed[0].retry_in is not None
    assert failed[0].retry_in >= 1.9  # it backs off
    assert len(failed) <= 2 + (time.monotonic() - begun) / 2
    commands = [each.command for each in pond.control.transactions()]
    assert "pond run --watch /collectors/good" in commands


@pytest.mark.daily(0.35)
def test_sigterm_ends_watching_after_the_work_in_progress(folder: Path, tmp_path: Path) -> None:
    """Everything in a process of its own, as a service runs it."""
    drop = tmp_path / "drop"
    drop.mkdir()
    (drop / "a.csv").write_text(csv(2))
    with Pond.open(folder) as pond:
        collector(pond, "drop", "inbox", {"folder": str(drop), "settle": "0s"})
    command = [sys.executable, "-m", "quacklake.cli.pond", "--pond", str(folder), "run", "--watch", "-o", "json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONWARNINGS": "ignore"}
    ) as child:
        assert child.stdout is not None
        first = json.loads(child.stdout.readline())
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0
    assert (first["path"], first["rows"]) == ("/collectors/drop", 2)


@pytest.mark.parametrize("words", [("run", "--watch", "/x", "y"), ("run", "x", "--for", "10")])
def test_a_wrong_use_is_told(run: Run, words: tuple[str, ...]) -> None:
    answer = run(*words)
    assert (answer.code, answer.err.startswith("error: ")) == (1, True)
