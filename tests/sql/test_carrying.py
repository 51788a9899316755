"""Values that Arrow would change on their way from DuckDB: plain DuckDB, which needs no Arrow, is the judge."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import quacklake
from quacklake.errors import QuacklakeError, SqlError
from tests.seeds import chance

LONG = "too long for Arrow"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", duckdb_threads=1) as opened:
        yield opened


def test_a_time_keeps_its_zone(lake: quacklake.Lake) -> None:
    query = (
        "SELECT '12:00:00.5+02'::TIMETZ AS a, '01:02:03-15:59:59'::TIME WITH TIME ZONE AS b, NULL::TIMETZ AS c, 1 AS a"
    )
    result = lake.sql(query)
    assert result.types == ["TIME WITH TIME ZONE"] * 3 + ["INTEGER"]
    found = result.fetchall()
    with duckdb.connect() as connection:
        assert found == connection.execute(query).fetchall()
    assert [value.utcoffset() for value in found[0][:2]] == [
        dt.timedelta(hours=2),
        -dt.timedelta(hours=15, minutes=59, seconds=59),
    ]
    lake.sql("CREATE TABLE t AS SELECT '12:00:00+02'::TIMETZ AS a")
    lake.sql("CREATE VIEW v AS SELECT a AS b FROM t")
    for source in ("t", "v"):
        assert lake.sql(f"FROM {source}").fetchall() == [(dt.time(12, tzinfo=dt.timezone(dt.timedelta(hours=2))),)]
        assert lake.sql(f"FROM {source}").to_arrow().columns[0].to_pylist() == ["12:00:00+02"]
    assert lake.sql("SELECT '24:00:00+00'::TIMETZ").fetchall() == [("24:00:00+00",)]


def test_numbers_that_arrow_lacks_are_numbers_in_python(lake: quacklake.Lake) -> None:
    result = lake.sql("SELECT 340282366920938463463374607431768211455::UHUGEINT AS a")
    assert (result.types, result.fetchall()) == (["UHUGEINT"], [(2**128 - 1,)])


@pytest.mark.parametrize(
    "value",
    [
        "to_hours({})",
        "[to_hours(1), NULL, to_hours({})]",
        "{{'a': 1, 'it''s': to_hours({})}}",
        "MAP {{to_hours({}): [1]}}",
        "MAP {{1: [[to_hours({})]]}}",
        "array_value(to_hours({}), to_hours(2))",
        "union_value(i := to_hours({}))",
    ],
)
def test_an_interval_is_whole_or_an_error_wherever_it_is(lake: quacklake.Lake, value: str) -> None:
    for hours in (2_562_046, -2_562_046):
        query = f"SELECT {value.format(hours)} AS v"
        with duckdb.connect() as connection:
            wanted = connection.execute(f"SELECT v::VARCHAR FROM ({query})").fetchall()
        assert lake.sql(f"SELECT v::VARCHAR FROM ({query})").fetchall() == wanted
        assert f"nanoseconds={hours * 3600 * 10**9}" in str(lake.sql(query).fetchall()) or "union" in value
    for hours in (3_000_000, -2_562_047_788):
        with pytest.raises(SqlError, match=LONG):
            lake.sql(f"SELECT {value.format(hours)} AS v").fetchall()


def test_a_long_interval_stays_in_a_table_as_it_was_written(lake: quacklake.Lake) -> None:
    lake.sql("CREATE TABLE t (n INTEGER, i INTERVAL, l INTERVAL[])")
    lake.sql("INSERT INTO t VALUES (1, to_hours(3000000), [to_hours(-4000000), NULL]), (2, INTERVAL 400 YEARS, [])")
    wanted = [("3000000:00:00", "['-4000000:00:00', NULL]"), ("400 years", "[]")]
    query = "SELECT i::VARCHAR, l::VARCHAR FROM t ORDER BY n"
    assert lake.sql(query).fetchall() == wanted
    assert lake.sql("SELECT n FROM t WHERE i > to_hours(2900000) ORDER BY n").fetchall() == [(1,), (2,)]
    lake.sql("UPDATE t SET n = n + 10")
    lake.sql("ALTER TABLE t ADD COLUMN more INTEGER")
    lake.sql("CREATE TABLE u AS FROM t")
    assert lake.sql(query).fetchall() == lake.sql(query.replace("FROM t", "FROM u")).fetchall() == wanted
    lake.sql("CREATE VIEW v AS SELECT i AS span FROM t WHERE n = 11")
    for attempt in ("FROM t", "FROM v", "SELECT l FROM t"):
        with pytest.raises(SqlError, match=LONG):
            lake.sql(attempt).fetchall()
    with pytest.raises(QuacklakeError, match=LONG):
        lake.table("t").to_arrow()
    assert lake.table("t").to_arrow(columns=["n"]).num_rows == 2
    assert lake.table("t").to_arrow(columns=["i"], where="n = 12").to_pylist()[0]["i"].months == 4800


def test_any_interval_comes_back_from_a_table_or_is_an_error(lake: quacklake.Lake) -> None:
    drawn = chance("intervals")
    rows = []
    for number in range(40):
        scale = drawn.choice([10, 10**6, 10**12, 9 * 10**15, 10**18])
        rows.append((number, drawn.randint(-4000, 4000), drawn.randint(-40_000, 40_000), drawn.randint(-scale, scale)))
    made = "to_months(m::INTEGER) + to_days(d::INTEGER) + to_microseconds(u)"
    values = ", ".join(map(str, rows))
    lake.sql("CALL lake.set_option('data_inlining_row_limit', 100)")
    lake.sql(f"CREATE TABLE t AS SELECT n, {made} AS i FROM (VALUES {values}) r(n, m, d, u)")
    with duckdb.connect() as connection:
        theirs = connection.execute(f"SELECT n, ({made})::VARCHAR FROM (VALUES {values}) r(n, m, d, u)").fetchall()
    assert lake.sql("SELECT n, i::VARCHAR FROM t ORDER BY n").fetchall() == theirs
    for number, months, days, micros in rows:
        query = "SELECT i FROM t WHERE n = $1"
        if abs(micros) < 2_562_047 * 3600 * 10**6:
            assert tuple(lake.sql(query, [number]).fetchall()[0][0]) == (months, days, micros * 1000)
        else:
            with pytest.raises(SqlError, match=LONG):
                lake.sql(query, [number])
