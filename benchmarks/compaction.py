"""Compaction: very many small files become one.

A table that is appended to a thousand rows at a time has ten thousand files after a day. Both sides merge a copy of one
and the same lake, ours, in SQLite, each in a process of its own, so that the memory is its own too. The files are
copies of one, which is how such a lake can be made in seconds.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
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
    slowdown,
)

TITLE = "very many files of 1,000 rows, merged into one"

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


def run(bench: Bench, result: Result) -> None:
    """Make the lake, then let both merge copies of it in turn."""
    install_extensions("ducklake", "sqlite_scanner")
    files, rounds = bench.pick((20, 1), (2_000, 2), (10_000, 3))
    with bench.directory() as directory:
        place = bench.place(directory, "sqlite", "small")
        with bench.step(f"making {files:,} files"):
            _fill(place, files)
        found: dict[str, list[list[float]]] = {"ours": [], "peer": []}
        with bench.step(f"merging {files:,} files", 2 * rounds) as done:
            for number in range(rounds):
                for side, script in (("ours", _OURS), ("peer", _PEER)):
                    found[side].append(_merge(place, directory / f"{side}{number}", script, files))
                    done(1)
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


def _fill(place: Place, files: int) -> None:
    """A lake whose catalog has one file very often; every copy has a name, a snapshot and row ids of its own."""
    rows = mixed_rows(0, 1_000)
    with quacklake.connect(place.url, data_path=place.data) as lake:
        lake.create_table("t", rows.schema).append(rows)
        source = Path(lake.data_path) / lake.table("t").files().column("path")[0].as_py()
    names = [source.name.replace(".parquet", f"-{number}.parquet") for number in range(1, files)]
    for name in names:
        shutil.copy(source, source.with_name(name))
    with closing(sqlite3.connect(place.url.removeprefix("sqlite:///"))) as catalog:
        _repeat(catalog, "ducklake_snapshot", files, {"snapshot_id": 1, "next_file_id": 1})
        _repeat(catalog, "ducklake_snapshot_changes", files, {"snapshot_id": 1})
        _repeat(catalog, "ducklake_file_column_stats", files, {"data_file_id": 1})
        _repeat(catalog, "ducklake_data_file", files, {"data_file_id": 1, "begin_snapshot": 1, "row_id_start": 1_000})
        first = catalog.execute("SELECT min(data_file_id) FROM ducklake_data_file").fetchone()[0]
        paths = [(name, first + number) for number, name in enumerate(names, 1)]
        catalog.executemany("UPDATE ducklake_data_file SET path = ? WHERE data_file_id = ?", paths)
        catalog.execute(f"UPDATE ducklake_table_stats SET record_count = {files}000, next_row_id = {files}000")
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
    command = [sys.executable, "-c", script, f"sqlite:///{catalog}", f"{data}/"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # DuckDB takes a script without a file for a person, and shows its progress before
    *figures, merged = json.loads(answer.splitlines()[-1])
    if merged != files:
        raise AssertionError(f"{merged} of {files} files were merged")
    shutil.rmtree(folder)
    return list(figures)
