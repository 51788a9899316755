"""Catalogs of one shared lake with their own stores and keys, which no other catalog sees."""

from __future__ import annotations

import datetime as dt
import json
import logging
import pickle
import traceback
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import quacklake
from quacklake.config import resolve
from quacklake.core.maintenance.policy import Policy
from quacklake.core.operations.stores import open_store
from quacklake.errors import (
    AlreadyExistsError,
    ConfigError,
    InputError,
    QuacklakeError,
    StorageError,
    UnsupportedFeatureError,
)
from quacklake.spark.maintenance import SparkCompactors
from services import MotoServer
from tests.tenants.s3_gate import S3Gate

ACME = {"access_key": "ACMEKEY", "secret_key": "hidden-of-acme"}
BETA = {"access_key": "BETAKEY", "secret_key": "hidden-of-beta"}
HIDDEN = ("hidden-of-acme", "hidden-of-beta")


class Stage:
    """A shared lake whose catalogs each have a bucket, with their own keys."""

    def __init__(self, gate: S3Gate, buckets: dict[str, str], home: Path) -> None:
        self.gate, self.buckets, self.home = gate, buckets, home
        self.url = f"sqlite:///{home}/l.db"
        self.general: dict[str, Any] = {"s3_endpoint": gate.address, "s3_region": "us-east-1", "duckdb_threads": 1}

    def tenants(self, stores: Any) -> quacklake.Tenants:
        return quacklake.tenants(self.url, self.home / "shared", stores=stores, **self.general)


@pytest.fixture
def stage(moto_server: MotoServer, tmp_path: Path) -> Iterator[Stage]:
    acme = f"t-{uuid.uuid4().hex}"
    for bucket in (acme, f"{acme}-b"):
        moto_server.create_bucket(bucket)
    parts = urlsplit(moto_server.url)
    assert parts.hostname is not None
    assert parts.port is not None
    keys = {"ACMEKEY": acme, "BETAKEY": f"{acme}-b"}
    with S3Gate((parts.hostname, parts.port), keys) as gate:
        yield Stage(gate, {"acme": f"s3://{acme}/lake", "beta": f"s3://{acme}-b/lake"}, tmp_path)


def fill(tenants: quacklake.Tenants, buckets: dict[str, str]) -> None:
    for name, path in buckets.items():
        assert tenants.create(name, data_path=path).data_path == f"{path}/"
        with tenants.open(name, data_inlining_row_limit=0) as lake:
            lake.create_table("t", {"a": list(range(30))})
            lake.table("t").append({"a": [100]})
            lake.table("t").delete("a < 5")


def test_each_catalog_is_reached_with_its_own_keys(stage: Stage) -> None:
    with stage.tenants({"acme": ACME, f"{stage.buckets['beta']}/": BETA}) as tenants:
        fill(tenants, stage.buckets)
        with tenants.open("acme") as acme, tenants.open("BETA") as beta:
            assert acme.table("t").count() == beta.sql("SELECT count(*) FROM t").fetchone()[0] == 26
        with quacklake.session() as session, tenants.open("acme") as acme, tenants.open("beta") as beta:
            session.attach(acme, "a")
            session.attach(beta, "b")  # one session, two lakes with different keys
            assert session.sql("SELECT count(*) FROM a.t JOIN b.t USING (a)").fetchall() == [(26,)]
            assert session.sql("SELECT count(*) FROM a.t").fetchall() == [(26,)]
        report = tenants.maintain(
            Policy(small_files=2, orphans_every=None, expire_older_than=dt.timedelta(0)), threads=2
        )
        assert report.failed == []
        assert sorted(visit.name for visit in report.tenants) == ["acme", "beta"]
        tenants.export("beta", f"sqlite:///{stage.home}/out.db", copy_data=True)
        tenants.rename("acme", "omega")
        tenants.drop("beta")
        assert tenants.purge().files > 0
    assert stage.gate.passed == set(stage.gate.keys.items())
    assert stage.gate.refused == set()


def test_a_catalog_without_the_right_keys_is_refused_by_the_store_and_nothing_tells_them(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "quacklake")
    wrong = {"acme": BETA, "beta": BETA}
    with stage.tenants({"acme": ACME, "beta": BETA}) as tenants:
        fill(tenants, {"acme": stage.buckets["acme"]})
    with stage.tenants(wrong) as tenants, tenants.open("acme", storage_max_retries=0) as lake:
        told = [repr(tenants), repr(lake), repr(tenants._config), str(tenants._config.describe())]
        for work in (
            lambda: lake.table("t").append({"a": list(range(50))}),
            lambda: lake.table("t").to_arrow(),
            lambda: lake.sql("SELECT sum(a) FROM t").fetchall(),
        ):
            with pytest.raises(QuacklakeError) as refusal:
                work()
            told += [str(refusal.value), "".join(traceback.format_exception(refusal.value))]
    assert stage.gate.refused
    told += [caplog.text, (stage.home / "l.db").read_bytes().decode("latin-1")]
    assert not [text for text in told for hidden in HIDDEN if hidden in text]


def test_a_store_that_refuses_its_keys_keeps_no_other_catalog_from_being_purged(stage: Stage) -> None:
    with stage.tenants({"acme": ACME, "beta": BETA}) as tenants:
        fill(tenants, stage.buckets)
        tenants.drop("acme")
        tenants.drop("beta")
    with stage.tenants({"acme": BETA, "beta": BETA}) as tenants:
        with pytest.raises(StorageError):
            tenants.purge(grace=dt.timedelta(0))
        assert [tenant.name.partition("~")[0] for tenant in tenants.dropped()] == ["acme"]
    with stage.tenants({"acme": ACME}) as tenants:
        assert tenants.purge().catalogs == 1


def test_an_open_catalog_has_the_keys_of_no_other(stage: Stage) -> None:
    with stage.tenants({"acme": ACME, "beta": BETA}) as tenants:
        fill(tenants, stage.buckets)
        with tenants.open("acme") as lake:
            shared = lake._context
            assert shared.config.stores is None
            assert shared.config.s3_secret_key is not None
            assert shared.config.s3_secret_key.reveal() == ACME["secret_key"]
            sent = pickle.dumps((shared.config, shared.store, lake.table("t").scan().plan()))
            assert BETA["secret_key"].encode() not in sent
            assert BETA["secret_key"] not in str(vars(shared))
            with quacklake.session() as session:
                session.attach(lake, "a")
                scopes = session.connection.execute("SELECT scope FROM duckdb_secrets()").fetchall()
                assert scopes in ([], [([stage.buckets["acme"]],)])


def test_a_function_tells_the_keys_when_a_catalog_is_opened(stage: Stage) -> None:
    asked: list[tuple[str | None, str]] = []

    def vault(catalog: str | None, path: str) -> dict[str, str] | None:
        asked.append((catalog, path))
        return {"acme": ACME, "beta": BETA}.get(catalog or "")

    with stage.tenants(vault) as tenants:
        fill(tenants, stage.buckets)
        assert ("acme", f"{stage.buckets['acme']}/") in asked
        assert "function" in repr(tenants._config)
    assert stage.gate.refused == set()

    def broken(catalog: str | None, path: str) -> Any:
        return {"secret": "hidden-of-acme"}

    with pytest.raises(ConfigError, match="the options are") as refusal:
        quacklake.connect(stage.url, catalog="acme", stores=broken)
    assert "hidden" not in str(refusal.value)

    def failing(catalog: str | None, path: str) -> Any:
        raise LookupError("the vault is closed")

    with pytest.raises(LookupError, match="the vault is closed"):
        quacklake.connect(stage.url, catalog="acme", stores=failing)


def test_the_file_and_the_environment_say_it_too(tmp_path: Path) -> None:
    file = tmp_path / "quacklake.toml"
    file.write_text(
        's3.endpoint = "https://general"\n[stores.acme]\naccess_key = "A"\nsecret_key = "hidden-of-acme"\n'
        '[stores."s3://beta/data"]\nendpoint = "http://other"\n'
    )
    config = resolve({"s3_access_key": "G", "s3_secret_key": "g", "s3_session_token": "x"}, env={}, config_file=file)
    acme, beta, other, lookalike = (
        open_store(path, config, tenant=name).s3
        for path, name in (("s3://x", "Acme"), ("s3://beta/data/b", "b"), ("s3://x", None), ("s3://beta/data2", None))
    )
    assert acme is not None and beta is not None and other is not None
    assert (acme.endpoint, acme.access_key, acme.session_token, acme.secure) == ("general", "A", None, True)
    assert (beta.endpoint, beta.access_key, beta.session_token, beta.secure) == ("other", "G", "x", False)
    assert (other.endpoint, other.access_key, other.scoped) == ("general", "G", False)
    assert lookalike == other
    assert "hidden" not in repr(config) + str(config.describe()) + repr(config.stores)
    env = {"QUACKLAKE_STORES": json.dumps({"acme": ACME})}
    found = resolve(env=env).stores
    assert found is not None
    assert found == pickle.loads(pickle.dumps(found))
    options = found.find("acme", "s3://x")
    assert options is not None and options.secret_key is not None
    assert options.secret_key.reveal() == ACME["secret_key"]


@pytest.mark.parametrize(
    "wrong",
    [
        "{hidden",
        '["hidden"]',
        {"acme": "hidden"},
        {"acme": {"hidden": "hidden"}},
        {"acme": {"access_key": "hidden"}},
        {"acme": {"secure": "hidden"}},
        {7: {}},
    ],
)
def test_stores_that_make_no_sense_are_refused_and_not_shown(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="stores = ") as refusal:
        resolve({"stores": wrong}, env={})
    assert "hidden" not in str(refusal.value)


def test_a_data_path_of_its_own_must_be_apart_from_those_of_others(tmp_path: Path) -> None:
    with quacklake.tenants(f"sqlite:///{tmp_path}/l.db", tmp_path / "shared") as tenants:
        tenants.create("acme", data_path=tmp_path / "acme")
        for path in ("shared/x", "shared", "acme", "acme/b", "."):
            with pytest.raises(InputError, match="overlaps"):
                tenants.create("beta", data_path=tmp_path / path)
        with pytest.raises(AlreadyExistsError):
            tenants.create("acme", data_path=tmp_path / "other")
        again = tenants.create("acme", data_path=tmp_path / "other", if_not_exists=True)
        assert again.data_path == f"{tmp_path}/acme/"
        assert [tenant.name for tenant in tenants] == ["acme"]
        with tenants.open("acme") as lake:
            lake.create_table("t", {"a": list(range(30))})
        assert list((tmp_path / "acme").rglob("*.parquet"))
        tenants.drop("acme")
        assert tenants.purge().files == 1


def test_a_session_of_spark_has_one_pair_of_keys_for_a_bucket() -> None:
    config = resolve({"stores": {"acme": ACME, "beta": BETA}, "s3_endpoint": "http://x"}, env={})
    from quacklake.spark.runtime.settings import spark_settings

    store = open_store("s3://bucket/acme", config, tenant="acme")
    found = {name: value for name, value in spark_settings(store, secrets=True).items() if "fs.s3a" in name}
    assert found["spark.hadoop.fs.s3a.bucket.bucket.access.key"] == "ACMEKEY"
    assert {name.removeprefix("spark.hadoop.fs.s3a.").partition(".")[0] for name in found} == {"bucket"}
    assert not [value for value in spark_settings(store).values() if "hidden" in value or "ACMEKEY" in value]
    spark = object.__new__(SparkCompactors)
    spark._keys = {}
    for name in ("acme", "acme"):
        spark._note_keys(open_store("s3://bucket/acme", config, tenant=name))
    with pytest.raises(UnsupportedFeatureError, match="one pair of keys"):
        spark._note_keys(open_store("s3://bucket/beta", config, tenant="beta"))
