"""Sessions: lakes by name, statements, results, parameters and transactions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import AlreadyExistsError, NotFoundError, ReadOnlyError, SqlError
from tests.layout import NAMED


@pytest.fixture
def session(tmp_path: Path) -> Iterator[quacklake.Session]:
    with quacklake.session() as found:
        found.sql(f"ATTACH 'ducklake:sqlite:{tmp_path}/lake.db' AS lake ({NAMED}DATA_PATH '{tmp_path}/data')")
        found.sql("CREATE TABLE lake.t (id INTEGER, name VARCHAR DEFAULT 'x', day DATE)")
        found.sql("INSERT INTO lake.t VALUES (1, 'a', '2024-01-01'), (2, DEFAULT, NULL)")
        yield found


def test_statements_change_and_read_a_lake(session: quacklake.Session) -> None:
    assert session.sql("SELECT id, name FROM lake.main.t ORDER BY id").fetchall() == [(1, "a"), (2, "x")]
    assert session.sql("UPDATE lake.t SET name = upper(name) WHERE id = 1").rowcount == 1
    assert session.sql("INSERT INTO lake.t (id) SELECT i + 10 FROM range(50) r(i)").rowcount == 50
    assert session.sql("DELETE FROM lake.t WHERE id >= 30").rowcount == 30
    assert session.sql("SELECT count(*), min(name) FROM lake.t").fetchone() == (22, "A")


def test_rows_come_in_every_form(session: quacklake.Session) -> None:
    query = "SELECT id, name FROM lake.t ORDER BY id"
    assert session.sql(query).to_pylist() == [{"id": 1, "name": "a"}, {"id": 2, "name": "x"}]
    assert session.sql(query).to_arrow().num_rows == 2
    assert list(session.sql(query).to_pandas()["id"]) == [1, 2]
    assert session.sql(query).to_polars().shape == (2, 2)
    assert pa.table(session.sql(query)).num_rows == 2
    result = session.sql(query)
    assert result.columns == ["id", "name"]
    assert [column[:2] for column in result.description] == [("id", "INTEGER"), ("name", "VARCHAR")]
    assert result.fetchone() == (1, "a")
    assert result.fetchmany(5) == [(2, "x")]
    assert result.fetchone() is None


def test_a_result_outlives_the_next_statement(session: quacklake.Session) -> None:
    first = session.sql("SELECT id FROM lake.t ORDER BY id")
    assert first.fetchone() == (1,)
    session.sql("DELETE FROM lake.t")
    assert first.fetchall() == [(2,)]


def test_parameters_are_numbered_or_named(session: quacklake.Session) -> None:
    assert session.sql("SELECT name FROM lake.t WHERE id = ?", [2]).fetchall() == [("x",)]
    assert session.sql("SELECT $2 FROM lake.t WHERE id = $1", [1, "p"]).fetchall() == [("p",)]
    assert session.sql("SELECT name FROM lake.t WHERE id = $id", {"id": 1}).fetchall() == [("a",)]
    assert session.sql("SELECT id FROM lake.t AT (VERSION => ?) WHERE id = ?", [2, 1]).fetchall() == [(1,)]
    session.sql("UPDATE lake.t SET name = ? WHERE id = ?", ["'; DROP TABLE t", 1])
    assert session.sql("SELECT name FROM lake.t WHERE id = 1").fetchone() == ("'; DROP TABLE t",)


def test_names_of_parameters_may_need_quotes_as_in_duckdb(session: quacklake.Session) -> None:
    values = {"a b": 1, "X, y": "x", 'q"q': "q", "é": 2.5}
    query = """SELECT $"A B" AS n, $"x, y" || $"q""q" || '$"no"' AS t, $é + $"é" AS f"""
    assert session.sql(query, values).fetchall() == duckdb.execute(query, values).fetchall()
    assert session.sql('SELECT $"1" + $ "2"', [1, 2]).fetchall() == [(3,)]
    session.sql('INSERT INTO lake.t (id, name) VALUES ($"the id", $name)', {"the id": 7, "name": "seven"})
    session.sql('UPDATE lake.t SET name = $"new one" WHERE id = $"the id"', {"the id": 7, "new one": "7"})
    session.sql('PREPARE found AS SELECT name FROM lake.t WHERE id = $"the id"')
    assert session.sql('EXECUTE found("the id" := 7)').fetchall() == [("7",)]
    for wrong, told in (({}, "were not provided.*: a b$"), ({"a b": 1, "c d": 2}, "excess parameters: c d$")):
        with pytest.raises(SqlError, match=told):
            session.sql('SELECT $"a b"', wrong)


def test_several_statements_give_the_last_result(session: quacklake.Session) -> None:
    text = "USE lake; INSERT INTO t(id) VALUES (3); -- a comment; with a semicolon\nSELECT max(id) FROM t;"
    assert session.sql(text).fetchall() == [(3,)]


def test_python_frames_are_tables_unless_that_is_off(session: quacklake.Session) -> None:
    frame = pa.table({"id": [1, 2, 3]})
    assert session.sql("SELECT count(*) FROM frame JOIN lake.t USING (id)").fetchone() == (2,)
    session.python_frames = False
    with pytest.raises(SqlError, match="frame"):
        session.sql("SELECT count(*) FROM frame")
    assert frame.num_rows == 3


def test_a_transaction_sees_its_own_changes_and_can_be_given_up(session: quacklake.Session) -> None:
    other = session.cursor()
    session.sql("BEGIN")
    session.sql("INSERT INTO lake.t(id) VALUES (7)")
    session.sql("CREATE TABLE lake.u AS SELECT id FROM lake.t")
    assert session.sql("SELECT count(*) FROM lake.u").fetchone() == (3,)
    assert other.sql("SELECT count(*) FROM lake.t").fetchone() == (2,)
    session.sql("ROLLBACK")
    assert session.sql("SELECT count(*) FROM lake.t").fetchone() == (2,)
    with pytest.raises(NotFoundError):
        session.sql("SELECT * FROM lake.u")
    other.close()


def test_a_transaction_is_one_snapshot(session: quacklake.Session) -> None:
    before = session.sql("FROM lake.current_snapshot()").fetchone()
    session.sql("BEGIN; INSERT INTO lake.t(id) VALUES (7); DELETE FROM lake.t WHERE id = 1; COMMIT")
    after = session.sql("FROM lake.current_snapshot()").fetchone()
    assert before is not None
    assert after is not None
    assert after[0] == before[0] + 1
    assert session.sql("SELECT id FROM lake.t ORDER BY 1").fetchall() == [(2,), (7,)]


def test_a_transaction_cannot_write_two_lakes(session: quacklake.Session, tmp_path: Path) -> None:
    session.sql(f"ATTACH 'ducklake:sqlite:{tmp_path}/other.db' AS other ({NAMED}DATA_PATH '{tmp_path}/other')")
    session.sql("BEGIN; INSERT INTO lake.t(id) VALUES (3)")
    with pytest.raises(SqlError, match='already modified database "lake"'):
        session.sql("CREATE TABLE other.u (i INTEGER)")
    session.sql("COMMIT")  # rolls back, as in DuckDB
    assert session.sql("SELECT count(*) FROM lake.t").fetchone() == (2,)


def test_a_statement_that_fails_at_run_time_ends_the_transaction(session: quacklake.Session) -> None:
    session.sql("BEGIN; INSERT INTO lake.t(id) VALUES (3)")
    with pytest.raises(SqlError, match="nope"):
        session.sql("SELECT nope FROM lake.t")
    assert session.sql("SELECT count(*) FROM lake.t").fetchone() == (3,)
    with pytest.raises(quacklake.QuacklakeError):
        session.sql("INSERT INTO lake.t(id) SELECT 'abc'")
    with pytest.raises(SqlError, match="aborted"):
        session.sql("SELECT 1")
    session.sql("ROLLBACK")
    assert session.sql("SELECT count(*) FROM lake.t").fetchone() == (2,)


def test_errors_show_the_place_and_near_names(session: quacklake.Session) -> None:
    with pytest.raises(SqlError) as syntax:
        session.sql("SELEC 1")
    assert "LINE 1: SELEC 1\n        ^" in str(syntax.value)
    with pytest.raises(SqlError) as column:
        session.sql("SELECT id,\n  nope FROM lake.t")
    assert 'Candidate bindings: "name"' in str(column.value)
    assert "LINE 2:   nope FROM lake.t\n          ^" in str(column.value)
    with pytest.raises(NotFoundError, match='did you mean "t"'):
        session.sql("SELECT * FROM lake.tt")


def test_texts_of_statements_keep_every_quote_and_cannot_end_early(session: quacklake.Session) -> None:
    assert session.sql("SELECT 'it''s', E'\\n', $$o'k$$, 1 -- '").fetchone() == ("it's", "\n", "o'k", 1)
    with pytest.raises(SqlError, match="NUL"):
        session.sql("SELECT 1 FROM lake.t\0")


def test_a_lake_is_attached_at_a_snapshot_or_read_only(session: quacklake.Session, tmp_path: Path) -> None:
    session.sql(f"ATTACH 'ducklake:sqlite:{tmp_path}/lake.db' AS past ({NAMED}SNAPSHOT_VERSION 1)")
    assert session.sql("SELECT count(*) FROM past.t").fetchone() == (0,)
    with pytest.raises(ReadOnlyError):
        session.sql("DELETE FROM past.t")
    session.sql(f"ATTACH 'ducklake:sqlite:{tmp_path}/lake.db' AS ro ({NAMED}READ_ONLY)")
    with pytest.raises(ReadOnlyError):
        session.sql("DELETE FROM ro.t")
    session.sql("DETACH past; DETACH ro")
    with pytest.raises(quacklake.QuacklakeError):
        session.sql("FROM past.t")


def test_a_lake_speaks_sql_itself(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.create_table("events", [{"id": 1}])
        lake.sql("INSERT INTO events VALUES (?)", [2])
        assert lake.sql("SELECT sum(id) FROM events").fetchone() == (3,)
        assert lake.at(version=1).sql("SELECT sum(id) FROM events").fetchone() == (1,)
        with lake.transaction() as tx:
            tx.sql("DELETE FROM events WHERE id = 1")
            assert tx.sql("SELECT count(*) FROM events").fetchone() == (1,)
        assert lake.table("events").to_pylist() == [{"id": 2}]


def test_the_options_of_attach(tmp_path: Path) -> None:
    with quacklake.session() as session:
        url = f"ducklake:sqlite:{tmp_path}/new.db"
        with pytest.raises(NotFoundError):
            session.sql(f"ATTACH '{url}' AS l ({NAMED}DATA_PATH '{tmp_path}/data', CREATE_IF_NOT_EXISTS false)")
        session.sql(
            f"ATTACH '{url}' AS l ({NAMED}DATA_PATH '{tmp_path}/data', DATA_INLINING_ROW_LIMIT 0, METADATA_CATALOG 'meta')"
        )
        session.sql("CREATE TABLE l.t AS SELECT 1 AS id")
        assert len(list((tmp_path / "data").rglob("*.parquet"))) == 1
        assert session.sql("SELECT count(*) FROM meta.ducklake_data_file").fetchone() == (1,)
        time = session.sql("SELECT max(snapshot_time)::VARCHAR FROM l.snapshots()").fetchone()
        assert time is not None
        session.sql("DROP TABLE l.t; DETACH l")
        session.sql(f"ATTACH IF NOT EXISTS '{url}' AS l ({NAMED}SNAPSHOT_TIME '{time[0]}')")
        assert session.sql("FROM l.t").fetchall() == [(1,)]
        for wrong in ("SNAPSHOT_VERSION 1, SNAPSHOT_TIME '2024-01-01'", "NOPE 1", f"DATA_PATH '{tmp_path}/elsewhere'"):
            with pytest.raises(quacklake.QuacklakeError):
                session.sql(f"ATTACH '{url}' AS other ({NAMED}{wrong})")
        session.sql(f"ATTACH '{url}' AS moved ({NAMED}DATA_PATH '{tmp_path}/elsewhere', OVERRIDE_DATA_PATH true)")
        assert session.sql("SELECT count(*) FROM moved.snapshots()").fetchone() == (3,)


def test_threads_speak_to_one_lake_each_with_its_own_transaction(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.sql("CREATE TABLE t (id INTEGER)")
        lake.sql("BEGIN; INSERT INTO t VALUES (100)")

        def work(number: int) -> int:
            lake.sql("INSERT INTO t VALUES (?)", [number])
            found = lake.sql("SELECT count(*) FROM t WHERE id = 100").fetchone()
            assert found is not None
            return int(found[0])

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(work, range(8))) == [0] * 8
        lake.sql("COMMIT")
        assert lake.sql("SELECT count(*), max(id) FROM t").fetchone() == (9, 100)


def test_an_encrypted_lake_is_asked_again_and_again(tmp_path: Path) -> None:
    with quacklake.session() as session:
        session.sql(
            f"ATTACH 'ducklake:sqlite:{tmp_path}/l.db' AS l ({NAMED}DATA_PATH '{tmp_path}/d', ENCRYPTED); USE l"
        )
        session.sql("CREATE TABLE t AS SELECT * FROM range(1000) r(i)")
        for path in (tmp_path / "d").rglob("*.parquet"):
            os.utime(path, (0, 0))  # DuckDB keeps the footers of old files only
        for _ in range(3):
            assert session.sql("SELECT sum(rowid), sum(i) FROM t").fetchall() == [(499_500, 499_500)]


def test_a_table_that_comes_after_rows_were_registered_is_seen(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/l.db", data_path=tmp_path / "data") as lake:
        lake.register("rows", [{"id": 1}])
        lake.create_table("t", [{"id": 2}])
        assert lake.sql("FROM t").fetchall() == [(2,)]
        with pytest.raises(AlreadyExistsError):
            lake.register("t", [{"id": 3}])
        lake.create_table("u", [{"id": 4}])
        assert lake.sql("FROM u").fetchall() == [(4,)]
