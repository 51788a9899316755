"""The second database of a session is made by the first statement that needs it, and then knows all that came before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import quacklake
from quacklake.core.sql.safety import Safety
from quacklake.errors import ClosedError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as found:
        found.create_table("t", [{"id": 1}, {"id": 2}])
        yield found


def _databases(connection: duckdb.DuckDBPyConnection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT database_name FROM duckdb_databases()").fetchall()}


def test_a_query_without_filters_needs_no_second_database(lake: quacklake.Lake) -> None:
    with quacklake.session() as session:
        session.attach(lake, "one")
        assert session.sql("SELECT 1").fetchall() == [(1,)]
        assert session.sql("SELECT * FROM one.t ORDER BY id").fetchall() == [(1,), (2,)]
        assert session.attachments._planner is None
        assert session.sql("SELECT * FROM one.t WHERE id > 1").fetchall() == [(2,)]
        assert session.attachments._planner is not None


def test_a_late_planner_knows_the_lakes_that_are_attached_and_no_others(lake: quacklake.Lake) -> None:
    with quacklake.session() as session:
        for name in ("one", "Two", "three"):
            session.attach(lake, name)
        session.sql("DETACH three")
        assert {"one", "Two"} <= _databases(session.attachments.planner)
        assert "three" not in _databases(session.attachments.planner)
        session.sql("DETACH TWO")
        session.attach(lake, "four")
        assert {"one", "four"} <= _databases(session.attachments.planner)
        assert "Two" not in _databases(session.attachments.planner)
        assert session.sql("SELECT count(*) FROM four.t WHERE id = 2").fetchone() == (1,)


def test_settings_made_before_hold_in_a_late_planner(lake: quacklake.Lake) -> None:
    with quacklake.session() as session:
        session.sql("SET default_null_order = 'nulls_first'; SET TimeZone = 'UTC'")
        assert session.attachments._planner is None
        found = session.planner().execute("SELECT current_setting('default_null_order')").fetchall()
        assert found == session.connection.execute("SELECT current_setting('default_null_order')").fetchall()


@pytest.mark.parametrize("late", [True, False], ids=["made after the lock", "made before the lock"])
def test_the_planner_of_a_safe_session_is_locked_whenever_it_is_made(lake: quacklake.Lake, late: bool) -> None:
    with quacklake.session(safety=Safety()) as session:
        session.attach(lake, "lake")
        if not late:
            assert "lake" in _databases(session.attachments.planner)
        session.sql("SELECT 1")
        assert (session.attachments._planner is None) is late
        for statement in ("FROM read_text('/etc/hostname')", "SET enable_external_access = true", "SET threads = 5"):
            with pytest.raises(duckdb.Error, match=r"disabled|locked"):
                session.attachments.planner.execute(statement)


def test_a_closed_session_makes_no_database(lake: quacklake.Lake) -> None:
    session = quacklake.session()
    session.attach(lake, "one")
    session.close()
    with pytest.raises(ClosedError):
        _ = session.attachments.planner
