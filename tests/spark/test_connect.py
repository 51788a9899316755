"""The same code through Spark Connect: the session is on a server, and this process has neither a JVM nor contexts."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from services import SparkConnectServer
from tests.conftest import skip_or_fail, started
from tests.seeds import LONG

from .core import run_child


@pytest.fixture(scope="module")
def server() -> Iterator[SparkConnectServer]:
    missing = [name for name in ("grpc", "grpc_status", "google.rpc", "zstandard") if not _there(name)]
    if missing:
        skip_or_fail(f"Spark Connect needs the packages {', '.join(missing)}")
    with started(SparkConnectServer()) as found:
        yield found


def _there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_tables_are_read_written_and_changed_through_connect(server: SparkConnectServer, tmp_path: Path) -> None:
    run_child(server.url, tmp_path, *(("read", "write", "in_python", "compact") if LONG else ("core",)))


@pytest.mark.daily(0.3)
def test_streams_and_pipelines_work_through_connect(server: SparkConnectServer, tmp_path: Path) -> None:
    run_child(server.url, tmp_path, "connect_streams")
