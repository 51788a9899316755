"""Small batches of a stream, which the driver writes itself: the same rows as the executors write, in one job of Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import quacklake
from quacklake import telemetry
from quacklake.errors import ConstraintError, InputError, SchemaMismatchError, UnsupportedFeatureError
from quacklake.spark.write import tasks
from tests.conformance.clients import LakeSite
from tests.conformance.conftest import MakeSite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from quacklake.spark.streams.sink import SparkSink

#: Types that Arrow brings to the driver unharmed; executors always write the others.
pytestmark = pytest.mark.needs_spark("4.0")

PLAIN = (
    "k INTEGER, b BOOLEAN, i8 TINYINT, i16 SMALLINT, i64 BIGINT, u8 UTINYINT, u16 USMALLINT, u32 UINTEGER, u64 UBIGINT,"
    " f FLOAT, d DOUBLE, de DECIMAL(12,3), wide DECIMAL(38,10), da DATE, ts TIMESTAMP, tss TIMESTAMP_S,"
    " tsm TIMESTAMP_MS, tz TIMESTAMPTZ, v VARCHAR, bl BLOB, j JSON, u UUID, s STRUCT(x INTEGER, y STRUCT(z DOUBLE)),"
    " l INTEGER[], m MAP(VARCHAR, DECIMAL(9,2)), n STRUCT(a TIMESTAMPTZ[], b MAP(INTEGER, BLOB))[]"
)
SOURCE = """
    SELECT CAST(id AS INT) AS k, id % 2 = 0 AS b, CAST(id - 20 AS TINYINT) AS i8, CAST(-id AS SMALLINT) AS i16,
        9223372036854775807L - id AS i64, CAST(255 - id AS SMALLINT) AS u8, CAST(65535 - id AS INT) AS u16,
        4294967295L - id AS u32, CAST(CAST('18446744073709551615' AS DECIMAL(20,0)) - id AS DECIMAL(20,0)) AS u64,
        CASE id WHEN 1 THEN float('NaN') WHEN 2 THEN float('-0.0') ELSE CAST(id / 3 AS FLOAT) END AS f,
        CASE id WHEN 1 THEN double('-Infinity') WHEN 2 THEN double('NaN') ELSE id / 3D END AS d,
        CAST(id / 7D AS DECIMAL(12,3)) AS de,
        CAST(concat('9999999999999999999999999999.01234567', lpad(id, 2, '0')) AS DECIMAL(38,10)) AS wide,
        date_add(DATE '1582-10-10', CAST(id AS INT)) AS da,
        timestampadd(MICROSECOND, id * 1234567 - 3, TIMESTAMP_NTZ '1969-12-31 23:59:59') AS ts,
        timestampadd(MICROSECOND, id * 500000, TIMESTAMP_NTZ '1969-12-31 23:59:50') AS tss,
        timestampadd(MICROSECOND, id * 500, TIMESTAMP_NTZ '1969-12-31 23:59:59') AS tsm,
        timestampadd(MINUTE, id * 7, TIMESTAMP '2024-11-03 04:00:00Z') AS tz,
        CASE id WHEN 3 THEN '' WHEN 4 THEN 'é🦆' ELSE concat('v', id) END AS v,
        CASE id WHEN 3 THEN X'' ELSE unhex(concat('00ff', lpad(hex(id), 2, '0'))) END AS bl,
        concat('{"i": ', id, ', "f":1.50}') AS j, concat('00000000-0000-4000-8000-0000000000', lpad(id, 2, '0')) AS u,
        named_struct('x', CAST(id AS INT), 'y', IF(id % 3 = 0, NULL, named_struct('z', id / 9D))) AS s,
        IF(id % 4 = 0, array(), array(CAST(id AS INT), NULL)) AS l,
        IF(id % 4 = 1, map(), map('a', CAST(id AS DECIMAL(9,2)), 'b', NULL)) AS m,
        array(NULL, named_struct('a', array(TIMESTAMP '2024-03-10 07:00:00Z'), 'b', map(7, X'00'))) AS n
    FROM range(30)
"""


@pytest.fixture
def site(make_site: MakeSite) -> LakeSite:
    return make_site("sqlite", 5)


@pytest.fixture
def jobs(session: SparkSession) -> Callable[[Callable[[], Any]], int]:
    """A function that counts the Spark jobs of some work."""
    context: Any = session.sparkContext
    number = 0

    def count(work: Callable[[], Any]) -> int:
        nonlocal number
        number += 1
        group = f"{id(count)} {number}"
        context.setJobGroup(group, group)
        try:
            work()
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)
            context._jsc.sc().listenerBus().waitUntilEmpty()
        return len(context.statusTracker().getJobIdsForGroup(group))

    return count


def sink_of(lake: quacklake.Lake, session: SparkSession, table: str, *, here: bool, **options: Any) -> SparkSink:
    """Return a sink that writes small batches in the driver (``here``), or none."""
    given = {"mode": "append", "on": None, "evolve": False, "restart": False, **options}
    sink = quacklake.spark(lake, session)._sink(table, f"{table} {here}", **given)
    sink.run = lake.streams.claim(sink.name, "a query", restart=True).run
    if not here:
        sink.fetch.limit = 0
    return sink


def numbers(session: SparkSession, count: int, columns: str = "id") -> DataFrame:
    return session.range(0, count, 1, 2).selectExpr(*columns.split("; "))


def test_every_type_is_the_same_whoever_writes_it(
    site: LakeSite, session: SparkSession, jobs: Callable[[Callable[[], Any]], int]
) -> None:
    lake = site.lake()
    rows = session.sql(f"{SOURCE} UNION ALL SELECT 99{', NULL' * 25}").coalesce(1)
    for name in ("small", "large"):
        lake.sql(f"CREATE TABLE {name} ({PLAIN})")
    telemetry.reset()
    small, large = (sink_of(lake, session, name, here=name == "small") for name in ("small", "large"))
    assert jobs(lambda: small.write(rows, 0)) == 1
    assert jobs(lambda: large.write(rows, 0)) > 1, "a look, the files, and what Parquet does not tell of NaN"
    assert small.reports[0].rows == large.reports[0].rows == 31
    assert small.reports[0].files == large.reports[0].files == 1 and small.reports[0].bytes > 0
    assert telemetry.snapshot().counters["stream.rows"] == 62
    ours, sparks = (lake.table(name).to_arrow().sort_by("k") for name in ("small", "large"))
    assert ours.schema == sparks.schema
    assert list(map(str, ours.to_pylist())) == list(map(str, sparks.to_pylist()))
    assert lake.verify().ok
    text = "SELECT CAST(COLUMNS(*) AS VARCHAR) FROM l.{} ORDER BY ALL"
    found = [site.stock().execute(text.format(name)).fetchall() for name in ("small", "large")]
    assert found[0] == found[1] and len(found[0]) == 31


@pytest.mark.parametrize(
    ("types", "columns", "looks"),
    [
        ("h HUGEINT, t INTERVAL", "id AS h; '3 days' AS t", 0),
        ("f DOUBLE", "CAST(concat('9999999999999999999999999999', id) AS DECIMAL(38,0)) AS f", 1),
    ],
)
def test_what_the_driver_would_write_otherwise_the_executors_write(
    site: LakeSite,
    session: SparkSession,
    types: str,
    columns: str,
    looks: int,
    jobs: Callable[[Callable[[], Any]], int],
) -> None:
    lake = site.lake()
    lake.sql(f"CREATE TABLE t ({types})")
    sink = sink_of(lake, session, "t", here=True)
    rows = numbers(session, 20, columns)
    assert jobs(lambda: sink.write(rows, 0)) == looks + 1
    assert sink.reports[0].files == 2, "one of each task"
    if types == "f DOUBLE":
        read = quacklake.spark(lake, session).table("t")
        assert sorted(read.collect()) == sorted(rows.selectExpr("CAST(f AS DOUBLE)").collect())


def test_partitions_and_order_are_those_of_the_table(
    site: LakeSite, session: SparkSession, jobs: Callable[[Callable[[], Any]], int]
) -> None:
    columns = {"id": pa.int64(), "day": pa.timestamp("us", "UTC"), "name": pa.string()}
    rows = numbers(
        session,
        40,
        "99 - id AS id; timestampadd(HOUR, id * 3, TIMESTAMP '2024-02-28 00:00:00Z') AS day;"
        " IF(id % 5 = 0, NULL, concat('a/b ', id % 2)) AS name",
    )
    found = []
    for name in ("small", "large"):
        lake = site.lake()
        lake.create_table(name, columns, partition_by=["day(day)", "name"], sort_by=["id"])
        sink = sink_of(lake, session, name, here=name == "small")
        assert jobs(lambda sink=sink: sink.write(rows, 0)) == 1 or name == "large"
        assert sink.reports[0].rows == 40
        own = sorted(map(str, lake.table(name).to_pylist()))
        paths = lake.table(name).plan().files.column("path").to_pylist()
        folders = sorted(Path(path).parent.as_posix().replace(f"/{name}/", "/") for path in paths)
        files = site.metadata(
            "SELECT f.record_count, p.partition_key_index, p.partition_value FROM {m}.ducklake_data_file f"
            " JOIN {m}.ducklake_file_partition_value p USING (table_id, data_file_id)"
            " JOIN {m}.ducklake_table t USING (table_id) WHERE t.table_name = ? ORDER BY ALL",
            [name],
        )
        ordered = site.stock().execute(f"SELECT filename, id FROM l.{name}").fetchall()
        for path in {path for path, _ in ordered}:
            ids = [id_ for one, id_ in ordered if one == path]
            assert ids == sorted(ids)
        found.append((files, folders, own))
    assert found[0] == found[1]


def test_what_does_not_fit_is_refused_alike(site: LakeSite, session: SparkSession) -> None:
    lake = site.lake()
    lake.sql("CREATE TABLE t (id BIGINT NOT NULL, small UTINYINT, u UUID, came TIMESTAMP DEFAULT now()::TIMESTAMP)")
    lake.sql("CREATE TABLE g (g GEOMETRY)")
    before = lake.current_snapshot()
    at = "TIMESTAMP_NTZ '2024-01-01 00:00:00' AS came"
    for table, columns, error, text in (
        (
            "t",
            f"NULLIF(id, 7) AS id; 1 AS small; uuid() AS u; {at}",
            ConstraintError,
            'NULL in the NOT NULL column "id"',
        ),
        ("t", f"id; id * 10 AS small; uuid() AS u; {at}", ConstraintError, "does not fit"),
        ("t", f"id; 1 AS small; 'x' AS u; {at}", ConstraintError, "does not fit"),
        ("t", "id; 1 AS small; uuid() AS u", UnsupportedFeatureError, "computed"),
        ("t", f"id; 1 AS small; uuid() AS u; {at}; 1 AS more", SchemaMismatchError, "more"),
        (
            "t",
            f"CAST(raise_error('no such id') AS BIGINT) AS id; 1 AS small; uuid() AS u; {at}",
            InputError,
            "no such id",
        ),
        ("g", "X'00' AS g", UnsupportedFeatureError, "geometry"),
    ):
        for here in (True, False):
            with pytest.raises(error, match=text):
                sink_of(lake, session, table, here=here).write(numbers(session, 50, columns), 0)
    assert lake.current_snapshot() == before
    assert lake.table("t").count() == lake.table("g").count() == 0
    assert not list(Path(lake.data_path).rglob("*.parquet"))


def test_a_table_evolves_and_an_empty_batch_changes_nothing(
    site: LakeSite, session: SparkSession, jobs: Callable[[Callable[[], Any]], int]
) -> None:
    lake = site.lake()
    for name in ("small", "large"):
        lake.sql(f"CREATE TABLE {name} (id INTEGER, s STRUCT(a INTEGER), d VARCHAR DEFAULT 'none')")
        sink = sink_of(lake, session, name, here=name == "small", evolve=True)
        sink.write(numbers(session, 20, "CAST(id AS INT) AS id; named_struct('a', 1) AS s; 'x' AS d"), 0)
        sink.write(numbers(session, 20, "id + 100 AS id; named_struct('b', id) AS s; 2.5D AS half"), 1)
        snapshot = lake.current_snapshot()
        sink.write(numbers(session, 0, "id; named_struct('b', id) AS s"), 2)
        sink.write(numbers(session, 3, "id; named_struct('b', id) AS s"), 3)
        assert [(each.rows, min(each.files, 1)) for each in sink.reports] == [(20, 1), (20, 1), (0, 0), (3, 0)]
        assert lake.current_snapshot() == snapshot + 1
    text = "SELECT CAST(COLUMNS(*) AS VARCHAR) FROM l.{} ORDER BY ALL"
    found = [site.stock().execute(text.format(name)).fetchall() for name in ("small", "large")]
    assert found[0] == found[1] and len(found[0]) == 43


def test_a_batch_is_looked_at_once_when_it_is_known_what_to_expect(
    site: LakeSite, session: SparkSession, monkeypatch: pytest.MonkeyPatch, jobs: Callable[[Callable[[], Any]], int]
) -> None:
    lake = site.lake()
    lake.create_table("t", {"id": pa.int64()})
    sink = sink_of(lake, session, "t", here=True)
    sink.fetch.limit = 4_000
    written: list[tuple[int, int]] = []

    def write(count: int) -> int:
        found = jobs(lambda: sink.write(numbers(session, count), len(sink.reports)))
        written.append((sink.reports[-1].rows, sink.reports[-1].files))
        return found

    assert write(3_000) == 2, "of rows whose size is unknown a thousand are fetched first"
    assert write(4_000) == write(20) == 1
    assert write(5_000) == write(6_000) == 2, "a look, and the files"
    assert write(30) == 2, "it was expected to be large"
    assert write(30) == write(3) == 1
    lake.options.set("data_inlining_row_limit", 0)
    assert write(5_000) == 2
    assert write(5_000) == 1, "nothing is left to look for"
    monkeypatch.setattr(tasks, "_BYTES", 20 * 8)  # the memory of 20 rows
    assert [write(count) for count in (30, 30, 20, 20)] == [1, 1, 1, 1]
    assert [files for _, files in written] == [1, 1, 1, 2, 2, 2, 1, 0, 2, 2, 2, 2, 2, 1], "each of two tasks has a file"
    assert lake.table("t").count() == sum(rows for rows, _ in written)
    assert lake.verify().ok
