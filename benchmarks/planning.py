"""Planning: which of 100,000 files may hold the rows of a selective query.

A plan must not cost much more than the one indexed query it needs. The catalog, on SQLite and on PostgreSQL, gets the
metadata rows of 100,000 files with statistics of five columns; the files themselves do not exist, planning never opens
one. ``table.plan(where=…)`` is compared with the same SQL, run bare through the driver: the statement is caught on its
way to the database. A plan at 1,000 and at 100,000 files must take the same number of statements. Beside it stand
pyiceberg and deltalake, which plan the same query over 1,000 real files; each refreshes a handle it already holds, and
may use what that remembers of an unchanged table: the same filter again, and another filter each time. Everything else
is planned anew each time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import count, islice
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

import quacklake
from benchmarks.common import Bench, Measure, Place, Result, alternate, at_least, at_most, faster, slowdown

TITLE = "planning a selective read of a table with very many files"

_ROWS_PER_FILE = 1000
_WARM = 12
"""The filters that an open lake has planned before it is measured."""
_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("seen", pa.timestamp("us")),
        ("value", pa.float64()),
        ("name", pa.string()),
        ("category", pa.int32()),
    ]
)
_FILE_COLUMNS = (
    "data_file_id",
    "table_id",
    "begin_snapshot",
    "path",
    "path_is_relative",
    "file_format",
    "record_count",
    "file_size_bytes",
    "footer_size",
    "row_id_start",
)
_STATS_COLUMNS = (
    "data_file_id",
    "table_id",
    "column_id",
    "column_size_bytes",
    "value_count",
    "null_count",
    "min_value",
    "max_value",
    "contains_nan",
)


def run(bench: Bench, result: Result) -> None:
    """Plan on both databases, then beside the other libraries."""
    few, many = bench.pick((50, 500), (1_000, 100_000), (1_000, 100_000))
    for catalog, label in (("sqlite", "SQLite"), ("postgres", "PostgreSQL")):
        with bench.directory() as directory:
            place = bench.place(directory, catalog, "lake")
            with quacklake.connect(place.url, data_path=place.data, plan_cache_bytes=0) as lake:
                fill(bench, place, lake, label, {"few": few, "many": many})
                _compare_with_sql(bench, result, lake, _driver(place), f"{label}, {many:,} files", many)
                result.measures.append(_count_statements(lake, label, few, many))
                if catalog == "sqlite":
                    _compare_with_libraries(bench, result, lake, place.url, directory, few)


# -- a catalog with many files -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Table:
    """A table that gets metadata rows of files; the ids of its files start at ``first``."""

    id: int
    columns: dict[str, int]
    snapshot: int
    first: int
    files: int


def fill(
    bench: Bench, place: Place, lake: quacklake.Lake, label: str, sizes: dict[str, int], *, stats: bool = True
) -> None:
    """Make tables with the metadata of as many files as ``sizes`` says, or their names alone; there are no files."""
    first = 0
    for name, files in sizes.items():
        info = lake.create_table(name, _SCHEMA).info
        columns = {column.name: column.id for column in info.schema.columns}
        lake.table(name).set_comment("its files come after its columns")
        table = _Table(info.id, columns, lake.current_snapshot(), first, files)
        with bench.step(f"{label}, metadata of {files:,} files"), bulk_writer(place) as write:
            write("ducklake_data_file", _FILE_COLUMNS, _file_rows(table))
            if stats:
                write("ducklake_file_column_stats", _STATS_COLUMNS, _stats_rows(table))
        first += files
        _set_next_file(lake, first)


def _set_next_file(lake: quacklake.Lake, number: int) -> None:
    """Let the next file get a number: a commit would have counted the files."""
    context = lake.handle.context
    context.catalog.run_sql(lambda schema: f"UPDATE {schema}ducklake_snapshot SET next_file_id = {number:d}")
    context.forget()


def _file_rows(table: _Table) -> Iterator[tuple[Any, ...]]:
    for number in range(table.files):
        name, start = f"ducklake-{number:020d}.parquet", number * _ROWS_PER_FILE
        size = 40_000 + number % 1000
        id_ = table.first + number
        yield (id_, table.id, table.snapshot, name, True, "parquet", _ROWS_PER_FILE, size, 900, start)


def _stats_rows(table: _Table) -> Iterator[tuple[Any, ...]]:
    for number in range(table.files):
        for column, (low, high) in _bounds(number).items():
            nan = False if column == "value" else None
            id_ = table.first + number
            yield (id_, table.id, table.columns[column], 8_000, _ROWS_PER_FILE, 0, low, high, nan)


def _bounds(number: int) -> dict[str, tuple[str, str]]:
    """The smallest and largest value of every column of a file; ids and times grow, the rest is spread."""
    first = number * _ROWS_PER_FILE
    day, hour = number // 24, number % 24
    date = f"{2000 + day // 336:04d}-{day // 28 % 12 + 1:02d}-{day % 28 + 1:02d}"
    category = number * 7919 % 1000
    return {
        "id": (str(first), str(first + _ROWS_PER_FILE - 1)),
        "seen": (f"{date} {hour:02d}:00:00", f"{date} {hour:02d}:59:59"),
        "value": ("0.125", "999.875"),
        "name": (f"a{number % 10}", f"x{number % 10}"),
        "category": (str(category), str(category + 9)),
    }


Write = Callable[[str, tuple[str, ...], Iterable[tuple[Any, ...]]], None]


@contextmanager
def bulk_writer(place: Place) -> Iterator[Write]:
    """Bulk inserts, committed together."""
    if place.url.startswith("sqlite"):
        with closing(sqlite3.connect(place.url.removeprefix("sqlite:///"))) as database, database:
            yield lambda table, columns, rows: _insert(database, table, columns, rows)
        return
    if place.url.startswith("mysql"):
        with sa.create_engine(place.url.replace("mysql:", "mysql+pymysql:", 1)).begin() as mysql:
            yield lambda table, columns, rows: _execute(mysql, table, columns, rows)
        return
    with psycopg.connect(place.url) as connection:
        yield lambda table, columns, rows: _copy(connection, table, columns, rows)
        # the server's own housekeeping would do so within a minute
        connection.execute("ANALYZE")


def _insert(database: sqlite3.Connection, table: str, columns: tuple[str, ...], rows: Iterable[Any]) -> None:
    marks = ", ".join("?" * len(columns))
    database.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)


def _execute(connection: sa.Connection, table: str, columns: tuple[str, ...], rows: Iterable[Any]) -> None:
    marks = ", ".join(["%s"] * len(columns))
    statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
    rest = iter(rows)
    while some := list(islice(rest, 10_000)):
        connection.exec_driver_sql(statement, some)


def _copy(connection: psycopg.Connection[Any], table: str, columns: tuple[str, ...], rows: Iterable[Any]) -> None:
    with connection.cursor().copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


# -- the plan and its statement ----------------------------------------------------------------------------------------

Driver = Callable[[str, Any], list[Any]]


def _driver(place: Place) -> Driver:
    """Runs SQL through the bare driver, on its own connection."""
    if place.url.startswith("sqlite"):
        database = sqlite3.connect(place.url.removeprefix("sqlite:///"))
        return lambda sql, parameters: database.execute(sql, parameters).fetchall()
    connection = psycopg.connect(place.url, autocommit=True)
    return lambda sql, parameters: connection.execute(sql.encode(), parameters).fetchall()


def _filters(files: int) -> dict[str, str]:
    first = files // 2 * _ROWS_PER_FILE
    span = f"id >= {first} AND id <= {first + 10 * _ROWS_PER_FILE - 1}"
    category = files // 2 * 7919 % 1000
    return {"one column": span, "two columns": f"{span} AND category = {category}"}


def _compare_with_sql(bench: Bench, result: Result, lake: quacklake.Lake, bare: Driver, label: str, files: int) -> None:
    for name, where in _filters(files).items():
        table = lake.table("many")
        with _caught() as statements:
            planned = table.plan(where=where).files.num_rows
        sql, parameters = next(found for found in statements if "ducklake_file_column_stats" in found[0])
        with bench.step(f"{label}, filter on {name}"):
            timings = alternate(
                bench.pick(3, 15, 31),
                {"ours": partial(table.plan, where=where), "peer": partial(bare, sql, parameters)},
            )
        answer = timings["peer"].answer
        if not isinstance(answer, list) or len(answer) != planned:
            raise RuntimeError("the plan and its statement found different files")
        ours, peer = timings["ours"].median * 1e3, timings["peer"].median * 1e3
        what = f"{label}, filter on {name}, {planned} left"
        result.measures.append(slowdown(what, ours, peer, "ms", at_most(2), "bare SQL"))
        result.measures.append(Measure(f"{what}: aim", "ms", ours, target=at_most(300, "ours")))


def _count_statements(lake: quacklake.Lake, label: str, few: int, many: int) -> Measure:
    counts = {}
    for name, files in (("few", few), ("many", many)):
        where = _filters(files)["one column"]
        lake.table(name).plan(where=where)
        with _caught() as statements:
            lake.table(name).plan(where=where)
        counts[name] = len(statements)
    ratio = counts["many"] / counts["few"]
    what = f"{label}, statements of a plan, {many:,} files"
    peer = f"ours, {few:,} files"
    return Measure(what, "", counts["many"], counts["few"], peer, ratio, "as many", at_most(1))


@contextmanager
def _caught() -> Iterator[list[tuple[str, Any]]]:
    """Every statement that is run meanwhile, with its parameters."""
    statements: list[tuple[str, Any]] = []

    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        statements.append((statement, parameters))

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


# -- other libraries ---------------------------------------------------------------------------------------------------


def _compare_with_libraries(
    bench: Bench, result: Result, lake: quacklake.Lake, url: str, directory: Path, files: int
) -> None:
    where = _filters(files)["one column"]
    with bench.step(f"writing {files:,} files for pyiceberg and deltalake"):
        paths = _write_files(directory / "files", files)
        peers = _iceberg(directory, paths) | _delta(directory / "files")
    if not peers:
        result.notes.append("pyiceberg and deltalake are not installed.")
        return
    with quacklake.connect(url) as open_lake:
        again, anew = open_lake.table("few"), lake.table("few")
        planners: dict[str, Planner] = {
            "ours": lambda where: again.plan(where=where).files.num_rows,
            "ours, anew": lambda where: anew.plan(where=where).files.num_rows,
            **peers,
        }
        works: dict[str, Callable[[], object]] = {}
        for name, plan in planners.items():
            works[name] = partial(plan, where)
            works[f"{name}, new"] = partial(_with_next, plan, _new_filters(files))
        for _ in range(_WARM):  # an open lake remembers the bounds and the list of the files by then
            works["ours, new"]()
        with bench.step(f"planning over {files:,} files, with {', '.join(peers)}"):
            timings = alternate(bench.pick(2, 9, 31), works)
    if len({timing.answer for timing in timings.values()}) != 1:
        raise RuntimeError("the libraries planned different numbers of files")
    lines = (
        ("ours", "", ", the same filter again", at_least(1.5)),
        ("ours, new", ", new", ", a new filter each time", at_least(1.5)),
        ("ours, anew", "", ", nothing remembered", None),
    )
    for own, kind, words, target in lines:
        mine = timings[own].median * 1e3
        result.measures += [
            faster(f"SQLite, {files:,} files{words}", mine, timings[name + kind].median * 1e3, "ms", target, name)
            for name in peers
        ]
    result.notes.append(
        "With nothing remembered, the statement over the bounds takes about a third of a plan; the rest are the newest"
        " snapshot, inlined rows and deletes, and the filter. The handle of deltalake remembers all but the filter."
    )


def _with_next(plan: Planner, filters: Iterator[str]) -> int:
    return plan(next(filters))


def _new_filters(files: int) -> Iterator[str]:
    """Yield filters that leave ten files each, and differ for very long."""
    for number in count():
        first, less = number * 7 % (files - 10) * _ROWS_PER_FILE, number // files % 100
        yield f"id >= {first + less} AND id <= {first + 10 * _ROWS_PER_FILE - 1 - less}"


def _write_files(directory: Path, files: int) -> list[str]:
    directory.mkdir()
    paths = []
    for number in range(files):
        first = number * _ROWS_PER_FILE
        ids = pa.array(range(first, first + _ROWS_PER_FILE), pa.int64())
        times = pa.array(range(first, first + _ROWS_PER_FILE), pa.int64()).cast(pa.timestamp("us"))
        numbers = pa.array([number * 0.5] * _ROWS_PER_FILE, pa.float64())
        names = pa.array([f"a{number % 10}"] * _ROWS_PER_FILE, pa.string())
        categories = pa.array([number % 1000] * _ROWS_PER_FILE, pa.int32())
        path = directory / f"file-{number:06d}.parquet"
        pq.write_table(pa.table([ids, times, numbers, names, categories], schema=_SCHEMA), path)
        paths.append(str(path))
    return paths


Planner = Callable[[str], int]
"""Plans a filter; returns the number of files that it leaves."""


def _iceberg(directory: Path, paths: list[str]) -> dict[str, Planner]:
    if find_spec("pyiceberg") is None:
        return {}
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("bench", uri=f"sqlite:///{directory / 'iceberg.db'}", warehouse=f"file://{directory}/iceberg")
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.t", _SCHEMA)
    table.add_files(paths)
    return {"pyiceberg": lambda where: len(list(table.refresh().scan(row_filter=where).plan_files()))}


def _delta(directory: Path) -> dict[str, Planner]:
    if find_spec("deltalake") is None:
        return {}
    from deltalake import DeltaTable, convert_to_deltalake

    convert_to_deltalake(str(directory))
    table = DeltaTable(str(directory))

    def plan(where: str) -> int:
        table.update_incremental()
        return len(table.file_uris(file_pruning_predicate=where))

    return {"deltalake": plan}
