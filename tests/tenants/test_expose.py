"""Stock DuckDB reads catalogs of a shared lake that are exposed to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import InputError, NotFoundError
from services import PostgresServer
from tests.catalog.stock import Stock
from tests.tenants import histories


@dataclass(frozen=True)
class Place:
    """A shared lake with the exposed catalogs acme and beta, and a role that may read acme."""

    url: str
    tenants: quacklake.Tenants
    role: str
    schemas: dict[str, str]

    @property
    def of_role(self) -> str:
        return self.url.replace("://quacklake@", f"://{self.role}@")

    def options(self, name: str) -> list[str]:
        schema = self.schemas[name]
        return [f"METADATA_SCHEMA '{schema}'", f"META_SCHEMA '{schema}'", "READ_ONLY"]


@pytest.fixture(scope="module")
def judge() -> Iterator[Stock]:
    """Stock DuckDB; what is exposed it can open whatever layout the lakes of the tests have."""
    with Stock() as opened:
        yield opened


@pytest.fixture(scope="module")
def place(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    role = postgres_server.create_role("reader")
    with (
        postgres_server.new_database() as url,
        quacklake.tenants(url, tmp_path_factory.mktemp("data")) as tenants,
    ):
        tenants.create_many(["acme", "beta"])
        tenants.secure()
        schemas = {}
        for name in ("acme", "beta"):
            with tenants.open(name) as lake:
                write(lake, name)
            schemas[name] = tenants.expose(name, role if name == "acme" else None).schema
            with tenants.open(name) as lake:
                write_more(lake, name)
        yield Place(url, tenants, role, schemas)


def write(lake: quacklake.Lake, word: str) -> None:
    """A history with inlined rows and deletes, files, delete files, partitions and other columns."""
    t = lake.create_table("t", histories.rows(0, 3, word))
    t.append(histories.rows(10, 200, word))
    t.delete("id IN (0, 12, 13)")
    t.add_column("note", "VARCHAR", default=word)
    t.update({"name": f"{word} updated"}, "id = 1")
    p = lake.create_table("p", histories.rows(0, 30, word), partition_by=["day"])
    p.delete("id = 4")
    lake.create_view("v", "SELECT id, name FROM t WHERE id < 5")


def write_more(lake: quacklake.Lake, word: str) -> None:
    """The same once more, when the catalog is exposed."""
    lake.table("t").append(histories.rows(20, 2, word).append_column("note", [["x", "y"]]))
    lake.table("t").delete("id = 20")
    lake.table("p").update({"name": word}, "id = 5")
    lake.create_table("new", histories.rows(0, 2, word)).append(histories.rows(2, 1, word))
    lake.options.set("target_file_size", "64MB", table="t")


def ours(lake: quacklake.Lake) -> dict[int, dict[str, list[Any]]]:
    """The rows of every table at every snapshot."""
    found = {}
    for snapshot in lake.snapshots().column("snapshot_id").to_pylist():
        past = lake.at(version=snapshot)
        found[snapshot] = {
            name: sorted((tuple(row.values()) for row in past.table(name).to_arrow().to_pylist()), key=repr)
            for name in past.tables()
        }
    return found


def test_stock_shows_the_same_rows_at_every_snapshot_of_two_catalogs(place: Place, judge: Stock) -> None:
    for name in ("acme", "beta"):
        with place.tenants.open(name, read_only=True) as lake:
            mine = ours(lake)
            assert len(mine) > 10
            for snapshot, rows in mine.items():
                assert judge.rows(place.url, [*place.options(name), f"SNAPSHOT_VERSION {snapshot}"]) == rows
            assert not lake.verify(deep=True).errors
    names = judge.run(place.url, "SELECT DISTINCT name FROM v WHERE id = 1", options=place.options("beta"))
    assert names == [("beta updated",)]


def test_a_role_reads_its_catalog_and_nothing_else(place: Place, judge: Stock) -> None:
    assert judge.run(place.of_role, "SELECT count(*) FROM t", options=place.options("acme"))[0][0] > 100
    with pytest.raises(AssertionError):
        judge.run(place.of_role, "SELECT count(*) FROM t", options=place.options("beta"))
    with pytest.raises(AssertionError, match="denied"):
        judge.run(place.of_role, "INSERT INTO p VALUES (1, 'x', 1)", options=place.options("acme")[:2])
    acme, beta = place.schemas["acme"], place.schemas["beta"]
    for statement in (
        f"SELECT 1 FROM {beta}.ducklake_snapshot",
        "SELECT 1 FROM public.ducklake_snapshot",
        f"DELETE FROM {acme}.ducklake_snapshot",
        f"CREATE TABLE {acme}.mine (i int)",
    ):
        with psycopg.connect(place.of_role) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)  # type: ignore[arg-type]


def test_a_condition_is_not_tried_on_rows_of_others(place: Place) -> None:
    spy = """CREATE FUNCTION pg_temp.spy(text) RETURNS boolean COST 0.0000001 LANGUAGE plpgsql
        AS $$ BEGIN RAISE NOTICE '%', $1; RETURN true; END $$"""
    with psycopg.connect(place.of_role) as connection:
        heard: list[str] = []
        connection.add_notice_handler(lambda notice: heard.append(notice.message_primary or ""))
        connection.execute(spy)
        query = f"SELECT count(*) FROM {place.schemas['acme']}.ducklake_metadata WHERE pg_temp.spy(value)"
        connection.execute(query)  # type: ignore[arg-type]
        connection.rollback()
    assert any("/acme/" in text for text in heard)
    assert not any("/beta/" in text for text in heard)


def test_an_exposed_catalog_keeps_no_rows_in_the_database(place: Place) -> None:
    with place.tenants.open("acme", data_inlining_row_limit=100) as lake:
        lake.options.set("data_inlining_row_limit", 50, table="new")
        lake.table("new").append(histories.rows(50, 1, "acme"))
        lake.table("new").delete("id = 50")
        lake.options.unset("data_inlining_row_limit", table="new")
    with psycopg.connect(place.url) as connection:
        for table in ("ducklake_inlined_rows", "ducklake_inlined_deletes"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)  # type: ignore[arg-type]
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="exposed"):
            connection.execute(
                "INSERT INTO ducklake_inlined_deletes SELECT catalog_id, 1, 1, 1, 1 FROM quacklake_exposed"
            )


def test_what_is_exposed_can_be_taken_back_and_dropped(place: Place, judge: Stock) -> None:
    tenants = place.tenants
    tenants.create("short")
    with tenants.open("short") as lake:
        lake.create_table("t", {"i": [1]})
        planned = tenants.expose("short", dry_run=True)
        assert lake.table("t").files().num_rows == 0
        assert tenants.unexpose("short") == []
        made = tenants.expose("short", place.role)
        assert made.schema == planned.schema
        assert made.sql[: len(planned.sql)] == planned.sql
        place.schemas["short"] = made.schema
        assert judge.run(place.of_role, "FROM t", options=place.options("short")) == [(1,)]
        assert len(tenants.expose("short", place.role).sql) == 3
        assert tenants.unexpose("short")
        assert tenants.unexpose("short") == []
    with tenants.open("short") as lake:
        lake.table("t").append({"i": [2]})
        assert lake.table("t").files().num_rows == 1
    with pytest.raises(AssertionError):
        judge.run(place.of_role, "FROM t", options=place.options("short"))
    tenants.expose("short", place.role)
    tenants.drop("short")
    with pytest.raises(AssertionError, match="No snapshot"):
        judge.run(place.of_role, "FROM t", options=place.options("short"))
    tenants.purge()
    with psycopg.connect(place.url) as connection:
        query = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
        assert connection.execute(query, (made.schema,)).fetchone() == (0,)


@pytest.mark.daily(0.22)
def test_stock_writes_where_that_is_asked_for(place: Place, judge: Stock) -> None:
    tenants = place.tenants
    tenants.create("pen")
    with tenants.open("pen") as lake:
        lake.create_table("t", histories.rows(0, 3, "pen"))
        lake.options.set("data_inlining_row_limit", 20)
    schema = tenants.expose("pen", place.role, writable=True).schema
    with pytest.raises(InputError, match="already exposed"):
        tenants.expose("pen", place.role)
    options = [f"METADATA_SCHEMA '{schema}'", f"META_SCHEMA '{schema}'"]
    judge.run(
        place.of_role,
        "INSERT INTO t VALUES (10, 'stock', 1)",
        "UPDATE t SET name = 'theirs' WHERE id = 1",
        "DELETE FROM t WHERE id = 0",
        "CREATE TABLE u (i INTEGER)",
        "INSERT INTO u FROM range(300)",
        "ALTER TABLE t ADD COLUMN note VARCHAR",
        "CREATE SCHEMA s",
        "CREATE VIEW v AS SELECT 42",
        "CALL l.set_option('parquet_compression', 'zstd')",
        "CALL l.set_option('parquet_compression', 'snappy')",
        options=options,
    )
    with tenants.open("pen") as lake:
        assert lake.options.get("parquet_compression") == "snappy"
        assert lake.table("t").count() == 3
        lake.options.set("parquet_compression", "zstd")
        lake.table("t").append(pa.table({"id": [11], "name": ["ours"], "day": [2], "note": ["n"]}))
        lake.table("u").append({"i": [7]})
        lake.table("u").delete("i < 100")
        mine = ours(lake)
        for snapshot, rows in mine.items():
            assert judge.rows(place.of_role, [*options, f"SNAPSHOT_VERSION {snapshot}"]) == rows
    found = judge.run(
        place.of_role, "SELECT value FROM l.options() WHERE option_name = 'parquet_compression'", options=options
    )
    assert found == [("zstd",)]
    judge.run(
        place.of_role,
        "CALL ducklake_merge_adjacent_files('l')",
        "CALL ducklake_rewrite_data_files('l', 'u', delete_threshold => 0.0)",
        "SELECT count(*) FROM ducklake_expire_snapshots('l', older_than => now())",
        "CALL ducklake_cleanup_old_files('l', cleanup_all => true)",
        "INSERT INTO u VALUES (1)",
        options=options,
    )
    with tenants.open("pen") as lake:
        rows = ours(lake)
        assert rows[lake.current_snapshot()] == judge.rows(place.of_role, options)
        assert len(rows) < len(mine)
        lake.expire_snapshots(keep_last=1)
        lake.cleanup_old_files(cleanup_all=True)
        assert not lake.verify(deep=True).errors
    with psycopg.connect(place.url) as connection:
        shared = f"FROM ducklake_%s WHERE catalog_id = {tenants.get('pen').id}"
        for table, more in (
            ("metadata", "AND key NOT IN ('quacklake_exposed', 'data_inlining_row_limit')"),
            ("files_scheduled_for_deletion", ""),
        ):
            own = f"SELECT count(*) FROM {schema}.ducklake_{table} WHERE true {more}"
            query = f"SELECT (SELECT count(*) {shared % table} {more}) = ({own})"
            assert connection.execute(query).fetchone() == (True,)  # type: ignore[arg-type]
    for statement in (
        f"UPDATE {schema}.ducklake_snapshot SET catalog_id = 0",
        f"INSERT INTO {schema}.ducklake_snapshot (snapshot_id, catalog_id) VALUES (0, 0)",
        f"CREATE TABLE {schema}.ducklake_inlined_data_1_1 (i int)",
    ):
        with psycopg.connect(place.of_role) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)  # type: ignore[arg-type]
    limit = "WHERE key = 'data_inlining_row_limit'"
    with psycopg.connect(place.of_role) as connection:
        connection.execute(f"UPDATE {schema}.ducklake_metadata SET value = '10' {limit}")  # type: ignore[arg-type]
    judge.run(place.of_role, "INSERT INTO u VALUES (3)", options=options)
    with psycopg.connect(place.url) as connection:
        for query, value in (
            (f"SELECT value FROM {schema}.ducklake_metadata {limit}", "0"),
            (f"SELECT value FROM ducklake_metadata {limit}", "20"),
        ):
            assert connection.execute(query).fetchall() == [(value,)]  # type: ignore[arg-type]
    with tenants.open("pen") as lake:
        assert lake.table("u").count() == len(rows[max(rows)]["main.u"]) + 1
    tenants.unexpose("pen")


def test_rows_that_no_view_can_show_are_an_error(place: Place) -> None:
    tenants = place.tenants
    tenants.create("gone")
    with tenants.open("gone") as lake:
        lake.create_table("t", {"i": [1]})
        lake.drop_table("t")
        with pytest.raises(InputError, match="dropped tables"):
            tenants.expose("gone")
        assert tenants.unexpose("gone") == []
        lake.expire_snapshots(keep_last=1)
        tenants.expose("gone")
    with pytest.raises(NotFoundError, match="no role"):
        tenants.expose("gone", "nobody at all")
    with pytest.raises(NotFoundError, match="does not exist"):
        tenants.expose("missing")
    tenants.unexpose("gone")


def test_files_that_others_use_are_kept_from_stock_clients_that_write(place: Place) -> None:
    tenants = place.tenants
    tenants.create("lender")
    with tenants.open("lender") as lake:
        lake.create_table("t", histories.rows(0, 200, "lender"))
    tenants.expose("lender", writable=True)
    with pytest.raises(InputError, match="exposed as writable"):
        tenants.fork("lender", "borrower")
    tenants.unexpose("lender")
    tenants.expose("lender")
    tenants.fork("lender", "borrower")
    with tenants.open("borrower") as lake:
        assert lake.table("t").count() == 200
        assert "quacklake_exposed" not in {key for key, *_ in lake.options.list()}
    tenants.unexpose("lender")
    with pytest.raises(InputError, match="other catalogs use files"):
        tenants.expose("lender", writable=True)


def test_a_lake_in_a_schema_has_other_names(postgres_url: str, tmp_path: Path) -> None:
    with quacklake.tenants(postgres_url, tmp_path, metadata_schema="it's") as tenants:
        tenants.create("acme")
        tenants.secure()
        assert tenants.expose("acme").schema == "it's_tenant_0"
        assert tenants.unexpose("acme")
