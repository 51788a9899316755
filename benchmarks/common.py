"""The base of the benchmarks: sizes, places, servers, the two sides of a comparison, clocks and results."""

from __future__ import annotations

import datetime as dt
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self, TypeVar

import duckdb
import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import quacklake
from services.mysql import MySQLServer
from services.postgres import PostgresServer

__all__ = [
    "EXTENSION",
    "Bench",
    "Detail",
    "Extension",
    "Measure",
    "Ours",
    "Place",
    "Result",
    "Side",
    "Size",
    "Skip",
    "Target",
    "Timing",
    "alternate",
    "ask",
    "at_least",
    "at_most",
    "attach",
    "chunks",
    "faster",
    "install_extensions",
    "mixed_rows",
    "open_duckdb",
    "percentile",
    "planned",
    "query_detail",
    "same_rows",
    "slowdown",
]

EXTENSION = "ducklake extension"
"""The peer of most benchmarks: DuckDB's own implementation of the format."""

Size = Literal["quick", "everyday", "full"]
T = TypeVar("T")
_EPOCH = dt.datetime(2024, 1, 1)
_CATALOG_EXTENSIONS = ("ducklake", "sqlite_scanner", "postgres_scanner")


class Skip(Exception):
    """A benchmark cannot run here; the text says what it needs."""


# -- results -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """The wanted value of a figure: of the ratio, or of our own figure."""

    sign: Literal["≥", "≤"]
    value: float
    of: Literal["ratio", "ours"] = "ratio"

    def met(self, value: float) -> bool:
        """True when ``value`` is on the right side."""
        return value >= self.value if self.sign == "≥" else value <= self.value


def at_least(value: float) -> Target:
    """A ratio of this or more is wanted."""
    return Target("≥", value)


def at_most(value: float, of: Literal["ratio", "ours"] = "ratio") -> Target:
    """A ratio (or our own figure) of this or less is wanted."""
    return Target("≤", value, of)


@dataclass(frozen=True, slots=True)
class Measure:
    """One line of a result: our figure, the peer's, and how they compare."""

    what: str
    unit: str
    ours: float | None = None
    peer: float | None = None
    peer_name: str = EXTENSION
    ratio: float | None = None
    ratio_words: str = ""
    target: Target | None = None

    @property
    def met(self) -> bool | None:
        """True when the target is met; None without one."""
        value = self.ours if self.target is not None and self.target.of == "ours" else self.ratio
        return None if self.target is None or value is None else self.target.met(value)


def faster(
    what: str, ours: float, peer: float, unit: str, target: Target | None = None, peer_name: str = EXTENSION
) -> Measure:
    """A time that should be a fraction of the peer's: the ratio says how many times as fast we are."""
    return Measure(what, unit, ours, peer, peer_name, peer / ours, "as fast", target)


def slowdown(
    what: str, ours: float, peer: float, unit: str, target: Target | None = None, peer_name: str = EXTENSION
) -> Measure:
    """A time that should not be much more than the peer's: the ratio is ours to the peer's."""
    return Measure(what, unit, ours, peer, peer_name, ours / peer, "the time", target)


@dataclass(frozen=True, slots=True)
class Detail:
    """A table with more than the headline figures."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str | int | float, ...]]


@dataclass(slots=True)
class Result:
    """The result of one benchmark."""

    name: str
    title: str
    size: Size = "everyday"
    seconds: float = 0.0
    skipped: str | None = None
    measures: list[Measure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    details: list[Detail] = field(default_factory=list)
    pictures: dict[str, str] = field(default_factory=dict)
    """Pictures for the documentation as SVG, by their names."""


# -- the surroundings --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a lake, for us and for the extension."""

    url: str
    attach: str
    data: Path


class Bench:
    """The surroundings of a run: its size, a temporary directory, a PostgreSQL server, progress."""

    def __init__(self, size: Size) -> None:
        self.size: Size = size
        self._stack = ExitStack()
        self._console = Console(stderr=True)
        self._prefix = ""
        self._databases = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def begin(self, name: str) -> None:
        """Show progress under a benchmark's name from now on."""
        self._prefix = name

    def pick(self, quick: T, everyday: T, full: T) -> T:
        """The value that goes with the size of this run."""
        return {"quick": quick, "everyday": everyday, "full": full}[self.size]

    @cached_property
    def _root(self) -> Path:
        return Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="quacklake-bench-")))

    @cached_property
    def postgres(self) -> PostgresServer:
        """A durable PostgreSQL server that ends with the run. Raise ``services.Unavailable``."""
        with self.step("starting PostgreSQL"):
            return self._stack.enter_context(PostgresServer(durable=True))

    @cached_property
    def mysql(self) -> MySQLServer:
        """A durable MariaDB server that ends with the run. Raise ``services.Unavailable``."""
        with self.step("starting MariaDB"):
            return self._stack.enter_context(MySQLServer(durable=True))

    @contextmanager
    def directory(self) -> Iterator[Path]:
        """An empty directory for one benchmark, removed afterwards."""
        with tempfile.TemporaryDirectory(dir=self._root) as path:
            yield Path(path)

    def place(self, directory: Path, catalog: str, name: str) -> Place:
        """A new lake's place: ``catalog`` is ``sqlite``, ``postgres`` or ``mysql``, which the extension cannot open."""
        data = directory / f"{catalog}-{name}"
        if catalog == "sqlite":
            path = directory / f"{name}.db"
            return Place(f"sqlite:///{path}", f"ducklake:sqlite:{path}", data)
        self._databases += 1
        database = f"bench_{self._databases}"
        if catalog == "mysql":
            return Place(self.mysql.create_database(database), "", data)
        url = self.postgres.create_database(database)
        return Place(url, f"ducklake:postgres:{self.postgres.dsn(database)}", data)

    @contextmanager
    def step(self, text: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Show one step of work; the yielded function says how much of ``total`` was done."""
        label = f"{self._prefix}: {text}" if self._prefix else text
        if not self._console.is_terminal:
            print(label, file=sys.stderr, flush=True)
            yield lambda _: None
            return
        columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn()]
        columns += [MofNCompleteColumn()] if total is not None else []
        with Progress(*columns, TimeElapsedColumn(), console=self._console, transient=True) as progress:
            task = progress.add_task(label, total=total)
            yield lambda done: progress.advance(task, done)


# -- the two sides -----------------------------------------------------------------------------------------------------


def install_extensions(*names: str) -> None:
    """Make extensions from wheels known to DuckDB. Raise ``Skip`` when a wheel is missing."""
    for name in names:
        if find_spec(f"duckdb_extension_{name}") is None:
            raise Skip(f"needs the Python package duckdb-extension-{name.replace('_', '-')}")
        from duckdb_extensions import import_extension

        import_extension(name)


def open_duckdb(
    *extensions: str, threads: int | None = None, memory_limit: str | None = None
) -> duckdb.DuckDBPyConnection:
    """Open a separate DuckDB, and load extensions that ``install_extensions`` has installed."""
    config: dict[str, str | bool | int | float | list[str]] = {"autoinstall_known_extensions": False}
    if threads is not None:
        config["threads"] = threads
    if memory_limit is not None:
        config["memory_limit"] = memory_limit
    connection = duckdb.connect(config=config)
    connection.execute("SET enable_progress_bar = false")
    for name in extensions:
        connection.execute(f"LOAD {name}")
    return connection


def attach(place: Place, *, threads: int | None = None, memory_limit: str | None = None) -> duckdb.DuckDBPyConnection:
    """A DuckDB with the extension, whose current catalog is the lake at ``place``."""
    connection = open_duckdb(*_CATALOG_EXTENSIONS, threads=threads, memory_limit=memory_limit)
    connection.execute(f"ATTACH '{place.attach}' AS lake (DATA_PATH '{place.data}')")
    connection.execute("USE lake")
    return connection


def planned(place: Place) -> duckdb.DuckDBPyConnection:
    """A plain DuckDB in which every table of the lake at ``place`` is a view, planned by us.

    The lake is closed again. With a catalog on SQLite it must not be open while the extension is: Python and the
    extension each bring their own SQLite, and two of them in one process undo each other's locks.
    """
    connection = open_duckdb()
    with quacklake.connect(place.url) as lake:
        lake.register(connection)
    return connection


class Side(Protocol):
    """One table that rows are appended to, a commit each time."""

    def append(self, rows: pa.Table) -> None: ...

    def close(self) -> None: ...


class Ours:
    """A table of ours."""

    def __init__(self, place: Place, schema: pa.Schema, catalog: str | None = None) -> None:
        data_path = place.data if catalog is None else None
        self.lake = quacklake.connect(place.url, data_path=data_path, catalog=catalog)
        self.table = self.lake.create_table("t", schema, if_not_exists=True)

    def append(self, rows: pa.Table) -> None:
        self.table.append(rows)

    def close(self) -> None:
        self.lake.close()


class Extension:
    """The same table through the extension; one thread, with which it commits small changes fastest."""

    def __init__(self, place: Place, schema: pa.Schema) -> None:
        install_extensions(*_CATALOG_EXTENSIONS)
        self.connection = attach(place, threads=1)
        self.connection.register("batch", schema.empty_table())
        self.connection.execute("CREATE TABLE IF NOT EXISTS t AS FROM batch")

    def append(self, rows: pa.Table) -> None:
        self.connection.register("batch", rows)
        self.connection.execute("INSERT INTO t SELECT * FROM batch")

    def close(self) -> None:
        self.connection.close()


# -- data and clocks ---------------------------------------------------------------------------------------------------


def mixed_rows(number: int, rows: int = 10) -> pa.Table:
    """A small batch of five columns of mixed types; every batch has other values, as events have."""
    first = number * rows
    ids = range(first, first + rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([f"sensor-{i % 997}" for i in ids], pa.string()),
            "reading": pa.array([i * 0.25 for i in ids], pa.float64()),
            "good": pa.array([i % 7 != 0 for i in ids], pa.bool_()),
            "seen": pa.array([_EPOCH + dt.timedelta(milliseconds=i) for i in ids], pa.timestamp("us")),
        }
    )


def chunks(total: int, parts: int) -> list[range]:
    """``range(total)`` in consecutive parts of nearly the same length."""
    edges = [total * i // parts for i in range(parts + 1)]
    return [range(a, b) for a, b in pairwise(edges)]


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which ``percent`` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall and processor seconds of the best of several runs, and what the run gave."""

    wall: float
    cpu: float
    walls: tuple[float, ...]
    answer: object

    @property
    def median(self) -> float:
        """The median of the wall seconds."""
        return percentile(self.walls, 50)


def alternate(rounds: int, works: Mapping[str, Callable[[], object]]) -> dict[str, Timing]:
    """Run every work once a round, in turn, the order reversed each time; one round before does not count."""
    names = list(works)
    answers = {name: works[name]() for name in names}
    walls: dict[str, list[float]] = {name: [] for name in names}
    cpus: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            wall, cpu = time.perf_counter(), time.process_time()
            works[name]()
            walls[name].append(time.perf_counter() - wall)
            cpus[name].append(time.process_time() - cpu)
    return {name: Timing(min(walls[name]), min(cpus[name]), tuple(walls[name]), answers[name]) for name in names}


def ask(
    ours: duckdb.DuckDBPyConnection,
    peer: duckdb.DuckDBPyConnection,
    queries: Mapping[str, str],
    rounds: int,
    done: Callable[[int], None],
) -> dict[str, dict[str, Timing]]:
    """Ask both sides every query in turn and compare the answers: query -> ``ours`` and ``peer``."""
    timings = {}
    for name, query in queries.items():
        found = alternate(rounds, {"ours": _asking(ours, query), "peer": _asking(peer, query)})
        if not same_rows(found["ours"].answer, found["peer"].answer):
            raise RuntimeError(f"the two sides answer {name} differently")
        timings[name] = found
        done(1)
    return timings


def _asking(connection: duckdb.DuckDBPyConnection, query: str) -> Callable[[], object]:
    return lambda: connection.execute(query).fetchall()


def query_detail(title: str, timings: Mapping[str, Mapping[str, Timing]]) -> Detail:
    """Wall and processor milliseconds of every query on both sides."""
    detail = Detail(title, ("query", "ours", "peer", "ratio", "ours, cpu", "peer, cpu", "ratio, cpu"), [])
    for name, each in timings.items():
        ours, peer = each["ours"], each["peer"]
        walls = (ours.wall * 1e3, peer.wall * 1e3, ours.wall / peer.wall)
        detail.rows.append((name, *walls, ours.cpu * 1e3, peer.cpu * 1e3, ours.cpu / peer.cpu))
    return detail


def same_rows(one: object, two: object) -> bool:
    """True when two answers have the same rows in any order; floating point may differ in the last digits."""
    if not isinstance(one, list) or not isinstance(two, list) or len(one) != len(two):
        return one == two
    pairs = zip(sorted(map(_split, one)), sorted(map(_split, two)), strict=True)
    return all(
        exact == other_exact
        and all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(floats, other_floats, strict=True))
        for (exact, floats), (other_exact, other_floats) in pairs
    )


def _split(row: Sequence[object]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """A row's exact values, as text, and its floating point values."""
    exact = tuple(str(value) for value in row if not isinstance(value, float))
    return exact, tuple(value for value in row if isinstance(value, float))
