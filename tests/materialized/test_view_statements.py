"""Materialized views as users write them: SQL, Python, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quacklake
from quacklake import Lake
from quacklake.errors import (
    AlreadyExistsError,
    InputError,
    NotFoundError,
    SqlError,
    StaleViewError,
)

SALES = "CREATE TABLE sales (id INTEGER, shop VARCHAR, ts TIMESTAMP, amount INTEGER)"
DAILY = "SELECT shop, date_trunc('day', ts) AS day, sum(amount) AS total, count(*) AS n FROM sales GROUP BY ALL"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=str(tmp_path / "data")) as lake:
        lake.sql(SALES)
        lake.sql(
            "INSERT INTO sales SELECT i, 's' || i % 3, TIMESTAMP '2024-01-01' + to_hours(i), i FROM range(100) r(i)"
        )
        yield lake


def rows(lake: Lake, sql: str) -> list[tuple[object, ...]]:
    return sorted(lake.sql(sql).fetchall(), key=repr)


def check(lake: Lake, name: str) -> None:
    found = lake.sql(f"VERIFY MATERIALIZED VIEW {name}").to_arrow().to_pylist()[0]
    assert found["ok"], found


def test_a_view_holds_the_answer_of_its_query_and_follows_every_change(lake: Lake) -> None:
    made = lake.sql(f"CREATE MATERIALIZED VIEW daily AS {DAILY}").to_arrow().to_pylist()[0]
    assert made["way"] == "full" and made["inserted"] == 15
    assert rows(lake, "FROM daily") == rows(lake, DAILY)
    ways = []
    for change in (
        "INSERT INTO sales VALUES (1000, 's1', TIMESTAMP '2024-01-02 03:00', 7)",
        "UPDATE sales SET amount = amount + 1 WHERE id < 30",
        "DELETE FROM sales WHERE shop = 's2'",
    ):
        lake.sql(change)
        assert rows(lake, "FROM daily") != rows(lake, DAILY)
        ways.append(lake.sql("REFRESH MATERIALIZED VIEW daily").to_arrow().to_pylist()[0]["way"])
        assert rows(lake, "FROM daily") == rows(lake, DAILY)
        check(lake, "daily")
    assert ways == ["merge", "groups", "groups"]
    assert lake.refresh("daily").way == "none"
    assert lake.sql("REFRESH MATERIALIZED VIEW daily FULL").to_arrow().to_pylist()[0]["way"] == "full"
    check(lake, "daily")


@pytest.mark.daily(0.3)
def test_projections_follow_rows_and_keep_duplicates(lake: Lake) -> None:
    query = "SELECT shop, amount % 4 AS rest FROM sales WHERE amount > 10"
    lake.create_materialized_view("rest", query)
    lake.sql("INSERT INTO sales SELECT * FROM sales WHERE id > 50")
    assert lake.refresh("rest").way == "append"
    assert rows(lake, "FROM rest") == rows(lake, query)
    lake.sql("UPDATE sales SET amount = amount + 4 WHERE id % 2 = 0")
    assert lake.refresh("rest").way == "rows"
    lake.sql("DELETE FROM sales WHERE id % 3 = 0")
    report = lake.refresh("rest")
    assert (report.way, report.inserted) == ("rows", 0) and report.deleted > 0
    assert rows(lake, "FROM rest") == rows(lake, query)
    check(lake, "rest")


def test_an_update_that_the_query_does_not_see_changes_no_row(lake: Lake) -> None:
    lake.create_materialized_view("ids", "SELECT id FROM sales")
    before = lake.current_snapshot()
    lake.sql("UPDATE sales SET amount = 0")
    report = lake.refresh("ids")
    assert (report.way, report.deleted, report.inserted) == ("rows", 0, 0)
    assert lake.current_snapshot() == before + 1  # the update: the refresh only moved the position
    assert lake.materialized_views.describe("ids")["snapshot"] == before + 1


@pytest.mark.daily(0.3)
def test_joins_follow_changes_of_every_table(lake: Lake) -> None:
    lake.sql("CREATE TABLE shops (shop VARCHAR, town VARCHAR)")
    lake.sql("INSERT INTO shops VALUES ('s0', 'Here'), ('s1', 'There')")
    inner = "SELECT t.town, sum(s.amount) AS total FROM sales s JOIN shops t ON s.shop = t.shop GROUP BY t.town"
    outer = "SELECT s.shop, t.town, count(*) AS n FROM sales s LEFT JOIN shops t USING (shop) GROUP BY ALL"
    none = "SELECT s.id FROM sales s LEFT JOIN shops t ON s.shop = t.shop WHERE t.shop IS NULL"
    for name, query in (("towns", inner), ("pairs", outer), ("lost", none)):
        lake.create_materialized_view(name, query)
    for change in (
        "INSERT INTO shops VALUES ('s2', 'Nowhere')",
        "UPDATE shops SET town = 'Elsewhere' WHERE shop = 's0'",
        "DELETE FROM shops WHERE shop = 's1'",
        "INSERT INTO sales VALUES (2000, NULL, NULL, 1)",
        "DELETE FROM sales WHERE amount < 10; INSERT INTO shops VALUES ('s1', 'Again'), (NULL, 'Null')",
    ):
        lake.sql(change)
        for name, query in (("towns", inner), ("pairs", outer), ("lost", none)):
            lake.refresh(name)
            assert rows(lake, f"FROM {name}") == rows(lake, query), (change, name)


@pytest.mark.daily(0.3)
def test_views_over_views_are_refreshed_in_order(lake: Lake) -> None:
    lake.create_materialized_view("daily", DAILY)
    lake.create_materialized_view("shops", "SELECT shop, max(total) AS best FROM daily GROUP BY shop")
    lake.sql("UPDATE sales SET amount = amount * 2")
    lake.refresh("shops")
    assert rows(lake, "FROM shops") == rows(lake, f"SELECT shop, max(total) FROM ({DAILY}) GROUP BY shop")
    with pytest.raises(InputError, match=r"it is read by main\.shops"):
        lake.create_materialized_view("daily", "SELECT shop FROM shops", replace=True)
    with pytest.raises(InputError, match="cannot read itself"):
        lake.sql("CREATE OR REPLACE MATERIALIZED VIEW shops AS SELECT shop FROM shops")


@pytest.mark.daily(0.22)
@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT id, random() FROM sales", "random"),
        ("SELECT id, now() FROM sales", "now"),
        ("SELECT id FROM sales LIMIT 3", "LIMIT"),
        ("SELECT shop, list(id) FROM sales GROUP BY shop", "order of the rows"),
        ("SELECT id, row_number() OVER (ORDER BY id) FROM sales", "no output column"),
        ("SELECT sum(amount) + 1 FROM sales", "no output column"),
        ("SELECT shop FROM sales UNION SELECT shop FROM sales", "UNION ALL"),
        ("WITH a AS (SELECT shop FROM sales LIMIT 3) SELECT shop FROM a", "common tables"),
        ("SELECT id FROM sales WHERE id IN (SELECT id FROM sales)", "subqueries"),
        ("SELECT shop, count(*) FROM sales GROUP BY ROLLUP (shop)", "ROLLUP"),
        ("SELECT a.id FROM sales a FULL JOIN sales b ON a.id = b.id", "inner and left"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_the_reason_unless_the_user_wants_it_in_full(
    lake: Lake, query: str, reason: str
) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        lake.create_materialized_view("v", query)
    assert "full = true" in (caught.value.hint or "")
    assert "main.v" not in lake
    lake.sql(f"CREATE MATERIALIZED VIEW v WITH (full = true) AS {query}")
    lake.sql("INSERT INTO sales VALUES (5000, 's9', NULL, 1)")
    report = lake.refresh("v")
    assert report.way == "full" and reason.lower() in str(report.reason).lower()


def test_a_query_that_cannot_run_or_reaches_out_changes_nothing(lake: Lake) -> None:
    before = lake.current_snapshot()
    for query in (
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT id, getenv('HOME') FROM sales",
        "SELECT 1",
        "SELECT * FROM nowhere",
        "SELECT id FROM sales WHERE id = ?",
        "SELECT nothing FROM sales",
        "DELETE FROM sales",
    ):
        with pytest.raises((InputError, NotFoundError)):
            lake.sql(f"CREATE MATERIALIZED VIEW v WITH (full = true) AS {query}", [1] if "?" in query else None)
        assert lake.current_snapshot() == before
        assert lake.materialized_views.names() == []


def test_only_a_refresh_changes_the_rows_of_a_view(lake: Lake) -> None:
    lake.create_materialized_view("daily", DAILY)
    for statement in (
        "INSERT INTO daily SELECT * FROM daily",
        "DELETE FROM daily",
        "UPDATE daily SET n = 1",
        "DROP TABLE daily",
        "ALTER TABLE daily DROP COLUMN n",
        "TRUNCATE daily",
    ):
        with pytest.raises(InputError, match="materialized view"):
            lake.sql(statement)
    with pytest.raises(InputError, match="materialized view"):
        lake.table("daily").append(lake.table("daily").to_arrow())
    lake.sql("COMMENT ON TABLE daily IS 'by day'")
    lake.sql("CREATE TABLE copy AS FROM daily")
    check(lake, "daily")


def test_create_drop_show_describe_and_alter(lake: Lake) -> None:
    lake.sql(f"CREATE MATERIALIZED VIEW daily PARTITIONED BY (shop) REFRESH EVERY '1 minute' AS {DAILY}")
    with pytest.raises(AlreadyExistsError):
        lake.sql(f"CREATE MATERIALIZED VIEW daily AS {DAILY}")
    with pytest.raises(AlreadyExistsError, match="table"):
        lake.sql("CREATE OR REPLACE MATERIALIZED VIEW sales AS SELECT id FROM sales AS s")
    assert lake.sql(f"CREATE MATERIALIZED VIEW IF NOT EXISTS daily AS {DAILY}").fetchall() == []
    assert len(lake.table("daily").files()) == 3
    shown = lake.sql("SHOW MATERIALIZED VIEWS").to_arrow().to_pylist()
    assert [(row["name"], row["refresh"], row["bases"], row["way"]) for row in shown] == [
        ("main.daily", "every 60 seconds", ["main.sales"], "full")
    ]
    lake.sql("DELETE FROM sales WHERE id < 3")
    described = dict(lake.sql("DESCRIBE MATERIALIZED VIEW daily").fetchall())
    assert described["lag_rows"] == "3" and described["way"] == "groups" and described["bases"] == "main.sales"
    assert "date_trunc" in str(described["query"])
    lake.sql("ALTER MATERIALIZED VIEW daily SET REFRESH MANUAL")
    assert lake.materialized_views.describe("daily")["refresh"] == "manual"
    lake.sql("CREATE OR REPLACE MATERIALIZED VIEW daily AS SELECT id FROM sales")
    assert lake.table("daily").count() == 97
    lake.sql("DROP MATERIALIZED VIEW daily")
    lake.sql("DROP MATERIALIZED VIEW IF EXISTS daily")
    with pytest.raises(NotFoundError):
        lake.sql("REFRESH MATERIALIZED VIEW daily")
    assert "main.daily" not in lake and lake.streams.list().num_rows == 0


def test_statements_with_mistakes_say_what_is_wrong(lake: Lake) -> None:
    with pytest.raises(SqlError, match="schedule"):
        lake.sql(f"CREATE MATERIALIZED VIEW v REFRESH EVERY 'now and then' AS {DAILY}")
    with pytest.raises(SqlError, match="option"):
        lake.sql(f"CREATE MATERIALIZED VIEW v WITH (speed = 'high') AS {DAILY}")
    with pytest.raises(InputError, match="engine"):
        lake.sql(f"CREATE MATERIALIZED VIEW v WITH (engine = 'steam') AS {DAILY}")
    with pytest.raises(NotFoundError, match="no materialized view"):
        lake.sql("REFRESH MATERIALIZED VIEW sales")
    lake.sql("BEGIN")
    with pytest.raises(SqlError, match="transaction"):
        lake.sql("REFRESH MATERIALIZED VIEW v")
    lake.sql("ROLLBACK")


def test_explain_says_what_a_refresh_would_do_and_changes_nothing(lake: Lake) -> None:
    lake.create_materialized_view("daily", DAILY)
    lake.sql("UPDATE sales SET amount = 0 WHERE id IN (1, 2)")
    before = lake.current_snapshot()
    plan = lake.sql("EXPLAIN REFRESH daily").to_arrow().to_pylist()[0]
    assert (plan["way"], plan["keys"], plan["changes"]) == ("groups", 2, 4)
    assert lake.current_snapshot() == before
    assert lake.materialized_views.describe("daily")["lag_rows"] == 4


def test_on_commit_follows_each_commit_of_the_process_and_never_fails_it(lake: Lake) -> None:
    lake.create_materialized_view("daily", DAILY, refresh="on commit")
    lake.create_materialized_view("n", "SELECT shop, sum(n) AS n FROM daily GROUP BY shop", refresh="on commit")
    lake.table("sales").append([{"id": 1, "shop": "s5", "ts": None, "amount": 2}])
    assert rows(lake, "FROM daily") == rows(lake, DAILY)
    assert rows(lake, "FROM n") == rows(lake, "SELECT shop, count(*) FROM sales GROUP BY shop")
    with lake.transaction() as tx:
        tx.table("sales").delete("id < 50")
        tx.table("sales").append([{"id": 2, "shop": "s6", "ts": None, "amount": 3}])
    assert rows(lake, "FROM daily") == rows(lake, DAILY)
    lake.sql("ALTER TABLE sales RENAME COLUMN amount TO price")
    lake.sql("INSERT INTO sales VALUES (3, 's7', NULL, 1)")
    assert lake.table("sales").count(where="id = 3") == 1
    assert "amount" in str(lake.materialized_views.describe("daily")["stale"])
    with pytest.raises(StaleViewError, match="amount"):
        lake.refresh("daily")
    lake.sql("ALTER TABLE sales RENAME COLUMN price TO amount")
    assert lake.refresh("daily").way in ("full", "groups", "merge")
    check(lake, "daily")
    assert lake.materialized_views.describe("daily")["stale"] is None


def test_time_travel_shows_the_view_of_then_and_the_snapshot_it_stood_at(lake: Lake) -> None:
    lake.create_materialized_view("daily", DAILY)
    first = lake.current_snapshot()
    then = rows(lake, "FROM daily")
    lake.sql("DELETE FROM sales WHERE shop = 's1'")
    deleted = lake.current_snapshot()
    lake.refresh("daily")
    assert rows(lake, f"FROM daily AT (VERSION => {first})") == then
    assert lake.materialized_views.describe("daily", version=first)["snapshot"] == first - 1
    assert lake.materialized_views.describe("daily", version=lake.current_snapshot())["snapshot"] == deleted
    shown = dict(lake.sql(f"DESCRIBE MATERIALIZED VIEW daily AT (VERSION => {first})").fetchall())
    assert shown["snapshot"] == str(first - 1)


def test_verify_shows_the_rows_that_differ(lake: Lake, tmp_path: Path) -> None:
    lake.create_materialized_view("daily", DAILY)
    tx = lake.handle.begin()
    tx.upkeep = True
    from quacklake.core.operations import dml

    dml.delete(lake.handle.context, tx, tx.find_table("main", "daily"), "shop = 's1' AND n = 8")
    lake.handle.commit(tx)
    found = lake.sql("VERIFY MATERIALIZED VIEW daily").to_arrow().to_pylist()[0]
    assert not found["ok"] and found["missing"] > 0 and found["unexpected"] == 0
    assert "s1" in found["differences"][0]
    assert "another client" in str(lake.refresh("daily").reason)
    check(lake, "daily")


def test_sums_of_floats_are_compared_up_to_rounding(lake: Lake) -> None:
    lake.sql("CREATE TABLE f (k INTEGER, x DOUBLE)")
    lake.sql("INSERT INTO f SELECT i % 3, i / 7.0 FROM range(1000) r(i)")
    lake.create_materialized_view("sums", "SELECT k, sum(x) AS s, avg(x) AS a FROM f GROUP BY k")
    lake.sql("INSERT INTO f VALUES (1, 'nan'), (2, 'inf'), (NULL, -0.0)")
    assert lake.refresh("sums").way == "groups"
    check(lake, "sums")


@pytest.mark.daily(0.3)
def test_a_renamed_base_table_is_followed_and_a_new_one_of_its_name_is_read_in_full(lake: Lake) -> None:
    lake.create_materialized_view("daily", DAILY)
    lake.sql("ALTER TABLE sales RENAME TO old_sales")
    lake.sql("INSERT INTO old_sales VALUES (1, 's8', NULL, 5)")
    assert lake.refresh("daily").way == "merge"
    check(lake, "daily")
    lake.drop_table("old_sales")
    with pytest.raises(StaleViewError, match="does not exist any more"):
        lake.refresh("daily")
    assert lake.table("daily").count() > 0
    lake.sql(SALES)
    lake.sql("INSERT INTO sales VALUES (1, 's8', NULL, 5)")
    report = lake.refresh("daily")
    assert report.way == "full" and "created again" in str(report.reason)
    assert lake.table("daily").count() == 1


@pytest.mark.daily(0.3)
def test_expiry_rollback_and_restore_of_a_base_table_end_in_the_right_answer(lake: Lake) -> None:
    lake.create_materialized_view("daily", DAILY)
    good = lake.current_snapshot()
    lake.sql("DELETE FROM sales WHERE id > 20")
    lake.refresh("daily")
    lake.table("sales").restore(good)
    lake.refresh("daily")
    assert rows(lake, "FROM daily") == rows(lake, DAILY)
    lake.sql("DELETE FROM sales WHERE id > 50")
    lake.rollback(good)
    assert lake.refresh("daily").way != "none"
    assert rows(lake, "FROM daily") == rows(lake, DAILY)
    lake.sql("DELETE FROM sales WHERE id > 50")
    lake.expire_snapshots(keep_last=1)
    report = lake.refresh("daily")
    assert report.way == "full" and "expired" in str(report.reason)
    assert rows(lake, "FROM daily") == rows(lake, DAILY)


@pytest.mark.daily(0.3)
def test_compaction_and_flushes_change_nothing(lake: Lake) -> None:
    lake.create_materialized_view("daily", DAILY)
    for number in range(5):
        lake.sql(f"INSERT INTO sales VALUES ({number}, 's1', TIMESTAMP '2024-02-01', 1)")
    lake.refresh("daily")
    lake.maintenance.flush_inlined_data()
    lake.table("sales").merge_adjacent_files()
    lake.table("daily").merge_adjacent_files()
    report = lake.refresh("daily")
    assert report.way == "none", report
    check(lake, "daily")


@pytest.mark.daily(0.3)
def test_a_second_handle_finds_a_refresh_done(tmp_path: Path, lake: Lake) -> None:
    lake.create_materialized_view("daily", DAILY)
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db") as other:
        other.sql("INSERT INTO sales VALUES (1, 's1', NULL, 1)")
        assert other.refresh("daily").way == "merge"
        assert lake.refresh("daily").way == "none"
        assert rows(lake, "FROM daily") == rows(other, DAILY)
        other.sql("ALTER MATERIALIZED VIEW daily SET REFRESH ON COMMIT")
        lake.sql("INSERT INTO sales VALUES (1, 's1', NULL, 1)")
        assert rows(lake, "FROM daily") == rows(other, DAILY)


@pytest.mark.daily(0.3)
def test_columns_of_a_star_are_those_of_the_creation(lake: Lake) -> None:
    lake.create_materialized_view("all", "SELECT * EXCLUDE (ts) FROM sales")
    lake.sql("ALTER TABLE sales ADD COLUMN more INTEGER")
    lake.sql("INSERT INTO sales VALUES (1, 'x', NULL, 3, 4)")
    assert lake.refresh("all").way == "append"
    assert rows(lake, 'FROM "all"') == rows(lake, "SELECT id, shop, amount FROM sales")
    lake.sql("ALTER TABLE sales DROP COLUMN amount")
    lake.sql("ALTER TABLE sales ADD COLUMN amount INTEGER DEFAULT 9")
    assert "altered" in str(lake.refresh("all").reason)
    assert rows(lake, 'FROM "all"') == rows(lake, "SELECT id, shop, amount FROM sales")


def test_a_refresh_reads_only_the_files_that_may_hold_touched_groups(lake: Lake) -> None:
    lake.sql("CREATE TABLE r (device INTEGER, ts TIMESTAMP, v BIGINT)")
    for day in range(20):
        start = f"TIMESTAMP '2024-01-01' + to_days({day})"
        lake.sql(f"INSERT INTO r SELECT i % 5, {start} + to_minutes(i), i FROM range(1000) t(i)")
    lake.create_materialized_view(
        "hourly", "SELECT device, date_trunc('hour', ts) AS h, sum(v) AS s, median(v) AS m FROM r GROUP BY ALL"
    )
    lake.sql("UPDATE r SET v = v + 1 WHERE device = 3 AND ts < TIMESTAMP '2024-01-01 02:00:00'")
    plan = lake.materialized_views.explain("hourly")
    assert (plan.way, plan.keys) == ("groups", 2)
    assert plan.files < plan.files_total / 4, plan
    assert lake.refresh("hourly").way == "groups"
    check(lake, "hourly")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT x % 2 AS twin, sum(x) FROM t GROUP BY twin",
        "SELECT upper(k) AS twin, sum(x) AS s FROM t GROUP BY twin HAVING s > 10",
        "SELECT x + 1 AS twin, twin * 2 AS more FROM t WHERE twin > 3",
        "SELECT k, name FROM t JOIN u ON ref = x % 3",
        "SELECT id, name FROM t JOIN u USING (id)",
    ],
)
def test_names_mean_what_they_meant_when_the_view_was_created(tmp_path: Path, query: str) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.sql("CREATE TABLE t AS SELECT i AS id, 'k' || i % 3 AS k, i AS x FROM range(30) r(i)")
        lake.sql("CREATE TABLE u AS SELECT i AS id, i AS ref, 'n' || i AS name FROM range(3) r(i)")
        expected = sorted(map(str, lake.sql(query.replace("FROM t", "FROM (SELECT id, k, x FROM t) AS t")).fetchall()))
        lake.create_materialized_view("v", query)
        assert lake.table("v").schema.names == lake.sql(query).columns
        for table, column in (("t", "twin"), ("t", "s"), ("t", "name"), ("u", "k"), ("u", "x"), ("u", "twin")):
            lake.sql(f"ALTER TABLE {table} ADD COLUMN {column} INTEGER DEFAULT 5")
        lake.sql("INSERT INTO t (id, k, x) VALUES (50, 'k1', 7)")
        lake.refresh("v")
        lake.sql("DELETE FROM t WHERE id = 50")
        lake.refresh("v")
        assert sorted(map(str, lake.sql("FROM v").fetchall())) == expected
