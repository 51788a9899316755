"""Stock DuckDB with its ducklake extension: the judge of what a lake holds.

It runs in a process of its own: DuckDB's sqlite extension and Python's sqlite3 are two copies of SQLite, and two copies in
one process break each other's file locks. And the extension is there for the pinned DuckDB only.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb

__all__ = ["Rows", "Stock", "attached", "connect", "target"]

Rows = dict[str, list[tuple[Any, ...]]]
"""``schema.table`` -> its rows, sorted by how they look."""

_EXTENSIONS = ("ducklake", "sqlite_scanner", "postgres_scanner")
_REPOSITORY = Path(__file__).resolve().parents[2]


class Stock:
    """A process with stock DuckDB in it. Each call attaches a lake as ``l`` and lets go of it."""

    def __init__(self) -> None:
        from tests.duckdbs import pinned_environment  # the process itself needs none of it
        from tests.layout import plain_only

        plain_only("stock DuckDB cannot open a catalog of a shared lake")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.catalog.stock"],
            cwd=_REPOSITORY,
            env=pinned_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Stock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, *question: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(question, self._process.stdin)
        self._process.stdin.flush()
        good, answer = pickle.load(self._process.stdout)
        if not good:
            raise AssertionError(f"stock DuckDB: {answer}")
        return answer

    def rows(self, url: str, options: Sequence[str] = ()) -> Rows:
        """Every row of every table."""
        rows: Rows = self._ask(target(url), None, tuple(options))
        return rows

    def run(self, url: str, *statements: str, options: Sequence[str] = ()) -> list[tuple[Any, ...]]:
        """Run statements; returns the rows of the last one."""
        rows: list[tuple[Any, ...]] = self._ask(target(url), statements, tuple(options))
        return rows

    def answers(self, url: str, *statements: str, options: Sequence[str] = ()) -> list[list[tuple[Any, ...]]]:
        """Run statements; returns the rows of each."""
        rows: list[list[tuple[Any, ...]]] = self._ask(target(url), list(statements), tuple(options))
        return rows


def connect() -> duckdb.DuckDBPyConnection:
    """A connection with the extensions and no lake; skips a test where this process's DuckDB has none."""
    from tests.duckdbs import import_extension

    for name in _EXTENSIONS:
        import_extension(name)
    connection = duckdb.connect(config={"threads": 1})
    for name in _EXTENSIONS:
        connection.execute(f"LOAD {name}")
    connection.execute("SET timezone = 'UTC'")
    return connection


@contextmanager
def attached(connection: duckdb.DuckDBPyConnection, url: str, options: Sequence[str] = ()) -> Iterator[None]:
    """The connection with the lake at ``url`` attached as ``l`` and in use."""
    with _attached(connection, target(url), options):
        yield


@contextmanager
def _attached(connection: duckdb.DuckDBPyConnection, place: str, options: Sequence[str]) -> Iterator[None]:
    connection.execute(f"ATTACH '{place}' AS l" + (f" ({', '.join(options)})" if options else ""))
    try:
        connection.execute("USE l")
        yield
    except duckdb.Error:
        with suppress(duckdb.TransactionException):
            connection.rollback()  # else letting go of the lake fails, and tells nothing
        raise
    finally:
        connection.execute("USE memory")
        connection.execute("DETACH l")


def target(url: str) -> str:
    """Return the name under which stock DuckDB attaches the lake of a catalog URL."""
    from quacklake.core.catalog import parse_url  # the process itself does without it, and starts sooner

    parsed = parse_url(url)
    if parsed.path is not None:
        return f"ducklake:{'sqlite:' if parsed.database == 'sqlite' else ''}{parsed.path}"
    words = {
        "host": parsed.url.host,
        "port": parsed.url.port,
        "user": parsed.url.username,
        "dbname": parsed.url.database,
    }
    return f"ducklake:{parsed.database}:" + " ".join(f"{key}={value}" for key, value in words.items() if value)


def _all_rows(connection: duckdb.DuckDBPyConnection) -> Rows:
    tables = connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'l' ORDER BY ALL"
    ).fetchall()
    return {
        f"{schema}.{name}": sorted(connection.execute(f'SELECT * FROM "{schema}"."{name}"').fetchall(), key=repr)
        for schema, name in tables
    }


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    connection = connect()
    while True:
        try:
            place, statements, options = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            with _attached(connection, place, options):
                if statements is None:
                    answer: Any = _all_rows(connection)
                elif isinstance(statements, list):
                    answer = [connection.execute(statement).fetchall() for statement in statements]
                else:
                    for statement in statements:
                        answer = connection.execute(statement).fetchall()
            good = True
        except duckdb.Error as error:
            good, answer = False, str(error)
        pickle.dump((good, answer), answers)
        answers.flush()


if __name__ == "__main__":
    _serve()
