"""Names of files as Spark gives them. Nothing here needs Java."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from quacklake.core.storage import S3Options, Store
from quacklake.spark.runtime.settings import file_path, spark_path, spark_settings, spark_uri


def test_paths_are_never_patterns_and_have_the_scheme_of_spark() -> None:
    assert spark_path("/data/a [1]{x}*?.parquet") == "file:///data/a \\[1\\]\\{x\\}\\*\\?.parquet"
    assert spark_path("s3://bucket/key") == "s3a://bucket/key"
    assert spark_uri("gcs://bucket/key") == "gs://bucket/key"
    assert spark_uri("abfss://c@a/key") == "abfss://c@a/key"


def test_names_are_encoded_as_spark_encodes_them() -> None:
    # seen in _metadata.file_path of Spark 4.1
    assert file_path("/tmp/x/od d%25 x[1]{a}*ü=1.parquet") == "file:/tmp/x/od%20d%2525%20x%5B1%5D%7Ba%7D*ü=1.parquet"
    assert file_path("/tmp/a b/c=1/f.parquet") == "file:/tmp/a%20b/c=1/f.parquet"


def test_what_a_session_needs_for_an_object_store_is_told_without_keys() -> None:
    options = S3Options(endpoint="localhost:9000", access_key="open", secret_key="sesame", secure=False)
    found = spark_settings(Store.open("s3://bucket/lake", s3=options))
    assert found["spark.hadoop.fs.s3a.endpoint"] == "localhost:9000"
    assert found["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    assert "hadoop-aws" in found["spark.jars.packages"]
    assert not any(value in ("open", "sesame") for value in found.values())
