"""Histories of real lakes for the checker: processes that append to lists and read them, with kills among them.

``rows``: a value is a row, and a list is the rows of a key in the order of their row ids, which is the order of their
commits. Transactions append blindly or only read; together they must be strictly serialisable.

``cells``: a list is a text in one row, and an append is an update of it. Transactions mix both; a plain read is not
checked at the commit, so the promise is snapshot isolation.

``firm``: the same, but what a writing transaction reads it also updates, as the documentation says one should. Then all
must be strictly serialisable.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import quacklake
from quacklake import Lake
from quacklake.errors import CommitConflict, CommitUnknown, QuacklakeError
from tests.crash.forks import Child, Forks
from tests.crash.homes import Home, check_rows
from tests.crash.operations import MAINTENANCE, note
from tests.prove.histories import Append, Level, Read, Status, Transaction, check
from tests.prove.places import Places

__all__ = ["KINDS", "Tally", "round_of_lists", "transact"]

KINDS = {"rows": Level.STRICT, "cells": Level.SNAPSHOT, "firm": Level.STRICT}
KEYS = 6
WORKERS = 4


@dataclass
class Tally:
    """Counts of a proof."""

    transactions: int = 0
    committed: int = 0
    conflicts: int = 0
    unknown: int = 0
    kills: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, other: Tally) -> None:
        for name, value in other.__dict__.items():
            setattr(self, name, getattr(self, name) + value)


def setup(lake: Lake, kind: str) -> None:
    if kind == "rows":
        lake.create_table("t", {"key": pa.int64(), "value": pa.int64()})
    else:
        lake.create_table("t", pa.table({"key": pa.array(range(KEYS), pa.int64()), "v": [""] * KEYS}))
    lake.create_table("u", {"x": pa.int64()})
    lake.create_table("log", {"n": pa.int64()})


def read(lake: Any, kind: str, key: int) -> list[int]:
    """A list."""
    if kind == "rows":
        found = lake.table("t").scan(["rowid", "value"], f"key = {key}").to_arrow().to_pylist()
        return [row["value"] for row in sorted(found, key=lambda row: row["rowid"])]
    [row] = lake.table("t").to_pylist(["v"], f"key = {key}")
    return [int(value) for value in row["v"].split()]


def append(lake: Any, kind: str, key: int, values: list[int]) -> None:
    if kind == "rows":
        lake.table("t").append(pa.table({"key": pa.array([key] * len(values), pa.int64()), "value": values}))
    else:
        text = "".join(f"{value} " for value in values)
        assert lake.table("t").update({"v": quacklake.expr(f"v || '{text}'")}, f"key = {key}") == 1


# -- a worker's process ------------------------------------------------------------------------------------------------


def transact(url: str, journal: str, kind: str, process: int, seed: str, count: int) -> int:
    """Run transactions; before and after each a line in the journal says what and when."""
    chance = random.Random(seed)
    file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(entry: dict[str, Any]) -> None:
        line = (json.dumps(entry) + "\n").encode()
        assert os.write(file, line) == len(line)

    with quacklake.connect(url, duckdb_threads=1, ducklake_max_retry_count=100, ducklake_retry_wait_ms=3) as lake:
        for number in range(count):
            if MAINTENANCE and chance.random() < 0.05:
                _maintain(lake, chance)
            operations = _choose(chance, kind, (process * 100_000 + number) * 100)
            entry = {"id": process * 100_000 + number, "begin": time.monotonic_ns(), "operations": operations}
            write(entry)
            status = _perform(lake, kind, operations, alone=chance.random() < 0.3)
            write({**entry, "operations": operations, "status": status.value, "end": time.monotonic_ns()})
    return count


def _maintain(lake: Lake, chance: random.Random) -> None:
    try:
        chance.choice(MAINTENANCE).run(lake)
    except QuacklakeError as error:
        if not error.transient:
            raise


def _choose(chance: random.Random, kind: str, first: int) -> list[list[Any]]:
    """Appends as ``[key, [values]]``, reads as ``[key, null]``."""
    keys = [chance.randrange(KEYS) for _ in range(chance.choice((1, 1, 2, 3)))]
    writes = [chance.random() < 0.5 for _ in keys]
    if kind == "rows":
        writes = [writes[0]] * len(keys)
    found: list[list[Any]] = []
    for key, write in zip(keys, writes, strict=True):
        values = list(range(first, first + chance.choice((1, 1, 2, 15 if kind == "rows" else 3))))
        first += len(values)
        found.append([key, values if write else None])
    return found


def _perform(lake: Lake, kind: str, operations: list[list[Any]], *, alone: bool) -> Status:
    """Run the operations and put what was read in its place."""
    writing = any(values is not None for _, values in operations)
    try:
        if alone and len(operations) == 1:
            _run(lake, kind, operations, firm=False)
        else:
            with lake.transaction() as tx:
                _run(tx, kind, operations, firm=kind == "firm" and writing)
    except CommitConflict:
        return Status.FAILED
    except CommitUnknown:
        return Status.UNKNOWN
    return Status.OK


def _run(lake: Any, kind: str, operations: list[list[Any]], *, firm: bool) -> None:
    for operation in operations:
        key, values = operation[:2]
        if values is not None:
            append(lake, kind, key, values)
            continue
        if firm:
            lake.table("t").update({"v": quacklake.expr("v")}, f"key = {key}")
        operation.append(read(lake, kind, key))


# -- the history -------------------------------------------------------------------------------------------------------


def history(journals: Iterable[Path]) -> list[Transaction]:
    """Return the transactions of all journals; one without an end may have ended in any way."""
    entries: dict[int, dict[str, Any]] = {}
    for path in journals:
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            entries[entry["id"]] = entry
    return [
        Transaction(
            id_,
            entry["begin"],
            entry.get("end", float("inf")),
            tuple(_operations(entry["operations"], done=entry.get("status") == "ok")),
            Status(entry.get("status", "unknown")),
        )
        for id_, entry in entries.items()
    ]


def _operations(operations: list[list[Any]], *, done: bool) -> Iterable[Append | Read]:
    for key, values, *found in operations:
        if values is not None:
            yield from (Append(key, value) for value in values)
        elif done:
            yield Read(key, tuple(found[0]))


def round_of_lists(
    places: Places, forks: Forks, database: str, kind: str, transactions: int, seed: str, kills: int = 0
) -> Tally:
    """Run a history on a new lake and check it. Raise ``AssertionError``; then the lake is kept."""
    began = time.perf_counter()
    chance = random.Random(seed)
    home = places.make(database, data_inlining_row_limit=chance.choice((0, 10)))
    with home.connect() as lake:
        setup(lake, kind)
    try:
        done = _processes(home, forks, kind, transactions, chance, seed, kills)
        with home.connect() as lake:
            note(lake, 1)  # a commit that was on its way when its client died has ended now
            with lake.transaction() as tx:
                final = {key: tuple(read(tx, kind, key)) for key in range(KEYS)}
            check_rows(lake, "t")
        found = history(sorted(home.data.parent.glob("*.journal")))
        anomalies = check(found, final, KINDS[kind])
        assert not anomalies, "; ".join(map(str, anomalies[:5]))
        home.check_files()
        home.check_ids()
    except AssertionError as error:
        raise AssertionError(
            f"seed {seed!r}, {kind} on {database}, lake and journals kept in {home.data.parent}: {error}"
        ) from error
    places.remove(home)
    statuses = Counter(one.status for one in found)
    return Tally(
        transactions=len(found),
        committed=statuses[Status.OK],
        conflicts=statuses[Status.FAILED],
        unknown=statuses[Status.UNKNOWN],
        kills=done,
        kinds=Counter({kind: len(found)}),
        seconds=time.perf_counter() - began,
    )


def _processes(
    home: Home, forks: Forks, kind: str, transactions: int, chance: random.Random, seed: str, kills: int
) -> int:
    """Let workers run until there are enough transactions; returns how many were killed."""
    left, killed, number = transactions, 0, 0
    running: dict[int, Child] = {}

    def journal(process: int) -> Path:
        return home.data.parent / f"{process}.journal"

    try:
        while running or left > 0:
            while len(running) < WORKERS and left > 0:
                share = min(
                    left, max(1, transactions // WORKERS) if not kills else max(4, transactions // (kills + WORKERS))
                )
                left -= share
                running[number] = forks.start(
                    "tests.prove.lists:transact",
                    url=home.url,
                    journal=str(journal(number)),
                    kind=kind,
                    process=number,
                    seed=f"{seed} {number}",
                    count=share,
                )
                number += 1
            time.sleep(0.02)
            for process, child in list(running.items()):
                ended = child.poll()
                if ended is not None:
                    del running[process]
                    assert ended.code == 0, ended.errors
            # about as often as a share of the work is done
            if running and killed < kills and chance.random() < 0.05:
                process = chance.choice(list(running))
                if journal(process).exists():
                    child = running.pop(process)
                    child.kill()
                    assert child.wait().code in (0, -9)
                    killed += 1
                    begun = journal(process).read_text().count('"status"')
                    left += max(0, transactions // (kills + WORKERS) - begun)
    finally:
        for child in running.values():
            child.kill()
            child.wait()
    return killed
