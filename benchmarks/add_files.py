"""Adding files: existing Parquet files become part of a table, one call, one commit.

A lake often begins with what is there already: a folder with thousands of files. Only their footers are read, so the
figure is how quickly footers become rows of the catalog. Both sides add the same files to a new table in each round,
each to a lake of its own; then both must count the same rows.
"""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from pathlib import Path

import quacklake
from benchmarks.common import Bench, Place, Result, at_least, attach, faster, install_extensions, open_duckdb

TITLE = "existing Parquet files become part of a table"

_ROWS = 100
_LABELS = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
_COLUMNS = "id BIGINT, grp INTEGER, value DOUBLE, name VARCHAR, day DATE"


def run(bench: Bench, result: Result) -> None:
    """Make the files, add them on each catalog."""
    install_extensions("ducklake", "sqlite_scanner", "postgres_scanner")
    files = bench.pick(50, 2_000, 10_000)
    rounds = bench.pick(1, 2, 3)
    with bench.directory() as directory:
        source = directory / "files"
        _make(bench, source, files)
        for catalog in ("sqlite", "postgres"):
            ours, peer = bench.place(directory, catalog, "ours"), bench.place(directory, catalog, "peer")
            seconds: tuple[list[float], list[float]] = ([], [])
            with bench.step(f"{_LABELS[catalog]}, {rounds} rounds", rounds) as done:
                for number in range(rounds):
                    seconds[0].append(_add_ours(ours, f"t{number}", source, files))
                    seconds[1].append(_add_theirs(peer, f"t{number}", source, files))
                    done(1)
            what = f"{_LABELS[catalog]}, {files:,} files"
            result.measures.append(faster(what, min(seconds[0]), min(seconds[1]), "s", at_least(5)))
    result.notes.append(f"Each file has {_ROWS} rows and five columns; the best of {rounds} rounds counts.")


def _make(bench: Bench, folder: Path, files: int) -> None:
    folder.mkdir()
    first = folder / "0.parquet"
    with bench.step(f"making {files} files"), closing(open_duckdb()) as connection:
        connection.execute(
            f"COPY (SELECT i AS id, (i % 7)::INTEGER AS grp, i / 3 AS value, 'name-' || i AS name,"
            f" DATE '2024-01-01' + i::INTEGER AS day FROM range({_ROWS}) t(i)) TO '{first}'"
        )
        for number in range(1, files):
            shutil.copyfile(first, folder / f"{number}.parquet")


def _add_ours(place: Place, table: str, source: Path, files: int) -> float:
    with (
        quacklake.connect(place.url, data_path=place.data, foreign_paths=[source]) as lake,
        closing(open_duckdb()) as connection,
    ):
        columns = connection.execute(f"SELECT {_typed()} WHERE false").to_arrow_table().schema
        target = lake.create_table(table, columns)
        start = time.perf_counter()
        target.add_files(source / "*.parquet")
        seconds = time.perf_counter() - start
        _check(target.count("id >= 0"), files)
    return seconds


def _add_theirs(place: Place, table: str, source: Path, files: int) -> float:
    with closing(attach(place)) as connection:
        connection.execute(f"CREATE TABLE {table}({_COLUMNS})")
        start = time.perf_counter()
        connection.execute(f"CALL ducklake_add_data_files('lake', '{table}', '{source}/*.parquet')")
        seconds = time.perf_counter() - start
        found = connection.execute(f"SELECT count(*) FROM {table} WHERE id >= 0").fetchone()
        _check(found[0] if found else 0, files)
    return seconds


def _typed() -> str:
    parts = (column.rsplit(" ", 1) for column in _COLUMNS.split(", "))
    return ", ".join(f"NULL::{type_} AS {name}" for name, type_ in parts)


def _check(rows: int, files: int) -> None:
    if rows != files * _ROWS:
        raise AssertionError(f"{rows} rows instead of {files * _ROWS}")
