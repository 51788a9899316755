"""Compaction: very many small files become one, while others write; and looking for orphans among very many files.

A table that is appended to a thousand rows at a time has ten thousand files after a day. Both sides merge a copy of one
and the same lake, ours, in SQLite, each in a process of its own, so that the memory is its own too. The files are
copies of one, which is how such a lake can be made in seconds.

Then commits are timed, alone and beside a process that does nothing but merge the same table.

The search for orphans reads a listing of a million objects. They do not exist: the listing of the store is replaced by
one that makes them up, and everything after it is the real thing. What it needs must not grow with the listing.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import quacklake
from benchmarks.common import (
    Bench,
    Measure,
    Place,
    Result,
    at_least,
    at_most,
    faster,
    install_extensions,
    mixed_rows,
    percentile,
    slowdown,
)

TITLE = "very many files of 1,000 rows, merged into one; writers meanwhile; orphans among very many objects"

_OURS = """
import json, resource, sys, time, quacklake
lake = quacklake.connect(sys.argv[1], data_path=sys.argv[2], override_data_path=True)
lake.table("t").flush_inlined_data()
start = time.perf_counter(), time.process_time()
report = lake.table("t").merge_adjacent_files()
times = time.perf_counter() - start[0], time.process_time() - start[1]
print(json.dumps([*times, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, report.files_before]))
"""
_PEER = """
import json, resource, sys, time, duckdb
connection = duckdb.connect()
for name in ("ducklake", "sqlite_scanner"):
    connection.execute(f"LOAD {name}")
path = sys.argv[1].removeprefix("sqlite:///")
connection.execute(f"ATTACH 'ducklake:sqlite:{path}' AS l (DATA_PATH '{sys.argv[2]}', OVERRIDE_DATA_PATH true)")
start = time.perf_counter(), time.process_time()
found = connection.execute("CALL ducklake_merge_adjacent_files('l', 't')").fetchall()
times = time.perf_counter() - start[0], time.process_time() - start[1]
print(json.dumps([*times, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, found[0][2]]))
"""
_MERGING = """
import os, sys, quacklake
table = quacklake.connect(sys.argv[1]).table("t")
print("ready", flush=True)
while not os.path.exists(sys.argv[2]):
    table.merge_adjacent_files()
"""
_ORPHANS = """
import datetime, json, resource, sys, quacklake
from quacklake.core.storage import FileEntry, Store
count, old = int(sys.argv[2]), datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
listing = lambda store: (FileEntry(f"main/t/ducklake-{i:020d}.parquet", 1000, old) for i in range(count))
lake = quacklake.connect(sys.argv[1])
lake.delete_orphaned_files(dry_run=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
Store.stream = listing
report = lake.delete_orphaned_files(dry_run=True)
print(json.dumps([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, report.files]))
"""


def run(bench: Bench, result: Result) -> None:
    """Make the lake, then let both merge copies of it in turn."""
    install_extensions("ducklake", "sqlite_scanner")
    files, rounds = bench.pick((20, 1), (2_000, 2), (10_000, 3))
    with bench.directory() as directory:
        place = bench.place(directory, "sqlite", "small")
        with bench.step(f"making {files:,} files"):
            fill(place, files)
        found: dict[str, list[list[float]]] = {"ours": [], "peer": []}
        with bench.step(f"merging {files:,} files", 2 * rounds) as done:
            for number in range(rounds):
                for side, script in (("ours", _OURS), ("peer", _PEER)):
                    found[side].append(_merge(place, directory / f"{side}{number}", script, files))
                    done(1)
        _orphans(bench, result, place)
        _beside_a_merge(bench, result, place, directory / "stop")
    ours, peer = ([min(values) for values in zip(*found[side], strict=True)] for side in ("ours", "peer"))
    result.measures.append(faster(f"{files:,} files", ours[0], peer[0], "s", at_least(1.0)))
    result.measures.append(slowdown(f"{files:,} files, processor time", ours[1], peer[1], "s", at_most(1.0)))
    most, theirs = ours[2] / 1024, peer[2] / 1024
    result.measures.append(
        Measure(
            f"{files:,} files, most memory",
            "MB",
            most,
            theirs,
            ratio=most / theirs,
            ratio_words="the memory",
            target=at_most(1024, "ours"),
        )
    )
    result.notes.append(
        "Files of 1,000 rows. Ours keep their row ids in the file; the extension leaves out what it can count."
    )


def _beside_a_merge(bench: Bench, result: Result, place: Place, stop: Path) -> None:
    """Time commits to a table alone, and then while another process merges its files without a pause."""
    count = bench.pick(10, 200, 500)
    with quacklake.connect(place.url) as lake, bench.step("appending beside a merge", 2 * count) as done:
        table = lake.table("t")

        def append(number: int) -> float:
            rows = mixed_rows(number, 1_000)
            begin = time.perf_counter()
            table.append(rows)
            done(1)
            return (time.perf_counter() - begin) * 1e3

        alone = [append(number) for number in range(count)]
        merging = subprocess.Popen(
            [sys.executable, "-c", _MERGING, place.url, str(stop)], stdout=subprocess.PIPE, text=True
        )
        assert merging.stdout is not None
        merging.stdout.readline()
        busy = [append(number) for number in range(count)]
        stop.touch()
        if merging.wait() != 0:
            raise RuntimeError("the merge beside the writer failed")
    for percent, target in ((50, None), (99, at_most(2))):
        figures = percentile(busy, percent), percentile(alone, percent)
        what = f"append of 1,000 rows beside a merge, p{percent}"
        result.measures.append(slowdown(what, *figures, "ms", target, "ours, alone"))


def _orphans(bench: Bench, result: Result, place: Place) -> None:
    """The memory that a search for orphans takes, among few and among many objects."""
    few, many = bench.pick((1_000, 10_000), (100_000, 1_000_000), (100_000, 1_000_000))
    most = {}
    for count in (few, many):
        with bench.step(f"looking for orphans among {count:,} objects"):
            most[count], found = _child(_ORPHANS, place.url, str(count))
        if found != count:
            raise RuntimeError(f"{found} of {count} orphans were found")
    what = f"orphans among {many:,} objects, memory on top"
    peer = f"ours, {few:,} objects"
    mine, less = most[many] / 1024, most[few] / 1024
    result.measures.append(Measure(what, "MB", mine, less, peer, target=at_most(64, "ours")))


def _child(script: str, *arguments: str) -> list[float]:
    """The last line that a script prints in another process."""
    command = [sys.executable, "-c", script, *arguments]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # DuckDB takes a script without a file for a person, and shows its progress before
    found: list[float] = json.loads(answer.splitlines()[-1])
    return found


def fill(place: Place, files: int, rows_each: int = 1_000) -> None:
    """Make a lake of many copies of one file; every copy has its own name, snapshot and row ids."""
    rows = mixed_rows(0, rows_each)
    with quacklake.connect(place.url, data_path=place.data, data_inlining_row_limit=0) as lake:
        lake.create_table("t", rows.schema).append(rows)
        source = Path(lake.data_path) / lake.table("t").files().column("path")[0].as_py()
    names = [source.name.replace(".parquet", f"-{number}.parquet") for number in range(1, files)]
    for name in names:
        shutil.copy(source, source.with_name(name))
    with closing(sqlite3.connect(place.url.removeprefix("sqlite:///"))) as catalog:
        _repeat(catalog, "ducklake_snapshot", files, {"snapshot_id": 1, "next_file_id": 1})
        _repeat(catalog, "ducklake_snapshot_changes", files, {"snapshot_id": 1})
        _repeat(catalog, "ducklake_file_column_stats", files, {"data_file_id": 1})
        _repeat(
            catalog, "ducklake_data_file", files, {"data_file_id": 1, "begin_snapshot": 1, "row_id_start": rows_each}
        )
        first = catalog.execute("SELECT min(data_file_id) FROM ducklake_data_file").fetchone()[0]
        paths = [(name, first + number) for number, name in enumerate(names, 1)]
        catalog.executemany("UPDATE ducklake_data_file SET path = ? WHERE data_file_id = ?", paths)
        catalog.execute("UPDATE ducklake_table_stats SET record_count = ?1, next_row_id = ?1", (files * rows_each,))
        catalog.commit()


def _repeat(catalog: sqlite3.Connection, table: str, times: int, steps: dict[str, int]) -> None:
    """The newest rows of a table again and again, with columns that count up."""
    names = [row[1] for row in catalog.execute(f"PRAGMA table_info({table})")]
    key = next(iter(steps))
    select = ", ".join(f"{name} + {steps[name]} * n" if name in steps else name for name in names)
    catalog.execute(
        f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {times - 1})"
        f" INSERT INTO {table} SELECT {select} FROM {table}, numbers WHERE {key} = (SELECT max({key}) FROM {table})"
    )


def _merge(place: Place, folder: Path, script: str, files: int) -> list[float]:
    """Merge a copy of the lake in another process: seconds, processor seconds, kilobytes."""
    folder.mkdir()
    catalog, data = folder / "lake.db", folder / "data"
    shutil.copy(place.url.removeprefix("sqlite:///"), catalog)
    shutil.copytree(place.data, data)
    *figures, merged = _child(script, f"sqlite:///{catalog}", f"{data}/")
    if merged != files:
        raise AssertionError(f"{merged} of {files} files were merged")
    shutil.rmtree(folder)
    return figures
