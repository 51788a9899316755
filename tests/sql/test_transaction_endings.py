"""Failing statements leave a transaction, its tables and its end as plain DuckDB leaves them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import quacklake
from quacklake import dbapi
from tests import seeds
from tests.sql.endings import ENDINGS, CallPlayer, Case, PlainPlayer, SessionPlayer, cases, differences

_CASES = cases()


@pytest.fixture(scope="module")
def players(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SessionPlayer, PlainPlayer]]:
    folder = tmp_path_factory.mktemp("endings")
    (folder / "plain").mkdir()
    with ExitStack() as stack:
        found = SessionPlayer(folder), PlainPlayer(folder / "plain")
        for player in found:
            stack.enter_context(closing(player))
        yield found


@pytest.mark.parametrize("ending", [None, *ENDINGS])
def test_a_failing_statement_leaves_what_it_leaves_in_duckdb(
    players: tuple[SessionPlayer, PlainPlayer], ending: str | None
) -> None:
    sample = seeds.some(_CASES, 12, "failing statements", ending)
    found = [differences(*players, case, ending) for case in sample]
    assert [difference for difference in found if difference is not None] == []


def test_calls_of_python_end_a_transaction_as_in_duckdb(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with ExitStack() as stack:
        connection = dbapi.connect(f"sqlite:///{tmp_path}/lake.db", data_path=f"{tmp_path}/d")
        mine = stack.enter_context(closing(CallPlayer(connection, tmp_path)))
        plain = stack.enter_context(closing(PlainPlayer(tmp_path / "plain")))
        for ending in ("COMMIT", "ROLLBACK"):
            for case in seeds.some(_CASES, 12, "failing calls", ending):
                if case.way not in ("begin", "start"):  # the interface begins transactions itself
                    assert differences(mine, plain, case, ending) is None


@pytest.mark.parametrize(
    "way", ["error()", "timestamp", "json", "regex", "two rows", "conversion of a row", "parameter", "unknown column"]
)
def test_commit_rolls_back_what_came_before_an_aborting_error(
    players: tuple[SessionPlayer, PlainPlayer], way: str
) -> None:
    case = next(case for case in _CASES if case.kind == "insert" and case.way == way)
    assert differences(*players, case, "COMMIT") is None


def test_commit_of_an_aborted_transaction_says_that_it_rolls_back(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=f"{tmp_path}/d") as lake:
        session = lake._sessions.current()
        session.sql("CREATE TABLE t AS SELECT 1 AS i; BEGIN; DELETE FROM t")
        with pytest.raises(quacklake.QuacklakeError, match="boo"):
            session.sql("SELECT error('boo')").fetchall()
        ((warning,),) = session.sql("COMMIT").fetchall()
        assert "COMMIT has rolled it back" in warning
        assert session.sql("BEGIN; DELETE FROM t; COMMIT").fetchall() == []
        assert session.sql("FROM t").fetchall() == []


def test_commit_of_an_aborted_transaction_raises_an_error_in_python(tmp_path: Path) -> None:
    with dbapi.connect(f"sqlite:///{tmp_path}/lake.db", data_path=f"{tmp_path}/d") as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE t (i INTEGER)")
        connection.commit()
        cursor.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(dbapi.Error, match="boo"):
            cursor.execute("SELECT error('boo')").fetchall()
        with pytest.raises(dbapi.ProgrammingError, match="COMMIT has rolled it back"):
            connection.commit()
        assert cursor.execute("FROM t").fetchall() == []
        connection.commit()  # the transaction after it is whole


def test_an_error_that_comes_while_rows_are_read_aborts_the_transaction(tmp_path: Path) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=f"{tmp_path}/d") as lake:
        session = lake._sessions.current()
        session.sql("CREATE TABLE t AS SELECT 1 AS i; BEGIN; DELETE FROM t")
        rows = session.sql("SELECT CASE WHEN i = 3000000 THEN error('late') ELSE '' END FROM range(4000000) r(i)")
        with pytest.raises(quacklake.QuacklakeError, match="late"):
            rows.fetchall()
        with pytest.raises(quacklake.QuacklakeError, match="aborted"):
            session.sql("FROM t")
        session.sql("COMMIT")
        assert session.sql("FROM t").fetchall() == [(1,)]
        assert not session.work.explicit


def test_a_difference_is_reported(players: tuple[SessionPlayer, PlainPlayer]) -> None:
    mine, plain = players
    plain.run("CREATE MACRO only_here() AS 1")
    assert differences(mine, plain, Case("SELECT only_here()", "select", "none"), "COMMIT") is not None
    assert differences(mine, plain, Case("SELECT 1", "select", "none"), "COMMIT") is None
