"""Pipelines on Spark whose driver is killed: each row is in every sink, once. Kafka, a real broker, is one source.

All drivers use one JVM (:mod:`tests.jvm`), which goes on when one of them dies.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quacklake.spark.runtime.settings import find_java, installed_version
from services import KafkaServer, Unavailable
from services.jars import jars
from tests import seeds
from tests.conftest import skip_or_fail
from tests.jvm import JARS, lent
from tests.pipelines.tables import KINDS, connect, definition, rows

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(900)]

POINTS = [
    "pipeline.batch.read",
    "connector.delta.prepare.after",
    "connector.iceberg.prepare.before",
    "pipeline.confirm.before",
    "catalog.commit.before",
    "pipeline.confirm.after",
    "connector.delta.commit.before",
    "connector.delta.commit.after",
    "connector.iceberg.commit.after",
    "pipeline.finalize.after",
    "pipeline.finish.after",
]
JSON = "CAST(get_json_object(CAST(value AS STRING), '$.{0}') AS BIGINT)"


@pytest.fixture(scope="module")
def connector() -> str:
    """The jars of Spark's Kafka connector, separated by commas; none if they were not downloaded."""
    try:
        return ",".join(map(str, sorted(jars("spark-kafka").glob("*.jar"))))
    except Unavailable:
        return ""


@pytest.fixture(scope="module")
def jvm(connector: str) -> Iterator[dict[str, str]]:
    """The environment of drivers."""
    if find_java() is None:
        skip_or_fail("no Java: it needs the openjdk-17-jre-headless package")
    if (installed_version() or (0, 0)) < (4, 1):
        pytest.skip("needs Spark 4.1")
    with lent("tests.jvm", [], **{JARS: connector}) as environment:
        yield environment


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaServer]:
    """A broker. It is skipped, also where a missing server fails, without its jars, which come from Maven."""
    try:
        jars("spark-kafka")
        with KafkaServer() as server:
            yield server
    except Unavailable as error:
        pytest.skip(str(error))


class Drivers:
    """The successive drivers of one pipeline."""

    def __init__(self, jvm: dict[str, str], folder: Path, given: dict[str, Any]) -> None:
        self._jvm = jvm
        self._folder = folder
        self.end = 0
        (folder / "definition.json").write_text(json.dumps(given))
        with connect(folder) as lake:
            lake.sql("CREATE TABLE orders (id BIGINT, v BIGINT)")

    def run(self, count: int, fault: str = "") -> None:
        """Give the source messages, and let a driver pass them on, or be killed at a point."""
        begun, self.end = self.end, self.end + count
        command = [sys.executable, "-m", "tests.pipelines.run_pipeline", str(self._folder), str(begun), str(self.end)]
        armed = {"QUACKLAKE_FAULT": f"1:kill:{fault}"} if fault else {}
        ended = subprocess.run(command, env=self._jvm | armed, capture_output=True, text=True, timeout=300)
        assert ended.returncode == (-9 if fault else 0), f"{fault}: {ended.stderr[-3000:]}"

    def check(self) -> None:
        """Compare every sink, as its own library reads it."""
        with connect(self._folder) as lake:
            for kind in KINDS:
                found = rows(kind, self._folder, lake)
                assert found == {(n, n * 2): 1 for n in range(self.end)}, kind


@pytest.mark.daily(0.22)
def test_a_killed_driver_neither_loses_nor_doubles_a_row(jvm: dict[str, str], tmp_path: Path) -> None:
    for mode in seeds.some(("append", "upsert"), 1, "modes of a pipeline on Spark"):
        place = tmp_path / mode
        place.mkdir()
        drivers = Drivers(jvm, place, definition(place, mode=mode, engine="spark"))
        for point in seeds.some(POINTS, 1, "kills of a pipeline on Spark", mode):
            drivers.run(6, point)
        drivers.run(3)
        drivers.check()


@pytest.mark.daily(0.22)
def test_messages_of_kafka_are_rows_once_although_drivers_and_the_broker_are_killed(
    jvm: dict[str, str], kafka: KafkaServer, tmp_path: Path
) -> None:
    topic = {"kafka.bootstrap.servers": kafka.url, "subscribe": "orders", "startingOffsets": "earliest"}
    source = {"type": "spark", "format": "kafka", **topic, "maxOffsetsPerTrigger": "8"}
    query = f"SELECT {JSON.format('id')} AS id, 2 * {JSON.format('v')} AS v FROM source"
    given = definition(tmp_path, source=source, query=query)
    drivers = Drivers(jvm, tmp_path, given)
    drivers.run(20)
    for point in seeds.some(POINTS, 1, "kills of a pipeline from Kafka"):
        drivers.run(20, point)
    kafka.kill()
    kafka.revive()
    drivers.run(5)
    drivers.check()
