"""No catalog of a shared lake has its files where another catalog has its own, and a purge removes nobody else's."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

import quacklake
from quacklake.core.tenancy.tenants import PurgeReport
from quacklake.errors import InputError
from tests.layout import by_hand, plain_only

NOW = dt.timedelta(0)
ROWS = {"a": list(range(50))}


@pytest.fixture
def tenants(tmp_path: Path) -> Iterator[quacklake.Tenants]:
    with quacklake.tenants(f"sqlite:///{tmp_path}/shared.db", tmp_path / "data") as found:
        yield found


def fill(tenants: quacklake.Tenants, name: str) -> None:
    with tenants.open(name, create=True) as lake:
        lake.create_table("t", ROWS)


def assert_whole(tenants: quacklake.Tenants, name: str) -> None:
    with tenants.open(name) as lake:
        assert lake.table("t").count() == 50
        assert not lake.verify(deep=True).errors


def plain_lake(tmp_path: Path, data_path: Path, name: str = "plain") -> str:
    plain_only("it makes plain lakes")
    url = f"sqlite:///{tmp_path}/{name}.db"
    with quacklake.connect(url, data_path) as lake:
        lake.create_table("t", ROWS)
    return url


def test_a_converted_lake_with_a_relative_data_path_keeps_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_only("it makes a plain lake")
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, tmp_path / "beta") as lake:
        lake.create_table("t", ROWS)
        with lake._context.catalog.commit() as writer:  # as stock DuckDB stores what was typed
            by_hand(writer, "UPDATE ducklake_metadata SET value = 'beta/' WHERE key = 'data_path'")
    with quacklake.tenants(url, "shared/", convert="acme") as tenants:
        assert tenants.get("acme").data_path == f"{tmp_path}/beta/"
        fill(tenants, "beta")
        monkeypatch.chdir(tmp_path.parent)
        assert_whole(tenants, "acme")
        tenants.drop("acme")
        assert tenants.purge(grace=NOW).files == 1
        assert_whole(tenants, "beta")
        assert not list((tmp_path / "beta").rglob("*.parquet"))


def test_a_purge_waits_while_another_catalog_has_the_folder(tenants: quacklake.Tenants, tmp_path: Path) -> None:
    for name in ("acme", "beta", "gamma"):
        fill(tenants, name)
    with tenants._tenancy.writing() as registry:  # as an older version left a lake that it converted
        registry._set(tenants.get("acme").id, folder="BETA/", folder_key="beta/")
    tenants.drop("acme")
    tenants.drop("gamma")
    report = tenants.purge(grace=NOW)
    assert (report.catalogs, report.files, report.waiting) == (1, 1, 1)
    assert_whole(tenants, "beta")
    tenants.drop("beta")
    assert tenants.purge(grace=NOW).waiting == 0


@pytest.mark.parametrize("table", ["data_file", "delete_file", "table", "schema"])
def test_a_purge_waits_while_a_row_of_another_catalog_names_something_there(
    table: str, tenants: quacklake.Tenants, tmp_path: Path
) -> None:
    fill(tenants, "acme")
    fill(tenants, "beta")
    file = next((tmp_path / "data/acme").rglob("*.parquet"))
    named = {"table": f"{file.parent}/", "schema": f"{file.parent.parent}/"}.get(table, f"file://{file}")
    with tenants._tenancy.writing() as registry:
        t, id_ = registry.meta[table], tenants.get("beta").id
        if table == "delete_file":
            row = {"catalog_id": id_, "delete_file_id": 9, "table_id": 1, "path": named, "path_is_relative": False}
            registry.run("plant", sa.insert(t).values(row))
        else:
            changed = sa.update(t).where(t.c.catalog_id == id_).values(path=named, path_is_relative=False)
            registry.run("plant", changed)
    tenants.drop("acme")
    assert tenants.purge(grace=NOW) == PurgeReport(waiting=1)
    assert file.exists()
    tenants.drop("beta")
    assert tenants.purge(grace=NOW).catalogs == 2
    assert not file.exists()


def test_a_purge_waits_while_another_lake_of_the_database_has_the_folder(postgres_url: str, tmp_path: Path) -> None:
    with (
        quacklake.tenants(postgres_url, tmp_path / "data", metadata_schema="one") as one,
        quacklake.tenants(postgres_url, tmp_path / "data", metadata_schema="two") as two,
    ):
        fill(one, "acme")
        fill(two, "acme")
        one.drop("acme")
        assert one.purge(grace=NOW).waiting == 1
        assert_whole(two, "acme")


@pytest.mark.parametrize("where", ["data/beta", "data/beta/main/inner", "data", ".", "data/nobody", "link"])
def test_a_lake_among_the_files_of_catalogs_is_not_adopted(
    where: str, tenants: quacklake.Tenants, tmp_path: Path
) -> None:
    fill(tenants, "beta")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    url = plain_lake(tmp_path, tmp_path / where)
    with pytest.raises(InputError, match="overlaps") as caught:
        tenants.adopt(url, "acme")
    assert "beta" not in str(caught.value).replace(str(tmp_path / where), "")
    assert [tenant.name for tenant in tenants] == ["beta"]


def test_a_lake_among_the_files_of_a_converted_catalog_is_not_adopted(tmp_path: Path) -> None:
    url, other = plain_lake(tmp_path, tmp_path / "first"), plain_lake(tmp_path, tmp_path / "first/main", "other")
    with (
        quacklake.tenants(url, tmp_path / "data", convert="acme") as tenants,
        pytest.raises(InputError, match="overlaps"),
    ):
        tenants.adopt(other, "beta")


def test_a_lake_that_names_files_of_a_catalog_is_not_adopted(tenants: quacklake.Tenants, tmp_path: Path) -> None:
    fill(tenants, "beta")
    plain = f"sqlite:///{tmp_path}/plain.db"
    tenants.export("beta", plain)
    with pytest.raises(InputError, match="among those") as caught:
        tenants.adopt(plain, "acme")
    assert "beta" not in str(caught.value)
    assert [tenant.name for tenant in tenants] == ["beta"]
