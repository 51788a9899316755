"""Reading past deletes: the price of 1 % deleted rows in a table of 20 files.

A lake is read far more often than it is cleaned, so deleted rows must cost next to nothing: first with deletes in 2 of the
20 files, as after a correction, then in every file, as after a request to forget people. Both sides read one and the same
lake, ours, in turn; a query's figure is the best of its runs. The plan is made once, before the queries.
"""

from __future__ import annotations

from contextlib import closing

import duckdb
import pyarrow as pa

import quacklake
from benchmarks.common import (
    Bench,
    Detail,
    Place,
    Result,
    Target,
    alternate,
    at_most,
    attach,
    install_extensions,
    open_duckdb,
    same_rows,
    slowdown,
)

TITLE = "reads of 20 files with 1 % of the rows deleted, in 2 files and in all"

_FILES = 20
_NAMES = 100_000


def run(bench: Bench, result: Result) -> None:
    """Build the lake, delete twice, read after each."""
    install_extensions("ducklake", "sqlite_scanner")
    rows = bench.pick(5_000, 250_000, 1_000_000)
    with bench.directory() as directory:
        place = bench.place(directory, "sqlite", "lake")
        with closing(_fill(bench, place, rows)) as lake:
            table = lake.table("events")
            _read(bench, result, place, lake, "no deletes", rows, None)
            with bench.step("deleting in 2 of 20 files"):
                table.delete(f"id % 100 = 7 AND id < {2 * rows}")
            _read(bench, result, place, lake, "2 of 20 files", rows, at_most(1.1))
            with bench.step("deleting in every file"):
                table.delete("id % 100 = 7")
            _read(bench, result, place, lake, "every file", rows, at_most(1.2))
    result.notes.append(f"{_FILES} files × {rows:,} rows; the ratio is of wall time, the table below also has processor time.")


def _fill(bench: Bench, place: Place, rows: int) -> quacklake.Lake:
    lake = quacklake.connect(place.url, data_path=place.data)
    with bench.step(f"writing {_FILES} files of {rows} rows", _FILES) as done, closing(open_duckdb()) as source:
        for file in range(_FILES):
            data = _rows(source, file * rows, rows)
            if file == 0:
                lake.create_table("events", data.schema)
            lake.table("events").append(data)
            done(1)
    return lake


def _rows(source: duckdb.DuckDBPyConnection, first: int, rows: int) -> pa.Table:
    return source.execute(
        f"SELECT i AS id, (hash(i) % 1000)::INTEGER AS grp, (hash(i + 1) % 1000000) / 1e3 AS value,"
        f" 'name-' || (hash(i + 2) % {_NAMES}) AS name FROM range({first}, {first + rows}) t(i)"
    ).to_arrow_table()


def _queries(rows: int) -> dict[str, str]:
    middle = _FILES * rows // 2
    return {
        "full aggregate": "SELECT sum(value), max(grp), count(name) FROM events",
        "id range (10 %)": f"SELECT sum(value), count(name) FROM events WHERE id BETWEEN {middle - rows} AND {middle + rows - 1}",
        "equality": "SELECT count(*), sum(value) FROM events WHERE name = 'name-4242'",
        "group by": "SELECT grp, count(*), sum(value) FROM events GROUP BY grp",
    }


def _read(
    bench: Bench, result: Result, place: Place, lake: quacklake.Lake, state: str, rows: int, target: Target | None
) -> None:
    detail = Detail(f"{state}: milliseconds", ("query", "ours", "peer", "ratio", "ours, cpu", "peer, cpu", "ratio, cpu"), [])
    queries = _queries(rows)
    with (
        closing(open_duckdb()) as ours,
        closing(attach(place)) as peer,
        bench.step(f"reading, {state}", len(queries)) as done,
    ):
        lake.register(ours)
        for name, query in queries.items():
            timings = alternate(
                bench.pick(2, 7, 9),
                {"ours": lambda q=query: ours.execute(q).fetchall(), "peer": lambda q=query: peer.execute(q).fetchall()},
            )
            one, two = timings["ours"], timings["peer"]
            if not same_rows(one.answer, two.answer):
                raise RuntimeError(f"the two sides answer {name!r} differently: {one.answer} {two.answer}")
            result.measures.append(slowdown(f"{state}: {name}", one.wall * 1e3, two.wall * 1e3, "ms", target))
            walls, cpus = (one.wall * 1e3, two.wall * 1e3), (one.cpu * 1e3, two.cpu * 1e3)
            detail.rows.append((name, *walls, walls[0] / walls[1], *cpus, cpus[0] / cpus[1]))
            done(1)
    result.details.append(detail)
