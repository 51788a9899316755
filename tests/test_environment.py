"""A program that is set up by variables alone, those that begin with DUCKLAKE_ and MINIO_."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

import quacklake
from quacklake.config import resolve
from quacklake.errors import ConfigError
from services import S3Server

HIDDEN = "pass word/@:"


def set_all(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_variables_alone_make_and_open_a_lake_on_an_object_store(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"DUCKLAKE_CATALOG_TYPE": "sqlite", "DUCKLAKE_CATALOG_PATH": f"{tmp_path}/catalog.sqlite"}
    data = {"DUCKLAKE_DATA_PATH": f"{s3_bucket}/warehouse", "DUCKLAKE_BUCKET_NAME": "another-bucket"}
    set_all(monkeypatch, {"DUCKLAKE_ENABLED": "true", **place, **data, **s3_server.environment()})
    with quacklake.connect(duckdb_threads=1) as lake:
        lake.create_table("t", {"a": list(range(30))})
    monkeypatch.delenv("DUCKLAKE_DATA_PATH")
    with quacklake.connect(duckdb_threads=1) as lake:  # a lake that is there knows where its files are
        assert lake.data_path == f"{s3_bucket}/warehouse/"
        assert lake.table("t").count() == 30


def test_the_name_of_a_bucket_is_enough(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"ENDPOINT": s3_server.host, "ACCESS_KEY_ID": s3_server.access_key, "REGION": s3_server.region}
    names |= {"SECRET_ACCESS_KEY": s3_server.secret_key, "USE_SSL": "false", "BUCKET": s3_bucket.removeprefix("s3://")}
    set_all(monkeypatch, {f"DUCKLAKE_S3_{name}": value for name, value in names.items()})
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", duckdb_threads=1) as lake:
        assert lake.data_path == f"{s3_bucket}/data/"
        lake.create_table("t", {"a": list(range(30))})
    with quacklake.tenants(f"sqlite:///{tmp_path}/s.db", bucket_name="other") as tenants:
        assert tenants.data_path == "s3://other/data/"
    with quacklake.connect(f"duckdb:///{tmp_path}/d.db", tmp_path / "data") as lake:
        assert lake.data_path == f"{tmp_path}/data/"


@pytest.mark.parametrize("name", ["a/b", "s3://a", "a", "../b", "a b"])
def test_what_is_no_name_of_a_bucket_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not the name of a bucket"):
        quacklake.connect(f"sqlite:///{tmp_path}/l.db", bucket_name=name)


def test_a_lake_that_is_disabled_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/l.db"
    with quacklake.connect(url, tmp_path / "data") as lake:
        lake.create_table("t", {"a": list(range(30))})
        lake.backup(tmp_path / "backup")
    monkeypatch.setenv("DUCKLAKE_ENABLED", "false")
    told = r"enabled = false \(environment DUCKLAKE_ENABLED\)"
    with pytest.raises(ConfigError, match=told):
        quacklake.connect(url)
    with pytest.raises(ConfigError, match=told):
        quacklake.connect(f"sqlite:///{tmp_path}/new.db", tmp_path / "new")
    with pytest.raises(ConfigError, match=told):
        quacklake.tenants(f"sqlite:///{tmp_path}/new.db", tmp_path / "new")
    with pytest.raises(ConfigError, match=told):
        quacklake.restore_backup(tmp_path / "backup", f"sqlite:///{tmp_path}/new.db", tmp_path / "new")
    with quacklake.session() as session, pytest.raises(ConfigError, match=told):
        session.sql(f"ATTACH 'ducklake:sqlite:{tmp_path}/l.db' AS l")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "data", "l.db"]
    with quacklake.connect(url, enabled=True) as lake:  # a keyword is stronger than a variable
        assert lake.table("t").count() == 30


def test_the_parts_of_an_address_of_postgresql_are_one_url(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = urlsplit(postgres_url)
    found = {"HOST": parts.hostname, "PORT": parts.port, "USER": parts.username, "DATABASE": parts.path.lstrip("/")}
    set_all(monkeypatch, {f"DUCKLAKE_POSTGRES_{name}": str(value) for name, value in found.items()})
    monkeypatch.setenv("DUCKLAKE_POSTGRES_PASSWORD", HIDDEN)
    monkeypatch.setenv("DUCKLAKE_WAREHOUSE_PATH", str(tmp_path / "data"))
    with quacklake.connect(duckdb_threads=1) as lake:
        lake.create_table("t", [{"a": 1}])
        assert lake.data_path == f"{tmp_path}/data/"
        assert HIDDEN not in repr(lake) + lake.url
    with quacklake.connect(postgres_url) as lake:
        assert lake.table("t").count() == 1


def test_of_two_addresses_the_stronger_one_counts() -> None:
    host = {"DUCKLAKE_POSTGRES_HOST": "db", "DUCKLAKE_POSTGRES_USER": "ann", "DUCKLAKE_POSTGRES_DB": "l k"}
    config = resolve(env={**host, "DUCKLAKE_POSTGRES_PASSWORD": HIDDEN})
    assert config.url == "postgresql://ann:pass%20word%2F%40%3A@db:5432/l%20k"
    assert config.sources["url"] == "postgres_host (environment DUCKLAKE_POSTGRES_HOST)"
    shown = repr(config) + str(config.describe())
    assert HIDDEN not in shown
    assert "pass%20word" not in shown
    assert resolve(env={**host, "DUCKLAKE_CATALOG_URL": "sqlite:///a.db"}).url == "sqlite:///a.db"
    assert resolve(env={**host, "DUCKLAKE_CATALOG_PATH": "b.db"}).url == "sqlite:///b.db"
    assert resolve({"url": "sqlite:///c.db"}, env=host).url == "sqlite:///c.db"
    assert resolve({"postgres_host": "::1"}, env={"QUACKLAKE_URL": "sqlite:///a.db"}).url == "postgresql://[::1]:5432/"


def test_memory_and_threads_of_duckdb_are_read() -> None:
    config = resolve(env={"DUCKLAKE_MEMORY_LIMIT_MB": "512", "DUCKLAKE_THREADS": "4"})
    assert (config.duckdb_memory_limit, config.duckdb_threads) == (512_000_000, 4)
    with pytest.raises(ConfigError, match="DUCKLAKE_MEMORY_LIMIT_MB"):
        resolve(env={"DUCKLAKE_MEMORY_LIMIT_MB": "much"})
