"""Object stores in DuckDB: its own ``httpfs`` where that can be loaded, else Arrow's file system through fsspec."""

from __future__ import annotations

import duckdb

from quacklake.errors import MissingExtraError
from quacklake.storage import Store

__all__ = ["connect_store"]


def connect_store(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Let a DuckDB connection read and write the files of a store."""
    if store.is_local:
        return
    try:
        from fsspec.implementations.arrow import ArrowFSWrapper
    except ImportError:
        raise MissingExtraError(
            f"reading {store.scheme}:// needs the Python package fsspec", hint='pip install "quacklake[s3]"'
        ) from None

    class _Wrapper(ArrowFSWrapper):  # type: ignore[misc]
        protocol = store.scheme

    connection.register_filesystem(_Wrapper(store.filesystem))
