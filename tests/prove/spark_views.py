"""Histories of materialized views that Spark refreshes, too: ``python -m tests.prove.spark_views FOLDER COUNT SEED``.

One of the two handles of a history gives Spark every refresh that Spark can compute, the other one uses DuckDB; other
processes refresh beside them and are killed. Spark lives in a process of its own, in one session for many histories.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from services import Server
from tests.crash.forks import Forks
from tests.prove.places import Places
from tests.prove.views import Tally, round_of_views
from tests.spark.streaming import child_session

__all__ = ["ROUND", "round_of_spark_views"]

ROUND = 40
"""Histories of one process."""
_DATABASES = ("sqlite", "sqlite", "duckdb")


def round_of_spark_views(folder: Path, count: int, seed: str) -> Tally:
    """So many histories in a process with a session of Spark."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "tests.prove.spark_views", str(folder), str(count), seed]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300 + 120 * count, check=False)
    assert ended.returncode == 0, f"views on Spark, seed {seed!r}: {ended.stderr[-3000:]}"
    return Tally.of(json.loads(ended.stdout.splitlines()[-1]))


def _no_server(name: str) -> Server:
    raise LookupError(f"these histories need no {name}")


def _run(folder: Path, count: int, seed: str) -> Tally:
    session = child_session(str(folder))
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    total, places = Tally(), Places(folder, _no_server)
    with Forks(["tests.prove.views"]) as forks:
        for number in range(count):
            mine, database = f"{seed}.{number}", _DATABASES[number % len(_DATABASES)]
            total.add(round_of_views(places, None, forks, database, 1, mine, spark=True))
            print(f"{number + 1} histories, {dict(total.engines)}, {len(total.failures)} failures", flush=True)
    session.stop()
    return total


if __name__ == "__main__":
    print(json.dumps(asdict(_run(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))))
