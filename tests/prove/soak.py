"""A lake under constant writes while another process maintains it: nothing lost, nothing doubled, files bounded.

Every writer owns some keys, so it alone knows what is right for
them; each commit carries the writer's name and number, so that every snapshot that is kept can be held against what its
writers knew, here and with stock DuckDB.
"""

from __future__ import annotations

import bisect
import json
import multiprocessing
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import quacklake
from quacklake.errors import CommitConflict
from tests.catalog.stock import Stock

__all__ = ["SoakReport", "soak"]

_KEYS = 1_000_000
"""The number of keys that each writer may use."""
_TOLD = "maintenance.json"
_Watched = tuple[dict[int, list[Any]], list[tuple[float, float]]]


@dataclass
class SoakReport:
    """The report of a soak. ``problems`` is empty when all is well."""

    seconds: float = 0
    commits: int = 0
    conflicts: int = 0
    passes: int = 0
    jobs: int = 0
    most_files: int = 0
    files: list[int] = field(default_factory=list)
    """The number of files of the table, taken ten times over the run."""
    share: float = 0.0
    """Of the commits, the share that had to be tried again by the writer: percent."""
    conflict_reasons: Counter[str] = field(default_factory=Counter)
    latency: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Milliseconds of a change, the median and the 99th percentile: before maintenance began, and beside it."""
    snapshots_checked: int = 0
    rows: int = 0
    problems: list[str] = field(default_factory=list)


def soak(
    home: Path, url: str, seconds: float, *, writers: int = 4, least: int = 0, seed: int = 0, stock: bool = True
) -> SoakReport:
    """Write and maintain for some seconds, ``least`` commits by each writer at least, then compare everything."""
    report = SoakReport()
    data = home / "data"
    with quacklake.connect(url, data_path=data) as lake:
        lake.create_table("t", pa.schema({"writer": pa.int32(), "k": pa.int64(), "v": pa.int64(), "note": pa.string()}))
    begun = time.monotonic()
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue()
    workers = [
        context.Process(target=_write, args=(url, number, seconds, least, seed + number, queue))
        for number in range(writers)
    ]
    for worker in workers:
        worker.start()
    time.sleep(min(20.0, seconds / 10))  # to see what changes take without
    maintained = time.time()
    keeper = _start_maintenance(url, home)
    try:
        logs, times = _watch(url, workers, queue, seconds, report)
    finally:
        keeper.send_signal(signal.SIGINT)
        keeper.wait(timeout=120)
        for worker in workers:
            worker.join(60)
    report.seconds = time.monotonic() - begun
    _count_passes(home / _TOLD, keeper.returncode, report)
    report.latency = {
        "alone": _latency([end - begin for begin, end in times if end < maintained]),
        "beside maintenance": _latency([end - begin for begin, end in times if begin >= maintained]),
    }
    for worker in workers:
        if worker.exitcode != 0:
            report.problems.append(f"a writer ended with {worker.exitcode}")
    with Stock() if stock else nullcontext() as judge:
        _compare(url, logs, report, judge)
    return report


def _start_maintenance(url: str, home: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "quacklake.cli", "maintain", "--watch", "--lake", url, "--output", "json"]
    command += ["--interval", "1s", "--flush-rows", "200", "--small-files", "8", "--delete-ratio", "0.2"]
    command += ["--expire-older-than", "20s", "--delete-older-than", "5s"]
    # into a file: a pipe that nobody reads is full one day, and maintenance would stand still
    with (home / _TOLD).open("w") as told:
        return subprocess.Popen(command, cwd=home, stdout=told)


def _watch(url: str, workers: Sequence[Any], queue: Any, seconds: float, report: SoakReport) -> _Watched:
    """Count files while the writers work, then take what they knew: one list for each, by the number of the commit.

    And when each change began and ended.
    """
    logs: dict[int, list[Any]] = {}
    times: list[tuple[float, float]] = []
    counts: list[int] = []
    with quacklake.connect(url) as lake:
        end = time.monotonic() + seconds + 120
        while len(logs) < len(workers) and time.monotonic() < end:
            counts.append(lake.table("t").files().num_rows)
            report.most_files = max(counts)
            time.sleep(0.5)
            while not queue.empty():
                number, log, conflicts, took = queue.get()
                logs[number] = log
                report.conflict_reasons.update(conflicts)
                times += took
    report.commits = sum(len(log) for log in logs.values())
    report.conflicts = report.conflict_reasons.total()
    report.share = round(100 * report.conflicts / max(1, report.commits), 3)
    report.files = counts[:: max(1, len(counts) // 10)]
    return logs, times


def _write(url: str, number: int, seconds: float, least: int, seed: int, queue: Any) -> None:
    """Append, update, delete and merge one's own rows; remember (count, sum) after each commit."""
    rng = random.Random(seed)
    mine: dict[int, int] = {}
    log: list[tuple[int, int]] = []
    conflicts: list[str] = []
    took: list[tuple[float, float]] = []
    end = time.monotonic() + seconds
    fresh = number * _KEYS
    with quacklake.connect(url) as lake:
        while time.monotonic() < end or len(log) < least:
            table = lake.signed(extra=f"{number}:{len(log)}").table("t")
            after = dict(mine)
            began = time.time()
            try:
                fresh = _one_change(rng, number, table, after, fresh)
            except CommitConflict as error:
                conflicts.append(str(error).splitlines()[0])
                continue
            took.append((began, time.time()))
            mine = after
            log.append((len(mine), sum(mine.values())))
            time.sleep(rng.uniform(0, 0.1))
    queue.put((number, log, conflicts, took))


def _one_change(rng: random.Random, number: int, table: Any, rows: dict[int, int], fresh: int) -> int:
    """Change the writer's own rows once, in the table and in ``rows``; return the next unused key."""
    kind = rng.choice(["append", "append", "update", "delete", "merge"])
    some = rng.sample(sorted(rows), min(len(rows), rng.randint(1, 40)))
    if kind == "append" or not rows:
        count = rng.choice([1, 5, 50, 300]) if len(rows) < 5000 else 1
        new = {fresh + i: rng.randrange(1000) for i in range(count)}
        table.append([_row(number, k, v) for k, v in new.items()])
        rows.update(new)
        return fresh + count
    low, high = min(some), min(some) + rng.randint(0, 60)
    hit = [k for k in rows if low <= k <= high]
    if kind == "update":
        table.update({"v": quacklake.expr("v + 1")}, where=f"k BETWEEN {low} AND {high}")
        rows.update({k: rows[k] + 1 for k in hit})
    elif kind == "delete":
        table.delete(f"k BETWEEN {low} AND {high}")
        for k in hit:
            del rows[k]
    else:
        new = {k: rng.randrange(1000) for k in some} | {fresh: 7}
        table.merge([_row(number, k, v) for k, v in new.items()], on="k")
        rows.update(new)
        return fresh + 1
    return fresh


def _latency(seconds: list[float]) -> tuple[int, int]:
    if len(seconds) < 2:
        return (0, 0)
    parts = statistics.quantiles(seconds, n=100)
    return round(1000 * parts[49]), round(1000 * parts[98])


def _row(number: int, k: int, v: int) -> dict[str, Any]:
    return {"writer": number, "k": k, "v": v, "note": f"note {k}"}


def _count_passes(told: Path, code: int, report: SoakReport) -> None:
    if code != 0:
        report.problems.append(f"maintenance ended with {code}")
    for line in told.read_text().splitlines():
        found = json.loads(line)
        report.passes += 1
        report.jobs += len(found["jobs"])
        report.problems += [f"{job['job']}: {job['error']}" for job in found["jobs"] if job["error"]]


def _compare(url: str, logs: dict[int, list[Any]], report: SoakReport, stock: Stock | None) -> None:
    with quacklake.connect(url) as lake:
        snapshots = lake.snapshots().select(["snapshot_id", "commit_extra_info"]).to_pylist()
        commits: dict[int, list[tuple[int, int]]] = {number: [] for number in logs}
        for row in snapshots:
            if row["commit_extra_info"]:
                writer, _, count = row["commit_extra_info"].partition(":")
                commits[int(writer)].append((row["snapshot_id"], int(count)))
        theirs = None if stock is None else _read_by_stock(stock, url, [row["snapshot_id"] for row in snapshots])
        for row in snapshots[1:] if snapshots[0]["snapshot_id"] == 0 else snapshots:
            version = row["snapshot_id"]
            expected = _expected(logs, commits, version)
            ours = (
                lake.at(version=version)
                .table("t")
                .to_arrow()
                .group_by("writer")
                .aggregate([("v", "count"), ("v", "sum")])
            )
            seen = {r["writer"]: (r["v_count"], r["v_sum"]) for r in ours.to_pylist()}
            if seen != expected:
                report.problems.append(f"snapshot {version}: {seen} and not {expected}")
            if theirs is not None and theirs.get(version, {}) != expected:
                report.problems.append(f"snapshot {version}, read by stock: {theirs.get(version)} and not {expected}")
            report.snapshots_checked += 1
        report.rows = lake.table("t").count()
        unique = lake.table("t").to_arrow(columns=["k"]).column("k").unique()
        if len(unique) != report.rows:
            report.problems.append(f"{report.rows} rows with {len(unique)} keys")


def _read_by_stock(stock: Stock, url: str, versions: Sequence[int]) -> dict[int, dict[int, tuple[int, int]]]:
    """Return what stock DuckDB reads: version -> writer -> (count, sum)."""
    found: dict[int, dict[int, tuple[int, int]]] = {}
    for start in range(0, len(versions), 50):
        parts = [
            f"SELECT {version}, writer, count(*), sum(v)::BIGINT FROM l.t AT (VERSION => {version}) GROUP BY writer"
            for version in versions[start : start + 50]
            if version > 0
        ]
        for version, writer, rows, total in stock.run(url, " UNION ALL ".join(parts)):
            found.setdefault(version, {})[writer] = (rows, total)
    return found


def _expected(
    logs: dict[int, list[Any]], commits: dict[int, list[tuple[int, int]]], version: int
) -> dict[int, tuple[int, int]]:
    """Return what the writers knew at a snapshot. The number of an expired commit follows from the commit after it."""
    expected: dict[int, tuple[int, int]] = {}
    for writer, known in commits.items():
        at = bisect.bisect_right([snapshot for snapshot, _ in known], version) - 1
        if at < 0 and known:
            count = known[0][1] - 1
        elif at < 0:
            count = len(logs[writer]) - 1
        else:
            count = known[at][1]
        if count >= 0 and logs[writer][count][0]:
            expected[writer] = tuple(logs[writer][count])
    return expected
