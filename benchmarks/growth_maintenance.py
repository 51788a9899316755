"""Maintenance in lakes of any size: expiring snapshots, merging files beside a writer, and looking for orphans.

What each costs for a snapshot, a file or an object must stay the same, and a writer beside a merge must not wait longer
because there is more to merge. The files that are merged exist; the objects among which orphans are looked for do not:
the listing of the store is replaced by one that makes them up.
"""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import quacklake
from benchmarks import compaction, expiry
from benchmarks.common import Bench, Place, percentile
from benchmarks.planning import fill
from quacklake.core.storage import FileEntry, Store

_ROWS = 10
"""The rows of each small file."""
_OLD = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
_WRITING = """
import json, os, sys, time, quacklake
from benchmarks.common import mixed_rows
table, times = quacklake.connect(sys.argv[1], data_inlining_row_limit=0).table("t"), []
while not os.path.exists(sys.argv[2]):
    rows, begin = mixed_rows(len(times), 10), time.time()
    table.append(rows)
    times.append((begin, time.time()))
    if len(times) == int(sys.argv[3]):
        print("ready", flush=True)
print(json.dumps(times), flush=True)
"""


def with_history(place: Place, count: int, _: Bench) -> None:
    """Make a lake of many snapshots, each of which has replaced ten files."""
    expiry.fill(place, count)


def expires(place: Place, snapshots: int, _: int) -> dict[str, float]:
    """Expire all snapshots but the newest."""
    took = expiry.expire(place, snapshots) * 1e3
    return {"expiry": took, "expiry, for each snapshot": took / snapshots}


def with_small_files(place: Place, count: int, _: Bench) -> None:
    """Make a table of many small files."""
    compaction.fill(place, count, _ROWS)


def merges(place: Place, files: int, appends: int) -> dict[str, float]:
    """Merge all files, beside a process that appends without a pause."""
    stop = Path(place.data).with_suffix(".stop")
    command = [sys.executable, "-c", _WRITING, place.url, str(stop), str(appends)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer, quacklake.connect(place.url) as lake:
        assert writer.stdout is not None
        writer.stdout.readline()
        try:
            begin = time.time()
            report = lake.table("t").merge_adjacent_files()
            end = time.time()
        finally:
            stop.touch()
        rest = writer.stdout.read()
    stop.unlink()
    if writer.returncode or report.files_before < files:
        raise RuntimeError("the merge, or the writer beside it, failed")
    times: list[tuple[float, float]] = json.loads(rest.splitlines()[-1])
    alone = [done - asked for asked, done in times if done < begin]
    beside = [done - asked for asked, done in times if done >= begin and asked <= end]
    took = (end - begin) * 1e3
    return {
        "merge": took,
        "merge, for each file": took / files,
        "an append alone, p99": percentile(alone, 99) * 1e3,
        "an append beside the merge, p99": percentile(beside, 99) * 1e3,
    }


def with_objects(place: Place, count: int, bench: Bench) -> None:
    """Make a lake that knows half of so many objects."""
    with quacklake.connect(place.url, data_path=place.data) as lake:
        fill(bench, place, lake, "growth", {"t": count // 2}, stats=False)


def searches(place: Place, objects: int, _: int) -> dict[str, float]:
    """Look for orphans among objects of which the lake knows half; stores of this process list nothing else then."""
    with quacklake.connect(place.url) as lake:
        folder = lake.table("t").info.location

        def listing(store: Store) -> Iterator[FileEntry]:
            return (FileEntry(f"{folder}ducklake-{number:020d}.parquet", 1000, _OLD) for number in range(objects))

        Store.stream = listing  # type: ignore[assignment, method-assign]
        begin = time.perf_counter()
        report = lake.delete_orphaned_files(dry_run=True)
        took = (time.perf_counter() - begin) * 1e3
    if report.files != objects - objects // 2:
        raise RuntimeError(f"{report.files} of {objects - objects // 2} orphans were found")
    return {"search for orphans": took, "search for orphans, for each object": took / objects}
