"""Growth: what the same work costs in a lake that has become a hundred or a thousand times as large.

Nothing may grow faster than its output: a commit does not care how many snapshots there were before, a filter that
leaves ten files should not care how many it leaves out, and opening a lake does not care how many tables it has. The
metadata of large lakes is written straight into the catalog, in bulk, and the files themselves do not exist. Each size
is measured in a process of its own, which also tells the memory that it took at most. Filters differ each time, so that
no plan is one that was remembered. The curves are drawn on two logarithmic scales.
"""

from __future__ import annotations

import multiprocessing
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import quacklake
from benchmarks.common import Bench, Detail, Measure, Place, Result, at_most, mixed_rows, percentile
from benchmarks.curves import draw
from benchmarks.growth_maintenance import expires, merges, searches, with_history, with_objects, with_small_files
from benchmarks.memory import peak
from benchmarks.planning import bulk_writer, fill

TITLE = "how cost grows with snapshots, files, tables, columns and what maintenance looks at"

_SNAPSHOT_COLUMNS = ("snapshot_id", "snapshot_time", "schema_version", "next_catalog_id", "next_file_id")
_COLUMNS = 5
_LABELS = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


@dataclass(frozen=True, slots=True)
class _Point:
    """The milliseconds of each kind of work in a lake of one size, and the most megabytes of its process."""

    size: int
    cost: Mapping[str, float]
    peak: float


def run(bench: Bench, result: Result) -> None:
    """Let snapshots, files, tables and columns grow, one after the other."""
    counts = bench.pick((10, 100), (1_000, 100_000), (1_000, 100_000, 1_000_000))
    repeats = bench.pick(5, 200, 400)
    for catalog, label in _LABELS.items():
        points = [_measure(bench, catalog, count, _with_snapshots, _commits, repeats) for count in counts]
        _report(result, f"{label}, snapshots", points, {"a commit": 1.2})
    repeats = bench.pick(3, 51, 101)
    for catalog, label in _LABELS.items():
        points = [_measure(bench, catalog, count, _with_files, _plans, repeats) for count in counts]
        _report(result, f"{label}, files", points, {"a plan that finds 10 files": 1.5})
    opening = {"connect": 1.5, "the first query": 1.5, "listing, for each table": 1.5}
    counts = bench.pick((10, 30), (10, 1_000, 20_000), (10, 1_000, 20_000))
    points = [_measure(bench, "sqlite", count, _with_tables, _opens, count) for count in counts]
    _report(result, "SQLite, tables", points, opening)
    counts = bench.pick((5, 20), (50, 500, 5_000), (50, 500, 5_000))
    points = [_measure(bench, "sqlite", count, _with_columns, _opens, 1) for count in counts]
    _report(result, "SQLite, columns of a table", points, {"connect": 1.5})
    counts = bench.pick((20, 50), (100, 2_000), (1_000, 100_000))
    points = [_measure(bench, "sqlite", count, with_history, expires, 1) for count in counts]
    _report(result, "SQLite, expired snapshots", points, {"expiry, for each snapshot": 1.5})
    counts = bench.pick((20, 50), (100, 2_000), (1_000, 100_000))
    points = [_measure(bench, "sqlite", count, with_small_files, merges, bench.pick(5, 50, 200)) for count in counts]
    limits = {"merge, for each file": 1.5, "an append beside the merge, p99": 1.5}
    _report(result, "SQLite, merged files", points, limits)
    counts = bench.pick((20, 200), (10_000, 100_000), (10_000, 1_000_000))
    points = [_measure(bench, "sqlite", count, with_objects, searches, 1) for count in counts]
    _report(result, "SQLite, objects in the store", points, {"search for orphans, for each object": 1.5})
    result.notes.append(
        "Bounds are texts in the format, so that no index of the databases orders them as values. The first plan of a"
        " column leaves them to the database, the second fetches and remembers them, later ones fetch those of new"
        " files."
    )
    result.notes.append(
        "While the newest snapshot stays the same, filters that leave files near to each other share a list of these."
        " So a plan needs one message to the catalog, for the newest snapshot, however many files there are."
    )
    result.notes.append(
        "A commit on SQLite is the same work with 1,000 and 100,000 snapshots: measured in turn, 2.9 and 3.0 ms of"
        " processor time, 46 writes and 90 kB each. The sizes of the table are measured minutes apart, and a good part"
        " of a commit is waiting for the disk. On PostgreSQL two runs before this one gave 1.04 and 0.90."
    )
    result.notes.append(
        "The first query finds its table, with its partitions and order, by indexes, one of which has the names."
        " Measured in turn, it takes 26 ms of processor time with 10 tables and 28 ms with 20,000, on a busy machine."
        " Lakes on MySQL have no index of names, because MariaDB cannot index what a function returns."
    )
    result.notes.append(
        "Of the first query of a table with 5,000 columns, DuckDB takes about half: it binds the view of all columns"
        " when it is made and when it is used. The rest reads a row of the catalog for each and makes the schema. A"
        " list of tables reads their names only."
    )
    result.notes.append(
        "The slowest append beside a merge is one of few there, and varies: four runs gave 132 to 345 ms with 1,000"
        " files, and 179 to 407 ms with 100,000, whose merge takes thirty times as long."
    )
    result.notes.append(
        "The memory of an expiry are pages that SQLite has changed and keeps until the commit, so that readers need not"
        " wait: 640 of 795 MB for 100,000 snapshots with a million files. In the mode of a write-ahead log"
        " (sqlite_journal), the same expiry takes 200 MB in all, 45 MB more than an open lake."
    )


def _report(result: Result, what: str, points: Sequence[_Point], limits: Mapping[str, float]) -> None:
    """Add a line for each kind of work, last size to first, a table of all figures, and a picture."""
    first, last = points[0], points[-1]
    for work, limit in limits.items():
        ratio = last.cost[work] / first.cost[work]
        line = f"{what}, {last.size:,}: {work}"
        figures = (last.cost[work], first.cost[work], f"at {first.size:,}")
        result.measures.append(Measure(line, "ms", *figures, ratio, "the time", at_most(limit)))
    works = list(first.cost)
    rows = [(f"{point.size:,}", *(point.cost[work] for work in works), point.peak) for point in points]
    result.details.append(Detail(f"{what}: milliseconds", (what, *works, "peak MB"), rows))
    curves = {work: [(point.size, point.cost[work]) for point in points] for work in works}
    name = what.lower().replace(", ", "-").replace(" ", "-")
    result.pictures[f"growth-{name}"] = draw(what, what.partition(", ")[2], "ms", curves)


# -- lakes of any size -------------------------------------------------------------------------------------------------


def _with_snapshots(place: Place, count: int, _: Bench) -> None:
    with quacklake.connect(place.url, data_path=place.data) as lake:
        table = lake.create_table("t", mixed_rows(0, 10)).info
        first = lake.current_snapshot() + 1
        version = int(lake.snapshots().column("schema_version")[-1].as_py())
    with bulk_writer(place) as write:
        write("ducklake_snapshot", _SNAPSHOT_COLUMNS, _snapshots(first, count, version))
        changes = ((first + number, f"inlined_insert:{table.id}") for number in range(count))
        write("ducklake_snapshot_changes", ("snapshot_id", "changes_made"), changes)
        tokens = ((str(uuid.UUID(int=number)), first + number) for number in range(count))
        write("quacklake_commits", ("token", "snapshot_id"), tokens)


def _snapshots(first: int, count: int, version: int) -> Iterator[tuple[Any, ...]]:
    for number in range(count):
        day, second = divmod(number, 86_400)
        clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        yield (first + number, f"2024-01-{day + 1:02d} {clock}+00", version, 100, 100)


def _with_files(place: Place, count: int, bench: Bench) -> None:
    with quacklake.connect(place.url, data_path=place.data) as lake:
        fill(bench, place, lake, "growth", {"t": count})


def _with_tables(place: Place, count: int, _: Bench) -> None:
    _copy_tables(place, count, _COLUMNS)


def _with_columns(place: Place, count: int, _: Bench) -> None:
    _copy_tables(place, 2, count)


def _copy_tables(place: Place, tables: int, columns: int) -> None:
    """Make as many tables as wanted, all of them copies of one."""
    with quacklake.connect(place.url, data_path=place.data) as lake:
        lake.create_table("t", pa.schema([(f"c{number}", pa.int64()) for number in range(columns)]))
        lake.create_schema("last")  # leaves a snapshot behind the tables
    copies = [(1000 + number, f"t{number}") for number in range(tables - 1)]
    with closing(sqlite3.connect(place.url.removeprefix("sqlite:///"))) as database, database:
        database.executemany(
            "INSERT INTO ducklake_table SELECT ?1, 'uuid-' || ?1, begin_snapshot, end_snapshot, schema_id, ?2,"
            " ?2 || '/', path_is_relative FROM ducklake_table WHERE table_name = 't'",
            copies,
        )
        for table, key in (("ducklake_column", "table_id"), ("ducklake_schema_versions", "table_id")):
            names = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            chosen = ", ".join("?1" if name == key else f'"{name}"' for name in names)
            source = f"FROM {table} WHERE {key} = (SELECT table_id FROM ducklake_table WHERE table_name = 't')"
            database.executemany(f"INSERT INTO {table} SELECT {chosen} {source}", [copy[:1] for copy in copies])
        database.execute("UPDATE ducklake_snapshot SET next_catalog_id = next_catalog_id + 1000 + ?", (tables,))


# -- work, in a process of its own -------------------------------------------------------------------------------------


def _commits(place: Place, _: int, repeats: int) -> dict[str, float]:
    times = []
    with quacklake.connect(place.url) as lake:
        table = lake.table("t")
        for number in range(repeats + 5):
            rows = mixed_rows(number, 10)
            start = time.perf_counter()
            table.append(rows)
            times.append(time.perf_counter() - start)
    return {"a commit": percentile(times[5:], 50) * 1e3}


def _plans(place: Place, files: int, repeats: int) -> dict[str, float]:
    times = []
    with quacklake.connect(place.url) as lake:
        lake.table("t").plan(where="id = 0")  # also loads the program
    with quacklake.connect(place.url) as lake:
        table = lake.table("t")
        for number in range(repeats + 2):
            first = (files // 2 + number % max(files // 4, 1)) * 1000
            start = time.perf_counter()
            plan = table.plan(where=f"id >= {first} AND id <= {first + 9_999}")
            times.append(time.perf_counter() - start)
            if not 0 < plan.files.num_rows <= 10:
                raise RuntimeError("the plan found other files")
    return {
        "a plan that finds 10 files": percentile(times[2:], 50) * 1e3,
        "the first plan": times[0] * 1e3,
        "the second plan": times[1] * 1e3,
    }


def _opens(place: Place, _: int, tables: int) -> dict[str, float]:
    rounds = [_open(place, tables) for _ in range(4)]  # the first also loads the program
    costs = {work: min(cost[work] for cost in rounds[1:]) for work in rounds[0]}
    # apart from the queries, whose databases are still being closed when the next lake is opened
    return {"connect": min(_connect(place) for _ in range(30)) * 1e3, **costs}


def _connect(place: Place) -> float:
    start = time.perf_counter()
    with quacklake.connect(place.url):
        return time.perf_counter() - start


def _open(place: Place, tables: int) -> dict[str, float]:
    with quacklake.connect(place.url) as lake:
        opened = time.perf_counter()
        if lake.sql("SELECT count(c0) FROM t").fetchone() != (0,):
            raise RuntimeError("the table is not empty")
        asked = time.perf_counter()
        if len(lake.tables()) < tables:
            raise RuntimeError("tables are missing")
        listed = time.perf_counter()
    seconds = {
        "the first query": asked - opened,
        "listing": listed - asked,
        "listing, for each table": (listed - asked) / tables,
    }
    return {work: value * 1e3 for work, value in seconds.items()}


_Fill = Callable[[Place, int, Bench], None]
_Work = Callable[[Place, int, int], dict[str, float]]


def _measure(bench: Bench, catalog: str, size: int, fill: _Fill, work: _Work, repeats: int) -> _Point:
    """Make a lake of a size, and do the work in a fresh process."""
    with bench.directory() as directory:
        place = bench.place(directory, catalog, f"grown-{size}")
        what = f"{_LABELS[catalog]}, {fill.__name__.lstrip('_').removeprefix('with_')}, {size:,}"
        with bench.step(f"{what}: metadata"):
            fill(place, size, bench)
        with bench.step(what):
            cost, most = _in_child(work, place, size, repeats)
    return _Point(size, cost, most / 1e6)


def _in_child(work: _Work, place: Place, size: int, repeats: int) -> tuple[dict[str, float], int]:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(work, place, size, repeats, sender))
    child.start()
    sender.close()
    try:
        cost, most = receiver.recv()
    except EOFError:
        raise RuntimeError(f"{work.__name__} failed at the size {size}") from None
    finally:
        child.join()
    return cost, int(most)


def _child(work: _Work, place: Place, size: int, repeats: int, sender: Any) -> None:
    sender.send((work(place, size, repeats), peak()))
