"""Views over values of every kind: nested keys, time zones, huge numbers, blobs, and columns with names of the feed."""

from __future__ import annotations

from pathlib import Path

import pytest

import quacklake

COLUMNS = (
    "k STRUCT(a INTEGER, b VARCHAR), l INTEGER[], z TIMESTAMPTZ, x HUGEINT, d DECIMAL(38, 2), u UUID, b BLOB,"
    " snapshot_id INTEGER, change_type VARCHAR, f FLOAT, i INTERVAL"
)
ROW = (
    "({'a': 1, 'b': 'x'}, [1, 2], TIMESTAMPTZ '2024-01-01 00:00:00+02', 170141183460469231731687303715884105726, 1.5,"
    " 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'ab', 1, 'y', '-0.0', INTERVAL 1 MONTH)"
)
QUERIES = (
    "SELECT k, count(*) AS n FROM t GROUP BY k",
    "SELECT l, max(x) AS m, sum(d) AS s FROM t GROUP BY l",
    "SELECT date_trunc('day', z) AS d, count(*) AS n, min(i) AS i FROM t GROUP BY ALL",
    "SELECT k, l, z, x, d, u, b, snapshot_id AS s, change_type AS c FROM t",
    "SELECT f, i, z FROM t",
    "SELECT u, b, snapshot_id AS s, change_type AS c, count(*) AS n FROM t GROUP BY ALL",
    "SELECT DISTINCT k, l FROM t",
)


@pytest.mark.daily(0.22)
@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_values_of_every_kind_are_followed_exactly(tmp_path: Path, number: int) -> None:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data") as lake:
        lake.sql(f"CREATE TABLE t ({COLUMNS})")
        lake.sql(
            f"INSERT INTO t VALUES {ROW}, (NULL, NULL, NULL, 1, NULL, NULL, NULL, NULL, NULL, '0.0', INTERVAL 30 DAYS)"
        )
        lake.create_materialized_view("v", QUERIES[number])
        for change in (
            "INSERT INTO t SELECT * FROM t",
            "UPDATE t SET x = 5, z = TIMESTAMPTZ '2024-01-02 00:00:00+00', f = 0.0 WHERE k IS NULL",
            "DELETE FROM t WHERE k IS NOT NULL AND f = 0",
            "INSERT INTO t (x) VALUES (7)",
        ):
            lake.sql(change)
            report = lake.refresh("v")
            (found,) = lake.materialized_views.verify("v")
            assert found.ok, (change, report, found.problem, found.rows.to_pylist())
            assert report.way != "full"


@pytest.mark.parametrize("inlined", [0, 1000])
def test_rows_of_equal_values_that_are_not_the_same_are_followed(tmp_path: Path, inlined: int) -> None:
    """A view whose table has 0.0 beside -0.0, and intervals of one length that are written differently."""
    shown = "SELECT id::VARCHAR, i::VARCHAR, f::VARCHAR, l::VARCHAR FROM {} ORDER BY ALL"
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", data_inlining_row_limit=inlined
    ) as lake:
        lake.sql("CREATE TABLE t (id INTEGER, i INTERVAL, f DOUBLE, l DOUBLE[])")
        lake.sql(
            "INSERT INTO t SELECT n % 3, CASE WHEN n % 2 = 0 THEN INTERVAL 30 DAYS ELSE INTERVAL 1 MONTH END,"
            " CASE WHEN n % 2 = 0 THEN 0.0 ELSE '-0.0'::DOUBLE END, [0.0] FROM range(12) r(n)"
        )
        lake.create_materialized_view("v", "SELECT id, i, f, l FROM t")
        for change in (
            "UPDATE t SET i = INTERVAL 1 MONTH WHERE id = 1",
            "UPDATE t SET f = -f WHERE id = 2",
            "DELETE FROM t WHERE id = 0 AND i::VARCHAR = '1 month'",
            "UPDATE t SET i = INTERVAL 720 HOURS, l = [f]",
            "INSERT INTO t VALUES (5, NULL, NULL, NULL), (5, NULL, 'nan', [NULL])",
            "UPDATE t SET f = 'nan' WHERE id = 5",
            "DELETE FROM t WHERE id = 5 AND l IS NULL",
        ):
            lake.sql(change)
            report = lake.refresh("v")
            assert lake.sql(shown.format("v")).fetchall() == lake.sql(shown.format("t")).fetchall(), (change, report)
            assert report.way != "full"
