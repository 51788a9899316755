"""Every statement that a catalog of a shared lake sends names that catalog, whatever is done."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import quacklake
from quacklake.catalog import scoped
from quacklake.catalog.tables import Tables
from tests.tenants import histories

_TABLE = re.compile(r"\b(FROM|JOIN|INTO|UPDATE|COPY)\s+(?:ONLY\s+)?\"?((?:ducklake|quacklake)_\w+)\"?", re.IGNORECASE)
_OF_ALL = ("ducklake_catalog", "quacklake_shared", "quacklake_shares")
_OWN = ("quacklake_unseen_", "quacklake_rows")


def unbound(sql: str) -> list[str]:
    """The tables that a statement reads or changes without saying whose rows."""
    found = []
    for match in _TABLE.finditer(sql):
        word, table, rest = match[1].upper(), match[2], sql[match.end() :]
        if table.startswith((*_OF_ALL, *_OWN)):
            continue
        if word in ("INTO", "COPY"):
            bound = re.match(r"\s*\([^)]*\bcatalog_id\b", rest)
        elif word == "UPDATE" or sql[: match.start()].rstrip().upper().endswith("DELETE"):
            bound = re.search(rf"WHERE.*\b{table}\.catalog_id = ", rest, re.DOTALL)
        else:
            bound = re.match(r"\s+WHERE catalog_id = ", rest)
        if bound is None:
            found.append(f"{table}: {sql}")
    return found


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


@contextmanager
def sent(lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every statement that reaches the database, those that go around SQLAlchemy too."""
    found: list[str] = []
    engine = lake._shared.catalog._engine
    if engine.dialect.name == "sqlite":
        engine.dispose()

        @sa.event.listens_for(engine, "connect")
        def trace(connection: sqlite3.Connection, _: Any) -> None:
            connection.set_trace_callback(found.append)

    else:

        @sa.event.listens_for(engine, "before_cursor_execute")
        def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
            found.append(statement)

    if engine.dialect.name == "postgresql":
        import psycopg

        copy = psycopg.Cursor.copy

        def noted(self: Any, statement: Any, *args: Any, **options: Any) -> Any:
            found.append(str(statement))
            return copy(self, statement, *args, **options)

        monkeypatch.setattr(psycopg.Cursor, "copy", noted)
    yield found


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.daily(0.3))])
def test_every_statement_of_every_operation_is_bound(
    database: str, new_url: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        quacklake.connect(new_url(database), tmp_path / "data", catalog="acme", create=True) as lake,
        sent(lake, monkeypatch) as statements,
    ):
        histories.write(lake, "word")
        histories.look(lake)
        histories.tidy(lake, tmp_path)
        # more rows than travel as one statement
        lake.create_table("wide", {f"c{i}": list(range(3)) for i in range(150)})
    assert len(statements) > 500
    assert [each for sql in statements for each in unbound(sql)] == []


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
            with lake._shared.catalog._engine.connect() as connection, pytest.raises(sa.exc.CompileError):
                connection.execute(statement)


def test_a_connection_that_names_no_catalog_can_read_nothing(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", tmp_path / "data", catalog="acme") as lake:
        engine = lake._shared.catalog._engine
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
        lake._shared.catalog.run_sql(lambda prefix: f"DELETE FROM {prefix}ducklake_table")
