"""Tables of other formats in a bucket, which is reached by the options of a source or sink alone."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from quacklake.connectors import Source, connector
from quacklake.connectors.object_store import open_store
from services import S3Server
from tests.connectors.sinks import numbers

pytestmark = pytest.mark.s3


@pytest.fixture
def options(s3_server: S3Server) -> Mapping[str, str]:
    return {
        "aws_endpoint_url": s3_server.url,
        "aws_access_key_id": s3_server.access_key,
        "aws_secret_access_key": s3_server.secret_key,
        "aws_region": s3_server.region,
        "aws_allow_http": "true",
        "aws_s3_allow_unsafe_rename": "true",
    }


def ids(source: Source) -> list[int]:
    source.start()
    found: list[int] = []
    while (batch := source.poll_next()) is not None:
        found += batch.column("id").to_pylist()
    return sorted(found)


@pytest.mark.parametrize("name", ["copy_on_write", "merge_on_read"])
def test_a_hudi_table_is_read(s3_bucket: str, options: Mapping[str, str], name: str) -> None:
    pytest.importorskip("hudi", reason="the package hudi is not installed")
    with zipfile.ZipFile(Path(__file__).with_name("hudi_tables.zip")) as archive:
        store = open_store(s3_bucket, options)
        for file in archive.namelist():
            if file.startswith(name):
                store.write(file, archive.read(file))
    source = connector("hudi", "source")({"location": f"{s3_bucket}/{name}", **options})
    assert ids(source) == list(range(50, 55)) if name == "copy_on_write" else len(ids(source)) == 14


def test_a_delta_table_is_written_and_read(s3_bucket: str, options: Mapping[str, str]) -> None:
    pytest.importorskip("deltalake", reason="the package deltalake is not installed")
    place = {"location": f"{s3_bucket}/t", **options}
    sink = connector("delta", "sink")(place)
    rows = numbers(0, 10)
    sink.initialize(rows.schema)
    sink.write_batch(rows.to_batches()[0])
    sink.finalize_commit(sink.prepare_commit(0))
    assert ids(connector("delta", "source")(place)) == list(range(10))
