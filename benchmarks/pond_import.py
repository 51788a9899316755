"""A large CSV file becomes a series of a pond, beside DuckDB's own CSV to Parquet.

Both sides read the same file, one reading every ten seconds in the order of time. Ours also hashes it, finds the types,
checks each row and the order of the times, and commits the first version of a series, in a pond that exists.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from benchmarks.common import Bench, Result, alternate, at_least, faster, open_duckdb
from quacklake.pond import ImportOptions, Pond, bulk
from quacklake.pond.copying import copy_in, targets
from quacklake.pond.inputs import HostPath

TITLE = "a CSV file of readings becomes a series of a pond"

_PEER = "DuckDB's COPY to Parquet"


def run(bench: Bench, result: Result) -> None:
    """Make the file, then read it on both sides in turn."""
    rows, rounds = bench.pick((100_000, 1), (10_000_000, 2), (10_000_000, 5))
    bulk.LARGE = 0  # also the small file of a quick run goes the way of large ones
    with bench.directory() as directory:
        source = directory / "readings.csv"
        with bench.step(f"writing {rows:,} readings"):
            _make(source, rows)
        size = source.stat().st_size / 1e6
        with bench.step(f"reading {size:,.0f} MB, {rounds} rounds"), Pond.create(directory / "pond") as pond:
            found = alternate(rounds, {"ours": _import(pond, source, rows), "peer": _copy(directory, source)})
    ours, peer = found["ours"], found["peer"]
    what = f"{rows:,} readings, {size:,.0f} MB"
    result.measures.append(faster(what, ours.wall, peer.wall, "s", at_least(0.8), _PEER))
    result.measures.append(faster(f"{what}: processor time", ours.cpu, peer.cpu, "s", at_least(0.8), _PEER))
    result.notes.append(f"The best of {rounds} rounds in turn.")


def _make(target: Path, rows: int) -> None:
    with closing(open_duckdb()) as connection:
        connection.execute(
            "COPY (SELECT strftime(TIMESTAMP '2014-01-01' + INTERVAL (i * 10) SECOND, '%Y-%m-%dT%H:%M:%SZ')"
            " AS timestamp, 'dock' AS station, round(10 + 5 * sin(i / 1000.0), 3) AS temp,"
            " round(7 + random(), 2) AS ph, i % 97 AS battery"
            f" FROM range({rows:d}) t(i)) TO '{target}' (HEADER)"
        )


def _import(pond: Pond, source: Path, rows: int) -> Callable[[], object]:
    numbers = itertools.count()

    def work() -> int:
        path = f"/dock{next(numbers)}.series"
        done = pond.run(["copy"], lambda fs: copy_in(fs, *targets(fs, [HostPath(source)], path), ImportOptions()))
        if done.rows != rows:
            raise RuntimeError(f"{done.rows} of {rows} readings arrived")
        return done.rows

    return work


def _copy(directory: Path, source: Path) -> Callable[[], object]:
    target = directory / "peer.parquet"

    def work() -> None:
        with closing(open_duckdb()) as connection:
            connection.execute(f"COPY (FROM read_csv('{source}')) TO '{target}' (FORMAT parquet)")

    return work
