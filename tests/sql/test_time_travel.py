"""Every spelling of time travel, with each table of a query at its own time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import quacklake
from quacklake.core.sql.timetravel import with_at
from quacklake.errors import NotFoundError

Run = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def past(run: Run, version: Callable[[], int]) -> int:
    """A snapshot at which the table ``t`` had one row; now it has three."""
    run("CREATE TABLE t (id INTEGER); INSERT INTO t VALUES (1)")
    found = version()
    run("INSERT INTO t VALUES (2), (3)")
    return found


@pytest.mark.parametrize(
    "clause",
    [
        "t AT (VERSION => {})",
        "t AT SNAPSHOT {}",
        "t VERSION AS OF {}",
        "t FOR VERSION AS OF {}",
        "t FOR SYSTEM_VERSION AS OF {}",
        "t AS x AT (VERSION => {})",
        "t VERSION AS OF {} AS x",
        "t AT SNAPSHOT {} x",
    ],
)
def test_a_table_is_read_at_a_snapshot(run: Run, past: int, clause: str) -> None:
    assert run(f"SELECT count(*) FROM {clause.format(past)}") == [(1,)]
    assert run(f"SELECT count(*) FROM {clause.format(past)} WHERE id > 1") == [(0,)]


@pytest.mark.parametrize(
    "clause",
    [
        "t AT (TIMESTAMP => {})",
        "t AT TIMESTAMP {}",
        "t TIMESTAMP AS OF {}",
        "t FOR TIMESTAMP AS OF {}",
        "t FOR SYSTEM_TIME AS OF {} AS x",
    ],
)
def test_a_table_is_read_at_a_time(run: Run, past: int, clause: str) -> None:
    time = run("SELECT snapshot_time::VARCHAR FROM lake.snapshots() WHERE snapshot_id = ?", [past])[0][0]
    for value in (f"'{time}'", f"TIMESTAMPTZ '{time}'", f"'{time}'::TIMESTAMPTZ"):
        assert run(f"SELECT count(*) FROM {clause.format(value)}") == [(1,)]
    assert run(f"SELECT count(*) FROM {clause.format('now()')}") == [(3,)]


def test_a_time_before_the_lake_is_an_error(run: Run, past: int) -> None:
    with pytest.raises(NotFoundError):
        run("SELECT * FROM t AT TIMESTAMP '2001-01-01'")
    with pytest.raises(NotFoundError):
        run("SELECT * FROM t TIMESTAMP AS OF now() - INTERVAL 90 DAYS")


def test_tables_of_one_query_have_times_of_their_own(run: Run, past: int, version: Callable[[], int]) -> None:
    query = f"SELECT count(*) FROM t a, t b VERSION AS OF {past}, t c AT (VERSION => {version()})"
    assert run(query) == [(9,)]
    assert run(f"WITH old AS (FROM t AT SNAPSHOT {past}) SELECT id FROM t EXCEPT FROM old ORDER BY 1") == [(2,), (3,)]


def test_a_parameter_can_be_the_version(run: Run, past: int) -> None:
    assert run("SELECT count(*) + $more FROM t AT (VERSION => $v)", {"v": past, "more": 5}) == [(6,)]


def test_a_view_is_read_with_its_tables_at_the_snapshot(run: Run, past: int, version: Callable[[], int]) -> None:
    run("CREATE VIEW v AS SELECT count(*) AS n FROM t")
    before = version()
    run("DELETE FROM t")
    assert run("FROM v") == [(0,)]
    assert run(f"FROM v AT (VERSION => {before})") == [(3,)]


def test_names_that_look_like_a_clause_stay_names(run: Run) -> None:
    assert with_at("SELECT version AS of FROM t") == "SELECT version AS of FROM t"
    assert run("SELECT 1 AS version, 2 AS timestamp") == [(1, 2)]
    assert run("SELECT version AS of FROM (SELECT 7 AS version)") == [(7,)]


def test_dropped_tables_are_there_at_older_snapshots(run: Run, past: int, session: quacklake.Session) -> None:
    run("DROP TABLE t")
    assert run(f"SELECT * FROM t AT SNAPSHOT {past}") == [(1,)]
