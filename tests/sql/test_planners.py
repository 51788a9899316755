"""Planners that closed sessions leave to the next: only those in which nothing of a session can be left."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import quacklake
from quacklake.core.duckdb_versions import connect
from quacklake.core.engines.duckdb.idle import IdleDatabases
from quacklake.core.sql import binder, session_databases
from quacklake.core.sql.safety import Safety
from quacklake.core.sql.session_databases import Planners
from quacklake.errors import SqlError
from tests.engines.duckdb.test_idle import contents

PLAIN = (
    "SELECT count(*) FROM t WHERE id > 3",
    "SELECT t.name FROM t JOIN s ON t.id = s.id WHERE s.id > 1 ORDER BY ALL",
    "WITH few AS (SELECT * FROM t WHERE id < 4) SELECT sum(id) FROM few WHERE id <> 2",
    "SELECT upper(name) FROM main.t WHERE id IN (SELECT id FROM s) ORDER BY 1",
    "SELECT * FROM (VALUES (1), (2)) AS v(id) JOIN t USING (id) ORDER BY ALL",
    "SELECT id FROM t AS own WHERE own.name LIKE 'n%' AND id = 1",
)
OTHER = (
    "SET default_null_order = 'nulls_first'; SELECT id FROM t WHERE id > 3",
    "SELECT id FROM t WHERE id > 3; SET GLOBAL default_null_order = 'nulls_first'",
    "SELECT id FROM t WHERE id > 3; RESET default_null_order",
    "SHOW TABLES",
    "SELECT table_name FROM information_schema.tables WHERE table_name = 't'",
    "CREATE TABLE made (id INTEGER)",
    "ALTER TABLE s ADD COLUMN more INTEGER",
    "CREATE OR REPLACE VIEW w AS SELECT id FROM t",
    "SELECT id FROM v WHERE id > 3",
    "SELECT id FROM t WHERE twice(id) > 3",
    "SELECT * FROM t JOIN range(3) AS r(id) USING (id)",
    'WITH "a.csv" AS (SELECT 1 AS id) SELECT * FROM t JOIN "a.csv" USING (id)',
    "SELECT * FROM t, (SHOW TABLES) WHERE id > 3",
)


@pytest.fixture(autouse=True)
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[IdleDatabases]:
    """Let each test begin without planners that wait."""
    own = IdleDatabases(session_databases.MAX_IDLE)
    monkeypatch.setattr(session_databases, "idle_planners", lambda: own)
    yield own
    own.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = tmp_path_factory.mktemp("planners")
    found = f"sqlite:///{home}/lake.db"
    with quacklake.connect(found, data_path=home / "data") as lake:
        lake.create_table("t", [{"id": number, "name": f"n{number}"} for number in range(6)])
        lake.create_table("s", [{"id": 1}, {"id": 2}])
        lake.sql("CREATE VIEW v AS SELECT id FROM t; CREATE MACRO twice(x) AS 2 * x")
    return found


def planner_of(lake: quacklake.Lake) -> duckdb.DuckDBPyConnection | None:
    return lake._sessions.current().attachments._planner


def is_closed(connection: duckdb.DuckDBPyConnection | None) -> bool:
    assert connection is not None
    try:
        connection.execute("SELECT 1")
    except duckdb.ConnectionException:
        return True
    return False


def _fresh() -> duckdb.DuckDBPyConnection:
    with quacklake.session() as session:
        return session.attachments.planners.make()


def test_the_next_session_gets_the_planner_of_a_closed_one_and_finds_nothing_in_it(url: str) -> None:
    with quacklake.connect(url) as lake:
        for statement in PLAIN:
            assert lake.sql(statement).fetchall()
        left = planner_of(lake)
    assert not is_closed(left)
    with quacklake.connect(url) as lake, _fresh() as fresh:
        assert lake.sql(PLAIN[0]).fetchall() == [(2,)]
        assert left is not None
        assert planner_of(lake) is left
        assert contents(left) == contents(fresh)
        assert contents(left.cursor()) == contents(fresh.cursor())


@pytest.mark.parametrize("statement", OTHER)
def test_a_planner_that_did_anything_else_is_closed_with_its_session(
    statement: str, url: str, waiting: IdleDatabases
) -> None:
    with quacklake.connect(url) as lake:
        lake.sql("BEGIN")
        lake.sql(PLAIN[0])
        found = planner_of(lake)
        lake.sql(statement).fetchall()
        assert planner_of(lake) is found
        lake.sql("ROLLBACK")
    assert is_closed(found)
    assert not waiting._idle


@pytest.mark.parametrize("error", [duckdb.InterruptException, KeyboardInterrupt, MemoryError])
def test_a_planner_in_which_something_went_wrong_is_closed(
    error: type[BaseException], url: str, monkeypatch: pytest.MonkeyPatch, waiting: IdleDatabases
) -> None:
    def fail(*_: object) -> Any:
        raise error("now")

    with quacklake.connect(url) as lake:
        assert lake.sql(PLAIN[0]).fetchall() == [(2,)]
        found = planner_of(lake)
        monkeypatch.setattr(binder, "scan_filters", fail)
        if error is duckdb.InterruptException:
            assert lake.sql(PLAIN[0]).fetchall() == [(2,)]
        else:
            with pytest.raises(error):
                lake.sql(PLAIN[0])
    assert is_closed(found)
    assert not waiting._idle


def test_sessions_that_are_open_together_have_planners_of_their_own(url: str) -> None:
    with quacklake.connect(url) as one, quacklake.connect(url) as other:
        for lake in (one, other):
            assert lake.sql(PLAIN[0]).fetchall() == [(2,)]
        assert planner_of(one) is not planner_of(other)


def test_a_session_with_other_settings_takes_another_planner(url: str) -> None:
    with quacklake.connect(url, duckdb_memory_limit="1GB") as lake:
        lake.sql(PLAIN[0])
        left = planner_of(lake)
    with quacklake.connect(url) as lake:
        lake.sql(PLAIN[0])
        assert planner_of(lake) is not left
    with quacklake.connect(url, duckdb_memory_limit="1GB") as lake:
        lake.sql(PLAIN[0])
        assert planner_of(lake) is left


def test_a_safe_session_neither_takes_nor_leaves_a_planner(url: str, waiting: IdleDatabases) -> None:
    with quacklake.connect(url) as lake:
        lake.sql(PLAIN[0])
        left = planner_of(lake)
    with quacklake.connect(url) as lake, quacklake.session(safety=Safety()) as session:
        session.attach(lake)
        session.sql("USE lake")
        assert session.sql(PLAIN[0]).fetchall() == [(2,)]
        own = session.attachments._planner
        assert own is not None
        assert own is not left
        with pytest.raises(duckdb.Error, match="locked"):
            own.execute("SET GLOBAL default_null_order = 'nulls_first'")
    assert is_closed(own)
    assert [connection for _, connection in waiting._idle] == [left]


def test_the_planner_of_a_lake_that_other_threads_have_sessions_of_is_closed(url: str, waiting: IdleDatabases) -> None:
    with quacklake.connect(url) as lake:
        lake.sql(PLAIN[0])
        thread = threading.Thread(target=lambda: lake.sql(PLAIN[0]).fetchall())
        thread.start()
        thread.join()
        found = planner_of(lake)
    assert is_closed(found)
    assert not waiting._idle


def test_a_planner_of_the_parent_is_not_left_to_sessions_of_a_forked_child(
    monkeypatch: pytest.MonkeyPatch, waiting: IdleDatabases
) -> None:
    known = Planners(connect, {}, reuse=True)
    made = known.take()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    known.give_back(made, clean=True)
    assert is_closed(made)
    assert not waiting._idle


@pytest.mark.parametrize("seed", range(3))
def test_sessions_one_after_another_answer_like_duckdb_and_see_nothing_of_each_other(seed: int, tmp_path: Path) -> None:
    """Two lakes have tables of the same name with other columns, values and types."""
    chance = random.Random(seed)
    rows = {"a": [{"k": n, "x": n % 7} for n in range(40)], "b": [{"k": str(n), "x": 1.5 * n} for n in range(30)]}
    with duckdb.connect() as oracle:
        for name, made in rows.items():
            with quacklake.connect(f"sqlite:///{tmp_path}/{name}.db", data_path=tmp_path / name) as lake:
                oracle.register("given", lake.create_table("t", made).to_arrow())
                oracle.execute(f"CREATE SCHEMA {name}; CREATE TABLE {name}.t AS FROM given")
        for _ in range(12):
            name = chance.choice("ab")
            oracle.execute(f"USE {name}")
            with quacklake.connect(f"sqlite:///{tmp_path}/{name}.db") as lake:
                with pytest.raises(SqlError, match="qls_0 does not exist"):
                    lake.sql("SELECT * FROM qls_0 WHERE k = '1'")
                for _ in range(chance.randrange(1, 4)):
                    if chance.random() < 0.3:
                        lake.sql(chance.choice(["SET default_null_order = 'nulls_first'", "SHOW TABLES", "DESCRIBE t"]))
                    low, word = chance.randrange(9), chance.choice(["<", ">=", "="])
                    query = f"SELECT typeof(k), k, x FROM t WHERE x {word} {low} OR k = '{low}' ORDER BY ALL"
                    assert lake.sql(query).fetchall() == oracle.execute(query).fetchall()
