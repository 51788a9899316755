"""The same code on a standalone cluster, whose executors are separate processes: they die, and know no secrets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from services import SparkCluster
from tests.conftest import started

from .core import run_child

_SECRET = "open-sesame-71"


pytestmark = pytest.mark.needs_spark("4.0")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """A master with two workers, for this file only: it takes as much memory as all the rest."""
    with started(SparkCluster()) as server:
        yield server


@pytest.mark.daily(0.3)
def test_executors_get_nothing_of_the_catalog_and_do_the_work(
    cluster: SparkCluster, tmp_path: Path, postgres_url: str
) -> None:
    url = postgres_url.replace("@", f":{_SECRET}@", 1)
    run_child(cluster.url, tmp_path, "secrets", CORE_CATALOG=url, CORE_SECRET=_SECRET)


@pytest.mark.daily(0)
def test_the_core_works_on_a_cluster(cluster: SparkCluster, tmp_path: Path) -> None:
    run_child(cluster.url, tmp_path, "read", "write", "in_python", "compact")


@pytest.mark.daily(0)
@pytest.mark.crash
@pytest.mark.parametrize("part", ["killed_write", "killed_merge", "killed_pipeline"])
def test_an_executor_that_is_killed_leaves_only_orphans(cluster: SparkCluster, tmp_path: Path, part: str) -> None:
    run_child(cluster.url, tmp_path, part)


@pytest.mark.daily(0)
@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
def test_a_cluster_ends_even_when_its_starter_is_killed(cluster: SparkCluster) -> None:
    program = """
import time
from services import SparkCluster
cluster = SparkCluster().start()
print(*(each._process.pid for each in (cluster, *cluster.workers)), flush=True)
time.sleep(600)
"""
    starter = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    processes = [int(text) for text in starter.stdout.readline().split()]
    assert len(processes) == 3
    starter.send_signal(signal.SIGKILL)
    starter.communicate()
    deadline = time.monotonic() + 30
    while any(map(_runs, processes)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_runs, processes))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
