"""Spark over a lake on S3, in the session that Quacklake makes for it: with the jars that it names, from Maven."""

from __future__ import annotations

from pathlib import Path

import pytest

from services import S3Server

from .core import OWN, run_child

pytestmark = pytest.mark.needs_spark("4.0")


@pytest.mark.timeout(1200)
@pytest.mark.daily(0)
def test_a_lake_on_s3_is_read_written_and_changed(tmp_path: Path, s3_server: S3Server, s3_bucket: str) -> None:
    usual = "--conf spark.sql.shuffle.partitions=2 --conf spark.ui.enabled=false pyspark-shell"
    place = {"CORE_DATA": f"{s3_bucket}/data", "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": usual}
    try:
        run_child(OWN, tmp_path, "core", "planned", seconds=1100, **s3_server.environment(), **place)
    except AssertionError as error:
        if "no Spark session could be created" in str(error):
            pytest.skip("the jars for S3 cannot be had: Maven is out of reach")
        raise
