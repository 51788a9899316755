"""Lakes that become shared ones: plain lakes, and those of a fork of DuckLake with catalogs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

import quacklake
from quacklake.core import faults
from quacklake.errors import ConfigError, InputError, UnsupportedFeatureError, UnsupportedVersionError
from tests.tenants import fork_versions, histories


@pytest.mark.parametrize(
    ("version", "database"),
    [("0.4-dev1", "sqlite"), ("0.5-dev1", "sqlite"), ("0.5-dev1", "postgres"), ("0.5-dev1", "mysql")],
)
def test_a_lake_of_the_fork_is_migrated_when_it_is_opened(
    version: str, database: str, new_url: Callable[[str], str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = new_url(database)
    snapshots = fork_versions.build(url, tmp_path, version, ("tenant_a", "tenant_b"))
    with pytest.raises(UnsupportedVersionError, match="migrate_if_required is set to false"):
        quacklake.connect(url, catalog="tenant_a", migrate=False)
    with caplog.at_level(logging.WARNING, "quacklake"), quacklake.connect(url, catalog="tenant_b") as lake:
        assert lake.snapshots().column("snapshot_id").to_pylist() == snapshots["tenant_b"]
        assert lake.table("users").to_arrow(["id"]).sort_by("id").column("id").to_pylist() == [2, 3, 4, 5, 100]
        counts = [lake.at(version=id_).table("users").count() for id_ in snapshots["tenant_b"][1:]]
        assert counts == [5, 6, 5]
        assert lake.data_path == f"{tmp_path}/data/tenant_b/"
        assert not lake.verify(deep=True).errors
        lake.table("users").append([{"id": 7, "name": "new"}])
    assert f"migrated from version {version}" in caplog.text
    with quacklake.tenants(url) as tenants:
        assert [(tenant.id, tenant.name) for tenant in tenants] == [(0, "tenant_a"), (1, "tenant_b")]
        assert tenants.create("c").id == 2
        with tenants.open("tenant_a") as lake:
            assert lake.table("users").to_arrow(["name"]).column("name").to_pylist() == ["tenant_a"] * 5
            assert not lake.verify(deep=True).errors


@pytest.mark.parametrize(
    ("database", "write"),
    [
        ("sqlite", histories.write_little),
        pytest.param("sqlite", histories.write, marks=pytest.mark.daily(0.2)),
        pytest.param("postgres", histories.write, marks=pytest.mark.daily(0.2)),
        ("mysql", histories.write_little),
        pytest.param("mysql", histories.write, marks=pytest.mark.daily(0.2)),
    ],
)
def test_a_plain_lake_becomes_the_first_catalog(
    database: str, write: Callable[[quacklake.Lake, str], None], new_url: Callable[[str], str], tmp_path: Path
) -> None:
    url = new_url(database)
    with quacklake.connect(url, tmp_path / "plain") as lake:
        write(lake, "word")
        lake.maintenance.flush_inlined_data()
        seen = histories.look(lake)
    with pytest.raises(ConfigError, match="data_path"):
        quacklake.tenants(url, convert="acme")
    with pytest.raises(InputError, match="overlaps"):
        quacklake.tenants(url, tmp_path / "plain" / "x", convert="acme")
    with quacklake.tenants(url, tmp_path / "data", convert="acme") as tenants:
        assert [(tenant.id, tenant.name) for tenant in tenants] == [(0, "acme")]
        with tenants.open("acme") as lake:
            assert lake.data_path == f"{tmp_path}/plain/"
            assert histories.look(lake) == seen
            assert not lake.verify(deep=True).errors
            lake.table("t").delete("id < 5")
        assert tenants.create("beta").data_path == f"{tmp_path}/data/beta/"
        tenants.drop("acme")
        assert tenants.purge().files > 0
    assert not list((tmp_path / "plain").rglob("*.parquet"))


def test_an_interrupted_conversion_has_changed_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/l.db"
    with quacklake.connect(url, tmp_path / "plain") as lake:
        lake.create_table("t", {"a": list(range(50))})
    for number in (1, 9, 40):
        fault = faults.Fault(at=number, pattern="catalog.convert_*")
        with faults.arm(fault), pytest.raises(faults.FaultInjected):
            quacklake.tenants(url, tmp_path / "data", convert="acme")
        with quacklake.connect(url) as lake:
            assert lake.table("t").count() == 50
            assert not lake.verify(deep=True).errors
    quacklake.tenants(url, tmp_path / "data", convert="acme").close()


def test_the_hint_for_inlined_rows_of_a_dropped_table_leads_to_a_conversion(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/l.db"
    with quacklake.connect(url, tmp_path / "plain") as lake:
        lake.create_table("kept", [{"a": 1}])
        lake.create_table("gone", [{"a": 1}])
        lake.drop_table("gone")
    with pytest.raises(UnsupportedFeatureError, match="inlined rows") as error:
        quacklake.tenants(url, tmp_path / "data", convert="acme")
    assert "expire_snapshots()" in (error.value.hint or "")
    with quacklake.connect(url) as lake:
        lake.expire_snapshots(keep_last=1)
    with quacklake.tenants(url, tmp_path / "data", convert="acme") as tenants, tenants.open("acme") as lake:
        assert lake.table("kept").count() == 1
