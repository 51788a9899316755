"""Reads of files that nobody reads again, such as those that a compaction replaces.

DuckDB keeps the bytes of files that it has read, many times those of a small file, until there is no memory for more. A
compaction of very many files would fill the memory with what it is about to replace, and take half as long again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import duckdb

from quacklake.core import forks

_KEEP = "SET enable_external_file_cache = {}"


class LastReads:
    """Keeps a database from keeping the bytes of files for as long as anyone reads such files in it."""

    def __init__(self) -> None:
        self._readers = 0
        self._lock = threading.Lock()
        forks.watch(self, LastReads._renew)

    def _renew(self) -> None:
        """Count anew in a forked child, which opens another database."""
        self._readers = 0
        forks.new_lock(self)

    @contextmanager
    def over(self, connection: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
        """Return the connection of one that reads them."""
        with self._lock:
            connection.execute(_KEEP.format("false"))
            self._readers += 1
        try:
            yield connection
        finally:
            with self._lock:
                self._readers -= 1
                if not self._readers:
                    with suppress(duckdb.Error):  # one that was interrupted again, or failed, is only slower
                        connection.execute(_KEEP.format("true"))
