from __future__ import annotations

from pathlib import Path

import pytest

from quacklake.core.storage import S3Options, Store
from quacklake.errors import UnsupportedVersionError
from quacklake.spark.runtime.settings import find_java, parse_version, spark_settings


@pytest.mark.parametrize(
    ("text", "version"), [("3.5.9", (3, 5)), ("4.0.0", (4, 0)), ("4.1.4", (4, 1)), ("4.3.0-SNAPSHOT", (4, 3))]
)
def test_versions_of_spark_that_work_are_known(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize("text", ["3.4.4", "3.6.0", "4.4.0", "5.0.0", "four", ""])
def test_other_versions_of_spark_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedVersionError, match=r"3\.5, or 4\.0 to 4\.3"):
        parse_version(text)


def test_a_local_lake_needs_no_jars(tmp_path: Path) -> None:
    assert not any(key.startswith(("spark.jars", "spark.hadoop")) for key in spark_settings(Store.open(str(tmp_path))))


def test_jars_go_by_the_version_of_spark_and_keys_are_only_told_when_asked_for() -> None:
    options = S3Options("127.0.0.1:9000", "open", "sesame", "token", region="eu-central-1", secure=False)
    store = Store.open("s3://bucket/lake", s3=options)
    for version, hadoop in (((3, 5), "3.3.4"), ((4, 0), "3.4.1"), ((4, 1), "3.4.2"), ((4, 3), "3.5.0")):
        assert f"org.apache.hadoop:hadoop-aws:{hadoop}" in spark_settings(store, version)["spark.jars.packages"]
    told = spark_settings(store, (4, 1))
    assert told["spark.jars.excludes"] == "software.amazon.awssdk:bundle"
    assert told["spark.hadoop.fs.s3a.endpoint.region"] == "eu-central-1"
    assert not {"open", "sesame", "token"} & set(told.values())
    assert {"open", "sesame", "token"} <= set(spark_settings(store, (4, 1), secrets=True).values())


def test_java_is_looked_for_where_java_home_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() is None
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.touch(mode=0o755)
    assert find_java() == str(java)
