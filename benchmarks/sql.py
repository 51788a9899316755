"""SQL as text: the same statements through ``lake.sql`` and through the extension's connection, on one lake.

A session of ours reads a statement, plans it over the catalog, and lets DuckDB run it; the extension does the same in
DuckDB itself. Compared are point queries, in which everything but the reading counts, and the 22 queries of TPC-H. The
figures are the best of several runs: the time that passes, and that of the processors, which says more where others
use the machine.

With a catalog on SQLite the two sides must not be open at the same time in one process, so that they take turns: each
opens the lake, asks everything once, and closes it again, several times over; on a slow machine fewer times. Every
answer is compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager

import quacklake
from benchmarks.common import (
    Bench,
    Place,
    Result,
    Timing,
    at_most,
    attach,
    install_extensions,
    open_duckdb,
    query_detail,
    same_rows,
    slowdown,
)
from benchmarks.tpch import load

TITLE = "SQL text: point queries and TPC-H through sessions"

_POINT = 1.2
_TOTAL = 1.1
_WORST = 1.5
_CLOCKS = ("elapsed", "processor")

_MAX_SECONDS = 900.0
"""No round of questions begins later than this after the first one."""

Ask = Callable[[str], object]


def run(bench: Bench, result: Result) -> None:
    """Fill two lakes, ask both."""
    install_extensions("tpch", "ducklake", "sqlite_scanner")
    scale = bench.pick(0.01, 0.1, 1.0)
    files, rows = bench.pick((2, 1000), (20, 50_000), (100, 100_000))
    rounds = bench.pick(1, 5, 5)
    with bench.directory() as directory:
        place = bench.place(directory, "sqlite", "points")
        points = _load_points(bench, place, files, rows)
        found = _compare(bench, "point queries", place, points, rounds)
        _summarise_points(result, found, files, rows)
        place = bench.place(directory, "sqlite", "tpch")
        queries = load(bench, place, scale)
        _summarise_tpch(result, _compare(bench, "TPC-H", place, queries, rounds))
    result.notes.append(f"TPC-H at scale factor {scale:g}.")


def _load_points(bench: Bench, place: Place, files: int, rows: int) -> dict[str, str]:
    """A table in several files by ranges of its key; returns queries for single keys."""
    with (
        closing(open_duckdb()) as source,
        closing(quacklake.connect(place.url, data_path=place.data)) as lake,
        bench.step("writing the table of points", files) as done,
    ):
        lake.sql("CREATE TABLE points (id BIGINT, name VARCHAR, value DOUBLE, day DATE)")
        for number in range(files):
            query = f"""
                SELECT range + {number * rows} AS id, 'n' || range AS name, range / 2 AS value,
                    DATE '2024-01-01' + (range % 1000)::INTEGER AS day
                FROM range({rows})
            """
            lake.table("points").append(source.execute(query).to_arrow_table())
            done(1)
    keys = [(number * 7919) % (files * rows) for number in range(20)]
    return {f"id {key}": f"SELECT * FROM points WHERE id = {key}" for key in keys}


@contextmanager
def _ours(place: Place) -> Iterator[Ask]:
    with quacklake.connect(place.url) as lake:
        yield lambda text: lake.sql(text).fetchall()


@contextmanager
def _peer(place: Place) -> Iterator[Ask]:
    with closing(attach(place)) as connection:
        yield lambda text: connection.execute(text).fetchall()


def _compare(
    bench: Bench, what: str, place: Place, queries: Mapping[str, str], rounds: int
) -> dict[str, dict[str, Timing]]:
    """Let both sides ask every query in turns: query -> ``ours`` and ``peer``."""
    runs: dict[str, dict[str, list[tuple[float, float]]]] = {name: {"ours": [], "peer": []} for name in queries}
    answers: dict[str, dict[str, object]] = {name: {} for name in queries}
    with bench.step(f"asking {what}", rounds) as done:
        begun = time.monotonic()
        for number in range(rounds):
            if number and time.monotonic() - begun > _MAX_SECONDS:
                break
            for side, opened in (("ours", _ours), ("peer", _peer)):
                with opened(place) as ask:
                    ask(next(iter(queries.values())))  # what is done once for a connection does not count
                    for name, text in queries.items():
                        wall, cpu = time.perf_counter(), time.process_time()
                        answers[name][side] = ask(text)
                        runs[name][side].append((time.perf_counter() - wall, time.process_time() - cpu))
            done(1)
    for name, both in answers.items():
        if not same_rows(both["ours"], both["peer"]):
            raise RuntimeError(f"the two sides answer {name} differently")
    return {
        name: {side: _timing(found, answers[name][side]) for side, found in sides.items()}
        for name, sides in runs.items()
    }


def _timing(runs: list[tuple[float, float]], answer: object) -> Timing:
    walls = tuple(wall for wall, _ in runs)
    return Timing(min(walls), min(cpu for _, cpu in runs), walls, answer)


def _seconds(timing: Timing, clock: str) -> float:
    return timing.wall if clock == "elapsed" else timing.cpu


def _total(timings: Mapping[str, Mapping[str, Timing]], side: str, clock: str) -> float:
    """The milliseconds of all queries of a side."""
    return sum(_seconds(each[side], clock) for each in timings.values()) * 1e3


def _summarise_points(result: Result, timings: dict[str, dict[str, Timing]], files: int, rows: int) -> None:
    for clock in _CLOCKS:
        ours, peer = (_total(timings, side, clock) / len(timings) for side in ("ours", "peer"))
        what = f"a point query, {files} files of {rows:,} rows, {clock}"
        result.measures.append(slowdown(what, ours, peer, "ms", at_most(_POINT)))


def _summarise_tpch(result: Result, timings: dict[str, dict[str, Timing]]) -> None:
    for clock in _CLOCKS:
        ratios = {name: _seconds(each["ours"], clock) / _seconds(each["peer"], clock) for name, each in timings.items()}
        worst = max(ratios, key=lambda name: ratios[name])
        ours, peer = (_total(timings, side, clock) for side in ("ours", "peer"))
        result.measures.append(slowdown(f"22 queries, {clock}", ours, peer, "ms", at_most(_TOTAL)))
        ours, peer = (_seconds(timings[worst][side], clock) * 1e3 for side in ("ours", "peer"))
        what = f"the query with the worst ratio ({worst}), {clock}"
        result.measures.append(slowdown(what, ours, peer, "ms", at_most(_WORST)))
    result.details.append(query_detail("milliseconds", timings))
