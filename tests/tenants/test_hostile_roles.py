"""Roles of PostgreSQL that try to become the owner of a shared lake, and schemas that are not the lake's to remove."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

import quacklake
from quacklake.errors import AlreadyExistsError
from services import PostgresServer

FUNCTIONS = ["quacklake_mirror_files_scheduled_for_deletion", "quacklake_mirror_metadata", "quacklake_no_inlining"]
LISTED = """
    SELECT p.proname, coalesce(p.proacl::text, 'everybody'), p.proconfig::text FROM pg_proc p
    WHERE p.prosecdef AND p.pronamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
"""
# the columns and casts of one's own table become code of the owner when a function of his is its trigger
CASTS = """
    CREATE TYPE pg_temp.k AS ENUM ('0');
    CREATE FUNCTION pg_temp.kk(pg_temp.k) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.quacklake_grants SELECT rolname, oid, 1, true FROM pg_roles WHERE rolname = session_user;
        RETURN 0; END $$;
    CREATE CAST (pg_temp.k AS bigint) WITH FUNCTION pg_temp.kk(pg_temp.k) AS IMPLICIT;
    CREATE TEMP TABLE n (catalog_id pg_temp.k, key text, value text, scope text, scope_id bigint);
"""
TRIGGER = "CREATE TRIGGER y AFTER INSERT ON n FOR EACH ROW EXECUTE FUNCTION public.quacklake_mirror_metadata()"


@dataclass(frozen=True)
class Place:
    url: str
    data: Path
    tenants: quacklake.Tenants
    role: str

    def owner(self) -> psycopg.Connection:
        return psycopg.connect(self.url, autocommit=True)

    def stranger(self) -> psycopg.Connection:
        return psycopg.connect(self.url.replace("://quacklake@", f"://{self.role}@"), autocommit=True)


@pytest.fixture
def place(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Place]:
    role = postgres_server.create_role("hostile")
    with postgres_server.new_database() as url, quacklake.tenants(url, tmp_path / "data") as tenants:
        tenants.create_many(["acme", "beta"])
        tenants.grant("acme", role)
        tenants.expose("acme", role, writable=True)
        yield Place(url, tmp_path / "data", tenants, role)


def grants(place: Place) -> list[tuple[object, ...]]:
    with place.owner() as connection:
        return connection.execute("SELECT role_name, catalog_id FROM quacklake_grants").fetchall()


def test_nobody_but_the_owner_may_execute_what_runs_as_the_owner(place: Place) -> None:
    with place.owner() as connection:
        found = connection.execute(LISTED).fetchall()
    assert sorted({str(name) for name, *_ in found}) == sorted([*FUNCTIONS, "quacklake_my_catalogs"])
    for name, rights, settings in found:
        entries = [entry.partition("=")[0] for entry in str(rights).strip("{}").split(",")]
        assert "" not in entries and "everybody" not in entries, name
        assert settings == '{"search_path=pg_catalog, pg_temp"}'
        if name in FUNCTIONS:
            assert entries == ["quacklake"], name


def test_a_role_cannot_put_a_function_of_the_owner_on_its_own_table(place: Place) -> None:
    before = grants(place)
    with place.stranger() as connection:
        connection.execute(CASTS)
        for function in FUNCTIONS:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(TRIGGER.replace("quacklake_mirror_metadata", function).encode())
    assert grants(place) == before


def test_a_function_that_is_on_another_table_already_refuses_to_run(place: Place) -> None:
    before = grants(place)
    with place.owner() as connection:
        connection.execute("GRANT EXECUTE ON FUNCTION public.quacklake_mirror_metadata() TO PUBLIC")
    with place.stranger() as connection:
        connection.execute(CASTS)
        connection.execute(TRIGGER)
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="the tables of the lake only"):
            connection.execute("INSERT INTO n VALUES ('0')")
    assert grants(place) == before


def test_opening_the_lake_closes_what_an_older_version_left_open(place: Place) -> None:
    weak = "RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN RETURN NULL; END $$"
    schema = place.tenants.expose("acme", writable=True).schema
    old = [f"public.{name}" for name in FUNCTIONS] + [f"{schema}.{name}" for name in FUNCTIONS[:2]]
    with place.owner() as connection:
        for name in old:
            connection.execute(f"CREATE OR REPLACE FUNCTION {name}() {weak}".encode())
            connection.execute(f"GRANT EXECUTE ON FUNCTION {name}() TO PUBLIC".encode())
    quacklake.tenants(place.url).close()
    test_nobody_but_the_owner_may_execute_what_runs_as_the_owner(place)
    with place.owner() as connection:
        bodies = connection.execute("SELECT prosrc FROM pg_proc WHERE prosecdef AND prorettype = 'trigger'::regtype")
        assert all("TG_RELID" in body for (body,) in bodies)
        key = ("compression", "zstd")
        connection.execute(f"INSERT INTO {schema}.ducklake_metadata (key, value) VALUES (%s, %s)".encode(), key)
        query = "SELECT count(*) FROM ducklake_metadata WHERE key = 'compression'"
        assert connection.execute(query).fetchone() == (1,), "the functions still do their work"


def test_a_schema_of_somebody_else_survives_an_attempt_to_expose(place: Place, tmp_path: Path) -> None:
    taken = place.tenants.expose("acme", writable=True).schema.replace("_0", "_1")
    with quacklake.connect(place.url, data_path=str(tmp_path / "own"), metadata_schema=taken) as lake:
        lake.create_table("precious", [{"a": 1}])
    with pytest.raises(AlreadyExistsError, match=taken):
        place.tenants.expose("beta")
    assert place.tenants.unexpose("beta") == []
    with quacklake.connect(place.url, metadata_schema=taken) as lake:
        assert lake.table("precious").to_pylist() == [{"a": 1}]


def test_what_others_keep_in_an_exposed_schema_stays(place: Place) -> None:
    schema = place.tenants.expose("beta").schema
    with place.owner() as connection:
        connection.execute(f"CREATE TABLE {schema}.notes AS SELECT 1 AS a".encode())
    place.tenants.unexpose("beta")
    with place.owner() as connection:
        assert connection.execute(f"SELECT a FROM {schema}.notes".encode()).fetchall() == [(1,)]
        views = "SELECT count(*) FROM pg_class WHERE relname = 'ducklake_snapshot' AND relkind = 'v'"
        assert connection.execute(views).fetchone() == (1,), "only that of acme is left"


STRANGE = """
    CREATE SCHEMA evil;
    CREATE FUNCTION evil.f(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.quacklake_grants SELECT rolname, oid, 1, true FROM pg_roles WHERE rolname = 'ROLE';
        RETURN $1; END $$;
    CREATE VIEW evil.ducklake_metadata AS SELECT 'data_path'::text AS key, evil.f('/x/') AS value;
    CREATE SCHEMA worse;
    CREATE TABLE worse.ducklake_metadata (key text, value text);
    INSERT INTO worse.ducklake_metadata VALUES ('data_path', 'nope://x y'), ('data_path', '');
    ALTER TABLE worse.ducklake_metadata ENABLE ROW LEVEL SECURITY;
    CREATE POLICY p ON worse.ducklake_metadata USING (evil.f(value) IS NOT NULL);
    CREATE SCHEMA plain;
    CREATE TABLE plain.ducklake_metadata (key text, value text);
    INSERT INTO plain.ducklake_metadata VALUES ('data_path', 'nope://x y'), ('data_path', ''), ('data_path', NULL);
    GRANT USAGE ON SCHEMA evil, worse, plain TO PUBLIC;
    GRANT SELECT ON evil.ducklake_metadata, worse.ducklake_metadata, plain.ducklake_metadata TO PUBLIC;
"""


def test_a_lake_of_a_stranger_in_the_database_runs_no_code_as_the_owner(place: Place) -> None:
    with place.owner() as connection:
        connection.execute(f'GRANT CREATE ON DATABASE "{connection.info.dbname}" TO "{place.role}"'.encode())
    with place.stranger() as connection:
        connection.execute(STRANGE.replace("ROLE", place.role).encode())
        connection.execute("CREATE TEMP TABLE ducklake_metadata (key text, value text)")
        connection.execute("GRANT SELECT ON ducklake_metadata TO PUBLIC")
        before = grants(place)
        with place.tenants.open("beta") as lake:
            lake.create_table("t", [{"a": 1}])
            lake.delete_orphaned_files(cleanup_all=True)
        place.tenants.drop("beta")
        assert place.tenants.purge().catalogs == 1
        assert grants(place) == before


def test_what_a_writer_claims_of_its_exposed_catalog_keeps_no_files_of_others(place: Place) -> None:
    with place.stranger() as connection:
        claim = "UPDATE tenant_0.ducklake_metadata SET value = %s WHERE key = 'data_path'"
        connection.execute(claim, [f"{place.data}/beta/"])
    with place.tenants.open("beta") as lake:
        lake.create_table("t", [{"a": 1}], if_not_exists=True)
        stray = place.data / "beta/main/t/ducklake-stray.parquet"
        stray.parent.mkdir(parents=True, exist_ok=True)
        stray.write_bytes(b"left by a crash")
        assert lake.delete_orphaned_files(cleanup_all=True).files == 1
    place.tenants.drop("beta")
    assert place.tenants.purge().catalogs == 1
