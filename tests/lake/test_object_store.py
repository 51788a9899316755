"""A lake whose files are in an object store."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.core.engines.duckdb import connections
from services.s3 import S3Server

_NAMES = ("a b", "a+b", "100%", "a%20b", "#1", "[ab]*", "Zürich ☃", "a&b=c;d@e:f,g~h")


def _escaped(name: str) -> str:
    """Return the pattern for this name alone."""
    return re.sub(r"[*?\[]", r"[\g<0>]", name)


@pytest.fixture(params=["httpfs", "arrow"])
def lake(
    request: pytest.FixtureRequest,
    s3_server: S3Server,
    s3_bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[quacklake.Lake]:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    if request.param == "arrow":
        monkeypatch.setattr(connections, "load_httpfs", lambda connection: False)
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=f"{s3_bucket}/data") as lake:
        yield lake


def test_rows_are_written_to_and_read_from_s3(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"id": range(1000), "name": ["x"] * 1000}))
    assert table.delete("id BETWEEN 10 AND 500") == 491
    assert table.update({"name": "y"}, "id > 900") == 99
    batch = pa.record_batch({"id": list(range(2000, 2100)), "name": ["r"] * 100})
    table.append(pa.RecordBatchReader.from_batches(batch.schema, [batch] * 3))
    assert table.count("name = 'y'") == 99
    assert table.count("id >= 0") == 1000 - 491 + 300
    assert all(path.startswith("main/t/ducklake-") for path in table.files().column("path").to_pylist())


def test_files_in_s3_are_appended_by_their_paths(lake: quacklake.Lake, s3_bucket: str) -> None:
    filesystem, folder = lake._context.store.filesystem, s3_bucket.partition("://")[2]
    for year, name in ((2024, "a.parquet"), (2025, "b.parquet")):
        with filesystem.open_output_stream(f"{folder}/in/year={year}/{name}") as file:
            pq.write_table(pa.table({"id": [year]}), file)
    with filesystem.open_output_stream(f"{folder}/more.csv") as file:
        file.write(b"id,year\n2026,2026\n")
    table = lake.create_table("t", f"{s3_bucket}/in")
    assert table.append(f"{s3_bucket}/in/*/b.parquet") == 1
    assert table.append([f"{s3_bucket}/more.csv"]) == 1
    assert sorted(row["year"] for row in table.to_pylist()) == [2024, 2025, 2025, 2026]
    with pytest.raises(quacklake.errors.InputError, match="there is no file"):
        table.append(f"{s3_bucket}/none.csv")


def test_files_and_tables_of_any_name_are_read_and_changed(lake: quacklake.Lake, s3_bucket: str) -> None:
    filesystem, folder = lake._context.store.filesystem, s3_bucket.partition("://")[2]
    table = lake.create_table("a b+c%20#?[x]é", pa.schema([("id", pa.int64())]))
    for number, name in enumerate(_NAMES):
        with filesystem.open_output_stream(f"{folder}/data/in/{name}/{name}.parquet") as file:
            pq.write_table(pa.table({"id": [number, number + 100]}), file)
        assert table.add_files(f"{s3_bucket}/data/in/{_escaped(name)}/{_escaped(name)}.parquet") == 2
    table.append(pa.table({"id": range(200, 300)}))
    assert table.delete("id IN (100, 102, 201)") == 3
    expected = [*range(len(_NAMES)), *(n + 100 for n in range(len(_NAMES)) if n not in (0, 2)), 200, *range(202, 300)]
    assert sorted(row["id"] for row in table.to_pylist()) == expected
    table.rewrite_data_files(delete_threshold=0.0)
    assert sorted(row["id"] for row in table.to_pylist()) == expected
    assert lake.verify().ok


def test_an_object_that_duckdb_cannot_name_is_refused(lake: quacklake.Lake, s3_bucket: str) -> None:
    table = lake.create_table("t", pa.schema([("id", pa.int64())]))
    with lake._context.store.filesystem.open_output_stream(f"{s3_bucket[5:]}/data/why?.parquet") as file:
        pq.write_table(pa.table({"id": [1]}), file)
    for add in (table.add_files, table.append):
        with pytest.raises(quacklake.errors.PathError, match="question mark"):
            add(f"{s3_bucket}/data/why[?].parquet")
    assert table.count() == 0


@pytest.mark.parametrize("sort_by", [(), ("id DESC",)], ids=["as they come", "sorted"])
def test_partitions_are_folders_in_s3(lake: quacklake.Lake, sort_by: tuple[str, ...]) -> None:
    names = ["eu", "a/b", "50% é", None]
    data = pa.table({"id": range(1000), "name": [names[i % 4] for i in range(1000)]})
    table = lake.create_table("t", data, partition_by=["name", "bucket(2, id)"], sort_by=sort_by)
    folders = {path.split("/")[2] for path in table.files().column("path").to_pylist()}
    assert folders == {"name=eu", "name=a%2Fb", "name=50%25%20%C3%A9", "name=__HIVE_DEFAULT_PARTITION__"}
    assert table.to_arrow().sort_by("id").equals(data.cast(table.schema))
    assert table.update({"name": "moved"}, "name = '50% é'") == 250
    assert table.count("name = 'moved'") == 250


def test_fields_are_renamed_in_files_that_are_in_s3(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"id": range(100), "s": [{"a": n, "b": -n} for n in range(100)]}))
    table.append(pa.table({"id": range(100, 200), "s": [{"a": n, "b": -n} for n in range(100)]}))
    table.rename_column("s.a", "c")
    table.rename_column("s.b", "a")
    rows = table.scan(where="id IN (5, 105)").to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": n, "s": {"c": 5, "a": -5}} for n in (5, 105)]


def test_a_rolled_back_transaction_leaves_no_object(lake: quacklake.Lake) -> None:
    lake.create_table("t", pa.schema([("id", pa.int64())]))
    with pytest.raises(ZeroDivisionError), lake.transaction() as tx:
        tx.table("t").append(pa.table({"id": range(1000)}))
        assert tx.table("t").count() == 1000
        raise ZeroDivisionError
    assert lake.table("t").count() == 0
    assert list(lake._context.store.list()) == []


def test_workbooks_in_s3_are_appended_by_their_paths(lake: quacklake.Lake, s3_bucket: str) -> None:
    filesystem, folder = lake._context.store.filesystem, s3_bucket.partition("://")[2]
    book = openpyxl.Workbook()
    for row in (("id", "name"), (1, "a")):
        book.active.append(row)
    sink = io.BytesIO()
    book.save(sink)
    with filesystem.open_output_stream(f"{folder}/in/year=2024/a.xlsx") as file:
        file.write(sink.getvalue())
    assert lake.create_table("t", f"{s3_bucket}/in").to_pylist() == [{"id": 1, "name": "a", "year": 2024}]


def test_a_wrong_key_is_an_error_without_the_key(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "load_httpfs", lambda connection: False)
    facts = s3_server.environment()
    lake = quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db",
        data_path="s3://no-such-bucket-here/data",
        s3_endpoint=facts["MINIO_ENDPOINT"],
        s3_access_key="someone",
        s3_secret_key="a-very-secret-word",
        s3_secure=False,
        storage_max_retries=1,
    )
    with pytest.raises(quacklake.QuacklakeError) as caught:
        lake.create_table("t", pa.table({"id": range(1000)}))
    assert "a-very-secret-word" not in f"{caught.value!s} {caught.value!r} {lake!r}"
    assert lake.tables() == []
    lake.close()


def test_an_encrypted_lake_on_s3(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=f"{s3_bucket}/data", encrypted=True) as lake:
        table = lake.create_table("t", pa.table({"id": range(1000)}))
        table.delete("id BETWEEN 10 AND 500")
        table.delete("id BETWEEN 501 AND 520")
        assert table.count("id >= 0") == 489
        store = lake._context.store
        assert all(store.read(entry.path).endswith(b"PARE") for entry in store.list())


def test_files_of_the_same_bucket_are_added(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(f"sqlite:///{tmp_path}/other.db", data_path=f"{s3_bucket}/in/day=1") as source:
        written = source.create_table("x", pa.table({"id": range(100)}))
        added = f"{source.data_path}{written.files().column('path')[0].as_py()}"
    with quacklake.connect(url, data_path=f"{s3_bucket}/data", foreign_paths=[f"{s3_bucket}/in"]) as lake:
        table = lake.create_table("t", {"id": pa.int64(), "day": pa.int32()})
        assert table.add_files(f"{s3_bucket}/in/**/*.parquet") == 100
        assert table.files().column("path").to_pylist() == [added]
        table.delete("id < 40")
        assert table.count("day = 1") == 60
    with quacklake.connect(url) as careful, pytest.raises(quacklake.errors.PathError, match="outside"):
        careful.table("t").to_arrow()
