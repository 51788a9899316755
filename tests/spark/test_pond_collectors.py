"""The collectors of a pond as sources of Spark: what they read is what the collectors store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quacklake.errors import ConnectorError
from quacklake_sensors.simulators import HydroVuSettings, HydroVuSimulator, LakeTechSettings, LakeTechSimulator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_spark(since="4.0")

AT500 = 6154708427603968
DEVICES = json.dumps([{"name": "Vulink", "id": 4990594334457856}, {"name": "AT500", "id": AT500}])


@pytest.mark.daily(0.35)
def test_hydrovu_is_read_a_part_for_each_device(session: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as f

    from quacklake_sensors.spark import HydroVuReader, register_collectors

    register_collectors(session)
    settings = HydroVuSettings(interval=3600, end=HydroVuSettings.begin + 86_399, page_seconds=43_200, throttle_every=3)
    with HydroVuSimulator(settings) as server:
        options: dict[str, Any] = {"url": server.url, "client_id": "client", "devices": DEVICES}
        # the processes of Spark have the environment of its start: a file serves here
        secret = tmp_path / "secret"
        secret.write_text("not-a-secret")
        frame = session.read.format("hydrovu").options(**options, client_secret=f"${{file:{secret}}}").load()
        placed = frame.withColumn("part", f.spark_partition_id())
        found = placed.groupBy("device", "parameter", "unit").agg(f.count("*"), f.collect_set("part")).collect()
        assert {tuple(row)[1:4] for row in found if row[0] == "AT500"} == {
            ("Temperature", "C", 24),
            ("Depth", "m", 24),
            ("Actual Conductivity", "µS/cm", 24),
        }
        assert {row[0]: row[4] for row in found} == {"Vulink": [0], "AT500": [1]}
        reader = HydroVuReader({**options, "devices": json.loads(DEVICES), "client_secret": "sesame"})
        with pytest.raises(ConnectorError, match="HydroVu refuses the client") as error:
            reader.partitions()
        assert "sesame" not in str(error.value)


@pytest.mark.daily(0.35)
def test_laketech_is_read_a_part_for_each_file(session: SparkSession) -> None:
    from pyspark.sql import functions as f

    from quacklake_sensors.spark import register_collectors

    register_collectors(session)
    with LakeTechSimulator(LakeTechSettings(days=1, interval=21_600)) as server:
        place = f"{server.url}/inbox"
        frame = session.read.format("laketech").options(url=place, timezone="America/New_York").load()
        first = f.min(f.unix_timestamp("timestamp"))
        found = frame.groupBy("file").agg(f.count("*"), first).collect()
        midnight = HydroVuSettings.begin + 5 * 3600
        assert {tuple(row) for row in found} == {
            ("2024-01-01-bottom.csv", 12, midnight),
            ("2024-01-01-report.xls", 8, midnight),
            ("2024-01-01-surface.csv", 24, midnight),
            ("2024-01-01-vulink.csv", 8, midnight),
        }
