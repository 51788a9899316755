"""Starting the command line: processor time of a whole process, from the interpreter to its exit code.

Commands are typed one at a time, so what each loads is what a person waits for. A statement that speaks of no table
does not open the lake; one that does also loads what speaks to its database. Beside them stands the least that a Python
process with DuckDB in it can take. Processor time, because wall time tells more about what else the machine
does; the best of the runs counts, after one that nobody counts and that fills the caches.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import quacklake
from benchmarks.common import Bench, Result, at_most, slowdown

TITLE = "processor time of `quacklake --help` and `quacklake sql`, from start to exit"

_PEER = "duckdb in Python"
_DUCKDB = ("-c", "import duckdb; duckdb.sql('select 1')")


def run(bench: Bench, result: Result) -> None:
    """Make a lake, start each command in turn."""
    rounds = bench.pick(1, 5, 15)
    with bench.directory() as directory:
        url = f"sqlite:///{directory}/lake.db"
        with quacklake.connect(url, data_path=directory / "data") as lake:
            lake.create_table("t", [{"id": 1}])
        commands = {
            "help": ("-m", "quacklake.cli", "--help"),
            "sql": ("-m", "quacklake.cli", "sql", "select 1", "--lake", url),
            "table": ("-m", "quacklake.cli", "sql", "select * from t", "--lake", url),
            "duckdb": _DUCKDB,
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        with bench.step(f"{rounds} rounds", rounds) as done:
            for words in commands.values():
                _processor_seconds(words, directory)
            for _ in range(rounds):
                for name, words in commands.items():
                    seconds[name].append(_processor_seconds(words, directory))
                done(1)
    best = {name: min(found) for name, found in seconds.items()}
    result.measures += [
        slowdown("quacklake --help", best["help"], best["duckdb"], "s", at_most(0.3, "ours"), _PEER),
        slowdown("quacklake sql 'select 1'", best["sql"], best["duckdb"], "s", at_most(0.6, "ours"), _PEER),
        slowdown("quacklake sql 'select * from t'", best["table"], best["duckdb"], "s", peer_name=_PEER),
    ]
    result.notes.append(f'The best of {rounds} rounds; the peer is `python {_DUCKDB[0]} "{_DUCKDB[1]}"`.')


def _processor_seconds(words: tuple[str, ...], directory: Path) -> float:
    """Return the user and system time of one process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(directory / "compiled")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, env=environment, cwd=directory, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
