"""A set of paths that may be larger than memory, kept in a temporary file."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

_SOME = 500


class KnownPaths:
    """A set of paths on disk; a context manager that removes its file."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="quacklake-")
        self._database = sqlite3.connect(Path(self._folder.name, "paths"), isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("CREATE TABLE known (path TEXT PRIMARY KEY) WITHOUT ROWID")

    def __enter__(self) -> KnownPaths:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()
        self._folder.cleanup()

    def add(self, paths: Iterable[str]) -> None:
        """Add paths; sorted paths are fastest."""
        self._database.execute("BEGIN")
        self._database.executemany("INSERT OR IGNORE INTO known VALUES (?)", ((path,) for path in sorted(paths)))
        self._database.execute("COMMIT")

    def among(self, paths: Sequence[str]) -> set[str]:
        """Return which of these paths are in the set."""
        found: set[str] = set()
        for start in range(0, len(paths), _SOME):
            some = paths[start : start + _SOME]
            marks = ", ".join("?" * len(some))
            found.update(
                row[0] for row in self._database.execute(f"SELECT path FROM known WHERE path IN ({marks})", some)
            )
        return found
