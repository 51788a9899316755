"""Partitioned tables are served without partitions, and readers still open only the files that may match.

The parts of dates in DuckLake are those of the calendar, the ones of Iceberg count from 1970. Bounds of the same columns
rule out the same files, except for buckets, which only a hash tells apart.
"""

from __future__ import annotations

import pytest

from quacklake import Lake

from .serving import Service, checksum, duckdb_reader, pyiceberg_reader

#: A key, a condition of pyiceberg and SQL that one partition satisfies, and the files that a reader may open for it.
KEYS = {
    "region": ("region == 'EU'", 2),  # the file of NULLs has no bounds
    "year(ts)": ("ts >= '2025-01-01T00:00:00' and ts < '2026-01-01T00:00:00'", 1),
    "month(ts)": ("ts >= '2025-03-01T00:00:00' and ts < '2025-04-01T00:00:00'", 12),
    "day(day)": ("day == '2025-03-07'", 31),
    "hour(ts)": ("ts >= '2025-03-07T00:00:00' and ts < '2025-03-09T00:00:00'", 24),
    "bucket(4, id)": ("id == 17", 4),
}
_ROWS = """
    SELECT i AS id, ['EU', 'US', NULL][1 + i % 3] AS region, TIMESTAMP '2024-01-01' + INTERVAL (i * 37) HOUR AS ts,
        CAST(TIMESTAMP '2024-01-01' + INTERVAL (i * 37) HOUR AS DATE) AS day
    FROM range(600) r(i)
"""


@pytest.mark.parametrize("key", KEYS)
def test_readers_prune_by_bounds_and_find_every_row(service: Service, lake: Lake, key: str) -> None:
    condition, most = KEYS[key]
    columns = {"id": "BIGINT", "region": "VARCHAR", "ts": "TIMESTAMP", "day": "DATE"}
    lake.create_table("t", columns, partition_by=[key])
    lake.sql(f"INSERT INTO t {_ROWS}")
    lake.table("t").delete("id % 50 = 17 AND id > 17")
    name = service.add(lake)
    table = pyiceberg_reader(service, name).load_table("main.t")
    assert table.spec().is_unpartitioned()
    sql = condition.replace("==", "=")
    expected = lake.sql(f"SELECT * FROM t WHERE {sql}").to_arrow()
    assert 0 < expected.num_rows < lake.table("t").count()
    scan, whole = table.scan(row_filter=condition), len(list(table.scan().plan_files()))
    opened = len(list(scan.plan_files()))
    assert opened <= most and (opened < whole or key.startswith(("bucket", "month", "hour", "day"))), (opened, whole)
    assert checksum(scan.to_arrow()) == checksum(expected)
    with duckdb_reader(service, name) as connection:
        assert checksum(connection.execute(f"SELECT * FROM ice.main.t WHERE {sql}").fetchall()) == checksum(expected)


def test_a_key_of_dates_in_order_opens_the_file_of_its_day(service: Service, lake: Lake) -> None:
    """Calendar parts together are one range of time, whose bounds no other file has."""
    lake.create_table("t", {"ts": "TIMESTAMP", "n": "BIGINT"}, partition_by=["year(ts)", "month(ts)", "day(ts)"])
    lake.sql("INSERT INTO t SELECT TIMESTAMP '2025-01-01' + INTERVAL (i) HOUR, i FROM range(24 * 40) r(i)")
    table = pyiceberg_reader(service, service.add(lake)).load_table("main.t")
    assert len(list(table.scan().plan_files())) == 40
    day = table.scan(row_filter="ts >= '2025-02-03T00:00:00' and ts < '2025-02-04T00:00:00'")
    assert len(list(day.plan_files())) == 1
    assert sorted(day.to_arrow().column("n").to_pylist()) == list(range(24 * 33, 24 * 34))
