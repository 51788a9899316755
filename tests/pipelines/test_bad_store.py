"""Pipelines whose tables are in an object store that fails now and then: all rows are there in the end, once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import quacklake
from quacklake.connectors.object_store import delta_options
from quacklake.errors import QuacklakeError
from quacklake.pipelines import Pipeline
from services import S3Server
from tests import seeds
from tests.pipelines.tables import end_lease
from tests.prove.http import ProxyProcess

pytestmark = [pytest.mark.s3, pytest.mark.crash, pytest.mark.timeout(900)]

EVERY = 20


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[ProxyProcess]:
    with ProxyProcess(s3_server.port) as made:
        yield made


def options(server: S3Server, port: int) -> dict[str, str]:
    return {
        "aws_endpoint_url": f"http://127.0.0.1:{port}",
        "aws_access_key_id": server.access_key,
        "aws_secret_access_key": server.secret_key,
        "aws_region": server.region,
        "aws_allow_http": "true",
    }


def pairs(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(table.column("id").to_pylist(), table.column("v").to_pylist(), strict=True))


@pytest.mark.daily(0.17)
@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("how", ["busy", "reset", "lost"])
def test_a_store_that_fails_every_20th_call_loses_and_doubles_nothing(
    s3_server: S3Server, s3_bucket: str, proxy: ProxyProcess, tmp_path: Path, how: str, mode: str
) -> None:
    key = {"mode": "upsert", "key": "id"} if mode == "upsert" else {}
    through, direct = options(s3_server, proxy.port), options(s3_server, s3_server.port)
    secrets = {"aws_access_key_id": "${env:STORE_USER}", "aws_secret_access_key": "${env:STORE_PASSWORD}"}
    catalog = {"catalog_type": "sql", "catalog_uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"{s3_bucket}/w"}
    iceberg = {**catalog, "namespace": "n", "table_name": "t"}
    given = {
        "pipeline": "p",
        "source": {"type": "lake", "table": "orders"},
        "sinks": [
            {"type": "lake", "table": "copied", **key},
            {"type": "delta", "location": f"{s3_bucket}/d", **through, **secrets, **key},
            {"type": "iceberg", **iceberg, **through, **secrets, **key},
        ],
        "lease": "5 minutes",
        "restart": {"attempts": 20, "backoff": "1 ms", "longest": "10 ms"},
    }
    environment = s3_server.environment() | {
        "MINIO_ENDPOINT": f"127.0.0.1:{proxy.port}",
        "STORE_USER": s3_server.access_key,
        "STORE_PASSWORD": s3_server.secret_key,
    }
    rows = 0
    with (
        mock.patch.dict(os.environ, environment),
        quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=f"{s3_bucket}/data") as lake,
    ):
        lake.options.set("data_inlining_row_limit", 0)
        lake.sql("CREATE TABLE orders (id BIGINT, v BIGINT)")
        for _ in range(20 if seeds.LONG else 2):
            lake.table("orders").append(pa.table({"id": range(rows, rows + 10), "v": range(rows, rows + 10)}))
            rows += 10
            with proxy.bad(how, EVERY):
                try:
                    Pipeline(lake, given).run(until_caught_up=True)
                except QuacklakeError:  # all other errors fail the test: the pipeline would not try again
                    end_lease(lake)
        Pipeline(lake, given).run(until_caught_up=True)
        wanted = Counter((n, n) for n in range(rows))
        assert proxy.hits > 0
        assert pairs(lake.table("copied").to_arrow()) == wanted
    from deltalake import DeltaTable

    from quacklake.connectors import connector

    table = DeltaTable(f"{s3_bucket}/d", storage_options=delta_options(direct))
    assert pairs(table.to_pyarrow_table()) == wanted
    source = connector("iceberg", "source")({**iceberg, **direct, "mode": "batch"})
    source.start()
    assert pairs(pa.Table.from_batches(list(iter(source.poll_next, None)))) == wanted
