"""Opening a lake in a process that runs already, and its first query, beside ATTACH and a first query of the extension.

Every round opens the lake anew and closes it. Both sides start with what the process has loaded; the extension opens a
DuckDB of its own for it, and our SQL takes the one that the round before has left.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress

import quacklake
from benchmarks.common import (
    EXTENSION,
    Bench,
    Detail,
    Measure,
    Place,
    Result,
    Skip,
    alternate,
    at_most,
    attach,
    install_extensions,
    mixed_rows,
    percentile,
    slowdown,
)

_QUERY = "SELECT count(*), max(id) FROM t WHERE reading >= 0"
_LABELS = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
_PEER_ROUNDS = 7
_LIMITS = {50: 40.0, 99: 100.0}
"""Milliseconds within which the first answer is wanted, by percentile."""


def first_queries(bench: Bench, result: Result) -> None:
    """Measure lakes on SQLite and on PostgreSQL."""
    rounds = bench.pick(2, 60, 300)
    detail = Detail("connect and first query: milliseconds", ("work", "p50", "cpu, best", "p99"), [])
    result.details.append(detail)
    for catalog, label in _LABELS.items():
        with bench.directory() as directory, bench.step(f"first queries, {label}"):
            place = bench.place(directory, catalog, "opened")
            with quacklake.connect(place.url, data_path=place.data) as lake:
                lake.create_table("t", mixed_rows(0, 1_000))
            result.measures += _compare(place, label, rounds, detail)
    result.notes.append(
        "Our SQL runs in a database of DuckDB that the session before left behind, as nothing but plain queries ran in"
        " it, and so does what finds the filters; to make and close one takes 15 ms of processor time. `to_arrow` uses"
        " one that the last lake left. The rest is eight statements of DuckDB, those of the catalog, and our own code."
    )
    result.notes.append(
        "On PostgreSQL a connection is opened, and thirteen messages follow: a setting, and eight statements, of which"
        " four need no transaction. The server takes about 12 ms of processor time: 3 for its new process, and most of"
        " the rest for what that has to load of each table and index; the same statements again take less than a third."
        " A connection that outlives its lake would spare that, but a database that somebody is connected to cannot be"
        " dropped."
    )


def _compare(place: Place, label: str, rounds: int, detail: Detail) -> list[Measure]:
    works: dict[str, Callable[[], object]] = {"SQL": lambda: _sql(place), "to_arrow": lambda: _arrow(place)}
    times = alternate(rounds, works)
    with suppress(Skip):
        install_extensions("ducklake", "sqlite_scanner", "postgres_scanner")
        # a few times only: it loads the extensions into each DuckDB, which takes most of a second
        times |= alternate(min(rounds, _PEER_ROUNDS), {EXTENSION: lambda: _attached(place)})
    for name, timing in times.items():
        figures = (timing.median, timing.cpu, percentile(timing.walls, 99))
        detail.rows.append((f"{label}, {name}", *(1e3 * figure for figure in figures)))
    if EXTENSION in times and times["SQL"].answer != times[EXTENSION].answer:
        raise RuntimeError("the first queries have other answers")
    measures = []
    for percent, limit in _LIMITS.items():
        what, target = f"connect and first query of a lake, {label}, p{percent}", at_most(limit, "ours")
        ours = 1e3 * percentile(times["SQL"].walls, percent)
        if EXTENSION in times:
            peer = 1e3 * percentile(times[EXTENSION].walls, percent)
            measures.append(slowdown(what, ours, peer, "ms", target))
        else:
            measures.append(Measure(what, "ms", ours, target=target))
    return measures


def _sql(place: Place) -> object:
    with quacklake.connect(place.url) as lake:
        return lake.sql(_QUERY).fetchone()


def _arrow(place: Place) -> object:
    with quacklake.connect(place.url) as lake:
        return lake.table("t").to_arrow().num_rows


def _attached(place: Place) -> object:
    with closing(attach(place)) as connection:
        return connection.execute(_QUERY).fetchone()
