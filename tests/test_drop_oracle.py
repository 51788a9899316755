"""The oracle of DROPs finds every mistake that is planted, and nothing else."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

import quacklake
from quacklake.core.catalog import expiring, migrations, shared_lake
from quacklake.core.catalog.writing.writer import Writer
from quacklake.core.tenancy import exposing
from quacklake.core.tenancy.conversion import Conversion
from quacklake.core.tenancy.tenancy import Tenancy
from quacklake.errors import QuacklakeError
from tests.layout import plain_only
from tests.removal_oracle import Oracle, watching

ROWS = [{"a": i} for i in range(3)]


@pytest.fixture(autouse=True)
def plain() -> None:
    plain_only("it makes plain and shared lakes of its own")


@pytest.fixture
def oracle() -> Iterator[Oracle]:
    """An oracle that has to find something."""
    with watching() as found:
        yield found
        assert found.mistakes
        found.mistakes.clear()


def run(url: str, *statements: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def tenants(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[quacklake.Tenants]:
    with quacklake.tenants(request.getfixturevalue("postgres_url"), tmp_path / "data") as found:
        for name in ("acme", "beta"):
            with found.open(name, create=True) as lake:
                lake.create_table("t", ROWS)
        yield found


def story(lake: quacklake.Lake) -> None:
    """Two versions of inlined rows, of which the first is flushed, and a table that is gone."""
    t = lake.create_table("t", ROWS)
    t.add_column("b", "INTEGER")
    t.append([{"a": 7, "b": 1}])
    lake.create_table("gone", ROWS)
    lake.drop_table("gone")


# -- tables of inlined rows --------------------------------------------------------------------------------------------


def open_file(tmp_path: Path, database: str = "sqlite") -> quacklake.Lake:
    return quacklake.connect(f"{database}:///{tmp_path}/l.db", data_path=tmp_path / "data")


@pytest.mark.parametrize("database", ["sqlite", "duckdb"])
def test_what_no_snapshot_shows_is_dropped(tmp_path: Path, database: str) -> None:
    with watching() as oracle, open_file(tmp_path, database) as lake:
        story(lake)
        lake.maintenance.flush_inlined_data()
        lake.expire_snapshots(keep_last=1)
        assert oracle.drops.asked > 2
        assert lake.table("t").count() == 4


@pytest.mark.parametrize("database", ["sqlite", "duckdb"])
def test_an_expiry_that_takes_a_living_table_for_a_dead_one_is_caught(
    oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    with open_file(tmp_path, database) as lake:
        story(lake)
        with monkeypatch.context() as patch:
            real = expiring.parse_table_name
            patch.setattr(expiring, "parse_table_name", lambda name: real(name) and (999, 0))
            with pytest.raises(AssertionError, match="has rows that a snapshot shows"):
                lake.expire_snapshots(keep_last=1)
        assert lake.table("t").count() == 4


@pytest.mark.parametrize("database", ["sqlite", "duckdb"])
def test_a_table_of_inlined_rows_that_is_dropped_and_still_named_is_caught(
    oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    real = Writer.run

    def forgetful(self: Writer, name: str, *rest: Any) -> Any:
        return None if name == "forget_inlined_table" else real(self, name, *rest)

    with open_file(tmp_path, database) as lake:
        story(lake)
        with monkeypatch.context() as patch:
            patch.setattr(Writer, "run", forgetful)
            with pytest.raises(AssertionError, match="was dropped and is named"):
                lake.maintenance.flush_inlined_data()
        assert lake.table("t").count() == 4


def test_a_table_of_the_metadata_that_is_dropped_is_caught(oracle: Oracle, tmp_path: Path) -> None:
    with open_file(tmp_path) as lake:
        for statement in ("DROP TABLE ducklake_tag", 'DROP TABLE IF EXISTS "quacklake_commits"'):
            with (
                pytest.raises(AssertionError, match="was not made by this call"),
                lake._context.catalog.commit() as writer,
            ):
                writer.connection.execute(sa.text(statement))
        assert len(oracle.mistakes) == 2


def test_a_way_back_to_an_older_version_that_forgets_to_say_so_is_caught(
    oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_file(tmp_path) as lake:
        lake.migrate("1.1")
        with monkeypatch.context() as patch:
            patch.setattr(migrations._Migration, "set_version", lambda *_: None)
            with pytest.raises(AssertionError, match=r"ducklake_view_column_tag is part of 1\.1"):
                lake.migrate("1.0")
        assert lake.migrate("1.0") == "1.0"


# -- conversions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_conversion_that_loses_rows_is_caught(
    database: str, oracle: Oracle, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/l.db" if database == "sqlite" else request.getfixturevalue("postgres_url")
    with quacklake.connect(url, data_path=tmp_path / "plain") as lake:
        lake.create_table("t", ROWS)
    real = Conversion._move

    def lossy(self: Conversion, name: str, *rest: Any) -> None:
        if name != "ducklake_data_file":
            real(self, name, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Conversion, "_move", lossy)
        with pytest.raises(AssertionError, match=r"rows of .*quacklake_old_data_file are nowhere else"):
            quacklake.tenants(url, tmp_path / "data", convert="acme")
    with quacklake.tenants(url, tmp_path / "data", convert="acme") as tenants, tenants.open("acme") as lake:
        assert lake.table("t").count() == 3


@pytest.mark.postgres
def test_a_conversion_that_drops_a_view_of_somebody_else_is_caught(
    oracle: Oracle, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(postgres_url, "CREATE SCHEMA lakehouse", "CREATE VIEW lakehouse.tables AS SELECT 1 AS mine")
    quacklake.connect(postgres_url, data_path=tmp_path / "plain").close()
    monkeypatch.setattr(shared_lake._LakeViews, "ours", lambda self: sorted(self.relations))
    with pytest.raises(AssertionError, match=r"lakehouse\.tables shows nothing of a lake"):
        quacklake.tenants(postgres_url, tmp_path / "data", convert="acme")


# -- exposed catalogs --------------------------------------------------------------------------------------------------


@pytest.mark.postgres
@pytest.mark.parametrize("writable", [False, True])
def test_what_exposing_made_is_dropped(tenants: quacklake.Tenants, writable: bool) -> None:
    with watching() as oracle:
        tenants.expose("acme", writable=writable)
        tenants.expose("beta", writable=writable)
        tenants.unexpose("acme")
        tenants.drop("beta")
        tenants.purge(grace=dt.timedelta(0))
        assert oracle.drops.asked > 50


@pytest.mark.postgres
def test_a_lake_in_a_schema_that_looks_exposed_is_not_dropped_unseen(
    oracle: Oracle, tenants: quacklake.Tenants, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quacklake.connect(postgres_url, data_path=str(tmp_path / "own"), metadata_schema="tenant_1") as lake:
        lake.create_table("precious", ROWS)
    with monkeypatch.context() as patch:
        patch.setattr(exposing, "is_taken", lambda *_: False)
        patch.setattr(exposing, "is_exposure", lambda *_: True)
        with pytest.raises(AssertionError, match=r"tenant_1\.ducklake_\w+ was not made by this call"):
            tenants.expose("beta")
    with quacklake.connect(postgres_url, metadata_schema="tenant_1") as lake:
        assert lake.table("precious").count() == 3


@pytest.mark.postgres
def test_a_schema_that_is_dropped_with_what_others_have_in_it_is_caught(
    oracle: Oracle, tenants: quacklake.Tenants, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = tenants.expose("acme").schema
    run(postgres_url, f"CREATE TABLE {schema}.notes AS SELECT 1 AS a")
    drops = [f"DROP VIEW {schema}.ducklake_tag", f"DROP SCHEMA IF EXISTS {schema} CASCADE"]
    monkeypatch.setattr(exposing, "_without", lambda *_: drops)
    with pytest.raises(AssertionError, match=f"the schema {schema} is dropped with"):
        tenants.unexpose("acme")
    assert run(postgres_url, f"SELECT a FROM {schema}.notes") == [(1,)]


@pytest.mark.postgres
def test_a_schema_of_another_catalog_that_is_dropped_is_caught(
    oracle: Oracle, tenants: quacklake.Tenants, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tenants.expose("acme").schema
    tenants.expose("beta")
    monkeypatch.setattr(Tenancy, "exposure_schema", lambda *_: other)
    with pytest.raises(AssertionError, match="is still that of an exposed catalog"):
        tenants.unexpose("beta")
    assert run(postgres_url, f"SELECT count(*) FROM {other}.ducklake_table") == [(1,)]


@pytest.mark.postgres
def test_a_real_table_of_an_exposed_catalog_that_has_more_than_the_lake_is_not_dropped_unseen(
    oracle: Oracle, tenants: quacklake.Tenants, postgres_url: str
) -> None:
    schema = tenants.expose("acme", writable=True).schema
    run(
        postgres_url,
        f"ALTER TABLE {schema}.ducklake_metadata DISABLE TRIGGER USER",
        f"INSERT INTO {schema}.ducklake_metadata (key, value) VALUES ('mine', 'only here')",
    )
    with pytest.raises(AssertionError, match="has rows that the lake has not"):
        tenants.unexpose("acme")
    assert run(postgres_url, f"SELECT value FROM {schema}.ducklake_metadata WHERE key = 'mine'") == [("only here",)]


@pytest.mark.postgres
def test_what_stands_on_a_view_and_is_more_than_a_view_is_not_dropped_unseen(
    oracle: Oracle, tenants: quacklake.Tenants, postgres_url: str
) -> None:
    schema = tenants.expose("acme").schema
    run(postgres_url, f"CREATE MATERIALIZED VIEW kept AS SELECT * FROM {schema}.ducklake_table")
    with pytest.raises(AssertionError, match="kept is dropped with"):
        tenants.unexpose("acme")


@pytest.mark.postgres
def test_a_statement_that_cannot_be_read_is_caught(oracle: Oracle, tenants: quacklake.Tenants) -> None:
    for statement in (
        "DROP TABLE ducklake_tag, ducklake_view",
        "DROP OWNED BY quacklake",
        "DROP SCHEMA lakehouse CASCADE",
    ):
        with pytest.raises(AssertionError), tenants._tenancy.writing() as registry:
            registry.connection.exec_driver_sql(statement)
    with pytest.raises(QuacklakeError):
        tenants.get("nobody")
