"""Names of files as Spark gives them, and the numbers of rows that follow from them. Nothing here needs Java."""

from __future__ import annotations

import itertools
import zlib

import pytest

pytest.importorskip("pyspark")

from quacklake.engines.spark.deletes import key_sql, separate
from quacklake.engines.spark.paths import file_name, file_path, spark_path, spark_uri
from quacklake.storage import S3Options, Store
from quacklake.storage.spark import spark_settings


def test_paths_are_never_patterns_and_have_the_scheme_of_spark() -> None:
    assert spark_path("/data/a [1]{x}*?.parquet") == "file:///data/a \\[1\\]\\{x\\}\\*\\?.parquet"
    assert spark_path("s3://bucket/key") == "s3a://bucket/key"
    assert spark_uri("gcs://bucket/key") == "gs://bucket/key"
    assert spark_uri("abfss://c@a/key") == "abfss://c@a/key"


def test_names_are_encoded_as_spark_encodes_them() -> None:
    # seen in _metadata.file_name and file_path of Spark 4.1
    assert file_name("/tmp/x/od d%25 x[1]{a}*ü=1.parquet") == "od%20d%2525%20x%5B1%5D%7Ba%7D*ü=1.parquet"
    assert file_path("/tmp/a b/c=1/f.parquet") == "file:/tmp/a%20b/c=1/f.parquet"


def collision() -> tuple[str, str]:
    """Two names with the same checksum, found by looking."""
    seen: dict[int, str] = {}
    for number in itertools.count():
        name = f"{zlib.crc32(str(number).encode()):x}{number:x}.parquet"
        checksum = zlib.crc32(name.encode())
        if checksum in seen:
            return seen[checksum], name
        seen[checksum] = name
    raise AssertionError


def test_files_whose_names_have_one_checksum_are_kept_apart() -> None:
    one, two = collision()
    urls = [f"/d/{one}", f"/d/{two}", "/d/plain.parquet", f"/e/{one}"]
    groups = separate(urls, [10] * 4, [None] * 4)
    assert groups == [0, 1, 0, 2]
    by_group: dict[int, set[int]] = {}
    for url, group in zip(urls, groups, strict=True):
        checksum = zlib.crc32(url.rsplit("/", 1)[-1].encode())
        assert checksum not in by_group.setdefault(group, set())
        by_group[group].add(checksum)


def test_delete_files_of_one_name_and_files_of_too_many_rows_are_kept_apart() -> None:
    urls = ["/d/a.parquet", "/d/b.parquet", "/d/c.parquet", "/d/d.parquet"]
    deletes = ["/x/same.parquet", "/y/same.parquet", None, None]
    groups = separate(urls, [1, 1, 1 << 31, 1], deletes)
    assert groups[0] != groups[1]
    assert groups.count(groups[2]) == 1


def test_the_number_of_a_row_needs_no_name_for_a_single_file_and_a_check_for_an_odd_one() -> None:
    assert key_sql(["/d/a.parquet"], "n", "p") == "p"
    assert key_sql(["/d/a.parquet", "/d/b.parquet"], "n", "p") == "shiftleft(crc32(CAST(n AS BINARY)), 31) + p"
    assert "raise_error" in key_sql(["/d/a b.parquet", "/d/b.parquet"], "n", "p")


def test_what_a_session_needs_for_an_object_store_is_told_without_keys() -> None:
    options = S3Options(endpoint="localhost:9000", access_key="open", secret_key="sesame", secure=False)
    found = spark_settings(Store.open("s3://bucket/lake", s3=options))
    assert found["spark.hadoop.fs.s3a.endpoint"] == "localhost:9000"
    assert found["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    assert "hadoop-aws" in found["spark.jars.packages"]
    assert not any(value in ("open", "sesame") for value in found.values())
