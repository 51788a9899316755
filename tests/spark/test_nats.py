"""NATS through Spark into a lake: every message once, as a row or as a dead letter."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import quacklake
from quacklake.connectors.nats.connection import NatsConnection
from quacklake.errors import ConfigError
from services import NatsServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.needs_spark(since="4.0")


@pytest.fixture
def nats(nats_server: NatsServer) -> Iterator[NatsConnection]:
    with NatsConnection(nats_server.url) as connection:
        yield connection


@pytest.fixture
def stream(nats: NatsConnection) -> str:
    name = f"s{secrets.token_hex(6)}"
    nats.jetstream(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "storage": "memory"})
    return name


def fill(nats: NatsConnection, stream: str, first: int, end: int) -> None:
    nats.publish([(f"{stream}.{n % 2}", b'{"id": %d, "name": "n%d"}' % (n, n), None) for n in range(first, end)])


def read(session: SparkSession, server: NatsServer, stream: str, **options: Any) -> DataFrame:
    from quacklake.connectors.nats.spark import read_nats

    return read_nats(session, {"servers": server.url, "stream": stream, **options})


def test_messages_go_into_a_lake_once_each_and_bad_ones_beside(
    session: SparkSession, nats: NatsConnection, nats_server: NatsServer, stream: str, tmp_path: Path
) -> None:
    from quacklake.connectors.nats.spark import decode, rejected_of, rows_of

    lake = quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data"))
    lake.sql("CREATE TABLE events (id BIGINT, name VARCHAR, _subject VARCHAR, _sequence BIGINT)")
    lake.sql("CREATE TABLE letters (_data BLOB, _sequence BIGINT, _reason VARCHAR)")
    spark = quacklake.spark(lake, session)
    bad = [b"no row", b"\xff\xfe", b'{"id": "x"}', b"[1, 2", b'{"id": 1.5, "name": "\xff"}']

    def run() -> None:
        messages = read(session, nats_server, stream)
        decoded = decode(messages, "json", "id BIGINT, name STRING")
        rows, letters = rows_of(decoded), rejected_of(decoded)
        for name, frame in (
            ("events", rows.select("id", "name", "_subject", "_sequence")),
            ("letters", letters.select("_data", "_sequence", "_reason")),
        ):
            spark.write_stream(
                name, frame, name=name, checkpoint=str(tmp_path / "checkpoints" / name), trigger="availableNow"
            ).awaitTermination()

    fill(nats, stream, 0, 500)
    nats.publish([(f"{stream}.x", body, None) for body in bad])
    run()
    fill(nats, stream, 500, 620)
    run()
    run()  # nothing new adds nothing
    found = lake.sql("SELECT id, name, _subject FROM events ORDER BY id").fetchall()
    assert found == [(n, f"n{n}", f"{stream}.{n % 2}") for n in range(620)]
    letters = lake.sql("SELECT _data, _sequence FROM letters ORDER BY _sequence").fetchall()
    assert letters == [(body, 501 + place) for place, body in enumerate(bad)]
    lake.close()


def test_a_capped_stream_of_some_subjects_goes_on_from_its_start(
    session: SparkSession, nats: NatsConnection, nats_server: NatsServer, stream: str, tmp_path: Path
) -> None:
    fill(nats, stream, 0, 100)
    seen: list[int] = []
    sizes: list[int] = []

    def take(frame: DataFrame, _: int) -> None:
        found = [row["_sequence"] for row in frame.select("_sequence").collect()]
        seen.extend(found)
        sizes.append(len(found))

    frame = read(session, nats_server, stream, subject=f"{stream}.1", start="11", max_messages=20, partitions=3)
    query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        fill(nats, stream, 100, 110)
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(seen) == [n + 1 for n in range(10, 110) if n % 2]
    assert max(sizes) <= 20


def test_a_stream_that_was_made_anew_ends_the_query(
    session: SparkSession, nats: NatsConnection, nats_server: NatsServer, stream: str, tmp_path: Path
) -> None:
    def run() -> None:
        frame = read(session, nats_server, stream)
        writer = frame.writeStream.foreachBatch(lambda *_: None).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    fill(nats, stream, 0, 10)
    run()
    nats.jetstream(f"STREAM.DELETE.{stream}")
    nats.jetstream(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"], "storage": "memory"})
    fill(nats, stream, 0, 20)
    with pytest.raises(Exception, match="recreated"):
        run()


def test_bad_options_are_refused_before_spark_hears_of_them(session: SparkSession, nats_server: NatsServer) -> None:
    with pytest.raises(ConfigError, match="max_mesages"):
        read(session, nats_server, "any", max_mesages=5)
