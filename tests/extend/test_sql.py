"""SQL by the extension API: work that joins the transaction of a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake.errors import NotFoundError, SqlError
from quacklake.extend import sql


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_threads=1) as opened:
        opened.sql("CREATE TABLE t (id INTEGER)")
        yield opened


@pytest.fixture
def session(lake: quacklake.Lake) -> Iterator[quacklake.Session]:
    with sql.open_session(lake) as opened:
        yield opened


def append_one(change: quacklake.LakeTransaction) -> int:
    return change.table("t").append({"id": [1]})


def test_work_and_statements_are_one_snapshot(lake: quacklake.Lake, session: quacklake.Session) -> None:
    before = lake.current_snapshot()
    session.sql("BEGIN; INSERT INTO t VALUES (0)")
    assert sql.write_in(session, append_one) == 1
    assert (sql.view_lake(session).table("t").count(), lake.table("t").count()) == (2, 0)
    session.commit()
    assert (lake.table("t").count(), lake.current_snapshot()) == (2, before + 1)


def test_an_error_of_the_work_aborts_the_open_transaction(lake: quacklake.Lake, session: quacklake.Session) -> None:
    def fail(change: quacklake.LakeTransaction) -> int:
        append_one(change)
        raise ValueError("no more")

    session.sql("BEGIN")
    with pytest.raises(ValueError, match="no more"):
        sql.write_in(session, fail)
    with pytest.raises(SqlError, match="abort"):
        session.sql("SELECT 1")
    with pytest.raises(SqlError, match="rolled it back"):
        session.commit()
    assert lake.table("t").count() == 0


def test_work_outside_of_a_transaction_is_a_commit_of_its_own(lake: quacklake.Lake, session: quacklake.Session) -> None:
    with pytest.raises(ZeroDivisionError):
        sql.write_in(session, lambda change: append_one(change) // 0)
    assert lake.table("t").count() == 0
    assert sql.write_in(session, append_one) == 1
    assert lake.table("t").count() == 1
    assert session.sql("SELECT count(*) FROM t").fetchone() == (1,)


def test_a_view_is_not_what_later_statements_read(lake: quacklake.Lake, session: quacklake.Session) -> None:
    assert sql.view_lake(session).table("t").count() == 0
    lake.table("t").append({"id": [1]})
    assert session.sql("SELECT count(*) FROM t").fetchone() == (1,)
    with pytest.raises(NotFoundError, match="memory"):
        sql.view_lake(session, "memory")
