"""The part of the demo with Spark in it, at a small size: a driver and its Java are really killed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from quacklake_demo import streaming as events
from quacklake_demo.stage import Stage, open_lake, own_settings
from quacklake_demo.streaming import stream
from tests.catalog.stock import attached, connect
from tests.layout import plain_only

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.needs_spark("4.0")


@pytest.mark.crash
def test_a_driver_that_is_killed_in_the_middle_loses_and_doubles_nothing(tmp_path: Path, session: SparkSession) -> None:
    plain_only("the demo has a lake of its own")
    told = io.StringIO()
    stage = Stage(Console(file=told, width=100))
    with own_settings():
        stream(stage, tmp_path, 5_000)
    said = " ".join(told.getvalue().split())
    assert "5,000 events are in the lake, 5,000 different ones, worth 2,497,500; by the minute they are 5,000" in said
    assert "None is lost, and none came twice" in said
    with open_lake(tmp_path) as lake:
        epochs = dict(zip(*(lake.streams.list().column(name).to_pylist() for name in ("stream", "epoch")), strict=True))
        # the file that it was killed with and the next one may come as one batch
        assert epochs["events"] in (events.BATCHES - 2, events.BATCHES - 1)
        assert lake.table(events.MINUTES).count() == 60 * 5
        assert lake.verify().ok
    with connect() as stock, attached(stock, f"sqlite:///{tmp_path}/lake.db"):
        query = "SELECT sum(events)::BIGINT, sum(amount)::BIGINT, count(DISTINCT (minute, shop)) FROM l.stream.minutes"
        assert stock.execute(query).fetchone() == (5_000, 2_497_500, 300)
