"""Small commits: how long one append of ten rows takes, and whether it stays that way.

A stream of events becomes many small appends, so the cost of one commit bounds the rate, and a cost that grows with
the history makes a lake slower every day. Each commit appends an Arrow table of 10 rows and 5 columns of mixed types,
every one with new values, into a catalog on SQLite and one on a durable PostgreSQL. Both sides keep their rows inline
and commit in turn, in blocks; the peer has one DuckDB thread, with which it is fastest here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

from benchmarks.common import (
    Bench,
    Extension,
    Measure,
    Ours,
    Result,
    Side,
    at_least,
    at_most,
    chunks,
    faster,
    mixed_rows,
    percentile,
)

TITLE = "appends of 10 rows × 5 columns, one commit each"

_TARGETS = {"sqlite": 5.0, "postgres": 2.5}
_LABELS = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
_WARM_UP = 5
_WINDOW = 1000


def run(bench: Bench, result: Result) -> None:
    """Measure both catalogs."""
    for catalog in _TARGETS:
        ours, peer = _commit(bench, catalog)
        result.measures += _speed(catalog, ours, peer)
        result.measures.append(_flatness(catalog, ours, peer))
    result.notes.append("Flatness: the time of the last commits divided by that of the first; 1 means it never grows.")


def _commit(bench: Bench, catalog: str) -> tuple[list[float], list[float]]:
    """Seconds of each commit of ours and of the peer's, in order."""
    count, peer_count, rounds = bench.pick((60, 30, 3), (3_000, 300, 30), (20_000, 2_000, 100))
    schema = mixed_rows(0).schema
    seconds: tuple[list[float], list[float]] = ([], [])
    with (
        bench.directory() as directory,
        closing(Ours(bench.place(directory, catalog, "ours"), schema)) as ours,
        closing(Extension(bench.place(directory, catalog, "peer"), schema)) as peer,
        bench.step(f"{_LABELS[catalog]}, {count} commits, {peer_count} of the peer", count + peer_count) as done,
    ):
        for side in (ours, peer):
            _timed(side, range(_WARM_UP))
        for ours_part, peer_part in zip(chunks(count, rounds), chunks(peer_count, rounds), strict=True):
            seconds[0].extend(_timed(ours, ours_part))
            seconds[1].extend(_timed(peer, peer_part))
            done(len(ours_part) + len(peer_part))
    return seconds


def _timed(side: Side, numbers: range) -> list[float]:
    batches = [mixed_rows(number) for number in numbers]
    seconds = []
    for rows in batches:
        start = time.perf_counter()
        side.append(rows)
        seconds.append(time.perf_counter() - start)
    return seconds


def _speed(catalog: str, ours: Sequence[float], peer: Sequence[float]) -> list[Measure]:
    label, target = _LABELS[catalog], at_least(_TARGETS[catalog])
    p50 = faster(f"{label}, p50", percentile(ours, 50) * 1e3, percentile(peer, 50) * 1e3, "ms", target)
    return [p50, faster(f"{label}, p99", percentile(ours, 99) * 1e3, percentile(peer, 99) * 1e3, "ms")]


def _flatness(catalog: str, ours: Sequence[float], peer: Sequence[float]) -> Measure:
    window, peer_window = _window(ours), _window(peer)
    what = f"{_LABELS[catalog]}, last {window:,} / first {window:,} of {len(ours):,}"
    peer_name = f"last {peer_window:,} / first {peer_window:,} of {len(peer):,}"
    return Measure(what, "", _growth(ours, window), _growth(peer, peer_window), peer_name, target=at_most(1.2, "ours"))


def _window(seconds: Sequence[float]) -> int:
    return min(_WINDOW, len(seconds) // 3)


def _growth(seconds: Sequence[float], window: int) -> float:
    return sum(seconds[-window:]) / sum(seconds[:window])
