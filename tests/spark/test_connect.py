"""The same code through Spark Connect: the session is on a server, and this process has neither a JVM nor contexts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import quacklake
from quacklake.spark.lake import SparkLake
from quacklake.spark.streams.checkpoint import SparkCheckpoint, read_from_spark
from quacklake.spark.streams.sink import ConnectHandle, SparkSink
from services import SparkConnectServer
from tests.conftest import skip_or_fail, started
from tests.seeds import LONG

from .connect_parts import encrypted_streams_out, wrong_urls
from .core import connect_streams, run_child

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.needs_spark("4.0")


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


@pytest.mark.daily(0.3)
def test_tables_are_read_written_and_changed_through_connect(server: SparkConnectServer, tmp_path: Path) -> None:
    run_child(server.url, tmp_path, *(("read", "write", "in_python", "compact") if LONG else ("core",)), "pipeline")


@pytest.mark.daily(0)
def test_batches_are_handed_over_in_files_and_committed_once(
    tmp_path: Path, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a server of Spark Connect does it, in a session of this process."""

    def handle(lake: SparkLake, sink: SparkSink, checkpoint: str) -> ConnectHandle:
        return ConnectHandle(sink, SparkCheckpoint(read_from_spark(lake.session, checkpoint)))

    monkeypatch.setattr(SparkLake, "_handle", handle)
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data")) as lake:
        connect_streams(lake, session)
        assert lake.verify().ok


@pytest.fixture
def as_server(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """A session of this process whose streams are read as a server of Spark Connect reads them."""

    def is_connect(_: SparkSession) -> bool:
        return sys._getframe(1).f_globals["__name__"] == "quacklake.spark.lake"

    monkeypatch.setattr("quacklake.spark.runtime.session.is_connect", is_connect)
    return session.newSession()


@pytest.mark.daily(0.2)
def test_a_stream_is_read_by_the_url_that_the_server_is_given(tmp_path: Path, as_server: SparkSession) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data")) as lake:
        encrypted_streams_out(lake, as_server)


@pytest.mark.daily(0.22)
def test_a_url_that_the_server_cannot_use_is_told(tmp_path: Path, as_server: SparkSession) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data")) as lake:
        wrong_urls(lake, as_server)


@pytest.mark.daily(0)
def test_tables_stream_out_through_connect(server: SparkConnectServer, tmp_path: Path) -> None:
    for part in ("wrong_urls", "streams_out", "encrypted_streams_out"):
        run_child(server.url, tmp_path / part, part)


@pytest.mark.daily(0)
def test_streams_go_into_tables_through_connect(server: SparkConnectServer, tmp_path: Path) -> None:
    for part in ("connect_streams", "table_to_table"):
        run_child(server.url, tmp_path / part, part)
