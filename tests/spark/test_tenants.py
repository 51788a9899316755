"""Spark and the catalogs of a shared lake: one session compacts those of many, and a stream into a dropped one ends."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import quacklake
from quacklake.config import resolve
from quacklake.core.maintenance.policy import JobKind, Policy
from quacklake.core.operations.stores import open_store
from quacklake.errors import NotFoundError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.needs_spark("4.0")


@pytest.mark.daily(0.35)
def test_one_session_compacts_many_catalogs(tmp_path: Path, session: SparkSession) -> None:
    with quacklake.tenants(f"sqlite:///{tmp_path}/l.db", tmp_path / "data") as tenants:
        for word in ("acme", "beta"):
            with tenants.open(word, create=True) as lake:
                t = lake.create_table("t", {"a": list(range(30)), "w": [word] * 30})
                t.append({"a": list(range(30, 60)), "w": [word] * 30})
        report = tenants.maintain(Policy(small_files=2, orphans_every=None), engine="spark", session=session, threads=2)
        assert sorted(visit.name for visit in report.tenants) == ["acme", "beta"]
        for visit in report.tenants:
            assert [(job.job.kind, job.error) for job in visit.report.jobs] == [(JobKind.MERGE, None)]
            assert visit.report.jobs[0].report.files_after == 1
        for word in ("acme", "beta"):
            with tenants.open(word) as lake:
                rows = lake.table("t").to_pylist()
                assert sorted(row["a"] for row in rows) == list(range(60))
                assert {row["w"] for row in rows} == {word}
                assert lake.table("t").files().num_rows == 1
                assert not lake.verify(deep=True).findings


@pytest.mark.daily(0.22)
def test_a_stream_into_a_catalog_that_is_dropped_ends_and_leaves_nothing(tmp_path: Path, session: SparkSession) -> None:
    source = tmp_path / "source"
    source.mkdir()

    def put(name: str) -> None:
        (source / f"{name}.json").write_text("\n".join(json.dumps({"id": number}) for number in range(30)))

    put("a")
    frame = session.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1).json(str(source))
    with quacklake.tenants(f"sqlite:///{tmp_path}/l.db", tmp_path / "data") as tenants:
        with tenants.open("acme", create=True) as lake:
            lake.create_table("t", {"id": pa.int64()})
            stream = quacklake.spark(lake, session).write_stream(
                "t", frame, name="in", checkpoint=str(tmp_path / "checkpoint")
            )
            stream.processAllAvailable()
            assert lake.table("t").count() == 30
            tenants.drop("acme")
            put("b")
            with pytest.raises(NotFoundError, match="was dropped"):
                stream.awaitTermination()
            stream.stop()
        assert tenants.purge(grace=dt.timedelta(0)).catalogs == 1
    assert [path for path in (tmp_path / "data").rglob("*") if path.is_file()] == []


def test_keys_of_one_bucket_are_added_to_a_session_and_reach_no_other(session: SparkSession) -> None:
    from quacklake.spark.runtime.session import add_keys

    stores = {"acme": {"access_key": "ACMEKEY", "secret_key": "of-acme", "endpoint": "http://x:9"}}
    config = resolve({"stores": stores}, env={})
    add_keys(session, open_store("s3://acme-bucket/lake", config, tenant="acme"))
    add_keys(session, open_store("s3://other-bucket/lake", config, tenant="beta"))
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    assert hadoop.get("fs.s3a.bucket.acme-bucket.access.key") == "ACMEKEY"
    assert hadoop.get("fs.s3a.bucket.acme-bucket.endpoint") == "x:9"
    assert hadoop.get("fs.s3a.bucket.other-bucket.access.key") is None
    assert hadoop.get("fs.s3a.access.key") is None
