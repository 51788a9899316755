"""A pipeline that is killed loads each row once when it runs again."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import quacklake
from tests.killed import pipeline_of

PLACES = [
    "before an append is committed",
    "after an append is committed",
    "after a merge is committed",
    "before a load is complete",
    "after a load is complete",
]
"""The places where a process ends: on both sides of each commit after which dlt goes on."""


@pytest.mark.parametrize("place", PLACES)
def test_each_row_is_there_once_after_a_kill(tmp_path: Path, place: str) -> None:
    command = [sys.executable, "-m", "tests.killed", str(tmp_path), place]
    assert subprocess.run(command, timeout=300, check=False, capture_output=True).returncode == -signal.SIGKILL
    pipeline_of(tmp_path).load()
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db") as lake:
        events = lake.sql("SELECT id FROM shop.events").fetchall()
        items = lake.sql("SELECT id, n FROM shop.items ORDER BY id").fetchall()
        lines = lake.sql("SELECT count(*) FROM shop.items__lines").fetchall()
        loads = lake.sql("SELECT load_id FROM shop._dlt_loads").fetchall()
        marks = lake.sql("SELECT count(*) FROM shop._dlt_quacklake_jobs").fetchall()
    assert Counter(events) == Counter((number,) for number in range(20))
    assert items == [(number, 1) for number in range(10)]
    assert (lines, marks) == ([(20,)], [(0,)])
    assert max(Counter(loads).values()) == 1
