"""Expiry: 10,000 snapshots, whose files a later one has replaced, and what only they could see.

The catalog gets the metadata rows directly, ten files for every snapshot with statistics of five columns, and every
snapshot ends the files of the one before; the files themselves do not exist, expiry never opens one. One call then
removes all snapshots but the newest, schedules their files and removes their rows. It is one transaction, which nobody
else can commit beside, so it has to be short. The extension does the same to a lake of its own, made of the same rows,
except on MariaDB, which it cannot open.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import quacklake
from benchmarks.common import Bench, Measure, Place, Result, at_least, at_most, attach, faster, install_extensions
from benchmarks.planning import bulk_writer
from services import Unavailable

TITLE = "expiring very many snapshots and their files at once"

_FILES = 10
_COLUMNS = 5
_SNAPSHOT_COLUMNS = ("snapshot_id", "snapshot_time", "schema_version", "next_catalog_id", "next_file_id")
_FILE_COLUMNS = (
    "data_file_id",
    "table_id",
    "begin_snapshot",
    "end_snapshot",
    "path",
    "path_is_relative",
    "file_format",
    "record_count",
    "file_size_bytes",
)
_STATS_COLUMNS = ("data_file_id", "table_id", "column_id", "value_count", "null_count", "min_value", "max_value")


def run(bench: Bench, result: Result) -> None:
    """Expire on every available database; we and the extension each on a separate lake."""
    snapshots = bench.pick(50, 2_000, 10_000)
    install_extensions("ducklake", "sqlite_scanner", "postgres_scanner")
    for catalog, label in (("sqlite", "SQLite"), ("postgres", "PostgreSQL"), ("mysql", "MariaDB")):
        what = f"{label}, {snapshots:,} snapshots, {snapshots * _FILES:,} files"
        try:
            _compare(bench, result, catalog, what, snapshots)
        except Unavailable as error:
            result.notes.append(f"Without {label}: {error}.")


def _compare(bench: Bench, result: Result, catalog: str, what: str, snapshots: int) -> None:
    with bench.directory() as directory:
        names = ("ours",) if catalog == "mysql" else ("ours", "peer")
        places = {name: bench.place(directory, catalog, name) for name in names}
        for place in places.values():
            with bench.step(f"{what}: metadata"):
                fill(place, snapshots)
        with bench.step(f"{what}: ours"):
            ours = expire(places["ours"], snapshots)
        if "peer" in places:
            with bench.step(f"{what}: the extension"):
                peer = _peer(places["peer"])
            result.measures.append(faster(what, ours, peer, "s", at_least(1)))
    result.measures.append(Measure(f"{what}: aim", "s", ours, target=at_most(5, "ours")))


def expire(place: Place, snapshots: int) -> float:
    """Expire all snapshots but the newest, and return the seconds."""
    with quacklake.connect(place.url) as lake:
        begin = time.perf_counter()
        report = lake.expire_snapshots("0 seconds")
        seconds = time.perf_counter() - begin
    if report.data_files != snapshots * _FILES - _FILES or len(report.snapshots) < snapshots:
        raise RuntimeError("not everything expired")
    return seconds


def _peer(place: Place) -> float:
    connection = attach(place)
    begin = time.perf_counter()
    connection.execute("SELECT count(*) FROM ducklake_expire_snapshots('lake', older_than => now())").fetchall()
    seconds = time.perf_counter() - begin
    connection.close()
    return seconds


def fill(place: Place, snapshots: int) -> None:
    """Make a table whose files every one of many snapshots has replaced."""
    with quacklake.connect(place.url, data_path=place.data) as lake:
        schema = pa.schema([(f"c{number}", pa.int64()) for number in range(_COLUMNS)])
        info = lake.create_table("t", schema).info
        first = lake.current_snapshot() + 1
        version = int(lake.snapshots().column("schema_version")[-1].as_py())
    columns = [column.id for column in info.schema.columns]
    with bulk_writer(place) as write:
        write("ducklake_snapshot", _SNAPSHOT_COLUMNS, _snapshots(first, snapshots, version))
        changes = ((id_, f"inserted_into_table:{info.id}") for id_ in range(first, first + snapshots))
        write("ducklake_snapshot_changes", ("snapshot_id", "changes_made"), changes)
        write("ducklake_data_file", _FILE_COLUMNS, _files(info.id, first, snapshots))
        stats = (
            (file, info.id, column, 100, 0, str(file), str(file + 100))
            for file in range(snapshots * _FILES)
            for column in columns
        )
        write("ducklake_file_column_stats", _STATS_COLUMNS, stats)


def _snapshots(first: int, count: int, version: int) -> Iterator[tuple[Any, ...]]:
    for number in range(count):
        seconds = f"{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
        yield (first + number, f"2024-01-{number // 86_400 + 1:02d} {seconds}+00", version, 100, (number + 1) * _FILES)


def _files(table: int, first: int, snapshots: int) -> Iterator[tuple[Any, ...]]:
    for file in range(snapshots * _FILES):
        begin = first + file // _FILES
        end = begin + 1 if begin + 1 < first + snapshots else None
        yield (file, table, begin, end, f"ducklake-{file:08d}.parquet", True, "parquet", 100, 40_000)
