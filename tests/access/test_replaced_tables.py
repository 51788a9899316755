"""Policies outlive renames, replacements and expiry: no table gets out of them by becoming another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import quacklake
from quacklake import Lake
from quacklake.errors import NotFoundError
from tests.duckdbs import import_extension
from tests.layout import plain_only

SECRET = "CANARY"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.sql("CREATE TABLE persons (id BIGINT, email VARCHAR)")
        lake.sql(f"INSERT INTO persons VALUES (1, '{SECRET}'), (9, 'shown')")
        lake.access.create_user("rea", ["reader"])
        yield lake


def _seen(lake: Lake, table: str) -> list[tuple[object, ...]]:
    return lake.as_principal("rea").sql(f"SELECT * FROM {table} ORDER BY ALL").fetchall()


def test_a_filter_holds_for_the_table_that_replaces_a_renamed_one(lake: Lake) -> None:
    lake.access.create_policy("late", "persons", "id > 5")
    lake.rename_table("persons", "people")
    lake.sql(f"CREATE OR REPLACE TABLE people AS SELECT 1::BIGINT AS id, '{SECRET}' AS email UNION ALL SELECT 9, 'new'")
    assert _seen(lake, "people") == [(9, "new")]
    lake.sql(f"CREATE TABLE persons AS SELECT 1::BIGINT AS id, '{SECRET}' AS email")  # the name of the beginning
    assert _seen(lake, "persons") == []
    lake.access.drop_policy("late", "people")
    assert len(_seen(lake, "people")) == 2


def test_a_mask_holds_for_the_renamed_column_of_a_table_that_is_replaced(lake: Lake) -> None:
    lake.access.create_mask("persons", "email", "'…'")
    lake.table("persons").rename_column("email", "mail")
    lake.sql(f"CREATE OR REPLACE TABLE persons AS SELECT 1::BIGINT AS id, '{SECRET}' AS mail, 'x' AS other")
    assert _seen(lake, "persons") == [(1, "…", "x")]
    lake.access.drop_mask("persons", "mail")
    assert _seen(lake, "persons") == [(1, SECRET, "x")]


def test_the_names_stay_when_the_snapshots_of_a_table_expire(lake: Lake) -> None:
    lake.access.create_policy("late", "persons", "id > 5")
    lake.access.create_mask("persons", "email", "'…'")
    lake.rename_table("persons", "people")
    lake.table("people").rename_column("email", "mail")
    lake.drop_table("people")
    lake.expire_snapshots(keep_last=1)
    lake.sql(f"CREATE TABLE people AS SELECT 1::BIGINT AS id, '{SECRET}' AS mail UNION ALL SELECT 9, '{SECRET}'")
    assert _seen(lake, "people") == [(9, "…")]


def test_a_table_that_inherits_policies_keeps_them_through_its_own_renames(lake: Lake) -> None:
    lake.access.create_policy("late", "persons", "id > 5")
    lake.access.create_mask("persons", "email", "'…'")
    rows = f"SELECT 1::BIGINT AS id, '{SECRET}' AS email UNION ALL SELECT 9, '{SECRET}'"
    lake.sql(f"CREATE OR REPLACE TABLE persons AS {rows}")
    lake.rename_table("persons", "people")
    lake.table("people").rename_column("email", "mail")
    assert _seen(lake, "people") == [(9, "…")]
    lake.sql(f"CREATE OR REPLACE TABLE people AS SELECT id, email AS mail FROM ({rows})")
    lake.rename_table("people", "folk")
    assert _seen(lake, "folk") == [(9, "…")]
    lake.access.drop_mask("folk", "mail")
    lake.access.drop_policy("late", "folk")
    assert _seen(lake, "folk") == [(1, SECRET), (9, SECRET)]


def test_a_table_that_had_the_name_before_inherits_nothing(lake: Lake) -> None:
    lake.rename_table("persons", "archive")
    lake.table("archive").rename_column("email", "old")
    lake.table("archive").add_column("email", "VARCHAR")
    lake.access.create_mask("archive", "email", "'…'")
    lake.sql("CREATE TABLE persons (id BIGINT, email VARCHAR)")
    lake.access.create_policy("none", "persons", "false")
    assert _seen(lake, "archive") == [(1, SECRET, "…"), (9, "shown", "…")]


def test_a_table_that_another_client_renamed_and_replaced_stays_hidden(lake: Lake, tmp_path: Path) -> None:
    plain_only("stock DuckDB cannot open a catalog of a shared lake")
    for name in ("ducklake", "sqlite_scanner"):
        import_extension(name)
    lake.access.create_policy("late", "persons", "id > 5")
    with duckdb.connect() as stock:
        stock.execute("LOAD ducklake; LOAD sqlite_scanner")
        stock.execute(f"ATTACH 'ducklake:sqlite:{tmp_path}/lake.db' AS l; USE l")
        stock.execute("ALTER TABLE persons RENAME TO people")
        stock.execute(f"CREATE OR REPLACE TABLE people AS SELECT 1::BIGINT AS id, '{SECRET}' AS email")
    assert _seen(lake, "people") == []


def test_a_grant_on_columns_of_a_materialized_view_shows_these_columns(lake: Lake) -> None:
    lake.access.create_policy("late", "persons", "id > 5")
    lake.sql("CREATE MATERIALIZED VIEW newest AS SELECT id, email FROM persons")
    lake.access.grant("SELECT", "rea", table="newest", columns=["id"])
    user = lake.as_principal("rea")
    assert _seen(lake, "newest") == [(1,), (9,)]
    assert user.table("newest").columns == ["id"]
    assert user.table("newest").to_arrow().column_names == ["id"]
    with pytest.raises(quacklake.QuacklakeError, match='"email"'):
        user.sql("SELECT email FROM newest")
    assert "email" not in user.table("newest").changes(0).to_arrow().column_names


def test_a_materialized_view_stays_hidden_in_the_past_when_it_is_dropped(lake: Lake) -> None:
    lake.access.create_policy("late", "persons", "id > 5")
    lake.sql("CREATE MATERIALIZED VIEW newest AS SELECT id, email FROM persons")
    version = lake.current_snapshot()
    lake.sql("DROP MATERIALIZED VIEW newest")
    user = lake.as_principal("rea")
    assert user.at(version=version).tables() == ["main.persons"]
    with pytest.raises(NotFoundError):
        user.sql(f"FROM newest AT (VERSION => {version})").fetchall()


def _grants(lake: Lake) -> list[tuple[object, ...]]:
    return [row[1:] for row in lake.sql("SHOW GRANTS FOR ann").fetchall()]


def test_grants_have_the_last_name_of_a_table_that_was_replaced_and_end_with_its_last_snapshot(lake: Lake) -> None:
    lake.access.create_user("ann")
    lake.access.grant("SELECT", "ann", table="persons", columns=["id"])
    lake.access.grant("INSERT", "ann", table="persons")
    lake.rename_table("persons", "people")
    lake.table("people").rename_column("id", "number")
    old = lake.current_snapshot()
    lake.sql("CREATE OR REPLACE TABLE people AS SELECT 9 AS number")
    insert, select = ("INSERT", "table", "main.people", None), ("SELECT", "table", "main.people", "number")
    assert _grants(lake) == [(*insert, "dropped"), (*select, "dropped")]
    ann = lake.as_principal("ann")
    assert ann.tables() == [] and ann.at(version=old).table("people").count() == 2, "it is still granted in the past"
    lake.access.grant("SELECT", "ann", table="people")
    assert ("SELECT", "table", "main.people", None, "current") in _grants(lake)
    lake.sql("REVOKE INSERT ON people FROM ann")
    assert (*insert, "dropped") not in _grants(lake), "a grant on a dropped table can be taken away by its last name"
    lake.expire_snapshots(versions=list(range(old + 1)))
    assert _grants(lake) == [("SELECT", "table", "main.people", None, "current")]
    lake.access.grant("INSERT", "ann", table="people")
    assert len(lake.access.grants("ann")) == 2, "grants that no snapshot needs are forgotten"


def test_a_grant_on_a_dropped_schema_or_view_can_be_taken_away(lake: Lake) -> None:
    lake.access.create_user("ann")
    lake.create_schema("s")
    lake.create_view("v", "SELECT 1 AS one")
    lake.access.grant("SELECT", "ann", schema="s")
    lake.access.grant("SELECT", "ann", table="v")
    lake.sql("DROP SCHEMA s; DROP VIEW v")
    assert _grants(lake) == [("SELECT", "schema", "s", None, "dropped"), ("SELECT", "table", "main.v", None, "dropped")]
    lake.sql("REVOKE SELECT ON SCHEMA s FROM ann; REVOKE SELECT ON v FROM ann")
    assert _grants(lake) == [] == lake.access.grants("ann")
    with pytest.raises(NotFoundError):
        lake.access.revoke("SELECT", "ann", table="v")
