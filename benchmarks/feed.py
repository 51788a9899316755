"""The change feed: what forty snapshots did to a table.

Whoever follows a table asks again and again what happened since the last time, and once in a while for everything. Both
sides read one and the same lake, ours, on PostgreSQL, planning included, and go through the changes batch by batch.
There are no more snapshots because the extension's feed of a hundred, over a million rows, had not ended after four
minutes and could not be interrupted. What a thousand snapshots did is therefore measured alone, with ``--full``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

import quacklake
from benchmarks.common import (
    Bench,
    Measure,
    Place,
    Result,
    alternate,
    at_most,
    attach,
    install_extensions,
    open_duckdb,
    query_detail,
    slowdown,
)

TITLE = "the changes that 40 snapshots made to a table"

_FILES = 20
_PROFILE = (
    "Where the time of all 40 snapshots goes (about, processor milliseconds of 108 with 10 million rows; 132 for the"
    " extension): 6 to plan, 3 to read the deleted positions, 1 to find their blocks, 4 to find the updates, 1 to hand"
    " inlined rows over, 2 to write the query, 4 to bind it, and the rest to run it, most of it reads of row groups for"
    " the rows that went, as the extension has to: a row group is unpacked whole. What comes before the query keeps"
    " little more than one thread busy. A bit for each block took 20 more than comparisons with the ends of the gaps,"
    " and a join for each of the calls that read files 17. Without a sort above these calls, DuckDB reads one after the"
    " other, which took 10 more of wall time. Updates as a part of the query instead of a table before it saved no"
    " processor time, and neither did cached footers."
)


def run(bench: Bench, result: Result) -> None:
    """Build the lake and its history, then read its feed."""
    install_extensions("ducklake", "sqlite_scanner", "postgres_scanner")
    rows, snapshots = bench.pick((20_000, 12), (1_000_000, 40), (10_000_000, 40))
    with bench.directory() as directory:
        place = bench.place(directory, "postgres", "feed")
        first = _fill(bench, place, rows)
        last = _change(bench, place, rows, snapshots)
        ranges = {
            f"all {snapshots:,} snapshots": (first + 1, last),
            "the last tenth": (last - snapshots // 10, last),
            "one update": (first + 2, first + 2),
        }
        _read(bench, result, place, ranges)
    alone = bench.pick(16, 0, 1_000)
    if alone:
        with bench.directory() as directory:
            place = bench.place(directory, "postgres", "long")
            first = _fill(bench, place, rows)
            last = _change(bench, place, rows, alone)
            _read_alone(bench, result, place, f"all {alone:,} snapshots, ours alone", (first + 1, last))
    result.notes += [
        f"{_FILES} files, {rows:,} rows together; of four snapshots one appends 1,000 rows, one updates 400, one"
        " deletes 200 and one changes 5, which stay in the catalog.",
        _PROFILE,
    ]


def _fill(bench: Bench, place: Place, rows: int) -> int:
    """Make the table before the changes, and return its snapshot."""
    with (
        quacklake.connect(place.url, data_path=place.data) as lake,
        closing(open_duckdb()) as source,
        bench.step(f"writing {rows} rows", _FILES) as done,
    ):
        for file in range(_FILES):
            data = _rows(source, file * rows // _FILES, rows // _FILES)
            lake.create_table("events", data.schema, if_not_exists=True).append(data)
            done(1)
        return lake.current_snapshot()


def _rows(source: duckdb.DuckDBPyConnection, first: int, rows: int) -> pa.Table:
    return source.execute(
        "SELECT i AS id, (hash(i) % 1000)::INTEGER AS grp, (hash(i + 1) % 1000000) / 1e3 AS value,"
        f" 'name-' || (hash(i + 2) % 100000) AS name FROM range({first}, {first + rows}) t(i)"
    ).to_arrow_table()


def _change(bench: Bench, place: Place, rows: int, snapshots: int) -> int:
    """Appends, updates and deletes in turn, all over the table; the newest snapshot."""
    with (
        quacklake.connect(place.url) as lake,
        closing(open_duckdb()) as source,
        bench.step(f"making {snapshots} snapshots", snapshots) as done,
    ):
        table = lake.table("events")
        for number in range(snapshots):
            start = number * 7919 * 1000 % (rows - 1000)
            if number % 4 == 0:
                table.append(_rows(source, rows + number * 1000, 1000))
            elif number % 4 == 1:
                table.update({"grp": number}, f"id BETWEEN {start} AND {start + 399}")
            elif number % 4 == 2:
                table.delete(f"id BETWEEN {start + 400} AND {start + 599}")
            else:
                table.update({"grp": -number}, f"id BETWEEN {start + 600} AND {start + 604}")
            done(1)
        return lake.current_snapshot()


def _read(bench: Bench, result: Result, place: Place, ranges: dict[str, tuple[int, int]]) -> None:
    timings = {}
    with (
        quacklake.connect(place.url) as lake,
        closing(attach(place)) as peer,
        bench.step("reading changes", len(ranges)) as done,
    ):
        for name, span in ranges.items():
            found = alternate(bench.pick(1, 5, 5), {"ours": _ours(lake, span), "peer": _peer(peer, span)})
            if found["ours"].answer != found["peer"].answer:
                raise RuntimeError(f"the two sides tell different changes of {name}")
            timings[name] = found
            figures = (found["ours"].wall * 1e3, found["peer"].wall * 1e3)
            result.measures.append(slowdown(name, *figures, "ms", at_most(0.9)))
            done(1)
    result.details.append(query_detail("milliseconds", timings))


def _read_alone(bench: Bench, result: Result, place: Place, name: str, span: tuple[int, int]) -> None:
    with quacklake.connect(place.url) as lake, bench.step(name):
        found = alternate(bench.pick(1, 3, 3), {"ours": _ours(lake, span)})
    result.measures.append(Measure(name, "ms", found["ours"].wall * 1e3))


def _ours(lake: quacklake.Lake, span: tuple[int, int]) -> Callable[[], object]:
    return lambda: _counted(lake.table("events").changes(*span).to_reader())


def _peer(connection: duckdb.DuckDBPyConnection, span: tuple[int, int]) -> Callable[[], object]:
    query = f"FROM ducklake_table_changes('lake', 'main', 'events', {span[0]:d}, {span[1]:d})"
    return lambda: _counted(connection.sql(query).to_arrow_reader())


def _counted(reader: pa.RecordBatchReader) -> Counter[str]:
    """Return the number of changes of each kind."""
    found: Counter[str] = Counter()
    for batch in reader:
        for entry in pc.value_counts(batch.column("change_type")).to_pylist():
            found[entry["values"]] += entry["counts"]
    return found
