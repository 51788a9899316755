"""Tables in an object store: the library and the staged files use the same credentials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from quacklake.connectors import PreparedCommit, Sink, connector
from quacklake.connectors.object_store import delta_options, iceberg_options, open_store, s3_options
from quacklake.errors import ConfigError
from services import MotoServer, S3Server
from tests.connectors.test_two_phases import SCHEMA, comparable, rows

deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not installed")
pytest.importorskip("pyiceberg", reason="the package pyiceberg is not installed")


def credentials(server: S3Server) -> dict[str, str]:
    return {
        "aws_endpoint_url": server.url,
        "aws_access_key_id": server.access_key,
        "aws_secret_access_key": server.secret_key,
        "aws_region": server.region,
    }


@pytest.fixture(autouse=True)
def no_keys_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)


def keys(server: S3Server, bucket: str) -> set[str]:
    """Return the objects of a bucket that have rows."""
    store = fs.S3FileSystem(
        access_key=server.access_key,
        secret_key=server.secret_key,
        region=server.region,
        scheme="http",
        endpoint_override=server.host,
    )
    selector = fs.FileSelector(bucket.removeprefix("s3://"), recursive=True, allow_not_found=True)
    return {info.path for info in store.get_file_info(selector) if info.path.endswith(".parquet")}


def delta(server: S3Server, bucket: str, **options: Any) -> Sink:
    made: Sink = connector("delta", "sink")({"location": f"{bucket}/t", **credentials(server), **options})
    return made


def delta_table(server: S3Server, bucket: str) -> Any:
    return deltalake.DeltaTable(f"{bucket}/t", storage_options=delta_options(credentials(server)))


def test_delta_sink_exactly_once(s3_server: S3Server, s3_bucket: str) -> None:
    sink = delta(s3_server, s3_bucket, partition_by="day")
    sink.initialize(SCHEMA)
    sink.write_batch(rows(0, 10))
    kept = sink.prepare_commit(0).to_json()
    assert len(keys(s3_server, s3_bucket)) == 3
    del sink  # the crash
    again = delta(s3_server, s3_bucket, partition_by="day")
    again.abort(PreparedCommit.from_json(kept))
    assert (delta_table(s3_server, s3_bucket).version(), keys(s3_server, s3_bucket)) == (0, set())
    again.initialize(SCHEMA)
    again.write_batch(rows(0, 10))
    prepared = again.prepare_commit(0)
    versions = {sink.finalize_commit(prepared).version for sink in (again, again, delta(s3_server, s3_bucket))}
    assert versions == {1}
    assert comparable(delta_table(s3_server, s3_bucket).to_pyarrow_table()) == comparable(
        pa.Table.from_batches([rows(0, 10)])
    )


def test_upserts_compaction_and_sources_of_delta_in_a_store(s3_server: S3Server, s3_bucket: str) -> None:
    sink = delta(s3_server, s3_bucket, mode="upsert", key="id", compaction_min_files=2, vacuum_retention="0 hours")
    sink.initialize(SCHEMA)
    for number in range(3):
        sink.write_batch(rows(number * 5, number * 5 + 5))
        sink.finalize_commit(sink.prepare_commit(number))
    report = sink.maintain()  # type: ignore[attr-defined]
    assert (report.files_compacted, report.files_written) == (3, 1)
    assert len(keys(s3_server, s3_bucket)) == 1
    options = {"location": f"{s3_bucket}/t", **credentials(s3_server)}
    source = connector("delta", "source")(options)
    source.start()
    assert sum(batch.num_rows for batch in iter(source.poll_next, None)) == 15
    from pyiceberg.table import StaticTable

    mirror = StaticTable.from_metadata(f"{s3_bucket}/t", iceberg_options(credentials(s3_server)))
    assert mirror.scan().to_arrow().num_rows == 15


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_an_iceberg_table_in_a_store(s3_server: S3Server, s3_bucket: str, tmp_path: Path, mode: str) -> None:
    place = {"catalog_type": "sql", "catalog_uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"{s3_bucket}/w"}
    options = {**place, "namespace": "n", "table_name": "t", **credentials(s3_server)}
    sink = connector("iceberg", "sink")({**options, "mode": mode, "key": "id", "compaction_min_files": 2})
    sink.initialize(SCHEMA)
    sink.write_batch(rows(0, 5))
    sink.abort(sink.prepare_commit(0))
    assert keys(s3_server, s3_bucket) == set()
    for number in range(2):
        sink.write_batch(rows(number * 5, number * 5 + 5))
        sink.finalize_commit(sink.prepare_commit(number))
    report = sink.maintain()
    assert (report.files_compacted, report.files_written) == (2, 1)
    source = connector("iceberg", "source")(options)
    source.start()
    found = pa.Table.from_batches(list(iter(source.poll_next, None)))
    assert comparable(found) == comparable(pa.Table.from_batches([rows(0, 10)]))


def test_iceberg_in_glue(moto_server: MotoServer) -> None:
    pytest.importorskip("boto3", reason="the package boto3 is not installed")
    bucket = moto_server.create_bucket("glue-tables")
    options = {
        "catalog_type": "glue",
        "catalog_uri": moto_server.url,
        "warehouse": f"{bucket}/w",
        "namespace": "n",
        "table_name": "t",
        **credentials(moto_server),
    }
    sink = connector("iceberg", "sink")({**options, "partition_by": "days(t)"})
    sink.initialize(SCHEMA)
    sink.write_batch(rows(0, 9))
    prepared = sink.prepare_commit(0)
    assert sink.finalize_commit(prepared) == connector("iceberg", "sink")(options).finalize_commit(prepared)
    source = connector("iceberg", "source")({**options, "mode": "batch"})
    source.start()
    assert sum(batch.num_rows for batch in iter(source.poll_next, None)) == 9


@pytest.mark.parametrize(
    "options",
    [
        {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_endpoint_url": "http://h:1", "aws_region": "r"},
        {"s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.endpoint": "http://h:1", "s3.region": "r"},
        {"access_key_id": "a", "secret_access_key": "b", "endpoint": "h:1", "allow_http": "true", "region": "r"},
    ],
)
def test_every_spelling_reaches_every_library(options: dict[str, str]) -> None:
    s3 = s3_options(options)
    assert s3 is not None
    assert (s3.endpoint, s3.access_key, s3.secret_key, s3.secure, s3.region) == ("h:1", "a", "b", False, "r")
    assert delta_options(options) == {
        "aws_endpoint_url": "http://h:1",
        "aws_allow_http": "true",
        "aws_access_key_id": "a",
        "aws_secret_access_key": "b",
        "aws_region": "r",
    }
    found = iceberg_options(options)
    assert (found["s3.endpoint"], found["client.access-key-id"], found["client.region"]) == ("http://h:1", "a", "r")


def test_half_a_pair_of_keys_and_two_values_of_one_option_are_refused() -> None:
    assert s3_options({"azure_storage_account_name": "x"}) is None
    for options in ({"aws_access_key_id": "a"}, {"aws_region": "a", "s3.region": "b"}):
        with pytest.raises(ConfigError):
            connector("delta", "sink")({"location": "s3://bucket/t", **options})


def test_addresses_may_be_spelled_as_hadoop_does(tmp_path: Path) -> None:
    assert open_store("s3a://bucket/t", {}).root == open_store("s3://bucket/t", {}).root
    assert open_store(f"file:{tmp_path}/t", {}).root == open_store(f"{tmp_path}/t", {}).root
