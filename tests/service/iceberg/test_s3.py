"""A lake in S3: generated files lie in the bucket, where its readers are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from services.s3 import S3Server
from tests.duckdbs import import_extension

from .serving import Service, duckdb_reader, pyiceberg_reader, rows_of

pytestmark = pytest.mark.s3


def test_a_lake_in_a_bucket_is_read_from_the_bucket(
    service: Service, s3_server: S3Server, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", f"{s3_bucket}/data", create=True) as lake:
        lake.create_table("t", pa.table({"id": range(50), "u": pa.array(range(50), pa.uint32())}))
        lake.table("t").delete("id % 7 = 0")
        lake.table("t").append([{"id": 100, "u": 1}])
        lake.create_table("plain", pa.table({"id": range(50)}))
        lake.table("plain").delete("id % 7 = 0")
        name = service.add(lake)
        catalog = pyiceberg_reader(
            service,
            name,
            **{
                "s3.endpoint": f"http://{s3_server.host}",
                "s3.access-key-id": s3_server.access_key,
                "s3.secret-access-key": s3_server.secret_key,
                "s3.region": s3_server.region,
            },
        )
        expected = rows_of(lake.table("t").to_arrow().cast(pa.schema([("id", pa.int64()), ("u", pa.int64())])))
        table = catalog.load_table("main.t")
        assert table.current_snapshot().manifest_list.startswith(f"{lake.data_path}iceberg.cache/")
        assert rows_of(table.scan().to_arrow()) == expected
        plain = catalog.load_table("main.plain")
        assert {task.file.file_path.startswith(f"{lake.data_path}main/") for task in plain.scan().plan_files()} == {
            True
        }
        assert rows_of(plain.scan().to_arrow()) == rows_of(lake.table("plain").to_arrow())
        import_extension("httpfs", con=service.duckdb())
        with duckdb_reader(service, name) as reader:
            reader.execute("LOAD httpfs")
            reader.execute(
                f"CREATE OR REPLACE SECRET s3 (TYPE s3, KEY_ID '{s3_server.access_key}', SECRET '{s3_server.secret_key}',"
                f" ENDPOINT '{s3_server.host}', USE_SSL false, URL_STYLE 'path', REGION '{s3_server.region}')"
            )
            assert rows_of(reader.execute("FROM ice.main.t").to_arrow_table()) == expected
