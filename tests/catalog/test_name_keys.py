"""Tables are found by their names: whatever the case of ASCII letters, in every database, and by an index."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

import quacklake
from quacklake.core.format.names import fold
from quacklake.errors import NotFoundError
from services.postgres import PostgresServer
from tests.layout import plain_only

NewUrl = Callable[[str], str]
ALL = [
    "sqlite",
    "duckdb",
    "postgres",
    "postgres whose lower() knows all letters",
    "mysql",
]
NAMES = ["Äb", "äb", "İstanbul", "ΣΑΣ", "straße", "STRASSE", "K", "\N{KELVIN SIGN}"]


@contextmanager
def place(database: str, new_url: NewUrl, request: pytest.FixtureRequest) -> Iterator[str]:
    kind, _, all_letters = database.partition(" ")
    if not all_letters:
        yield new_url(kind)
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    with server.new_database() as url, psycopg.connect(server.url, autocommit=True) as connection:
        name = url.rpartition("/")[2]
        connection.execute(f"DROP DATABASE {name}")
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C.UTF-8'")
        with psycopg.connect(url) as own:
            assert own.execute("SELECT lower('Ä')").fetchone() == ("ä",)
        yield url


@pytest.mark.parametrize("database", ALL)
def test_only_the_case_of_ascii_letters_does_not_count(
    database: str, new_url: NewUrl, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with place(database, new_url, request) as url, quacklake.connect(url, data_path=tmp_path / "data") as lake:
        for number, name in enumerate(NAMES):
            lake.create_table(name, [{"number": number}])
        spelled = {spelling(name) for name in NAMES for spelling in (str, str.upper, str.lower, str.swapcase)}
        for name in sorted(spelled):
            expected = [(number,) for number, each in enumerate(NAMES) if fold(each) == fold(name)]
            if expected:
                assert lake.sql(f'SELECT * FROM "{name}"').fetchall() == expected
            else:
                with pytest.raises(NotFoundError):
                    lake.table(f'"{name}"').to_arrow()


@pytest.mark.parametrize("database", ALL)
def test_a_policy_holds_for_a_table_that_takes_the_name_in_other_letters(
    database: str, new_url: NewUrl, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with place(database, new_url, request) as url, quacklake.connect(url, data_path=tmp_path / "data") as lake:
        lake.create_table("Äb", [{"id": 1}, {"id": 9}])
        lake.access.create_user("rea", ["reader"])
        lake.access.create_policy("late", '"Äb"', "id > 5")
        lake.drop_table('"Äb"')
        lake.create_table("ÄB", [{"id": 1}, {"id": 9}])
        assert lake.as_principal("rea").sql('SELECT * FROM "Äb"').fetchall() == [(9,)]


@pytest.mark.parametrize("database", ["sqlite", "postgres", "mysql"])
def test_names_that_are_too_long_for_an_index_are_told_apart(database: str, new_url: NewUrl, tmp_path: Path) -> None:
    letters = random.Random(7)
    long = "".join(chr(letters.randrange(0x4E00, 0x9FFF)) for _ in range(1_020))
    with quacklake.connect(new_url(database), data_path=tmp_path / "data") as lake:
        for number in range(3):
            lake.create_table(f'"{long}{number}"', [{"number": number}])
        assert [lake.table(f'"{long}{number}"').to_arrow().to_pylist() for number in range(3)] == [
            [{"number": number}] for number in range(3)
        ]


def test_the_first_query_reads_no_table_of_the_catalog_from_its_beginning(tmp_path: Path) -> None:
    """Those that do not grow with the number of tables may be read whole."""
    plain_only("in a shared lake everything is found by the catalog first")
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data", data_inlining_row_limit=0) as lake:
        for number in range(3):
            lake.create_table(f"t{number}", [{"a": 1, "b": 2}], partition_by=["a"], sort_by=["b"])
            lake.table(f"t{number}").set_column_comment("a", "one of some")
    statements: list[str] = []
    with quacklake.connect(url) as lake:
        with lake._context.catalog._engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            driver.set_trace_callback(statements.append)  # with the values in it; the pool has no other connection
        assert lake.sql("SELECT * FROM T1").fetchall() == [(1, 2)]
        assert lake.table("t2").column_comments == {"a": "one of some"}
    scanned = set()
    with closing(sqlite3.connect(tmp_path / "lake.db")) as database:
        for statement in statements:
            if statement.startswith("SELECT"):
                plan = database.execute(f"EXPLAIN QUERY PLAN {statement}")
                scanned |= {step.split()[1] for *_, step in plan if step.startswith("SCAN ducklake_")}
    assert {"ducklake_snapshot"} <= scanned <= {"ducklake_metadata", "ducklake_snapshot", "ducklake_macro"}
