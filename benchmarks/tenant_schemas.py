"""A database schema for each tenant, which is what stock DuckLake offers, beside catalogs of a shared lake.

The first schemas are made by the extension; the others are copies of the tables of one, which is much faster.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import duckdb
import psycopg

import quacklake
from benchmarks.common import (
    EXTENSION,
    Bench,
    Detail,
    Measure,
    Place,
    Result,
    install_extensions,
    mixed_rows,
    open_duckdb,
    percentile,
)

__all__ = ["analyze", "compare", "database_size", "first_query", "tenant_name", "timed"]

_FEW = 10
_EXTENSIONS = ("ducklake", "postgres_scanner")


def timed(work: Callable[..., object], *arguments: object) -> float:
    """Seconds that a work takes."""
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def tenant_name(number: int) -> str:
    """The name of a tenant."""
    return f"tenant-{number:07}"


def analyze(place: Place) -> None:
    """Vacuum and analyze the database, as autovacuum would do a little later."""
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def database_size(place: Place) -> int:
    """The bytes of a database."""
    with psycopg.connect(place.url) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    return int(row[0]) if row else 0


def first_query(url: str, name: str) -> None:
    """Open a catalog and read its table."""
    with quacklake.connect(url, catalog=name) as lake:
        assert lake.table("t").to_arrow().num_rows == mixed_rows(0).num_rows


def compare(bench: Bench, result: Result, place: Place) -> None:
    """Open tenants of both kinds among ever more of them; the schemas are those at ``place``."""
    install_extensions(*_EXTENSIONS)
    counts, rounds = bench.pick(((10, 12), 2), ((10, 200), 10), ((10, 1_000, 5_000), 30))
    patience = bench.pick(20.0, 60.0, 600.0)
    columns = ("tenants", "ours ms", "extension ms", "alone ms", "ours MB", "extension MB", "extension's relations")
    detail = Detail("a schema per tenant with the extension, beside a shared lake", columns, [])
    result.details.append(detail)
    made, figures = 0, [0.0, 0.0]
    with bench.directory() as directory:
        ours = bench.place(directory, "postgres", "beside")
        for count in counts:
            with bench.step(f"{count:,} schemas of the peer", count - made) as done:
                now = _schemas(place, made, count, patience, done)
            if now < count:
                result.notes.append(f"Of {count:,} schemas of the peer {now:,} were made in {patience:.0f} s.")
            if now == made:
                break
            made = now
            figures = _measure(ours, place, made, rounds)
            sizes = (database_size(ours) / 1e6, database_size(place) / 1e6)
            detail.rows.append((f"{made:,}", *figures, *sizes, _relations(place)))
    what, ratio = f"connect and first query among {made:,}, p50", figures[1] / figures[0]
    result.measures.append(Measure(what, "ms", figures[0], figures[1], EXTENSION, ratio, "as fast"))
    result.notes.append(
        "The extension is given META_SCHEMA, which spares it a look at all schemas; “alone” is ATTACH without."
    )


def _measure(ours: Place, place: Place, made: int, rounds: int) -> list[float]:
    """Milliseconds of our opening and of the two of the peer, p50."""
    with quacklake.tenants(ours.url, ours.data) as tenants:
        tenants.create_many(map(tenant_name, range(made)), if_not_exists=True)
        for number in range(_FEW):
            with tenants.open(tenant_name(number)) as lake:
                lake.create_table("t", mixed_rows(0), if_not_exists=True)
    for each in (place, ours):
        analyze(each)
    mine = [timed(first_query, ours.url, tenant_name(number % _FEW)) for number in range(rounds)]
    peers = _in_process(_attach_times, place, rounds)
    return [percentile(taken, 50) * 1e3 for taken in (mine, *peers)]


def _in_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of ``work`` in another process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def _schemas(place: Place, made: int, count: int, patience: float, done: Callable[[int], None]) -> int:
    """Make schemas up to ``count``, for some seconds at most; the first by the extension, with a table each."""
    if made < _FEW:
        _in_process(_make_by_stock, place, range(_FEW))
        done(_FEW)
        made = _FEW
    end = time.perf_counter() + patience
    with psycopg.connect(place.url, autocommit=True) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [_schema(0)]).fetchall()
        while made < count and time.perf_counter() < end:
            schema = _schema(made)
            copies = "".join(
                f"CREATE TABLE {schema}.{name} (LIKE {_schema(0)}.{name} INCLUDING ALL);"
                f"INSERT INTO {schema}.{name} SELECT * FROM {_schema(0)}.{name};"
                for (name,) in tables
            )
            connection.execute(f"BEGIN; CREATE SCHEMA {schema}; {copies} COMMIT")  # type: ignore[arg-type]
            made += 1
            done(1)
    return made


def _schema(number: int) -> str:
    return f"tenant_{number:07}"


def _relations(place: Place) -> int:
    with psycopg.connect(place.url) as connection:
        row = connection.execute("SELECT count(*) FROM pg_class").fetchone()
    return int(row[0]) if row else 0


@contextmanager
def _attached(place: Place, number: int, *, alone: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    """Stock DuckDB with a tenant's schema as ``lake``; ``alone`` is without the word that spares it the others."""
    schema = _schema(number)
    options = [f"METADATA_SCHEMA '{schema}'", f"DATA_PATH '{place.data}/{schema}'"]
    options += [] if alone else [f"META_SCHEMA '{schema}'"]
    with closing(open_duckdb(*_EXTENSIONS, threads=1)) as connection:
        connection.execute(f"ATTACH '{place.attach}' AS lake ({', '.join(options)})")
        yield connection


def _make_by_stock(place: Place, numbers: range) -> None:
    for number in numbers:
        with _attached(place, number, alone=True) as connection:
            connection.register("batch", mixed_rows(0))
            connection.execute("CREATE TABLE lake.t AS FROM batch")


def _attach_times(place: Place, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of ATTACH and a first query, with and without META_SCHEMA; the slow way a few times only."""
    _read(place, 0, False)
    return (
        [timed(_read, place, number % _FEW, False) for number in range(rounds)],
        [timed(_read, place, number % _FEW, True) for number in range(min(rounds, 5))],
    )


def _read(place: Place, number: int, alone: bool) -> None:
    with _attached(place, number, alone=alone) as connection:
        assert connection.execute("SELECT count(*) FROM lake.t").fetchone() == (mixed_rows(0).num_rows,)
