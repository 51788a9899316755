"""Options name the catalogs of Iceberg."""

from __future__ import annotations

import sys
from importlib import util
from typing import Any

import pytest

from quacklake.connectors import connector
from quacklake.connectors.options import ConnectorOptions
from quacklake.errors import ConfigError, ConnectorUnavailableError, MissingExtraError

pytest.importorskip("pyiceberg", reason="the package pyiceberg is not installed")
from quacklake.connectors.iceberg.catalogs import IcebergTable

PLACE = {"namespace": "a", "table_name": "t"}


def table(**options: Any) -> IcebergTable:
    read = ConnectorOptions("iceberg", {**PLACE, **options})
    found = IcebergTable.of(read)
    read.finish()
    return found


def test_the_options_of_a_catalog_reach_the_library() -> None:
    glue = table(catalog_type="glue", catalog_uri="arn:aws:glue:eu-west-1:123456789012:catalog", aws_region="eu-west-1")
    assert {key: glue.settings[key] for key in ("type", "glue.region", "glue.id")} == {
        "type": "glue",
        "glue.region": "eu-west-1",
        "glue.id": "123456789012",
    }
    assert table(catalog_type="glue", **{"glue.region": "us-east-1"}).settings["glue.region"] == "us-east-1"
    hive = table(catalog_type="hive", catalog_uri="thrift://h:9083", **{"hive.hive2-compatible": "true"})
    assert (hive.settings["uri"], hive.settings["hive.hive2-compatible"]) == ("thrift://h:9083", "true")
    rest = table(catalog_uri="https://c", warehouse="w", token="secret", oauth2_server_uri="https://o/token")
    assert dict(rest.settings) == {
        "type": "rest",
        "uri": "https://c",
        "warehouse": "w",
        "token": "secret",
        "oauth2-server-uri": "https://o/token",
    }
    assert "secret" not in repr(rest)
    for name in (["a", "b"], "a.b"):
        assert table(catalog_uri="https://c", namespace=name).identifier == ("a", "b", "t")


@pytest.mark.parametrize(
    "options",
    [
        {"catalog_type": "rest"},
        {"catalog_type": "hive"},
        {"catalog_type": "hive", "catalog_uri": "http://ann:geheim@h:9083"},
        {"catalog_type": "glue", "catalog_uri": "arn:aws:s3:::bucket"},
        {"catalog_type": "glue", "catalog_uri": "eu-west-1"},
        {"catalog_type": "glue", "namespace": "a.b"},
        {"catalog_uri": "sqlite:///x"},
        {"catalog_type": "unity", "catalog_uri": "https://c"},
        {"catalog_type": "sql", "catalog_uri": "sqlite:///x", "token": "t"},
    ],
)
def test_a_catalog_that_cannot_be_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        table(**options)
    assert "geheim" not in str(caught.value)


def test_a_catalog_that_is_not_there_is_an_error_that_a_retry_may_help() -> None:
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_region": "r", "glue.max-retries": "1"}
    cases = [{"catalog_type": "rest", "catalog_uri": "http://ann:geheim@127.0.0.1:1", "token": "geheim"}]
    if util.find_spec("boto3") is not None:
        cases.append({"catalog_type": "glue", "catalog_uri": "http://127.0.0.1:1", **keys})
    for options in cases:
        with pytest.raises(ConnectorUnavailableError) as caught:
            connector("iceberg", "source")({**PLACE, **options}).start()
        assert "catalog_uri" in (caught.value.hint or "") and "geheim" not in str(caught.value)


def test_a_catalog_that_needs_another_package_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in sys.modules if name.startswith(("thrift.", "hive_metastore", "pyiceberg.catalog.hive"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "thrift", None)
    with pytest.raises(MissingExtraError, match="thrift"):
        connector("iceberg", "source")({**PLACE, "catalog_type": "hive", "catalog_uri": "thrift://h:9083"}).start()
