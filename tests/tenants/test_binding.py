"""A statement that does not name a catalog of a shared lake is not sent; test_isolation.py checks all that are."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

import quacklake
from quacklake.core.catalog import scoped
from quacklake.core.catalog.tables import Tables
from tests.tenants.statements import sent, unbound


@pytest.mark.parametrize(
    ("sql", "good"),
    [
        ("SELECT 1 FROM (SELECT * FROM ducklake_tag WHERE catalog_id = 1) AS ducklake_tag", True),
        ("SELECT 1 FROM ducklake_tag", False),
        ("SELECT 1 FROM ducklake_tag WHERE key = 1", False),
        ("DELETE FROM ducklake_tag WHERE key = 1 AND ducklake_tag.catalog_id = 1", True),
        ("DELETE FROM ducklake_tag WHERE key = 1", False),
        ("INSERT INTO ducklake_tag (catalog_id, key) VALUES (1, 2)", True),
        ("INSERT INTO ducklake_tag (key) VALUES (1)", False),
        ("COPY ducklake_tag (key) FROM STDIN", False),
    ],
)
def test_the_check_itself_finds_what_is_missing(sql: str, good: bool) -> None:
    assert (not unbound(sql)) is good


def test_a_table_of_the_lake_that_cannot_be_bound_is_an_error(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", tmp_path / "data", catalog="acme") as lake:
        for statement in (
            sa.select(sa.literal(1)).select_from(sa.table("ducklake_table")),
            sa.select(Tables.of()["table"]),
            sa.delete(Tables.of()["table"]),
            sa.update(Tables.of()["table"]).values(table_name="x"),
            sa.insert(Tables.of()["table"]).values(table_name="x"),
            sa.text("SELECT * FROM ducklake_table"),
        ):
            with lake._context.catalog._engine.connect() as connection, pytest.raises(sa.exc.CompileError):
                connection.execute(statement)


def test_a_connection_that_names_no_catalog_can_read_nothing(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", tmp_path / "data", catalog="acme") as lake:
        engine = lake._context.catalog._engine
        table = Tables.of(shared=True)["table"]
        with engine.connect().execution_options(**{scoped.CATALOG: None}) as connection:
            assert connection.execute(sa.select(table.c.table_id)).all() == []
        plain = sa.create_engine(engine.url)
        scoped.attach(plain)
        with plain.connect() as connection, pytest.raises(sa.exc.StatementError):
            connection.execute(sa.select(table.c.table_id))
        plain.dispose()


def test_statements_of_a_plain_lake_are_what_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUACKLAKE_CATALOG", raising=False)
    with (
        quacklake.connect(f"sqlite:///{tmp_path}/l.db", tmp_path / "data") as lake,
        sent(lake, monkeypatch) as statements,
    ):
        lake.create_table("t", [{"a": 1}]).append([{"a": 2}])
        assert lake.table("t").count() == 2
    assert statements
    assert not [sql for sql in statements if "catalog_id =" in sql]


def test_metadata_cannot_be_changed_by_hand(tmp_path: Path) -> None:
    with (
        quacklake.connect(f"sqlite:///{tmp_path}/l.db", tmp_path / "data", catalog="acme") as lake,
        pytest.raises(quacklake.errors.UnsupportedFeatureError),
    ):
        lake._context.catalog.run_sql(lambda prefix: f"DELETE FROM {prefix}ducklake_table")
