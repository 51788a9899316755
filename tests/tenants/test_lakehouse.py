"""Views over the metadata of shared lakes on PostgreSQL: each row says whose it is, and roles see their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

import quacklake
from quacklake.core.catalog import shared_lake
from services import PostgresServer
from tests.catalog.lakehouse_views import Query, shown, told, write
from tests.catalog.stock import Stock

pytestmark = pytest.mark.postgres


@dataclass(frozen=True)
class Place:
    """A shared lake with the catalogs acme and beta, and a role that reads acme."""

    url: str
    tenants: quacklake.Tenants
    role: str

    def run(self, role: str = "quacklake") -> Query:
        def query(statement: str) -> list[tuple[Any, ...]]:
            with psycopg.connect(self.url.replace("://quacklake@", f"://{role}@"), autocommit=True) as connection:
                cursor = connection.execute(statement.encode())
                return cursor.fetchall() if cursor.description else []

        return query


@pytest.fixture(scope="module")
def place(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    role = postgres_server.create_role("looker")
    with (
        postgres_server.new_database() as url,
        quacklake.tenants(url, tmp_path_factory.mktemp("data")) as tenants,
    ):
        fill(tenants)
        tenants.grant("acme", role, read_only=True)
        yield Place(url, tenants, role)


def fill(tenants: quacklake.Tenants) -> None:
    for files, name in enumerate(["acme", "beta"]):
        with tenants.open(name, create=True) as lake:
            write(lake, name, files)


def same(tenants: quacklake.Tenants, query: Query, prefix: str = "lakehouse.", names: str = "acme beta") -> bool:
    """Assert that the views show for each catalog what its lake tells, and no other catalog; always True."""
    for name in names.split():
        with tenants.open(name) as lake:
            assert shown(query, prefix, tenants.get(name).id) == told(lake), name
    for view in shared_lake.VIEWS:
        assert query(f"SELECT DISTINCT catalog_name FROM {prefix}{view} ORDER BY 1") == [(n,) for n in names.split()]
    return True


def test_views_show_of_each_catalog_what_its_lake_tells(place: Place) -> None:
    assert same(place.tenants, place.run())


def test_joins_bring_no_two_catalogs_together(place: Place) -> None:
    for view, table in [("tables", "table"), ("snapshots", "snapshot"), ("manifests", "data_file")]:
        rows = place.run()(f"SELECT catalog_id, count(*) FROM lakehouse.{view} GROUP BY 1 ORDER BY 1")
        whole = f"SELECT catalog_id, count(*) FROM ducklake_{table} WHERE catalog_id >= 0 GROUP BY 1 ORDER BY 1"
        assert rows == place.run()(whole), view
    for (word,) in place.run()("SELECT partition_value FROM lakehouse.partitions WHERE catalog_name = 'acme'"):
        assert word.startswith("acme")


def test_a_role_sees_its_own_rows_through_the_views_and_no_others(place: Place) -> None:
    query = place.run(place.role)
    assert same(place.tenants, query, names="acme")
    for statement in (
        "SELECT 1 FROM lakehouse.tables WHERE catalog_name <> 'acme'",
        "SET search_path = lakehouse, pg_temp; SELECT 1 FROM manifests WHERE catalog_id <> 0",
        "SELECT 1 FROM lakehouse.catalogs c RIGHT JOIN lakehouse.snapshots s USING (catalog_id) WHERE catalog_id <> 0",
    ):
        assert query(statement) == []
    spy = (
        "CREATE FUNCTION pg_temp.tell(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS"
        " $$ BEGIN IF $1 ~ 'beta' THEN RAISE EXCEPTION 'seen: %', $1; END IF; RETURN true; END $$;"
    )
    for view, column in [("tables", "table_name"), ("partitions", "partition_value"), ("catalogs", "data_path")]:
        query(f"{spy} SELECT * FROM lakehouse.{view} WHERE pg_temp.tell({column})")
    for statement in (
        "CREATE OR REPLACE VIEW lakehouse.tables AS SELECT 1 AS x",
        "ALTER VIEW lakehouse.tables RESET (security_invoker)",
        "CREATE VIEW lakehouse.mine AS SELECT 1 AS x",
        "DELETE FROM lakehouse.schemas",
        "DROP VIEW lakehouse.tables",
    ):
        with pytest.raises(psycopg.Error):
            query(statement)


def test_a_role_without_a_catalog_sees_nothing_through_the_views(place: Place, postgres_server: PostgresServer) -> None:
    query = place.run(postgres_server.create_role("outsider"))
    for view in shared_lake.VIEWS:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            query(f"SELECT 1 FROM lakehouse.{view}")


def test_views_that_run_with_the_rights_of_their_owner_are_given_to_nobody(
    place: Place, postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_lake, "_INVOKER_SINCE", (99,))  # as on an older PostgreSQL
    with postgres_server.new_database() as url, quacklake.tenants(url, tmp_path) as tenants:
        fill(tenants)
        assert not any("lakehouse" in statement for statement in tenants.grant("acme", place.role))
        old = Place(url, tenants, place.role)
        assert same(tenants, old.run())
        old.run()(f"GRANT USAGE ON SCHEMA lakehouse TO {place.role}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            old.run(place.role)("SELECT 1 FROM lakehouse.tables")
        assert old.run()("SELECT count(*) FROM pg_class WHERE 'security_invoker=true' = ANY (reloptions)") == [(0,)]


@pytest.mark.parametrize("schema", [None, "own"])
def test_a_plain_lake_that_becomes_a_shared_one_gets_the_views_of_a_shared_one(
    postgres_url: str, tmp_path: Path, schema: str | None, postgres_server: PostgresServer
) -> None:
    prefix = "lakehouse." if schema is None else "own.lakehouse_"
    with quacklake.connect(postgres_url, data_path=tmp_path / "plain", metadata_schema=schema) as lake:
        write(lake, "acme")
    role = postgres_server.create_role("later")
    with quacklake.tenants(postgres_url, tmp_path / "data", convert="acme", metadata_schema=schema) as tenants:
        with tenants.open("beta", create=True) as lake:
            write(lake, "beta", 2)
        here = Place(postgres_url, tenants, role)
        assert same(tenants, here.run(), prefix)
        tenants.grant("beta", role)
        assert same(tenants, here.run(role), prefix, names="beta")
        tenants.drop("acme")
        assert same(tenants, here.run(), prefix, names="beta")
        tenants.purge()
        assert same(tenants, here.run(), prefix, names="beta")


def test_a_lake_that_was_secured_without_views_gets_them_when_it_is_opened(place: Place) -> None:
    place.run()("DROP SCHEMA lakehouse CASCADE")
    quacklake.tenants(place.url, migrate=False).close()
    assert place.run()("SELECT to_regnamespace('lakehouse')") == [(None,)]
    quacklake.tenants(place.url).close()
    assert same(place.tenants, place.run())
    assert same(place.tenants, place.run(place.role), names="acme")


def test_stock_duckdb_opens_an_exposed_catalog_beside_the_views(place: Place) -> None:
    exposure = place.tenants.expose("acme", place.role)
    url = place.url.replace("://quacklake@", f"://{place.role}@")
    options = [f"METADATA_SCHEMA '{exposure.schema}'", "READ_ONLY"]
    with Stock() as judge:
        assert judge.run(url, "SELECT count(*) FROM l.t", options=options) == [(30,)]
    place.tenants.unexpose("acme")
    assert same(place.tenants, place.run())


def test_a_catalog_more_costs_the_views_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    made = shared_lake.missing_views
    with place.tenants._tenancy.reading() as registry:
        assert made(registry.connection, None, shared=True) == []
    monkeypatch.setattr(shared_lake, "_find", lambda *_: pytest.fail("the views were looked for"))
    place.tenants.create("gamma")
    place.tenants.drop("gamma")
