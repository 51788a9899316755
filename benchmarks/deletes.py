"""Reading past deletes: the price of 1 % deleted rows in a table of 20 files.

A lake is read far more often than it is cleaned, so deleted rows must cost next to nothing: first with deletes in 2 of
the 20 files, as after a correction, then in every file, as after a request to forget people. Both sides read one and
the same lake, ours, in turn; a query's figure is the best of its runs. The plan is made once, before the queries.

The extension gives the deleted rows to DuckDB's Parquet reader, in C++, which drops them while it decodes. SQL cannot:
there the reader also has to give the number of each row, and something above it has to test that. So a third side reads
the same files with the cheapest test that can be written, a remainder of the row's number, which knows nothing of any
other deletes. It is the floor for whoever reads through SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import duckdb
import pyarrow as pa

import quacklake
from benchmarks.common import (
    Bench,
    Place,
    Result,
    ask,
    at_most,
    attach,
    install_extensions,
    open_duckdb,
    planned,
    query_detail,
    slowdown,
)

TITLE = "reads of 20 files with 1 % of the rows deleted, in 2 files and in all"

_FILES = 20
_NAMES = 100_000
_EVERY_FILE = {"full aggregate": 1.05, "id range (10 %)": 1.1, "equality": 1.1, "group by": 1.1}
_PROFILE = (
    "Where the time goes with deletes in every file (`perf`, one thread, `sum` of one integer over 5 million rows,"
    " processor nanoseconds a row): 5 to read the column alone, 11 for the extension, whose reader leaves rows out"
    " while it decodes. Ours: 5 to read, 3 for the number of the row, 8 for the anti-join of blocks of rows, which is"
    " a hash (1), a look into the hash table (4) and a selection of the rows that stay. An anti-join of single rows"
    " took 19, of which 12 were branches that the processor guessed wrongly in the hash table. Bits of a constant"
    " (`get_bit`) take 10 and more, as DuckDB copies the constant for every 2,048 rows; a joined table of bits takes"
    " 12 to 20, and 24 with a row for every block. Even the remainder above, which knows nothing of deletes, takes 8"
    " to 9 beyond the column."
)
_PLANS = (
    "The two plans (`EXPLAIN ANALYZE`): the extension's scan gives 99 % of the rows, ours all of them, to an anti-join"
    " whose other side is the table of deleted rows. A filter on `id` runs in the reader on both sides, before the"
    " join. But the view was planned before the query, so the join takes in the deleted rows of all 20 files, 200,000,"
    " though 2 files are left: 12 of 151 processor milliseconds (one thread; 126 for the extension, 135 for the floor,"
    " 138 with the deleted rows of those 2 files alone, which is what a plan for the query has). DuckDB has no way to"
    " shorten that side of an anti-join by what the other side finds; narrower keys took as long."
)


def run(bench: Bench, result: Result) -> None:
    """Build the lake, delete twice, read after each."""
    install_extensions("ducklake", "sqlite_scanner")
    rows = bench.pick(5_000, 250_000, 1_000_000)
    with bench.directory() as directory:
        place = bench.place(directory, "sqlite", "lake")
        _fill(bench, place, rows)
        _read(bench, result, place, "no deletes", rows, {})
        _delete(bench, place, "2 of 20 files", f"id % 100 = 7 AND id < {2 * rows}")
        _read(bench, result, place, "2 of 20 files", rows, dict.fromkeys(_queries(rows), 1.1))
        _delete(bench, place, "every file", "id % 100 = 7")
        _read(bench, result, place, "every file", rows, _EVERY_FILE)
        _read_floor(bench, result, place, rows)
    result.notes += [
        f"{_FILES} files × {rows:,} rows; ratios are of wall time, the tables of milliseconds also have processor"
        " time.",
        _PROFILE,
        _PLANS,
    ]


def _fill(bench: Bench, place: Place, rows: int) -> None:
    with (
        quacklake.connect(place.url, data_path=place.data) as lake,
        closing(open_duckdb()) as source,
        bench.step(f"writing {_FILES} files of {rows} rows", _FILES) as done,
    ):
        for file in range(_FILES):
            data = _rows(source, file * rows, rows)
            lake.create_table("events", data.schema, if_not_exists=True).append(data)
            done(1)


def _delete(bench: Bench, place: Place, what: str, where: str) -> None:
    with bench.step(f"deleting in {what}"), quacklake.connect(place.url) as lake:
        lake.table("events").delete(where)


def _rows(source: duckdb.DuckDBPyConnection, first: int, rows: int) -> pa.Table:
    return source.execute(
        f"SELECT i AS id, (hash(i) % 1000)::INTEGER AS grp, (hash(i + 1) % 1000000) / 1e3 AS value,"
        f" 'name-' || (hash(i + 2) % {_NAMES}) AS name FROM range({first}, {first + rows}) t(i)"
    ).to_arrow_table()


def _queries(rows: int) -> dict[str, str]:
    middle = _FILES * rows // 2
    tenth = f"id BETWEEN {middle - rows} AND {middle + rows - 1}"
    return {
        "full aggregate": "SELECT sum(value), max(grp), count(name) FROM events",
        "id range (10 %)": f"SELECT sum(value), count(name) FROM events WHERE {tenth}",
        "equality": "SELECT count(*), sum(value) FROM events WHERE name = 'name-4242'",
        "group by": "SELECT grp, count(*), sum(value) FROM events GROUP BY grp",
    }


def _read(bench: Bench, result: Result, place: Place, state: str, rows: int, targets: Mapping[str, float]) -> None:
    queries = _queries(rows)
    with (
        closing(planned(place)) as ours,
        closing(attach(place)) as peer,
        bench.step(f"reading, {state}", len(queries)) as done,
    ):
        timings = ask(ours, peer, queries, bench.pick(2, 7, 9), done)
    for name, each in timings.items():
        figures = (each["ours"].wall * 1e3, each["peer"].wall * 1e3)
        target = at_most(targets[name]) if name in targets else None
        result.measures.append(slowdown(f"{state}: {name}", *figures, "ms", target))
    result.details.append(query_detail(f"{state}: milliseconds", timings))


def _read_floor(bench: Bench, result: Result, place: Place, rows: int) -> None:
    """Measure the least that a read past deletes can cost in SQL."""
    queries = _queries(rows)
    with (
        closing(_floor(place)) as floor,
        closing(attach(place)) as peer,
        bench.step("reading, the floor", len(queries)) as done,
    ):
        timings = ask(floor, peer, queries, bench.pick(2, 7, 9), done)
    for name, each in timings.items():
        figures = (each["ours"].wall * 1e3, each["peer"].wall * 1e3)
        result.measures.append(slowdown(f"every file: {name}, the floor of SQL", *figures, "ms"))
    result.details.append(query_detail("the floor of SQL: milliseconds", timings))


def _floor(place: Place) -> duckdb.DuckDBPyConnection:
    """A DuckDB whose view tests the number of each row, as cheaply as that can be."""
    with quacklake.connect(place.url) as lake:
        paths = lake.table("events").plan().files.column("path").to_pylist()
    files = ", ".join(f"'{place.data / path}'" for path in paths)
    connection = open_duckdb()
    connection.execute(
        f"CREATE VIEW events AS SELECT id, grp, value, name FROM read_parquet([{files}], file_row_number = true)"
        " WHERE file_row_number % 100 <> 7"
    )
    return connection
