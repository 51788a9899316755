"""Views travel with their lake, are kept from others, and are refreshed by many at the same time."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

import quacklake
from quacklake import Lake, Safety, telemetry
from quacklake.core.catalog import own_tables
from quacklake.core.faults import Fault, arm
from quacklake.core.scan import remembered
from quacklake.errors import NotPermittedError, QuacklakeError, StaleViewError
from tests.catalog.stock import Stock
from tests.layout import plain_only

QUERY = "SELECT k, sum(x) AS s, count(*) AS n FROM t GROUP BY k"


def filled(lake: Lake) -> Lake:
    lake.sql("CREATE TABLE t (id INTEGER, k VARCHAR, x INTEGER)")
    lake.sql("INSERT INTO t SELECT i, 'k' || i % 5, i FROM range(100) r(i)")
    lake.create_materialized_view("v", QUERY)
    return lake


def follows(lake: Lake) -> str:
    """Change the table, refresh the view, and return the way that it took."""
    lake.sql("DELETE FROM t WHERE id % 7 = 0")
    way = lake.refresh("v").way
    (found,) = lake.materialized_views.verify("v")
    assert found.ok and found.count == 5
    return way


@pytest.mark.daily(0.3)
def test_a_view_and_its_position_are_in_backups(tmp_path: Path) -> None:
    plain_only("the copy is a lake of its own")
    with filled(quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data")) as lake:
        lake.backup(tmp_path / "backup")
    quacklake.restore_backup(tmp_path / "backup", f"sqlite:///{tmp_path}/copy.db", tmp_path / "copies").close()
    with quacklake.connect(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert follows(copy) == "groups"


@pytest.mark.daily(0.3)
def test_views_go_with_tenants_that_are_exported_adopted_and_forked(tmp_path: Path) -> None:
    plain_only("it has a shared lake of its own")
    url = f"sqlite:///{tmp_path}/shared.db"
    with quacklake.tenants(url, data_path=str(tmp_path / "data"), create=True) as tenants:
        tenants.create("acme")
        with tenants.open("acme") as lake:
            filled(lake)
        tenants.fork("acme", "twin")
        with tenants.open("twin") as twin:
            report = twin.refresh("v")
            assert (report.way, report.reason) == ("full", "the position of the view is unknown here")
            assert follows(twin) == "groups"
        with tenants.open("acme") as lake:
            assert follows(lake) == "groups"
        tenants.export("acme", f"sqlite:///{tmp_path}/plain.db")
    with quacklake.connect(f"sqlite:///{tmp_path}/plain.db", foreign_paths=(str(tmp_path / "data"),)) as plain:
        plain.sql("DELETE FROM t WHERE id = 1")
        assert plain.refresh("v").way == "groups"


def test_a_safe_session_reads_views_and_runs_no_statement_about_them(tmp_path: Path) -> None:
    with filled(quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data")) as lake:
        with quacklake.session(safety=Safety(read_only=False)) as session:
            session.attach(lake)
            session.sql("USE lake")
            assert session.sql("SELECT count(*) FROM v").fetchall() == [(5,)]
            for statement in (
                f"CREATE MATERIALIZED VIEW w AS {QUERY}",
                "REFRESH MATERIALIZED VIEW v",
                "VERIFY MATERIALIZED VIEW v",
                "DROP MATERIALIZED VIEW v",
                "ALTER MATERIALIZED VIEW v SET REFRESH MANUAL",
                "EXPLAIN REFRESH v",
            ):
                with pytest.raises(NotPermittedError):
                    session.sql(statement)
            for statement in ("SHOW MATERIALIZED VIEWS", "DESCRIBE MATERIALIZED VIEW v", "DELETE FROM v"):
                with pytest.raises(QuacklakeError):
                    session.sql(statement)
        assert lake.materialized_views.names() == ["main.v"]


def test_of_many_refreshers_one_does_it_and_the_others_find_it_done(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with filled(quacklake.connect(url, data_path=tmp_path / "data")) as lake:
        others = [quacklake.connect(url) for _ in range(3)]
        lake.sql("UPDATE t SET x = x + 1 WHERE id < 50")
        before = lake.current_snapshot()
        ways: list[str] = []
        start = threading.Barrier(4)

        def run(mine: Lake) -> None:
            start.wait()
            ways.append(mine.refresh("v").way)

        threads = [threading.Thread(target=run, args=(mine,)) for mine in (lake, *others)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for other in others:
            other.close()
        assert sorted(ways) == ["groups", "none", "none", "none"]
        assert lake.current_snapshot() == before + 1
        (found,) = lake.materialized_views.verify("v")
        assert found.ok


def test_the_runner_refreshes_what_is_due(tmp_path: Path) -> None:
    with filled(quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data")) as lake:
        lake.materialized_views.alter("v", refresh="every 0.2 seconds")
        lake.create_materialized_view("still", QUERY)
        lake.sql("DELETE FROM t WHERE id = 1")
        done: list[str] = []
        with lake.materialized_views.keep_refreshed(lambda report: done.append(report.view), poll=0.05):
            end = time.monotonic() + 30
            while not done and time.monotonic() < end:
                time.sleep(0.05)
        assert done == ["main.v"]
        assert lake.materialized_views.describe("still")["lag_rows"] == 1


@pytest.mark.daily(0.3)
def test_a_deep_verification_finds_a_wrong_view(tmp_path: Path) -> None:
    from quacklake.core.operations import dml

    with filled(quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data")) as lake:
        assert lake.verify(deep=True).ok
        tx = lake.handle.begin()
        tx.upkeep = True
        dml.delete(lake.handle.context, tx, tx.find_table("main", "v"), "k = 'k1'")
        lake.handle.commit(tx)
        assert lake.verify().ok
        assert [found.code for found in lake.verify(deep=True).findings] == ["V090"]


def test_a_failed_look_for_views_does_not_fail_the_commit_before_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with filled(quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data")) as lake:
        with arm(Fault(pattern="catalog.tagged.before")), caplog.at_level("WARNING", "quacklake.operations"):
            lake.create_table("made", [{"a": 2}])
        assert "could not look for materialized views" in caplog.text
        assert lake.table("made").to_pylist() == [{"a": 2}]


@pytest.mark.daily(0.3)
def test_a_round_over_tenants_refreshes_what_is_due(tmp_path: Path) -> None:
    plain_only("it has a shared lake of its own")
    with quacklake.tenants(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data"), create=True) as tenants:
        for name in ("acme", "idle"):
            with tenants.open(name, create=True) as lake:
                lake.sql("CREATE TABLE t (x INTEGER)")
                when = "every 100 ms" if name == "acme" else "manual"
                lake.create_materialized_view("total", "SELECT count(*) AS n FROM t", refresh=when)
                lake.sql("INSERT INTO t SELECT * FROM range(30)")
        time.sleep(0.1)
        assert not tenants.maintain().failed
        seen = {}
        for name in ("acme", "idle"):
            with tenants.open(name) as lake:
                seen[name] = lake.sql("FROM total").fetchall()
        assert seen == {"acme": [(30,)], "idle": [(0,)]}


def test_a_rollback_takes_the_position_of_a_view_back_with_its_rows(tmp_path: Path) -> None:
    with filled(quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data")) as lake:
        lake.sql("DELETE FROM t WHERE id < 10")
        stood = lake.refresh("v").snapshot
        lake.sql("UPDATE t SET x = 0 WHERE id < 20")
        then = lake.current_snapshot()
        lake.refresh("v")
        lake.create_materialized_view("later", "SELECT id FROM t")
        lake.rollback(then)
        assert lake.materialized_views.describe("v")["snapshot"] == stood
        (found,) = lake.materialized_views.verify()
        assert found.ok and found.snapshot == stood
        assert lake.refresh("v").way == "groups"
        assert (
            lake.sql("SELECT s FROM v WHERE k = 'k1'").fetchall()
            == lake.sql("SELECT sum(x) FROM t WHERE k = 'k1'").fetchall()
        )
        with lake._context.catalog.read() as reader:
            assert len(own_tables.streams(reader)) == 1
        lake.materialized_views.drop("v")
        lake.rollback(then)  # it comes back, and so does its position
        assert follows(lake) == "groups"


def positions(lake: Lake) -> list[str]:
    with lake._context.catalog.read() as reader:
        return [mark.name for mark in own_tables.streams(reader)]


@pytest.mark.daily(0.35)
@pytest.mark.parametrize("way", ["sql", "replace", "python", "transaction"])
def test_a_schema_takes_its_views_and_their_positions_with_it(tmp_path: Path, way: str) -> None:
    with filled(quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data")) as lake:
        lake.create_schema("s")
        lake.sql("CREATE TABLE s.own AS SELECT 1 AS a")
        lake.create_materialized_view("s.v", "SELECT sum(x) AS n FROM main.t")
        lake.create_materialized_view("over", "SELECT n FROM s.v")
        kept = positions(lake)
        with pytest.raises(QuacklakeError, match="depend on it"):
            lake.sql("DROP SCHEMA s")
        assert positions(lake) == kept
        if way == "sql":
            lake.sql("DROP SCHEMA s CASCADE")
        elif way == "replace":
            lake.sql("CREATE OR REPLACE SCHEMA s")
        elif way == "python":
            lake.drop_schema("s", cascade=True)
        else:
            with lake.transaction() as tx:
                tx.sql("INSERT INTO t VALUES (1000, 'k1', 1)")
                tx.sql("DROP SCHEMA s CASCADE")
        assert lake.materialized_views.names() == ["main.over", "main.v"]
        assert len(positions(lake)) == 2
        with pytest.raises(StaleViewError, match="does not exist any more"):
            lake.refresh("over")
        lake.sql("CREATE SCHEMA IF NOT EXISTS s")
        lake.sql("INSERT INTO t VALUES (1001, 'k1', 5)")
        lake.create_materialized_view("s.v", "SELECT count(*) AS n FROM main.t")
        lake.sql("INSERT INTO t VALUES (1002, 'k1', 5)")
        assert lake.refresh("s.v").way == "merge"
        assert lake.sql("FROM s.v").fetchall() == lake.sql("SELECT count(*) FROM t").fetchall()
        assert follows(lake) == "groups"


def test_a_view_in_a_schema_that_stays_is_only_dropped_as_a_view(tmp_path: Path) -> None:
    with filled(quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data")) as lake:
        lake.create_schema("s")
        lake.create_materialized_view("s.v", QUERY.replace("FROM t", "FROM main.t"))
        with pytest.raises(QuacklakeError, match="which only its refresh changes"), lake.transaction() as tx:
            tx.sql("DROP TABLE s.v")
        with pytest.raises(QuacklakeError, match="which only its refresh changes"), lake.transaction() as tx:
            tx.sql("DROP SCHEMA s CASCADE")
            tx.sql("DROP TABLE v")
        assert len(positions(lake)) == 2 and lake.materialized_views.names() == ["main.v", "s.v"]


def test_a_rollback_brings_the_views_of_a_dropped_schema_back(tmp_path: Path) -> None:
    with filled(quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data")) as lake:
        lake.create_schema("s")
        lake.create_materialized_view("s.v", QUERY.replace("FROM t", "FROM main.t"))
        then = lake.current_snapshot()
        lake.sql("DELETE FROM t WHERE id < 50")
        lake.sql("DROP SCHEMA s CASCADE")
        lake.rollback(then)
        assert [found.ok for found in lake.materialized_views.verify()] == [True, True]
        lake.sql("DELETE FROM t WHERE id % 3 = 0")
        assert lake.refresh("s.v").way == "groups"
        assert [found.ok for found in lake.materialized_views.verify("s.v")] == [True]


def test_expiry_removes_positions_of_views_that_another_client_has_dropped(tmp_path: Path, stock: Stock) -> None:
    plain_only("stock clients read plain lakes")
    url = f"sqlite:///{tmp_path}/lake.db"
    with filled(quacklake.connect(url, data_path=tmp_path / "data")) as lake:
        lake.create_materialized_view("w", QUERY)
        assert len(positions(lake)) == 2
    stock.run(url, "DROP TABLE l.v")
    with quacklake.connect(url) as lake:
        lake.sql("DELETE FROM t WHERE id = 3")
        assert len(positions(lake)) == 2  # a rollback could bring the view back
        lake.expire_snapshots(keep_last=1)
        assert len(positions(lake)) == 1
        assert lake.refresh("w").way == "full"
        (found,) = lake.materialized_views.verify()
        assert found.ok


@pytest.mark.daily(0.35)
@pytest.mark.parametrize("between", ["nothing", "DELETE FROM t WHERE id = 101", "INSERT INTO t VALUES (900, 'k1', 9)"])
def test_views_over_one_table_plan_its_changes_once_unless_it_changes_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    def plans() -> int:
        known = telemetry.snapshot().timings.get("scan.plan_feed")
        return 0 if known is None else known.count

    monkeypatch.setattr(remembered, "SECONDS", 600.0)
    with filled(quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data")) as lake:
        lake.create_materialized_view("w", "SELECT id, x + 1 AS y FROM t WHERE x > 3")
        lake.sql("INSERT INTO t SELECT i, 'k' || i % 7, i FROM range(100, 140) r(i)")
        before = plans()
        assert lake.refresh("v").way == "merge"
        if between != "nothing":
            lake.sql(between)
        report = lake.refresh("w")
        assert (report.way, report.changes) == {
            "n": ("append", 40),
            "D": ("rows", 41),
            "I": ("append", 41),
        }[between[0]]
        assert plans() - before == (1 if between == "nothing" else 2)
        assert [found.ok for found in lake.materialized_views.verify()] == [True, True]


def test_changes_of_another_history_with_the_same_snapshots_are_planned_anew(tmp_path: Path) -> None:
    plain_only("a catalog of a shared lake is not restored this way")
    path = tmp_path / "lake.db"
    with (
        filled(quacklake.connect(f"sqlite:///{path}", data_path=tmp_path / "data")) as lake,
        closing(sqlite3.connect(":memory:")) as copy,
    ):
        with closing(sqlite3.connect(path)) as database:
            database.backup(copy)
        lake.sql("INSERT INTO t VALUES (900, 'k1', 9)")
        assert lake.refresh("v").changes == 1
        with closing(sqlite3.connect(path)) as database:
            copy.backup(database)
        lake.sql("INSERT INTO t VALUES (901, 'k1', 9), (902, 'k2', 9)")
        assert lake.refresh("v").changes == 2
        assert [found.ok for found in lake.materialized_views.verify()] == [True]
