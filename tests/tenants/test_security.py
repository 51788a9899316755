"""With its own role, a tenant reads and writes its catalog, and learns nothing about others, not even by raw SQL."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

import quacklake
from quacklake.cli import main
from quacklake.core.catalog.shared_tables import SharedTables
from quacklake.errors import InputError, NotFoundError, QuacklakeError, ReadOnlyError, UnsupportedFeatureError
from services import PostgresServer
from tests.tenants import histories


@dataclass(frozen=True)
class Place:
    """A secured shared lake with the catalogs acme and beta, each of which a role has."""

    url: str
    tenants: quacklake.Tenants
    acme: str
    beta: str
    nobody: str

    def of(self, role: str) -> str:
        """The lake's URL with the credentials of a role."""
        return self.url.replace("://quacklake@", f"://{role}@")

    def raw(self, role: str, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement that a role runs; nothing of it stays."""
        with psycopg.connect(self.of(role)) as connection:
            cursor = connection.execute(statement)  # type: ignore[arg-type]
            while cursor.nextset():
                pass
            rows = cursor.fetchall() if cursor.description else [(cursor.rowcount,)]
            connection.rollback()
            return rows


@pytest.fixture(scope="module")
def place(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    roles = [postgres_server.create_role(name) for name in ("acme", "beta", "nobody")]
    with (
        postgres_server.new_database() as url,
        quacklake.tenants(url, tmp_path_factory.mktemp("data")) as tenants,
    ):
        tenants.create_many(["acme", "beta"])
        tenants.grant("acme", roles[0])
        tenants.grant("beta", roles[1])
        found = Place(url, tenants, *roles)
        with quacklake.connect(found.of(found.acme), catalog="acme") as lake:
            histories.write(lake, "acme")
        with quacklake.connect(found.of(found.beta), catalog="beta") as lake:
            lake.create_table("t", histories.rows(0, 200, "beta"), partition_by=["day"])
        yield found


@pytest.mark.daily(0.22)
def test_a_role_does_all_that_can_be_done_to_its_catalog(place: Place, tmp_path: Path) -> None:
    with quacklake.connect(place.of(place.acme), catalog="acme") as lake:
        mine = histories.look(lake)
        with quacklake.connect(place.url, catalog="acme") as seen:
            assert histories.look(seen) == mine
        histories.tidy(lake, tmp_path)
    with quacklake.connect(place.of(place.beta), catalog="beta") as lake:
        assert lake.tables() == ["main.t"]


def test_a_role_keeps_the_files_of_forks_without_knowing_of_them(place: Place) -> None:
    place.tenants.fork("beta", "heir")
    with quacklake.connect(place.of(place.beta), catalog="beta") as lake:
        lake.table("t").delete("id >= 0")
        lake.expire_snapshots(keep_last=1)
        assert lake.cleanup_old_files(older_than=dt.timedelta(0)).files == 0
    assert len(place.raw(place.beta, "SELECT owner_id, below_file_id FROM quacklake_shares")) == 1
    assert place.raw(place.acme, "SELECT owner_id, below_file_id FROM quacklake_shares") == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        place.raw(place.beta, "SELECT borrower_id FROM quacklake_shares")
    with place.tenants.open("heir") as lake:
        assert lake.table("t").count() == 200


def test_many_rows_are_inserted_where_copy_is_refused(place: Place) -> None:
    with quacklake.connect(place.of(place.acme), catalog="acme", data_inlining_row_limit=1000) as lake:
        t = lake.create_table("wide", {f"c{i}": [i] * 300 for i in range(3)})
        assert t.files().num_rows == 0
        assert t.count() == 300
        lake.drop_table("wide")


def test_raw_sql_sees_own_rows_only(place: Place) -> None:
    names = [table.name for table in SharedTables.of(None).definitions.values()]
    ids = {name: place.tenants.get(name).id for name in ("acme", "beta")}
    for role, name in ((place.acme, "acme"), (place.beta, "beta")):
        union = " UNION ALL ".join(f"SELECT '{table}' AS t, catalog_id FROM {table}" for table in names)
        found = place.raw(role, f"SELECT DISTINCT t, catalog_id FROM ({union}) u")
        assert {id_ for _, id_ in found} == {ids[name]}
        assert len(found) > 8
        assert place.raw(role, "SELECT catalog_name FROM ducklake_catalog") == [(name,)]
    every = place.raw("quacklake", f"SELECT DISTINCT catalog_id FROM ({union}) u")
    assert {id_ for (id_,) in every} >= set(ids.values())  # other tests may have made more
    for table in (*names, "ducklake_catalog", "quacklake_shared"):
        assert place.raw("quacklake", f"SELECT relforcerowsecurity FROM pg_class WHERE oid = '{table}'::regclass")[0][0]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        place.raw(place.nobody, "SELECT 1 FROM ducklake_catalog")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM quacklake_grants",
        "SELECT next_catalog_id FROM quacklake_shared",
        "UPDATE quacklake_shared SET next_catalog_id = 0",
        "INSERT INTO ducklake_catalog SELECT * FROM ducklake_catalog",
        "DELETE FROM ducklake_catalog",
        "UPDATE ducklake_catalog SET catalog_name = 'beta'",
        "UPDATE ducklake_snapshot SET catalog_id = 1",
        "UPDATE ducklake_snapshot SET catalog_id = 77",
        "INSERT INTO ducklake_snapshot VALUES (1, 0)",
        "INSERT INTO ducklake_snapshot VALUES (77, 0)",
        "INSERT INTO ducklake_metadata VALUES (1, 'data_path', '/')",
        "TRUNCATE ducklake_snapshot",
        "ALTER TABLE ducklake_snapshot DISABLE ROW LEVEL SECURITY",
        "CREATE TABLE mine (i int)",
        "SET row_security = off; SELECT * FROM ducklake_snapshot",
        "SET SESSION AUTHORIZATION quacklake",
        "SET ROLE quacklake",
    ],
)
def test_raw_sql_cannot_reach_beyond(place: Place, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege) as error:
        place.raw(place.acme, statement)
    assert "beta" not in str(error.value)


def test_no_setting_changes_who_a_role_is(place: Place) -> None:
    group = place.raw(place.acme, "SELECT roles[1]::text FROM pg_policies WHERE policyname = 'quacklake_read'")[0][0]
    shadow = "CREATE TEMP TABLE quacklake_grants AS SELECT session_user::text role_name, 0::oid role_id, 1 catalog_id"
    for before in (
        "SET quacklake.catalog = '1'",
        "SET search_path = pg_temp, public",
        f"{shadow}, true writable; SET search_path = pg_temp, public",
        f'SET ROLE "{group}"',
    ):
        rows = place.raw(place.acme, f"{before}; SELECT DISTINCT catalog_id FROM public.ducklake_snapshot")
        assert rows == [(place.tenants.get("acme").id,)]


def test_whether_another_catalog_exists_is_not_told(place: Place) -> None:
    def words(role: str, name: str, create: bool | None) -> tuple[str, str]:
        with pytest.raises(QuacklakeError) as error:
            quacklake.connect(place.of(role), catalog=name, create=create)
        return error.value.code, error.value.message.replace(name, "?")

    for role in (place.acme, place.nobody):
        for create in (None, False, True):
            there = words(role, "beta", create)
            assert there == words(role, "zzz", create)
            assert create or there[1] == "Catalog '?' does not exist in this DuckLake instance"


def test_a_role_lists_its_own_catalog_and_makes_none(place: Place) -> None:
    with quacklake.tenants(place.of(place.acme)) as mine:
        assert [tenant.name for tenant in mine] == ["acme"]
        for act in (lambda: mine.create("x"), lambda: mine.drop("acme"), lambda: mine.rename("acme", "beta")):
            with pytest.raises(ReadOnlyError):
                act()
        for name in ("beta", "x"):
            with pytest.raises(NotFoundError, match=f"Catalog '{name}' does not exist"):
                mine.rename(name, "y")
            with pytest.raises(NotFoundError, match=f"Catalog '{name}' does not exist"):
                mine.stats(name)


def test_grants_are_read_only_when_asked_and_are_taken_back(place: Place) -> None:
    tenants, url = place.tenants, place.of(place.nobody)
    assert any("GRANT" in statement for statement in tenants.grant("acme", place.nobody, dry_run=True))
    with pytest.raises(NotFoundError):
        quacklake.connect(url, catalog="acme")
    tenants.grant("acme", place.nobody, read_only=True)
    tenants.grant("beta", place.nobody)
    with quacklake.connect(url, catalog="acme") as lake:
        assert lake.table("t").count()
        with pytest.raises(ReadOnlyError):
            lake.create_table("no", {"i": [1]})
    with quacklake.connect(url, catalog="beta", data_inlining_row_limit=0) as lake:
        lake.create_table("yes", {"i": [1]})
        lake.drop_table("yes")
    tenants.revoke("beta", place.nobody)
    with pytest.raises(NotFoundError):
        quacklake.connect(url, catalog="beta")
    with quacklake.connect(url, catalog="acme") as lake:
        tenants.revoke("acme", place.nobody)
        with pytest.raises(QuacklakeError):
            lake.tables()
    assert tenants.secure() == []


def test_a_role_that_no_policy_holds_back_is_refused(place: Place) -> None:
    with pytest.raises(InputError, match="sees every catalog"):
        place.tenants.grant("acme", "quacklake")
    with pytest.raises(NotFoundError, match="no role"):
        place.tenants.grant("acme", 'it\'s "nobody" %s')
    with pytest.raises(NotFoundError, match="does not exist"):
        place.tenants.grant("missing", place.nobody)


def test_an_owner_who_is_no_superuser_goes_on(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    role = postgres_server.create_role("owner", "CREATEROLE")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("GRANT ALL ON SCHEMA public TO {} WITH GRANT OPTION").format(sql.Identifier(role)))
    url = postgres_url.replace("://quacklake@", f"://{role}@")
    with quacklake.tenants(url, tmp_path) as tenants:
        tenants.secure()
        tenants.create_many([f"n{i}" for i in range(120)])
        with quacklake.connect(url, catalog="n7") as lake:
            lake.create_table("t", {"i": [1]})
        assert [found.tables for found in tenants.stats("n7")] == [1]


def test_the_command_line_grants_and_exposes(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*words: str) -> str:
        assert main(["tenant", *words, "--lake", place.url]) == 0
        return capsys.readouterr().out

    printed = run("grant", "beta", place.nobody, "--read-only", "--dry-run")
    assert printed.startswith("GRANT ")
    assert printed.endswith(";\n")
    assert run("grant", "beta", place.nobody, "--read-only") == f"{place.nobody} can read beta\n"
    quacklake.connect(place.of(place.nobody), catalog="beta").close()
    assert "REVOKE" in run("revoke", "beta", place.nobody, "--dry-run")
    assert run("revoke", "beta", place.nobody) == f"{place.nobody} can no longer use beta\n"
    assert "CREATE VIEW" in run("expose", "beta", "--role", place.beta, "--dry-run")
    schema = f"tenant_{place.tenants.get('beta').id}"
    assert run("expose", "beta") == f"exposed beta: attach it with METADATA_SCHEMA '{schema}'\n"
    assert "DROP SCHEMA" in run("unexpose", "beta", "--dry-run")
    assert run("unexpose", "beta") == "beta is not exposed\n"


def test_only_postgres_has_roles(tmp_path: Path) -> None:
    with quacklake.tenants(f"sqlite:///{tmp_path}/l.db", tmp_path / "data") as tenants:
        tenants.create("acme")
        with pytest.raises(UnsupportedFeatureError, match="PostgreSQL"):
            tenants.grant("acme", "someone")
