"""Plans that a session remembers never change an answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quacklake
from quacklake.core.scan import ScanPlan, plan_scan, remembered
from quacklake.core.sql import scans
from quacklake.core.transaction import reading


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as found:
        found.sql("CREATE TABLE t AS SELECT range AS id FROM range(100)")
        yield found


COUNT = "SELECT count(*) FROM t WHERE id < 50"


def _counting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that are planned from now on."""
    planned: list[str] = []

    def counted(*arguments: Any, **named: Any) -> ScanPlan:
        plan = plan_scan(*arguments, **named)
        planned.append(plan.table_name)
        return plan

    monkeypatch.setattr(reading, "plan_scan", counted)
    return planned


def test_a_scan_is_planned_once_at_a_snapshot_and_anew_after_each_change(
    lake: quacklake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = _counting(monkeypatch)
    for _ in range(3):
        assert lake.sql(COUNT).fetchone() == (50,)
    assert planned == ["t"]
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db") as other:
        other.sql("DELETE FROM t WHERE id < 10")
    planned.clear()
    assert lake.sql(COUNT).fetchone() == (40,)
    assert lake.sql("SELECT count(*) FROM t AT (VERSION => 1) WHERE id < 50").fetchone() == (50,)
    assert planned == ["t", "t"]  # a compaction may have given the older snapshot other files


def test_a_transaction_sees_its_own_changes_whatever_is_remembered(lake: quacklake.Lake) -> None:
    assert lake.sql(COUNT).fetchone() == (50,)
    lake.sql("BEGIN; DELETE FROM t WHERE id < 20")
    assert lake.sql(COUNT).fetchone() == (30,)
    lake.sql("ROLLBACK")
    assert lake.sql(COUNT).fetchone() == (50,)


def test_what_is_remembered_is_not_believed_for_long(lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = _counting(monkeypatch)
    monkeypatch.setattr(remembered, "SECONDS", 0.0)
    for _ in range(2):
        lake.sql(COUNT)
    assert planned == ["t", "t"]


def test_the_footers_of_only_so_many_files_are_kept(lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "_MAX_FOOTERS", 1)
    connection = lake._sessions.current().connection

    def kept() -> object:
        return connection.execute("SELECT current_setting('parquet_metadata_cache')").fetchall()[0][0]

    lake.sql(COUNT).fetchall()
    assert kept() is True
    lake.sql("CREATE TABLE u AS SELECT range AS id FROM range(100)")
    assert lake.sql("SELECT sum(id) FROM u").fetchone() == (4950,)
    assert kept() is False
    assert lake.sql(COUNT).fetchone() == (50,)
    assert kept() is True


def test_what_statements_leave_behind_is_dropped_now_and_then(lake: quacklake.Lake) -> None:
    lake.sql("CREATE MACRO twice(x) AS x * 2; CREATE VIEW v AS SELECT twice(id) AS id FROM t")
    for _ in range(40):
        assert lake.sql("SELECT max(id), twice(1) FROM v").fetchone() == (198, 2)
    connection = lake._sessions.current().connection
    left = connection.execute("SELECT count(*) FROM duckdb_views() WHERE starts_with(view_name, 'qls_')").fetchall()
    macros = connection.execute("SELECT count(*) FROM duckdb_functions() WHERE starts_with(function_name, 'qls_')")
    assert left[0][0] < 60
    assert macros.fetchall()[0][0] < 60
