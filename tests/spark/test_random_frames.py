"""Random frames that Spark reads from one table and writes into another come back as they went in."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

import quacklake
from quacklake.errors import QuacklakeError, UnsupportedFeatureError
from tests.conformance.conftest import MakeSite
from tests.lake.random_frames import KEY, Frame, compare, quiet_frame
from tests.seeds import LONG, chance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quacklake.spark.lake import SparkLake

FRAMES = 500 if LONG else 8
_UNWRITTEN = ("Time", "time ns")
"""Kinds that Spark does not write."""
_OTHERS = frozenset({"timestamp_ns", "interval", "time", "time_ns"})
"""Types that Spark has not: it makes tables of numbers or texts of their columns."""


@pytest.mark.parametrize("inlined", [0, 10])
def test_random_frames_come_back_from_spark(make_site: MakeSite, session: SparkSession, inlined: int) -> None:
    lake = make_site("sqlite", inlined).lake()
    spark = quacklake.spark(lake, session)
    random = chance("random frames of Spark", inlined)
    for number in range(FRAMES):
        seed = random.getrandbits(64)
        frame = quiet_frame(Random(seed))
        try:
            lake.create_table("first", frame.data, **frame.options)
        except QuacklakeError:  # whose column tests of lakes look at
            continue
        try:
            _copy(lake, spark, frame, Random(seed))
            compare(lake.table("second"), frame)
        except UnsupportedFeatureError:
            assert any(kind in _UNWRITTEN for kind in frame.kinds.values())
        except Exception as error:
            error.add_note(f"frame {number}, Random({seed}), {frame.library}: {frame.kinds}, {frame.options}")
            raise
        for name in lake.tables():
            lake.drop_table(name)


def _copy(lake: quacklake.Lake, spark: SparkLake, frame: Frame, random: Random) -> None:
    """Write the rows of the table ``first`` into the table ``second``."""
    first, schema = spark.table("first"), lake.table("first").info.schema
    whole = all(node.type not in _OTHERS for column in schema.columns for node in column.walk())
    way = random.choice(["append", "merge", "create"] if whole else ["append", "merge"])
    if way == "create":
        spark.create_table("second", first)
        return
    second = lake.create_table("second", schema)
    if way == "append":
        spark.append("second", first)
    else:
        second.merge(first, on=KEY)
