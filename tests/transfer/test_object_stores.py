"""Export to an object store and import from one: an S3 server, and the tools of others as judges."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow import fs

import quacklake
from quacklake.core import faults
from quacklake.core.storage.roots import S3Options, open_root
from quacklake.errors import AlreadyExistsError, InputError, PathError, StreamMismatchError
from services.s3 import S3Server
from tests.seeds import chance, some
from tests.transfer.conftest import texts

ROWS = pa.table(
    {
        "id": pa.array(range(90), pa.int64()),
        "year": pa.array([2023 + i % 3 for i in range(90)], pa.int32()),
        "name": [f"é{i}" if i % 5 else None for i in range(90)],
    }
)
KINDS = ["parquet", "csv", "json", "delta", "iceberg"]


@pytest.fixture
def shop(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[quacklake.Lake]:
    """A lake whose own files are local, with two tables and the keys of a bucket."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data", duckdb_threads=1) as lake:
        lake.create_schema("shop")
        lake.create_table("shop.orders", ROWS)
        lake.create_table("notes", [{"n": 1, "text": "a"}])
        yield lake


def store_of(server: S3Server) -> fs.FileSystem:
    options = S3Options(server.url, server.access_key, server.secret_key, region="us-east-1")
    return open_root("s3://any/", options).filesystem


def names(server: S3Server, folder: str) -> list[str]:
    """The files below a folder of a bucket."""
    base = folder.partition("://")[2]
    found = store_of(server).get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
    return sorted(info.path[len(base) + 1 :] for info in found if info.type == fs.FileType.File)


def read(server: S3Server, kind: str, folder: str) -> list[dict[str, Any]]:
    """The rows of shop.orders, by a tool that is not ours."""
    keys = {
        "aws_access_key_id": server.access_key,
        "aws_secret_access_key": server.secret_key,
        "aws_endpoint_url": server.url,
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    if kind == "delta":
        deltalake = pytest.importorskip("deltalake")
        return deltalake.DeltaTable(f"{folder}/shop/orders", storage_options=keys).to_pyarrow_table().to_pylist()
    if kind == "iceberg":
        iceberg = pytest.importorskip("pyiceberg.table")
        (metadata,) = (
            name
            for name in names(server, folder)
            if name.startswith("shop/orders/metadata/") and name.endswith(".json")
        )
        properties = {
            "s3.endpoint": server.url,
            "s3.access-key-id": server.access_key,
            "s3.secret-access-key": server.secret_key,
            "s3.region": "us-east-1",
        }
        return iceberg.StaticTable.from_metadata(f"{folder}/{metadata}", properties).scan().to_arrow().to_pylist()
    place = f"{folder.partition('://')[2]}/shop/orders"
    return ds.dataset(place, filesystem=store_of(server), format=kind, partitioning="hive").to_table().to_pylist()


def same(found: list[dict[str, Any]]) -> None:
    """Compare rows with those of the lake; CSV has no difference between NULL and an empty text."""
    assert texts([(row["id"], row["year"], row["name"] or None) for row in found]) == texts(
        [tuple(row.values()) for row in ROWS.to_pylist()]
    )


@pytest.mark.daily(0.3)
@pytest.mark.parametrize("kind", KINDS)
def test_others_read_the_same_rows_and_the_folder_is_marked_as_complete(
    shop: quacklake.Lake, s3_server: S3Server, s3_bucket: str, kind: str
) -> None:
    place = f"{s3_bucket}/a b/out"
    report = shop.export_to(f"{kind}:{place}", exclude=["nothing"])
    assert {table.table: table.rows for table in report.tables} == {"main.notes": 1, "shop.orders": 90}
    assert report.target == f"{kind}:{place}"
    same(read(s3_server, kind, place))
    found = names(s3_server, place)
    assert "_SUCCESS" in found and "_export.json" not in found
    with pytest.raises(AlreadyExistsError, match="not empty"):
        shop.export_to(f"{kind}:{place}")
    with pytest.raises(InputError, match="replace"):
        shop.export_to(f"{kind}:{place}", replace=True)
    assert names(s3_server, place) == found


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_partitions_are_folders_there_too(shop: quacklake.Lake, s3_server: S3Server, s3_bucket: str, kind: str) -> None:
    shop.export_to(f"{kind}:{s3_bucket}/out", include=["shop.*"], partition_by="year")
    assert {name.split("/")[2] for name in names(s3_server, f"{s3_bucket}/out") if name.endswith(".parquet")} == {
        "year=2023",
        "year=2024",
        "year=2025",
    }
    same(read(s3_server, kind, f"{s3_bucket}/out"))


@pytest.mark.daily(0.3)
@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_an_export_that_is_killed_goes_on_where_it_was(
    shop: quacklake.Lake, s3_server: S3Server, s3_bucket: str, kind: str
) -> None:
    place = f"{s3_bucket}/out"
    words = ["export", f"{kind}:{place}", "--lake", shop.url, "--output", "json"]
    command = [sys.executable, "-m", "quacklake.cli", *words]
    point = {
        "parquet": "2:kill:export.copied",
        "delta": "1:kill:export.publish.before",
        "iceberg": "1:kill:export.committed",
    }
    killed = subprocess.run(command, env=os.environ | {"QUACKLAKE_FAULT": point[kind]}, check=False)
    assert killed.returncode == -signal.SIGKILL
    left = names(s3_server, place)
    assert "_SUCCESS" not in left and "_export.json" in left
    before = shop.current_snapshot()
    shop.sql("INSERT INTO notes VALUES (2, 'b')")
    with pytest.raises(AlreadyExistsError, match=f"another export to .* was interrupted: snapshot {before} as {kind}"):
        shop.export_to(f"{kind}:{place}")
    done = subprocess.run([*command, "--at", str(before)], stdout=subprocess.PIPE, check=True)
    report = {table["table"]: (table["rows"], table["rows_before"]) for table in json.loads(done.stdout)["tables"]}
    assert {name: sum(rows) for name, rows in report.items()} == {"main.notes": 1, "shop.orders": 90}
    assert report["main.notes"] == (0, 1), "the first table was complete"
    same(read(s3_server, kind, place))
    found = names(s3_server, place)
    assert "_SUCCESS" in found and "_export.json" not in found
    assert len([name for name in found if name.endswith(".parquet")]) == 2, "nothing is left of the table that was not"


def test_an_export_of_another_lake_does_not_go_on_with_one_that_was_interrupted(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    lakes = []
    for name in ("one", "other"):
        lake = quacklake.connect(f"sqlite:///{tmp_path}/{name}.db", f"{tmp_path}/{name}", create=True)
        lake.sql(f"CREATE TABLE t AS SELECT '{name}' AS lake")
        lakes.append(lake)
    fault = faults.Fault(pattern="export.publish.before")
    with faults.arm(fault), pytest.raises(faults.FaultInjected):
        lakes[0].export_to(f"parquet:{s3_bucket}/twice")
    with pytest.raises(AlreadyExistsError, match="another export"):
        lakes[1].export_to(f"parquet:{s3_bucket}/twice")
    assert lakes[0].export_to(f"parquet:{s3_bucket}/twice").tables
    for lake in lakes:
        lake.close()


def test_an_export_does_not_go_where_a_lake_has_its_files(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=f"{s3_bucket}/lake/data") as lake:
        lake.create_table("t", ROWS)
        for place in ("lake/data", "lake/data/below", "lake"):
            for kind in ("parquet", "delta", "iceberg"):
                with pytest.raises(PathError, match="where a lake has its files"):
                    lake.export_to(f"{kind}:{s3_bucket}/{place}")
        lake.export_to(f"parquet:{s3_bucket}/other")
        report = lake.import_from(f"parquet:{s3_bucket}/other", schema="back")
        assert report.rows == 90
        assert lake.verify(deep=True).ok


@pytest.mark.daily(0.3)
@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_a_folder_of_a_bucket_comes_over_with_the_rows_that_duckdb_reads(
    shop: quacklake.Lake, s3_server: S3Server, s3_bucket: str, tmp_path: Path, kind: str
) -> None:
    drawn, store, base = chance("bucket", kind), store_of(s3_server), f"{s3_bucket.partition('://')[2]}/in"
    with duckdb.connect() as connection:
        for number in range(4):
            folder = tmp_path / "in" / "t" / f"k={number % 2}"
            folder.mkdir(parents=True, exist_ok=True)
            rows = drawn.randint(1, 400)
            connection.execute(
                f"COPY (SELECT i AS a, hash(i + {number}) % 1000 / 8 AS b, 'x' || i AS c FROM range({rows}) r(i))"
                f" TO '{folder}/{number} #%.{kind}'"
            )
            store.create_dir(f"{base}/t/k={number % 2}")
            with store.open_output_stream(f"{base}/t/k={number % 2}/{number} #%.{kind}") as file:
                file.write((folder / f"{number} #%.{kind}").read_bytes())
        columns = "a::VARCHAR, b::VARCHAR, c, k::VARCHAR"
        wanted = connection.execute(
            f"SELECT {columns} FROM read_{kind}('{tmp_path}/in/t/*/*.{kind}', hive_partitioning = true)"
        ).fetchall()
    with store.open_output_stream(f"{base}/t/_SUCCESS") as file:
        file.write(b"")
    report = shop.import_from(f"{kind}:{s3_bucket}/in", commit_rows=1)
    assert report.rows == len(wanted)
    assert texts(shop.sql(f"SELECT {columns} FROM t").fetchall()) == texts(wanted)
    assert {table.state for table in shop.import_from(f"{kind}:{s3_bucket}/in").tables} == {"already imported"}
    changed = some(["t/k=0/0", "t/k=1/1"], 1, "changed file")[0]
    with store.open_output_stream(f"{base}/{changed} #%.{kind}") as file:
        file.write((tmp_path / "in" / f"{changed} #%.{kind}").read_bytes() + (b"\n" if kind != "parquet" else b""))
    with pytest.raises(StreamMismatchError, match="has changed"):
        shop.import_from(f"{kind}:{s3_bucket}/in")


@pytest.mark.parametrize("place", ["s3://no-such-bucket-here/x", "ftp://host/x", "s3://"])
def test_a_place_that_is_none_is_an_error_with_a_hint(shop: quacklake.Lake, place: str) -> None:
    for run in (shop.export_to, shop.import_from):
        with pytest.raises(quacklake.errors.QuacklakeError) as refused:
            run(f"parquet:{place}")
        assert refused.value.hint
