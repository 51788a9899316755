"""The time until the first answer: commands and imports as whole processes, and the first query of an opened lake.

Commands are typed one at a time, so what each loads is what a person waits for. A statement that speaks of no table
does not open the lake; one that does also loads what speaks to its database. Beside them stands the least that a Python
process with DuckDB in it can take. Processor time mostly, because wall time tells more about what else the machine
does; the best of the runs counts, after one that nobody counts and that fills the caches. Of an import, the time of an
interpreter that does nothing is taken off.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import quacklake
from benchmarks.common import Bench, Detail, Result, at_most, slowdown
from benchmarks.first_query import first_queries

TITLE = "time until the first answer: `quacklake`, `import quacklake`, and a lake that is opened"

_PEER = "duckdb in Python"
_DUCKDB = ("-c", "import duckdb; duckdb.sql('select 1')")
_PEERS = ("duckdb", "pyarrow", "deltalake")


def run(bench: Bench, result: Result) -> None:
    """Make a lake, start each command in turn, and open lakes."""
    rounds = bench.pick(1, 5, 15)
    with bench.directory() as directory:
        url = f"sqlite:///{directory}/lake.db"
        with quacklake.connect(url, data_path=directory / "data") as lake:
            lake.create_table("t", [{"id": 1}])
        commands = {
            "quacklake --help": ("-m", "quacklake.cli", "--help"),
            "quacklake sql 'select 1'": ("-m", "quacklake.cli", "sql", "select 1", "--lake", url),
            "quacklake sql 'select * from t'": ("-m", "quacklake.cli", "sql", "select * from t", "--lake", url),
            _PEER: _DUCKDB,
            "an interpreter that does nothing": ("-c", "pass"),
        }
        imports = ("quacklake", *(name for name in _PEERS if find_spec(name) is not None))
        commands |= {f"import {name}": ("-c", f"import {name}") for name in imports}
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        with bench.step(f"{rounds} rounds", rounds) as done:
            for words in commands.values():
                _seconds(words, directory)
            for _ in range(rounds):
                for name, words in commands.items():
                    taken[name].append(_seconds(words, directory))
                done(1)
    cpu, wall = ({name: min(each[place] for each in found) for name, found in taken.items()} for place in (0, 1))
    for name, limit in zip(list(commands)[:3], (0.3, 0.35, 0.6), strict=True):
        result.measures.append(slowdown(name, cpu[name], cpu[_PEER], "s", at_most(limit, "ours"), _PEER))
    one = "quacklake sql 'select 1'"
    result.measures.append(
        slowdown(f"{one}, wall time", wall[one], wall[_PEER], "s", at_most(0.35, "ours"), f"{_PEER}, wall time")
    )
    idle = cpu["an interpreter that does nothing"]
    ours, peer = (1e3 * (cpu[name] - idle) for name in ("import quacklake", "import duckdb"))
    result.measures.append(slowdown("import quacklake", ours, peer, "ms", at_most(50, "ours"), "import duckdb"))
    rows: list[tuple[str | int | float, ...]] = [(name, 1e3 * cpu[name], 1e3 * wall[name]) for name in commands]
    result.details.append(Detail("whole processes: milliseconds, the best", ("process", "cpu", "wall"), rows))
    result.notes.append(f'The best of {rounds} rounds; the peer is `python {_DUCKDB[0]} "{_DUCKDB[1]}"`.')
    result.notes.append(
        "Most of `select * from t` is loading 680 modules: of that time our own take 30 %, SQLAlchemy 20 %, Arrow 14"
        " %, DuckDB 10 %, numpy 6 %, and what reads the command and draws the table 6 %. numpy is there because a"
        " name in a statement may mean a source of messages. Arrow's functions, more than half of its part, are"
        " loaded by DuckDB as well, as soon as it gets a table. Two databases of DuckDB follow, one of which decodes"
        " the row that is still inlined, the statements, and the table that is drawn."
    )
    first_queries(bench, result)


def _seconds(words: tuple[str, ...], directory: Path) -> tuple[float, float]:
    """Return the processor time, of user and system, and the wall time of one process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(directory / "compiled")
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, env=environment, cwd=directory, check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, wall
