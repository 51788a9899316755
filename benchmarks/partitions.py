"""Partitioned writes: a year of rows, in no order, into a table with a partition for each day.

Rows arrive as Arrow and leave as 365 Parquet files or more; what that costs beyond encoding them is bringing together
what belongs together. Both sides append the same rows to a lake of their own, in turn, and then count those of a day.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pyarrow as pa

import quacklake
from benchmarks.common import (
    Bench,
    Place,
    Result,
    Timing,
    alternate,
    at_most,
    attach,
    install_extensions,
    open_duckdb,
    slowdown,
)

TITLE = "appends into 365 partitions, and reads of one"

_DAYS = 365
_ONE_DAY = "day = DATE '2024-03-15'"


def run(bench: Bench, result: Result) -> None:
    """Append the same rows on both sides, then read one day."""
    install_extensions("ducklake", "sqlite_scanner")
    count = bench.pick(20_000, 1_000_000, 10_000_000)
    with bench.step(f"making {count:,} rows"):
        rows = _rows(count)
    with bench.directory() as directory:
        ours, peer = (bench.place(directory, "sqlite", name) for name in ("ours", "peer"))
        appended, read, files = _measure(bench, rows, ours, peer)
    result.measures += [
        slowdown("append", appended["ours"].median, appended["peer"].median, "s", at_most(1.2)),
        slowdown("count of one day", read["ours"].median * 1e3, read["peer"].median * 1e3, "ms"),
    ]
    result.notes.append(
        f"{count:,} rows × {rows.num_columns} columns an append, in random order; files after"
        f" {len(appended['ours'].walls) + 1} appends: {files['ours']:,} ours, {files['peer']:,} the peer's."
    )


def _rows(count: int) -> pa.Table:
    with closing(open_duckdb()) as source:
        return source.execute(
            f"SELECT i AS id, DATE '2024-01-01' + (hash(i) % {_DAYS})::INTEGER AS day,"
            f" 'name-' || (hash(i + 1) % 1000) AS name, (hash(i + 2) % 1000000) / 1e3 AS value FROM range({count}) t(i)"
        ).to_arrow_table()


def _measure(
    bench: Bench, rows: pa.Table, ours: Place, peer: Place
) -> tuple[dict[str, Timing], dict[str, Timing], dict[str, int]]:
    with quacklake.connect(ours.url, data_path=ours.data) as lake, closing(attach(peer)) as connection:
        table = lake.create_table("t", rows.schema, partition_by="day")
        connection.register("batch", rows)
        connection.execute("CREATE TABLE t AS FROM batch LIMIT 0")
        connection.execute("ALTER TABLE t SET PARTITIONED BY (day)")

        def ask(query: str) -> Callable[[], object]:
            return lambda: connection.execute(query).fetchall()

        with bench.step("appending"):
            appended = alternate(
                bench.pick(1, 3, 3),
                {"ours": lambda: table.append(rows), "peer": ask("INSERT INTO t SELECT * FROM batch")},
            )
        with bench.step("reading one day"):
            one_day = f"SELECT count(*) FROM t WHERE {_ONE_DAY}"
            read = alternate(bench.pick(1, 9, 9), {"ours": lambda: table.count(_ONE_DAY), "peer": ask(one_day)})
        if read["peer"].answer != [(read["ours"].answer,)]:
            raise RuntimeError("the two sides count differently")
        found = connection.execute("SELECT count(*) FROM ducklake_list_files('lake', 't')").fetchone()
        return appended, read, {"ours": len(table.files()), "peer": found[0] if found else 0}
