"""A role of PostgreSQL that only reads cannot keep others from committing, also on lakes that were secured earlier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

import quacklake
from quacklake.core.catalog.shared_tables import SharedTables
from quacklake.errors import ReadOnlyError
from services import PostgresServer

pytestmark = pytest.mark.postgres

TABLES = [*SharedTables.of(None).definitions, "ducklake_catalog", "quacklake_shared", "quacklake_shares"]
MODES = [
    "ROW SHARE",
    "ROW EXCLUSIVE",
    "SHARE UPDATE EXCLUSIVE",
    "SHARE",
    "SHARE ROW EXCLUSIVE",
    "EXCLUSIVE",
    "ACCESS EXCLUSIVE",
]
#: All that roles may do, and what is collected about values.
STATE = """
    SELECT c.relname::text, NULL, x.privilege_type, r.rolname::text FROM pg_class c, aclexplode(c.relacl) x
        JOIN pg_roles r ON r.oid = x.grantee WHERE c.relname ~ '^(duck|quack)lake_'
    UNION ALL SELECT c.relname, a.attname, x.privilege_type, r.rolname FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid, aclexplode(a.attacl) x JOIN pg_roles r ON r.oid = x.grantee
        WHERE c.relname ~ '^(duck|quack)lake_'
    UNION ALL SELECT 'member', NULL, g.rolname, r.rolname FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
        JOIN pg_roles r ON r.oid = m.member WHERE g.rolname ~ %s
    UNION ALL SELECT c.relname, a.attname, 'statistics', a.attstattarget::text FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relname ~ '^(duck|quack)lake_' AND c.relkind IN ('r', 'p')
        AND a.attnum > 0
"""


@dataclass(frozen=True)
class Place:
    url: str
    tenants: quacklake.Tenants
    writer: str
    reader: str

    def of(self, role: str) -> str:
        return self.url.replace("://quacklake@", f"://{role}@")

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    @property
    def group(self) -> str:
        query = "SELECT DISTINCT roles[1]::text FROM pg_policies WHERE policyname = 'quacklake_read'"
        ((found,),) = self.run(query)
        return str(found)

    def state(self) -> set[tuple[Any, ...]]:
        return set(self.run(STATE, f"^{self.group}"))

    def make_old(self) -> None:
        """Give the lake the rights that an older version gave, with which readers had all that writers have."""
        group, writers = self.group, f"{self.group}_write"
        for name, table in SharedTables.of(None).definitions.items():
            columns = [f'"{column.name}"' for column in table.c]
            self.run(f"GRANT INSERT, DELETE, UPDATE ({', '.join(columns[1:])}) ON {name} TO {group}")
            changes = ", ".join(f"ALTER COLUMN {column} SET STATISTICS -1" for column in columns)
            self.run(f"ALTER TABLE {name} {changes}")
        self.run(f"GRANT {group} TO {self.writer}; DROP OWNED BY {writers}; DROP ROLE {writers}")


@pytest.fixture(scope="module")
def place(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    roles = [postgres_server.create_role(name) for name in ("writing", "reading")]
    with (
        postgres_server.new_database() as url,
        quacklake.tenants(url, tmp_path_factory.mktemp("data")) as tenants,
    ):
        tenants.create_many(["acme", "beta"])
        tenants.grant("acme", roles[0])
        tenants.grant("beta", roles[0], read_only=True)
        tenants.grant("acme", roles[1], read_only=True)
        with tenants.open("acme") as lake:
            lake.create_table("t", [{"a": 1}])
        yield Place(url, tenants, *roles)


def check_reader(place: Place) -> None:
    """Fail if the reader gets a lock that stops a commit; a commit of the writer is made beside all locks it gets."""
    with psycopg.connect(place.of(place.reader)) as connection:
        for table in TABLES:
            for mode in MODES:
                with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                    connection.execute(f"LOCK TABLE {table} IN {mode} MODE NOWAIT".encode())
        for strength in ("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(f"SELECT 1 FROM ducklake_snapshot FOR {strength}".encode())
        for table in SharedTables.of(None).definitions:
            connection.execute(f"LOCK TABLE {table} IN ACCESS SHARE MODE".encode())
        with quacklake.connect(place.of(place.writer), catalog="acme", busy_timeout_ms=5000) as lake:
            before = lake.table("t").count()
            lake.table("t").append([{"a": 2}])
    with quacklake.connect(place.of(place.reader), catalog="acme") as lake:
        assert lake.table("t").count() == before + 1
        with pytest.raises(ReadOnlyError):
            lake.table("t").append([{"a": 3}])
        with pytest.raises(ReadOnlyError):
            lake.expire_snapshots(keep_last=1)


def test_a_role_that_only_reads_can_stop_no_commit(place: Place) -> None:
    check_reader(place)


def test_a_lake_that_was_secured_earlier_is_repaired_when_it_is_opened(place: Place) -> None:
    new = place.state()
    place.make_old()
    assert place.state() != new
    with psycopg.connect(place.of(place.reader)) as connection:
        connection.execute("LOCK TABLE ducklake_snapshot IN ACCESS EXCLUSIVE MODE NOWAIT")
    with quacklake.connect(place.of(place.writer), catalog="acme") as lake:
        quacklake.tenants(place.url).close()
        lake.table("t").append([{"a": 4}])  # who is connected goes on
    assert place.state() == new
    check_reader(place)
    place.make_old()
    assert place.tenants.secure()
    assert {row for row in place.state() if row[2] != "statistics"} == {row for row in new if row[2] != "statistics"}
    quacklake.tenants(place.url).close()
    assert place.state() == new
    assert place.tenants.secure() == []


def test_a_repair_waits_for_nobody_who_reads_or_writes(place: Place) -> None:
    new = place.state()
    place.make_old()
    with psycopg.connect(place.url) as other:
        other.execute("UPDATE ducklake_snapshot SET schema_version = schema_version")
        quacklake.tenants(place.url, busy_timeout_ms=2000).close()
        other.rollback()
    assert place.state() == new


def test_a_column_that_is_added_later_can_be_changed_after_the_next_opening(place: Place) -> None:
    new = place.state()
    place.run(f"REVOKE UPDATE (value) ON ducklake_metadata FROM {place.group}_write")
    quacklake.tenants(place.url).close()
    assert place.state() == new


def test_who_does_not_own_the_tables_opens_the_lake_and_repairs_nothing(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.make_old()
    old = place.state()
    for role in (place.reader, place.writer):
        quacklake.tenants(place.of(role)).close()
    assert place.state() == old
    assert caplog.text == ""
    quacklake.tenants(place.url).close()


def test_an_owner_without_the_right_to_make_roles_repairs_the_rest_and_is_warned(
    postgres_server: PostgresServer, place: Place, postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    owner = postgres_server.create_role("owning", "CREATEROLE")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"GRANT ALL ON SCHEMA public TO {owner} WITH GRANT OPTION".encode())
    url = postgres_url.replace("://quacklake@", f"://{owner}@")
    with quacklake.tenants(url, tmp_path) as tenants:
        tenants.create("acme")
        tenants.grant("acme", place.writer)
        tenants.grant("acme", place.reader, read_only=True)
        mine = Place(postgres_url, tenants, place.writer, place.reader)
        new = mine.state()
        mine.make_old()
        mine.run(f"ALTER ROLE {owner} NOCREATEROLE")
        quacklake.tenants(url).close()
        assert "are not up to date" in caplog.text
        statistics = {row for row in new if row[2] == "statistics"}
        assert {row for row in mine.state() if row[2] == "statistics"} == statistics
        mine.run(f"ALTER ROLE {owner} CREATEROLE")
        quacklake.tenants(url).close()
        assert mine.state() == new


def test_a_role_is_among_writers_as_long_as_it_may_write_any_catalog(
    place: Place, postgres_server: PostgresServer
) -> None:
    role = postgres_server.create_role("changing")
    reads, writes = [(place.group,)], [(f"{place.group}_write",)]

    def groups() -> list[tuple[Any, ...]]:
        query = "SELECT g.rolname FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid JOIN pg_roles r"
        return place.run(f"{query} ON r.oid = m.member WHERE r.rolname = %s ORDER BY 1", role)

    place.tenants.grant("acme", role, read_only=True)
    assert groups() == reads
    place.tenants.grant("beta", role)
    assert groups() == writes
    place.tenants.grant("acme", role)
    place.tenants.grant("beta", role, read_only=True)
    assert groups() == writes
    place.tenants.grant("acme", role, read_only=True)
    assert groups() == reads
    place.tenants.grant("acme", role)
    place.tenants.revoke("acme", role)
    assert groups() == reads
    place.tenants.revoke("beta", role)
    assert groups() == []
