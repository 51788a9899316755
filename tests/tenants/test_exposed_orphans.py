"""The folder of an exposed catalog is cleaned up like any other: its own schema of views is not another lake."""

from __future__ import annotations

import datetime as dt
import uuid
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import ConfigError

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize(("schema", "writable"), [(None, True), ("own", False)])
def test_orphans_of_an_exposed_catalog_are_removed(
    postgres_url: str, tmp_path: Path, schema: str | None, writable: bool
) -> None:
    with quacklake.tenants(postgres_url, tmp_path / "data", metadata_schema=schema) as tenants:
        tenants.create_many(["acme", "beta"])
        for name in ("acme", "beta"):
            tenants.expose(name, writable=writable)
        with tenants.open("acme") as lake:
            lake.create_table("t", [{"a": 1}])
            orphan = tmp_path / f"data/acme/main/t/ducklake-{uuid.uuid4()}.parquet"
            orphan.write_bytes(b"PAR1")
            assert lake.delete_orphaned_files(older_than=dt.timedelta(0)).files == 1
            assert lake.table("t").count() == 1
        assert not orphan.exists()


def test_another_lake_with_the_data_path_of_an_exposed_catalog_keeps_its_files(
    postgres_url: str, tmp_path: Path
) -> None:
    with quacklake.tenants(postgres_url, tmp_path / "data") as tenants:
        tenants.create("acme")
        tenants.expose("acme")
        with quacklake.connect(postgres_url, data_path=tmp_path / "data/acme", metadata_schema="tenant_1") as lake:
            lake.create_table("t", [{"a": i} for i in range(30)])
        with tenants.open("acme") as lake, pytest.raises(ConfigError, match="another lake"):
            lake.delete_orphaned_files(older_than=dt.timedelta(0))
