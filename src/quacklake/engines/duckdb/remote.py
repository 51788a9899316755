"""Object stores in DuckDB: its own ``httpfs`` where that is installed and has keys, else Arrow's file system."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence

import duckdb

from quacklake.format.names import literal
from quacklake.storage import S3Options, Store

_log = logging.getLogger("quacklake.engine")


def connect_store(connection: duckdb.DuckDBPyConnection, store: Store, others: Sequence[str] = ()) -> None:
    """Let a DuckDB connection read and write the files of a store, and those under ``others`` with the same keys."""
    if store.is_local:
        return
    options = store.s3
    if store.scheme == "s3" and options is not None and options.access_key is not None and load_httpfs(connection):
        for scope in (store.root, *store.external, *others):
            _sign_in(connection, options, scope)
        return
    from fsspec.implementations.arrow import ArrowFSWrapper

    _log.debug("%s is read through Arrow's file system", store.root)

    class Wrapper(ArrowFSWrapper):  # type: ignore[misc]
        protocol = store.scheme

    connection.register_filesystem(Wrapper(store.filesystem))


def load_httpfs(connection: duckdb.DuckDBPyConnection) -> bool:
    """Load the extension from its wheel; False when it is not installed."""
    try:
        from duckdb_extensions import import_extension

        with duckdb.connect() as own:  # without it DuckDB uses the user's folder, which no two threads may use at once
            import_extension("httpfs", con=own)
        connection.execute("LOAD httpfs")
    except (ImportError, OSError, AttributeError, duckdb.Error):  # there is not a wheel for every DuckDB
        return False
    return True


def _sign_in(connection: duckdb.DuckDBPyConnection, options: S3Options, root: str) -> None:
    """Give DuckDB the keys for the files under a root, for as long as this instance lives.

    Each root has a secret of its own: several lakes of one session may have different keys.
    """
    name = f"quacklake_{hashlib.sha256(root.encode()).hexdigest()[:16]}"
    facts = {
        "KEY_ID": options.access_key,
        "SECRET": options.secret_key,
        "SESSION_TOKEN": options.session_token,
        "REGION": options.region or "us-east-1",
        "ENDPOINT": options.endpoint,
        "URL_STYLE": "path" if options.endpoint and options.path_style else None,
        "SCOPE": root.rstrip("/"),
    }
    clauses = [f"{name} {literal(value)}" for name, value in facts.items() if value is not None]
    clauses.append(f"USE_SSL {'true' if options.secure else 'false'}")
    try:
        connection.execute(f"CREATE OR REPLACE TEMPORARY SECRET {name} (TYPE s3, {', '.join(clauses)})")
    except duckdb.Error as error:
        # the statement holds the keys: its text must not be in the error
        raise type(error)("the S3 sign-in was refused by httpfs") from None
