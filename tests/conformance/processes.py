"""The reference implementation in a separate process.

Two SQLite libraries in one process do not see each other's locks, so a test that has a SQLite lake open in both clients
at once needs the other one outside.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.duckdbs import pinned_environment

from .clients import LakeSite

__all__ = ["StockProcess"]

_PROGRAM = """
import json, sys, duckdb
from duckdb_extensions import import_extension
connection = duckdb.connect(config={"threads": 1})
for name in ("ducklake", "sqlite_scanner", "postgres_scanner"):
    import_extension(name)
    connection.execute(f"LOAD {name}")
for line in sys.stdin:
    try:
        answer = {"rows": connection.execute(json.loads(line)).fetchall()}
    except duckdb.Error as error:
        answer = {"error": str(error)}
    print(json.dumps(answer, default=str), flush=True)
"""


class StockProcess:
    """Statements for a DuckDB elsewhere; ``attach`` gives it a lake as ``l``."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            env=pinned_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @contextmanager
    def attached(self, site: LakeSite) -> Iterator[StockProcess]:
        """The same process with a lake attached and in use."""
        self.execute(f"ATTACH '{site.attach_target}' AS l (DATA_INLINING_ROW_LIMIT {site.inlining:d})")
        self.execute("USE l")
        try:
            yield self
        finally:
            with suppress(RuntimeError):
                self.execute("ROLLBACK")
            self.execute("USE memory")
            self.execute("DETACH l")

    def execute(self, statement: str) -> list[list[Any]]:
        """The rows of a statement. Raise ``RuntimeError`` with what the other process says."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(statement) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the other process has ended"
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        rows: list[list[Any]] = answer["rows"]
        return rows

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()
