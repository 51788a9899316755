"""Metadata tables that the database keeps in parts by the catalog hold the same lakes, and show nobody more of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import sql

import quacklake
from quacklake.core.catalog import parse_url
from quacklake.core.catalog.shared_tables import SharedTables
from quacklake.errors import ConfigError, UnsupportedFeatureError
from services import PostgresServer
from tests.catalog.stock import Stock
from tests.seeds import LONG
from tests.tenants import histories

PARTS = 2


def _parts(url: str) -> set[str]:
    """The tables that are kept in parts."""
    engine = sa.create_engine(parse_url(url).url)
    query = "SELECT relname FROM pg_class WHERE relkind = 'p'"
    if engine.dialect.name != "postgresql":
        query = (
            "SELECT table_name FROM information_schema.partitions WHERE table_schema = database()"
            f" AND partition_method = 'HASH' GROUP BY table_name HAVING count(*) = {PARTS}"
        )
    with engine.connect() as connection:
        found = set(connection.execute(sa.text(query)).scalars())
    engine.dispose()
    return found


@pytest.mark.parametrize("database", ["postgres", pytest.param("mysql", marks=pytest.mark.daily(0))])
def test_lakes_in_parts_are_as_others_are(database: str, new_url: Callable[[str], str], tmp_path: Path) -> None:
    url = new_url(database)
    with quacklake.connect(url, tmp_path / "data", catalog="alpha", create=True, metadata_partitions=PARTS) as lake:
        assert _parts(url) == set(SharedTables.of().definitions)
        histories.write(lake, "alpha") if LONG else histories.write_little(lake, "alpha")
        with quacklake.tenants(url) as tenants:
            tenants.create_many([f"many{i}" for i in range(200)])
            tenants.fork("alpha", "omega")
            with tenants.open("omega") as fork:
                count = fork.table("t").count()
                assert fork.table("t").delete("id < 10") > 0
                assert not fork.verify(deep=True).errors
            tenants.export("omega", f"sqlite:///{tmp_path}/plain.db", copy_data=True)
            for name in ("omega", "many7"):
                tenants.drop(name)
            assert tenants.purge(batch_rows=7).catalogs == 2
            assert len(tenants.list()) == 200
            assert tenants.stats("many8")[0].snapshots == 1
        assert lake.table("t").count() == count
        if LONG:
            histories.tidy(lake, tmp_path / "tidy")
        assert not lake.verify(deep=True).errors


def test_mariadb_looks_into_the_part_of_one_catalog_and_leaves_the_other_alone(mysql_url: str, tmp_path: Path) -> None:
    with quacklake.tenants(mysql_url, tmp_path / "data", metadata_partitions=PARTS) as tenants:
        assert _parts(mysql_url) == set(SharedTables.of().definitions)
        ids = [tenants.create(name).id for name in ("acme", "other")]
        assert {id_ % PARTS for id_ in ids} == {0, 1}
        for name in ("acme", "other"):
            with tenants.open(name) as lake:
                lake.create_table("t", {"a": list(range(40))}).append({"a": [7]})
                assert lake.table("t").delete("a = 7") == 2
        tenants.drop("other")
        assert tenants.purge().catalogs == 1
        with tenants.open("acme") as lake:
            assert lake.table("t").count() == 39
            assert not lake.verify(deep=True).errors
    engine = sa.create_engine(parse_url(mysql_url).url)
    with engine.connect() as connection:
        for id_ in ids:
            looked = f"EXPLAIN PARTITIONS SELECT * FROM ducklake_data_file WHERE catalog_id = {id_}"
            assert [row.partitions for row in connection.execute(sa.text(looked))] == [f"p{id_ % PARTS}"]
        left = connection.execute(sa.text("SELECT DISTINCT catalog_id FROM ducklake_snapshot")).scalars().all()
        assert left == ids[:1]
    engine.dispose()


def test_a_role_sees_its_catalog_alone_in_parts_too(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    role = postgres_server.create_role("acme")
    mine = postgres_url.replace("://quacklake@", f"://{role}@")
    with quacklake.tenants(postgres_url, tmp_path / "data", metadata_partitions=PARTS) as tenants:
        tenants.create_many(["acme", *(f"other{i}" for i in range(5))])
        tenants.grant("acme", role)
        assert not [line for line in tenants.secure(dry_run=True) if "ROW LEVEL SECURITY" in line]
        with quacklake.connect(mine, catalog="acme") as lake:
            t = lake.create_table("t", {"a": list(range(40))})
            t.append([{"a": 7}])
            t.delete("a < 5")
            assert t.count() == 36
            assert not lake.verify(deep=True).errors
        with psycopg.connect(mine, autocommit=True) as connection:
            rows = connection.execute("SELECT DISTINCT catalog_id FROM ducklake_snapshot").fetchall()
            assert rows == [(0,)]
            for number in range(PARTS):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(f"SELECT * FROM ducklake_snapshot_{number}")  # type: ignore[arg-type]
        # even with the right to it, a part by itself shows nothing
        with psycopg.connect(postgres_url, autocommit=True) as owner:
            owner.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO PUBLIC")
        with psycopg.connect(mine, autocommit=True) as connection:
            for number in range(PARTS):
                found = connection.execute(f"SELECT * FROM ducklake_snapshot_{number}").fetchall()  # type: ignore[arg-type]
                assert found == []
        tenants.revoke("acme", role)
        with psycopg.connect(postgres_url, autocommit=True) as owner:
            owner.execute("REVOKE SELECT ON ALL TABLES IN SCHEMA public FROM PUBLIC")
            owner.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))


@pytest.mark.daily(0)
def test_stock_duckdb_writes_one_of_many_in_parts_and_touches_no_other(
    postgres_url: str, stock: Stock, tmp_path: Path
) -> None:
    with quacklake.tenants(postgres_url, tmp_path / "data", metadata_partitions=PARTS) as tenants:
        names = ["acme", *(f"other{i}" for i in range(5))]
        tenants.create_many(names)
        for name in names:
            with tenants.open(name) as lake:
                lake.options.set("target_file_size", "64MB")
                size = lake.options.get("target_file_size")
                lake.create_table("t", {"a": list(range(40))})
        exposure = tenants.expose("acme", writable=True)
        options = [f"METADATA_SCHEMA '{exposure.schema}'", f"META_SCHEMA '{exposure.schema}'"]
        stock.run(
            postgres_url,
            "INSERT INTO t SELECT range FROM range(100, 150)",
            "DELETE FROM t WHERE a < 10",
            "CALL l.set_option('target_file_size', '32MB')",
            "SELECT count(*) FROM ducklake_expire_snapshots('l', older_than => now()::TIMESTAMP)",
            "SELECT count(*) FROM ducklake_cleanup_old_files('l', cleanup_all => true)",
            options=options,
        )
        with tenants.open("acme") as lake:
            assert lake.table("t").count() == 80
            lake.options.set("target_file_size", "16MB")
        for name in names[1:]:
            with tenants.open(name) as lake:
                assert lake.table("t").count() == 40
                assert not lake.verify(deep=True).errors
                assert lake.options.get("target_file_size") == size
        tenants.unexpose("acme")


def test_a_database_without_parts_refuses_them_and_makes_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/l.db"
    with pytest.raises(UnsupportedFeatureError, match="no partitions"):
        quacklake.tenants(url, tmp_path / "data", metadata_partitions=PARTS)
    with pytest.raises(ConfigError):
        quacklake.tenants(url, tmp_path / "data", metadata_partitions=1)
    with quacklake.tenants(url, tmp_path / "data") as tenants:
        assert tenants.list() == []
