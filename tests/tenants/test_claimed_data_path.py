"""A tenant that changes its own data path in the metadata moves nothing: the registry of the shared lake decides."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import quacklake
from quacklake.errors import NotFoundError
from services import PostgresServer
from tests import seeds

ROWS = [{"a": number} for number in range(40)]
#: What a tenant may claim; ``{root}`` is the data path of the lake, without the last slash.
CLAIMS = {
    "another": "{root}/onyx/",
    "without-slash": "{root}/onyx",
    "dots": "{root}/amber/../onyx/",
    "url": "file://{root}/onyx/",
    "relative": "data/onyx/",
    "root": "{root}/",
    "above": "{root}/../",
    "outside": "{root}/../outside/",
    "deeper": "{root}/amber/main/",
    "store": "s3://nobody/onyx/",
    "no-store": "nope://x y/",
    "empty": "",
    "line-breaks": "{root}/onyx/\n\x1b[31m",
}


@dataclass
class Lakes:
    """A shared lake with the catalogs amber, which is hostile, and onyx; ``run`` runs SQL as amber."""

    tenants: quacklake.Tenants
    data: Path
    run: Callable[[str, dict[str, Any]], object]
    table: str
    extra: str
    key: str = "key"

    def claim(self, way: str, path: str) -> None:
        """Write a data path into the metadata of amber."""
        columns = f"{self.key}, value" if not self.extra else f"catalog_id, {self.key}, value"
        insert = f"INSERT INTO {self.table} ({columns}) VALUES ({'0, ' if self.extra else ''}'data_path', :path)"
        if way == "update":
            self.run(
                f"UPDATE {self.table} SET value = :path WHERE {self.key} = 'data_path' AND scope IS NULL{self.extra}",
                {"path": path},
            )
        elif way == "second row":
            self.run(insert, {"path": path})
        else:
            self.run(f"DELETE FROM {self.table} WHERE {self.key} = 'data_path' AND scope IS NULL{self.extra}", {})
            if way == "delete and insert":
                self.run(insert, {"path": path})

    def files(self, under: Path) -> set[Path]:
        return {path for path in under.rglob("*") if path.is_file()}


def fill(tenants: quacklake.Tenants, data: Path) -> None:
    for name in ("amber", "onyx"):
        with tenants.open(name, create=True, data_inlining_row_limit=0) as lake:
            lake.create_table("t", ROWS)
            lake.table("t").append(ROWS)
    (data.parent / "outside/main/t").mkdir(parents=True)
    (data.parent / "outside/main/t/ducklake-0.parquet").write_bytes(b"somebody's")


def sender(url: str) -> tuple[sa.Engine, Callable[[str, dict[str, Any]], object]]:
    engine = sa.create_engine(url)

    def run(statement: str, values: dict[str, Any]) -> None:
        with engine.begin() as connection:
            connection.execute(sa.text(statement), values)

    return engine, run


@pytest.fixture(scope="module", params=["granted", "exposed"])
def on_postgres(
    request: pytest.FixtureRequest, postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lakes]:
    data = tmp_path_factory.mktemp("claims") / "data"
    role = postgres_server.create_role("amber")
    with postgres_server.new_database() as url, quacklake.tenants(url, data) as tenants:
        fill(tenants, data)
        table, extra = "ducklake_metadata", " AND catalog_id = 0"
        if request.param == "granted":
            tenants.grant("amber", role)
        else:
            table, extra = f"{tenants.expose('amber', role, writable=True).schema}.ducklake_metadata", ""
        engine, run = sender(url.replace("postgresql://quacklake@", f"postgresql+psycopg://{role}@"))
        yield Lakes(tenants, data, run, table, extra)
        engine.dispose()


def check_nothing_moves(lakes: Lakes, caplog: pytest.LogCaptureFixture) -> None:
    """Do everything with the files of amber: they are in its own folder, and no others are touched."""
    elsewhere = lakes.files(lakes.data.parent) - lakes.files(lakes.data / "amber")
    theirs = next(iter(sorted(lakes.files(lakes.data / "onyx"))))
    caplog.clear()
    with caplog.at_level(logging.WARNING, "quacklake.catalog"), lakes.tenants.open("amber") as lake:
        assert lake.data_path == f"{lakes.data}/amber/"
        before = lake.table("t").count()
        lake.table("t").append(ROWS)
        assert lake.table("t").count() == before + len(ROWS)
        with pytest.raises(NotFoundError):
            lake.table("t").add_files(theirs)
        lake.table("t").merge_adjacent_files()
        lake.expire_snapshots(older_than="0s")
        lake.cleanup_old_files(cleanup_all=True)
        lake.delete_orphaned_files(cleanup_all=True)
        assert lake.table("t").count() == before + len(ROWS)
        assert {finding.code for finding in lake.verify().errors} - {"V053"} == {"V054"}
    warnings = [record.getMessage() for record in dict.fromkeys(caplog.records)]
    assert any(f"{lakes.data}/amber/" in message for message in warnings)
    assert not any("onyx" in message for message in warnings)
    assert elsewhere == lakes.files(lakes.data.parent) - lakes.files(lakes.data / "amber")
    with lakes.tenants.open("onyx") as lake:
        assert lake.table("t").count() == 2 * len(ROWS)
        assert not lake.verify(deep=True).findings


def mend(lakes: Lakes) -> None:
    """Repair the metadata of amber, and see that all is well."""
    with lakes.tenants.open("amber") as lake:
        lake.maintenance.repair(dry_run=False)
    with lakes.tenants.open("amber") as lake:
        assert not {finding.code for finding in lake.verify().findings} & {"V053", "V054"}


@pytest.mark.parametrize("claim", seeds.some(CLAIMS, 4, "claims of data paths", always=["another"]))
def test_a_role_that_claims_another_folder_moves_nothing(
    on_postgres: Lakes, claim: str, caplog: pytest.LogCaptureFixture
) -> None:
    on_postgres.claim("update", CLAIMS[claim].format(root=on_postgres.data))
    check_nothing_moves(on_postgres, caplog)
    mend(on_postgres)


@pytest.mark.parametrize("way", ["second row", "delete and insert", "delete"])
def test_a_role_that_writes_its_data_path_in_other_ways_moves_nothing(
    on_postgres: Lakes, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    on_postgres.claim(way, f"{on_postgres.data}/onyx/")
    check_nothing_moves(on_postgres, caplog)
    mend(on_postgres)


@pytest.mark.parametrize("database", ["sqlite", "duckdb", "mysql"])
def test_the_registry_decides_on_every_database(
    database: str, new_url: Callable[[str], str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url, data = new_url(database), tmp_path / "data"
    with quacklake.tenants(url, data) as tenants:
        fill(tenants, data)
    with quacklake.tenants(url) as tenants:
        driver = {"mysql": "mysql+pymysql"}.get(database, database)
        engine, run = sender(url.replace(f"{database}:", f"{driver}:", 1))
        lakes = Lakes(
            tenants, data, run, "ducklake_metadata", " AND catalog_id = 0", "`key`" if database == "mysql" else "key"
        )
        lakes.claim("update", f"{data}/onyx/")
        engine.dispose()
        check_nothing_moves(lakes, caplog)
        mend(lakes)


@pytest.mark.parametrize("scheduled", [True, False])
def test_files_that_a_fork_shares_stay_whatever_ids_the_lender_gives_them(tmp_path: Path, scheduled: bool) -> None:
    data = tmp_path / "data"
    with quacklake.tenants(f"sqlite:///{tmp_path}/shared.db", data) as tenants:
        fill(tenants, data)
        tenants.fork("amber", "fork")
        engine, run = sender(f"sqlite:///{tmp_path}/shared.db")
        with tenants.open("amber") as lake:
            lake.drop_table("t")
            lake.expire_snapshots(older_than="0s")
        if scheduled:
            run("UPDATE ducklake_files_scheduled_for_deletion SET data_file_id = data_file_id + 1000", {})
        else:
            run("DELETE FROM ducklake_files_scheduled_for_deletion", {})
        engine.dispose()
        with tenants.open("amber") as lake:
            report = lake.cleanup_old_files(cleanup_all=True)
            assert (report.files, report.left) == (0, 2 if scheduled else 0)
            assert lake.delete_orphaned_files(cleanup_all=True).files == 0
        with tenants.open("fork") as lake:
            assert lake.table("t").count() == 2 * len(ROWS)
            lake.drop_table("t")
            lake.expire_snapshots(older_than="0s")
        with tenants.open("amber") as lake:
            removed = (
                lake.cleanup_old_files(cleanup_all=True).files + lake.delete_orphaned_files(cleanup_all=True).files
            )
            assert removed == 2


def test_an_encrypted_lake_writes_no_plain_file_whatever_a_catalog_says(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    with quacklake.tenants(url, tmp_path / "data", encrypted=True) as tenants:
        tenants.create("amber")
        engine, run = sender(url)
        run("UPDATE ducklake_metadata SET value = 'false' WHERE key = 'encrypted'", {})
        engine.dispose()
        with tenants.open("amber", data_inlining_row_limit=0) as lake:
            lake.create_table("t", ROWS)
            assert lake.table("t").count() == len(ROWS)
    (file,) = (tmp_path / "data/amber").rglob("*.parquet")
    assert file.read_bytes()[:4] == b"PARE", "the footer is encrypted"
