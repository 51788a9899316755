"""The events that stream through Spark in the demo, and their expected totals."""

from __future__ import annotations

from pathlib import Path

from quacklake.duckdb_versions import connect
from quacklake.lake.lake import Lake

EVENTS, MINUTES = "stream.events", "stream.minutes"
SCHEMA = "id BIGINT, time TIMESTAMP, shop INT, amount BIGINT"
BATCHES = 10
"""The number of files that the generator writes. Spark takes one for each batch."""

_SHOPS = 5
# every file has the same minutes of an hour, so every total grows with every batch
_GENERATED = f"""
    SELECT i AS id, TIMESTAMPTZ '2025-07-01 12:00:00+00' + INTERVAL 1 SECOND * (i * 7919 % 3600) AS time,
        (i % {_SHOPS})::INTEGER AS shop, i * 31 % 1000 AS amount
    FROM range(?, ?) r(i)
"""


def create_tables(lake: Lake) -> None:
    """Create the tables that the streams fill."""
    lake.create_schema("stream")
    lake.sql(f"CREATE TABLE {EVENTS} (id BIGINT, time TIMESTAMPTZ, shop INTEGER, amount BIGINT)")
    lake.sql(f"CREATE TABLE {MINUTES} (minute TIMESTAMPTZ, shop INTEGER, events BIGINT, amount BIGINT)")


def generate(inbox: Path, count: int) -> int:
    """Write files with ``count`` events, which appear complete, and return the sum of their amounts."""
    inbox.mkdir()
    total = 0
    with connect() as connection:
        for number in range(BATCHES):
            made = connection.sql(_GENERATED, params=[count * number // BATCHES, count * (number + 1) // BATCHES])
            hidden = inbox / f"_{number}.parquet"  # Spark skips such names
            made.write_parquet(str(hidden))
            total += connection.sql(f"SELECT coalesce(sum(amount), 0) FROM '{hidden}'").fetchall()[0][0]
            hidden.rename(inbox / f"{number}.parquet")
    return total


def files_done(lake: Lake, count: int) -> int:
    """Return the number of files in the lake, of those with ``count`` events.

    Files are counted by their events: after a kill, Spark may take the unfinished file and the next one as one batch.
    """
    found = lake.table(EVENTS).count()
    return sum(count * (number + 1) // BATCHES <= found for number in range(BATCHES))


def totals(lake: Lake) -> tuple[tuple[int, int, int], tuple[int, int]]:
    """Return the events, distinct events and amount, then the events and amount of the totals by minute."""
    found = lake.sql(f"SELECT count(*), count(DISTINCT id), coalesce(sum(amount), 0)::BIGINT FROM {EVENTS}").fetchall()
    by_minute = lake.sql(
        f"SELECT coalesce(sum(events), 0)::BIGINT, coalesce(sum(amount), 0)::BIGINT FROM {MINUTES}"
    ).fetchall()
    return found[0], by_minute[0]
