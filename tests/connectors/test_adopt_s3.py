"""Foreign tables in an object store are adopted with the keys of the lake."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import PathError
from services.s3 import S3Server
from tests.connectors.adoption import sorted_rows

deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not installed")


def test_a_delta_table_in_s3_is_adopted_and_followed(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    options = {
        "AWS_ENDPOINT_URL": f"http://{s3_server.host}",
        "AWS_ACCESS_KEY_ID": s3_server.access_key,
        "AWS_SECRET_ACCESS_KEY": s3_server.secret_key,
        "AWS_REGION": s3_server.region,
        "AWS_ALLOW_HTTP": "true",
        "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
    }
    place = f"{s3_bucket}/theirs/t"

    def write(first: int) -> None:
        rows = pa.table({"id": range(first, first + 10), "part": [f"a b/{n % 2}" for n in range(10)]})
        deltalake.write_deltalake(place, rows, mode="append", partition_by=["part"], storage_options=options)

    def read() -> pa.Table:
        table = deltalake.DeltaTable(place, storage_options=options)
        return pa.table(deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t"))

    write(0)
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=f"{s3_bucket}/data", foreign_paths=[f"{s3_bucket}/theirs"]
    ) as lake:
        lake.adopt(f"delta:{place}", as_="t")
        write(10)
        deltalake.DeltaTable(place, storage_options=options).delete("id = 3")
        report = lake.adopt(f"delta:{place.replace('s3://', 's3a://')}", as_="t", sync=True)
        assert (report.added_files, report.removed_files) == (3, 1)
        found = lake.table("t").to_arrow()
        assert sorted_rows(found) == sorted_rows(read().cast(found.schema))
        lake.table("t").merge_adjacent_files()
        lake.expire_snapshots(keep_last=1)
        lake.cleanup_old_files(cleanup_all=True)
        assert sorted_rows(found) == sorted_rows(read().cast(found.schema))
        with pytest.raises(PathError, match=r"foreign_paths|outside"):
            lake.adopt(f"delta:{s3_bucket}/elsewhere", as_="u")
        deltalake.write_deltalake(f"{s3_bucket}/data/inside", pa.table({"id": [1]}), storage_options=options)
        with pytest.raises(PathError, match="data path"):
            lake.adopt(f"delta:{s3_bucket}/data/inside", as_="u")
