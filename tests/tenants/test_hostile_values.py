"""Let the owner of a shared lake do everything with what a tenant writes into its metadata: nobody else notices."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import quacklake
from services import PostgresServer
from tests import seeds
from tests.tenants.hostile_values import COLUMNS, INSTANTS, Case, Scene, cases, on_postgres, on_sqlite

_WRITABLE = """
    SELECT c.relname, a.attname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE n.nspname = %(schema)s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
        AND (has_column_privilege(%(role)s, c.oid, a.attnum, 'INSERT')
            OR has_column_privilege(%(role)s, c.oid, a.attnum, 'UPDATE'))
"""
LOOSE = list(cases(seeds.chance("hostile values on SQLite"), loose=True))
STRICT = list(cases(seeds.chance("hostile values on PostgreSQL"), loose=False))
SHOWN = [case for case in STRICT if case.table.startswith("ducklake_") and not case.table.startswith("ducklake_inl")]


@pytest.fixture(autouse=True)
def nothing_named_is_removed() -> None:
    """A tenant may name files of its own in any way, and lose them; here those of others are watched instead."""


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with on_sqlite(tmp_path_factory.mktemp("hostile")) as scene:
        yield scene


@pytest.fixture(scope="module")
def granted(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with on_postgres(postgres_server, tmp_path_factory.mktemp("granted"), exposed=False) as scene:
        yield scene


@pytest.fixture(scope="module")
def exposed(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with on_postgres(postgres_server, tmp_path_factory.mktemp("exposed"), exposed=True) as scene:
        yield scene


def check(scene: Scene, case: Case) -> None:
    try:
        wrong = scene.play(case)
    finally:
        scene.reset()
    assert not wrong, f"{case}: {'; '.join(wrong)}"


def test_every_column_that_a_tenant_can_write_is_listed_with_its_use(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    granted, exposed = (postgres_server.create_role(name) for name in ("granted", "exposed"))
    with postgres_server.new_database() as url, quacklake.tenants(url, tmp_path) as tenants:
        tenants.create_many(["acme", "beta"])
        tenants.grant("acme", granted)
        schema = tenants.expose("beta", exposed, writable=True).schema

        def writable(role: str, schema: str) -> set[tuple[Any, ...]]:
            with psycopg.connect(url, autocommit=True) as connection:
                return set(connection.execute(_WRITABLE, {"role": role, "schema": schema}).fetchall())

        # a row belongs to a catalog by the one column that policies guard: it can be written with the right value only
        found = {(table, column) for table, column in writable(granted, "public") if column != "catalog_id"}
        assert found == set(COLUMNS)
        assert writable(exposed, schema) <= set(COLUMNS), "stock DuckDB writes fewer tables, and no other column"
        for role, other in ((granted, schema), (granted, "lakehouse"), (exposed, "public"), (exposed, "lakehouse")):
            assert writable(role, other) == set()


def test_the_tenant_has_a_row_to_write_into_in_every_table(sqlite: Scene) -> None:
    """A value that finds no row is written nowhere, and proves nothing."""
    tables = {table for table, _ in COLUMNS}
    assert [name for name in tables if not sqlite.look(f"SELECT 1 FROM {name} WHERE catalog_id = 0 LIMIT 1")] == []


#: What ended the work on all catalogs, kept a reader or a check busy for ever, or ended in an error that is none of ours.
FOUND = (
    ("ducklake_snapshot", "snapshot_time", "x"),
    ("ducklake_files_scheduled_for_deletion", "schedule_start", "x"),
    ("ducklake_snapshot", "snapshot_id", 2**63 - 1),
    ("ducklake_data_file", "row_id_start", 2**62),
    ("ducklake_snapshot", "snapshot_time", "infinity"),
    ("ducklake_snapshot", "snapshot_time", "9999-12-31 23:59:59.999999+00"),
)
FOUND_LOOSE = [case for case in LOOSE if (case.table, case.column, case.value) in FOUND and case.value not in INSTANTS]
FOUND_STRICT = [case for case in STRICT if (case.table, case.column, case.value) in FOUND and case.value in INSTANTS]


def named(case: Case) -> str:
    """Return the name of a test: values may be long."""
    return f"{case.table}.{case.column}-{hashlib.sha256(str(case).encode()).hexdigest()[:8]}"


@pytest.mark.parametrize("case", seeds.some(LOOSE, 5, "hostile values on SQLite", always=FOUND_LOOSE), ids=named)
def test_what_a_tenant_writes_on_sqlite_reaches_nobody_else(sqlite: Scene, case: Case) -> None:
    check(sqlite, case)


@pytest.mark.parametrize("case", seeds.some(STRICT, 3, "hostile values by a role", always=FOUND_STRICT), ids=named)
def test_what_a_role_writes_reaches_nobody_else(granted: Scene, case: Case) -> None:
    check(granted, case)


@pytest.mark.parametrize("case", seeds.some(SHOWN, 1, "hostile values through an exposure"), ids=named)
def test_what_is_written_through_an_exposed_catalog_reaches_nobody_else(exposed: Scene, case: Case) -> None:
    check(exposed, case)
