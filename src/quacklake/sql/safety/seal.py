"""DuckDB's own switches: restrict a database to the files of its lakes, and lock its settings."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from typing import Any

import duckdb

from quacklake.config import parse_size
from quacklake.engines.duckdb.connections import file_name
from quacklake.engines.duckdb.sql import NOTHING
from quacklake.errors import ConfigError
from quacklake.format.names import literal
from quacklake.sql.attached import Attached, Attachments
from quacklake.sql.safety.limits import Safety


def configure(safety: Safety, config: dict[str, Any]) -> None:
    """Add the limits to the configuration of a database. Its spill directory is removed when the process ends."""
    config["allow_persistent_secrets"] = False
    config["allow_community_extensions"] = False
    if safety.threads is not None:
        config["threads"] = safety.threads
    if safety.max_memory is not None:
        config["memory_limit"] = f"{parse_size(safety.max_memory)}B"
    room = parse_size(safety.max_spill)
    config["temp_directory"] = tempfile.mkdtemp(prefix="quacklake-spill-") if room else ""
    if room:
        config["max_temp_directory_size"] = f"{room}B"


class Seal:
    """Locks the databases of a session once: after its lakes are attached, before the first statement."""

    def __init__(self, spill: str) -> None:
        self._folders: tuple[str, ...] | None = None
        self.spill = spill
        if spill:
            self._clean = weakref.finalize(self, shutil.rmtree, spill, ignore_errors=True)

    def close(self, attachments: Attachments) -> None:
        """Restrict the databases to files of the lakes."""
        with attachments.lock:
            if self._folders is not None:
                return
            folders = [folder for attached in attachments.lakes.values() for folder in _folders(attached)]
            listed = ", ".join(literal(folder) for folder in dict.fromkeys(folders))
            attachments.root.execute(f"SET allowed_directories = [{listed}]")
            attachments.root.execute(f"SET allowed_paths = [{literal(str(NOTHING))}]")
            for connection in (attachments.root, attachments.planner):
                _lock(connection)
            self._folders = tuple(folders)

    def allows(self, attached: Attached) -> None:
        """Raise ``ConfigError`` for a lake whose files the locked databases cannot open."""
        if self._folders is not None and not set(_folders(attached)) <= set(self._folders):
            raise ConfigError(
                f'the lake "{attached.alias}" cannot be attached: the safe session has run statements already',
                hint="attach all lakes first",
            )

    def remove(self) -> None:
        """Remove the spill directory, after the databases have been closed."""
        if self.spill:
            self._clean()


def _folders(attached: Attached) -> list[str]:
    store = attached.context.store
    folders = [f"{folder.rstrip('/')}/" for folder in (store.root, *store.external)]
    # DuckDB compares the path that it opens, and for a name with wildcard characters that is the pattern
    return list(dict.fromkeys(spelling for folder in folders for spelling in (folder, file_name(folder))))


def _lock(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
