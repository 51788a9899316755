"""Statements that go to PostgreSQL's driver as they are: what they say, and how few messages a small change takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

import quacklake
from quacklake.core.catalog.databases.postgres_direct import _join_statements
from quacklake.errors import AlreadyExistsError
from tests.catalog.driver import watch_driver


def test_joined_statements_keep_their_parameters_apart_and_their_percent_signs() -> None:
    texts = ('INSERT INTO a ("100%%(x)s") VALUES (%(x)s::BIGINT)', "UPDATE b SET y = %(x)s WHERE z = %(old_z)s")
    assert _join_statements(texts) == (
        'WITH w0 AS (INSERT INTO a ("100%%(x)s") VALUES (%(p0_x)s::BIGINT)) '
        "UPDATE b SET y = %(p1_x)s WHERE z = %(p1_old_z)s"
    )


def _messages(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> list[str]:
    found: list[str] = []
    with monkeypatch.context() as patch:
        watch_driver(patch, lambda statement, _: found.append(statement))
        work()
    return [statement.split("(")[0].split()[0] for statement in found]


@pytest.mark.parametrize("catalog", [None, "acme"], ids=["plain", "shared"])
def test_a_small_commit_is_the_turn_with_the_newest_snapshot_and_one_write(
    catalog: str | None, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {} if catalog is None else {"catalog": catalog, "create": True}
    with quacklake.connect(postgres_url, tmp_path / "data", **made) as lake:
        rows = pa.table({"50%(a)s": [1, 2], "b": ["x", "y"]})
        t = lake.create_table("t", rows)
        t.append(rows)
        assert _messages(monkeypatch, lambda: t.append(rows)) == ["BEGIN", "WITH"]
        assert _messages(monkeypatch, lambda: t.append(rows[:1])) == ["BEGIN", "WITH"]
        assert t.count() == 7
        assert not lake.verify(deep=True).errors


def test_the_turn_is_taken_in_a_schema_whose_name_looks_like_sql(postgres_url: str, tmp_path: Path) -> None:
    schema = """it's %s; "\\' --"""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    with quacklake.connect(postgres_url, tmp_path / "data", metadata_schema=schema) as lake:
        t = lake.create_table("t", pa.table({"a": [1]}))
        for _ in range(3):
            t.append(pa.table({"a": [1]}))
        assert t.count() == 4
        assert lake.current_snapshot() == 4


def test_a_tenant_is_made_by_the_turn_a_look_and_one_write(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quacklake.tenants(postgres_url, tmp_path / "data") as tenants:
        tenants.create("first")
        assert _messages(monkeypatch, lambda: tenants.create("acme")) == ["SELECT", "SELECT", "WITH"]
        with pytest.raises(AlreadyExistsError, match="'acme' exists"):
            tenants.create("ACME")
        assert [(each.id, each.name) for each in (tenants.get("acme"), tenants.create("last"))] == [
            (1, "acme"),
            (2, "last"),
        ]
        with tenants.open("last") as lake:
            lake.create_table("t", {"a": [1]})
            assert not lake.verify(deep=True).errors


def test_a_commit_whose_connection_is_gone_takes_another(postgres_url: str, tmp_path: Path) -> None:
    with quacklake.connect(postgres_url, tmp_path / "data") as lake:
        t = lake.create_table("t", {"a": [1]})
        t.append({"a": [2]})
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            ended = connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'quacklake'"
            ).fetchall()
            assert ended and all(each == (True,) for each in ended)
        t.append({"a": [3]})  # by another attempt
        assert t.count() == 3
