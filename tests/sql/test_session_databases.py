"""Databases that closed sessions of lakes leave to the next: only those in which nothing of a session can be left."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake.core.duckdb_versions import connect
from quacklake.core.engines.duckdb.idle import IdleDatabases
from quacklake.core.sql import scans, session_databases
from quacklake.core.sql.session_databases import SessionDatabase
from quacklake.errors import ConstraintError, CorruptFileError, QuacklakeError, SqlError
from services.s3 import S3Server
from tests.engines.duckdb.test_idle import contents
from tests.sql.test_planners import PLAIN, is_closed

OTHER = (
    "SET default_null_order = 'nulls_first'",
    "SET GLOBAL default_null_order = 'nulls_first'",
    "RESET default_null_order",
    "PRAGMA disable_progress_bar",
    "SET VARIABLE mine = 7",
    "USE memory",
    "USE lake.main",
    "ATTACH ':memory:' AS more",
    "CREATE TEMP TABLE mine AS SELECT 1 AS id",
    "CREATE TABLE memory.main.mine AS SELECT 1 AS id",
    "CREATE SEQUENCE memory.main.numbers",
    "CREATE TEMP MACRO thrice(x) AS 3 * x",
    "CREATE TABLE made (id INTEGER)",
    "INSERT INTO s VALUES (3)",
    "SHOW TABLES",
    "DESCRIBE t",
    "EXPLAIN SELECT id FROM t WHERE id > 3",
    "PREPARE mine AS SELECT id FROM t",
    "BEGIN",
    "CHECKPOINT memory",
    "SELECT id FROM v WHERE id > 3",
    "SELECT id FROM t WHERE twice(id) > 3",
    "SELECT id FROM t AT (VERSION => 1 + 1)",
    "SELECT random() FROM t",
    "SELECT setseed(0.5)",
    "SELECT current_setting('threads') FROM t",
    "SELECT * FROM t JOIN range(3) AS r(id) USING (id)",
    "SELECT * FROM duckdb_settings()",
    "SELECT table_name FROM information_schema.tables WHERE table_name = 't'",
    "SELECT * FROM frame",
    "FROM glob('*')",
    "SUMMARIZE t",
    "CALL duckdb_settings()",
)


@pytest.fixture(autouse=True)
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[IdleDatabases[SessionDatabase]]:
    """Let each test begin without databases that wait."""
    own: IdleDatabases[SessionDatabase] = IdleDatabases(session_databases.MAX_IDLE)
    monkeypatch.setattr(session_databases, "idle_databases", lambda: own)
    yield own
    own.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    found = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(found, data_path=tmp_path / "data", data_inlining_row_limit=3) as lake:
        lake.create_table("t", [{"id": number, "name": f"n{number}"} for number in range(6)])
        lake.create_table("s", [{"id": 1}, {"id": 2}])
        lake.sql("CREATE VIEW v AS SELECT id FROM t; CREATE MACRO twice(x) AS 2 * x")
    return found


def database_of(lake: quacklake.Lake) -> SessionDatabase:
    found = lake._sessions.current().attachments.database
    assert found is not None
    return found


def was_closed(database: SessionDatabase) -> bool:
    return is_closed(database.connection)


def _fresh() -> duckdb.DuckDBPyConnection:
    """Return what a session gets when none waits."""
    with quacklake.session() as session:
        database = connect(config=session.attachments.planners.settings)
    database.execute("SET GLOBAL TimeZone = 'UTC'; ATTACH ':memory:' AS lake")
    return database


def test_the_next_session_gets_the_database_of_a_closed_one_and_finds_nothing_in_it(url: str) -> None:
    with quacklake.connect(url) as lake:
        lake.table("t").delete("id = 5")
        lake.sql("SELECT 1")
        left = database_of(lake)
        for statement in PLAIN:
            assert lake.sql(statement).fetchall()
    assert not was_closed(left)
    with quacklake.connect(url) as lake, _fresh() as fresh:
        assert lake.sql(PLAIN[0]).fetchall() == [(1,)]
        assert database_of(lake) is left
        assert contents(left.connection) == contents(fresh)
        assert contents(left.connection.cursor()) == contents(fresh.cursor())
        assert left.connection.execute("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]


def test_a_session_that_took_a_database_stands_in_its_lake(url: str) -> None:
    for _ in range(2):
        with quacklake.connect(url) as lake:
            assert lake.sql("SELECT current_database(), current_schema()").fetchall() == [("lake", "main")]
            assert lake.sql("SELECT count(*) FROM lake.main.s").fetchall() == [(2,)]
            assert ("lake",) in lake.sql("SELECT database_name FROM duckdb_databases()").fetchall()
        with quacklake.connect(url) as lake:
            lake.sql(PLAIN[0])


@pytest.mark.parametrize("statement", OTHER)
def test_a_database_in_which_anything_else_ran_is_closed_with_its_session(
    statement: str, url: str, waiting: IdleDatabases[SessionDatabase]
) -> None:
    frame = pa.table({"id": [1]})
    with quacklake.connect(url) as lake:
        lake.sql(PLAIN[0])
        found = database_of(lake)
        assert not found.is_kept
        lake.sql(statement)
        lake.sql(PLAIN[0] if statement != "USE memory" else "SELECT 1")
    assert was_closed(found)
    assert not waiting._idle
    assert frame.num_rows == 1


def _read_in_vain(lake: quacklake.Lake, _: Path) -> None:
    with pytest.raises(SqlError):
        lake.sql("SELECT nothing FROM t")


def _fail_late(lake: quacklake.Lake, _: Path) -> None:
    with pytest.raises(ConstraintError):
        lake.sql("SELECT CAST(name AS INTEGER) FROM t")


def _attach(lake: quacklake.Lake, home: Path) -> None:
    with quacklake.connect(f"sqlite:///{home}/other.db", data_path=home / "other") as other:
        lake.attach(other, "other")


def _take_lake_away(lake: quacklake.Lake, home: Path) -> None:
    lake.sql("USE memory; DETACH lake")
    with quacklake.connect(f"sqlite:///{home}/other.db", data_path=home / "other") as other:
        other.create_table("t", [{"id": 17}])
        lake.attach(other, "lake")
        assert lake.sql("SELECT id FROM lake.t").fetchall() == [(17,)]


@pytest.mark.parametrize("work", [_read_in_vain, _fail_late, _attach, _take_lake_away])
def test_so_is_one_in_which_something_failed_or_another_lake_was(
    work: Callable[[quacklake.Lake, Path], None], url: str, tmp_path: Path, waiting: IdleDatabases[SessionDatabase]
) -> None:
    with quacklake.connect(url) as lake:
        lake.sql(PLAIN[0])
        found = database_of(lake)
        work(lake, tmp_path)
    assert was_closed(found)
    assert not waiting._idle


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, duckdb.FatalException])
@pytest.mark.parametrize("late", [False, True])
def test_so_is_one_that_was_interrupted_or_broke_even_while_rows_were_read(
    error: type[BaseException],
    late: bool,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    waiting: IdleDatabases[SessionDatabase],
) -> None:
    with quacklake.connect(url) as lake:
        session = lake._sessions.current()
        found = database_of(lake)
        result = lake.sql("SELECT a.id FROM t AS a, t AS b, t AS c, t AS d, t AS e, t AS f, t AS g")
        assert not found.is_kept

        def fail(*_: object) -> Any:
            raise error("now")

        monkeypatch.setattr(session, "_translate_errors" if late else "_run", fail)
        with pytest.raises((error, QuacklakeError)):
            result.fetchall() if late else lake.sql(PLAIN[0])
        monkeypatch.undo()
        del result
        assert found.is_kept
    assert was_closed(found)


def test_rows_that_were_not_read_keep_a_database_from_the_next_session(
    url: str, waiting: IdleDatabases[SessionDatabase]
) -> None:
    with quacklake.connect(url) as lake:
        found = database_of(lake)
        result = lake.sql("SELECT a.id FROM t AS a, t AS b, t AS c, t AS d, t AS e, t AS f, t AS g")
        assert result.fetchone() is not None
        assert not found.is_kept
    assert was_closed(found)
    assert not waiting._idle
    with quacklake.connect(url) as lake:
        left = database_of(lake)
        kept = lake.sql(PLAIN[0])  # all of its rows were read at once
    with quacklake.connect(url) as lake:
        assert database_of(lake) is left
        assert kept.fetchall() == [(2,)]


def test_nothing_that_outlives_a_session_reaches_the_database_it_left(url: str) -> None:
    with quacklake.connect(url) as lake:
        lake.sql(PLAIN[0])
        session, left = lake._sessions.current(), database_of(lake)
    assert not was_closed(left)
    assert session.attachments.database is None
    for connection in (session.connection, session.attachments.root):
        assert is_closed(connection)
    with pytest.raises(duckdb.ConnectionException):
        session.cursor()
    session.attachments.close()
    session.close()
    assert not was_closed(left)


def test_sessions_that_are_open_together_have_databases_of_their_own(url: str) -> None:
    with quacklake.connect(url) as one, quacklake.connect(url) as other:
        for lake in (one, other):
            assert lake.sql(PLAIN[0]).fetchall() == [(2,)]
        assert database_of(one) is not database_of(other)


def test_a_session_with_other_settings_takes_another_database(url: str) -> None:
    with quacklake.connect(url, duckdb_threads=1) as lake:
        lake.sql(PLAIN[0])
        left = database_of(lake)
    with quacklake.connect(url) as lake:
        assert database_of(lake) is not left
    with quacklake.connect(url, duckdb_threads=1) as lake:
        assert database_of(lake) is left


def test_a_principal_an_encrypted_lake_and_public_sessions_have_databases_of_their_own(
    url: str, tmp_path: Path, waiting: IdleDatabases[SessionDatabase]
) -> None:
    with quacklake.connect(url) as lake:
        lake.sql(PLAIN[0])
        left = database_of(lake)
    with quacklake.connect(url) as lake:
        lake.access.create_user("ann")
        lake.access.grant("SELECT", "ann", table="t")
        with lake.as_principal("ann") as restricted:
            assert restricted.sql(PLAIN[0]).fetchall() == [(2,)]
            assert restricted._sessions.current().attachments.database is None
        with quacklake.session() as session:
            session.attach(lake)
            assert session.sql("SELECT count(*) FROM lake.t").fetchall() == [(6,)]
            assert session.attachments.database is None
    with quacklake.connect(f"sqlite:///{tmp_path}/sealed.db", data_path=tmp_path / "sealed", encrypted=True) as sealed:
        sealed.create_table("t", [{"id": number} for number in range(20)])
        assert sealed.sql("SELECT count(*) FROM t WHERE id > 3").fetchall() == [(16,)]
        assert sealed._sessions.current().attachments.database is None
    assert [database for _, database in waiting._idle] == [left]


def test_a_database_that_has_the_keys_of_a_bucket_is_for_one_session(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=f"{s3_bucket}/data") as lake:
        lake.create_table("t", [{"id": 1}])
        assert lake.sql("SELECT id FROM t WHERE id = 1").fetchall() == [(1,)]
        assert lake._sessions.current().attachments.database is None


def test_the_database_of_a_lake_that_other_threads_have_sessions_of_is_closed(
    url: str, waiting: IdleDatabases[SessionDatabase]
) -> None:
    with quacklake.connect(url) as lake:
        lake.sql(PLAIN[0])
        thread = threading.Thread(target=lambda: lake.sql(PLAIN[0]).fetchall())
        thread.start()
        thread.join()
        found = database_of(lake)
    assert was_closed(found)
    assert not waiting._idle


def test_so_is_one_in_which_another_thread_still_works(
    url: str, monkeypatch: pytest.MonkeyPatch, waiting: IdleDatabases[SessionDatabase]
) -> None:
    begun, closed = threading.Event(), threading.Event()
    lake = quacklake.connect(url)
    session, found = lake._sessions.current(), database_of(lake)
    query = session.query

    def wait(*given: Any) -> Any:
        begun.set()
        assert closed.wait(30)
        return query(*given)

    monkeypatch.setattr(session, "query", wait)

    def work() -> None:
        with pytest.raises(QuacklakeError):
            session.sql(PLAIN[0])

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(30)
    lake.close()
    closed.set()
    thread.join()
    assert was_closed(found)
    assert not waiting._idle


@pytest.mark.parametrize(("limit", "value"), [("MAX_FILES", 2), ("MAX_BYTES", 2_000)])
def test_a_database_that_has_read_much_goes_with_its_session(
    limit: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_databases, limit, value)
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        lake.create_table("t", [{"id": number} for number in range(50)])
        assert lake.table("t").plan().files.column("file_size_bytes").to_pylist()[0] in range(350, 1_000)
    seen = []
    for _ in range(7):
        with quacklake.connect(url) as lake:
            lake.sql("SELECT id FROM t WHERE id > 3 LIMIT 1").fetchall()
            seen.append(database_of(lake))
    assert seen[1] is seen[0]
    assert len({id(database) for database in seen}) in range(2, 4)
    assert was_closed(seen[0])


def test_a_database_of_the_parent_is_not_left_to_sessions_of_a_forked_child(
    url: str, monkeypatch: pytest.MonkeyPatch, waiting: IdleDatabases[SessionDatabase]
) -> None:
    made = SessionDatabase(connect(), {})
    monkeypatch.setattr(os, "getpid", lambda: -1)
    made.leave()
    assert was_closed(made)
    assert not waiting._idle


def test_a_file_that_was_replaced_between_two_sessions_is_read_anew(tmp_path: Path) -> None:
    """DuckDB remembers footers and bytes of files; it must look whether they changed."""
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data") as lake:
        lake.create_table("t", [{"id": number} for number in range(50)])
    (file,) = (tmp_path / "data").rglob("*.parquet")
    os.utime(file, (1_000_000, 1_000_000))
    rows = pq.read_table(file)
    with quacklake.connect(url) as lake:
        assert lake.sql("SELECT sum(id), max(id) FROM t WHERE id >= 0").fetchall() == [(1225, 49)]
        left = database_of(lake)
    pq.write_table(rows.set_column(0, rows.schema.field(0), pa.array([7] * 50, rows.schema.field(0).type)), file)
    with quacklake.connect(url) as lake:
        assert database_of(lake) is left
        assert lake.sql("SELECT sum(id), max(id) FROM t WHERE id >= 0").fetchall() == [(350, 7)]
    file.unlink()
    with quacklake.connect(url) as lake, pytest.raises(CorruptFileError):
        lake.sql("SELECT sum(id), max(id) FROM t WHERE id >= 0")


def test_no_function_that_does_more_than_to_answer_is_in_a_plain_query() -> None:
    with connect() as connection:
        query = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE has_side_effects"
        found = {name for (name,) in connection.execute(query).fetchall()}
    assert "setseed" in found
    assert found <= scans._NEVER | scans._ONCE


@pytest.mark.parametrize("seed", range(3))
def test_sessions_one_after_another_answer_like_duckdb_and_see_nothing_of_each_other(
    seed: int, tmp_path: Path, waiting: IdleDatabases[SessionDatabase]
) -> None:
    """Two lakes have tables of the same name with other columns, values and types; some sessions change settings."""
    chance = random.Random(seed)
    rows = {"a": [{"k": n, "x": n % 7} for n in range(40)], "b": [{"k": str(n), "x": 1.5 * n} for n in range(30)]}
    litter = (
        "SET GLOBAL default_null_order = 'nulls_first'",
        "CREATE TABLE memory.main.t AS SELECT 'other' AS k, 0 AS x",
        "CREATE TEMP TABLE mine AS SELECT 1",
        "SELECT setseed(0.5)",
        "SET GLOBAL TimeZone = 'Asia/Tokyo'",
        "USE memory; SELECT 1; USE lake",
    )
    reused = 0
    with duckdb.connect() as oracle:
        for name, made in rows.items():
            with quacklake.connect(f"sqlite:///{tmp_path}/{name}.db", data_path=tmp_path / name) as lake:
                oracle.register("given", lake.create_table("t", made).to_arrow())
                oracle.execute(f"CREATE SCHEMA {name}; CREATE TABLE {name}.t AS FROM given")
        for _ in range(16):
            name = chance.choice("ab")
            oracle.execute(f"USE {name}")
            before = {id(database) for _, database in waiting._idle}
            with quacklake.connect(f"sqlite:///{tmp_path}/{name}.db") as lake:
                reused += id(database_of(lake)) in before
                assert contents(database_of(lake).connection) == contents(_fresh())
                for _ in range(chance.randrange(1, 4)):
                    if chance.random() < 0.2:
                        lake.sql(chance.choice(litter))
                    low, word = chance.randrange(9), chance.choice(["<", ">=", "="])
                    query = f"SELECT typeof(k), k, x FROM t WHERE x {word} {low} OR k = '{low}' ORDER BY ALL"
                    assert lake.sql(query).fetchall() == oracle.execute(query).fetchall()
    assert reused > 2
