"""Encrypted Parquet files: fresh keys, and how DuckDB gets them without any SQL text holding one.

Keys go to a connection as a variable, through Arrow, so that no statement, plan or error message can quote them.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import threading
from collections.abc import Sequence

import duckdb
import pyarrow as pa

from quacklake import forks
from quacklake.duckdb_versions import arrow_table, connect
from quacklake.engines.duckdb.failures import reading, writing
from quacklake.engines.duckdb.paths import file_literal
from quacklake.engines.duckdb.remote import connect_store, load_httpfs
from quacklake.errors import CorruptFileError, MissingExtraError
from quacklake.format.names import literal
from quacklake.storage import Store

_KEY_BYTES = 16
_LENGTHS = (16, 24, 32)
_VARIABLE = "ql_file_key"


def new_key() -> str:
    """Return a fresh key as the catalog stores it."""
    return base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


def lend_keys(connection: duckdb.DuckDBPyConnection, variable: str, keys: Sequence[str]) -> None:
    """Let a connection know keys of the catalog: a list in a variable. ``CorruptFileError`` when one is no key."""
    name = f"{variable}_given"
    connection.register(
        name, pa.table({"i": range(len(keys)), "k": pa.array([_raw(key) for key in keys], pa.binary())})
    )
    try:
        connection.execute(f"SET VARIABLE {variable} = (SELECT list(k ORDER BY i) FROM {name})")
    finally:
        connection.unregister(name)


def _raw(key: str) -> bytes:
    try:
        raw = base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) not in _LENGTHS:
        raise CorruptFileError("an encryption key in the catalog is not valid", hint="its row may be damaged")
    return raw


def prepare_writing(connection: duckdb.DuckDBPyConnection) -> None:
    """Load the library of ``httpfs``, which DuckDB needs to write encrypted files. Raise ``MissingExtraError``."""
    if not load_httpfs(connection):
        raise MissingExtraError(
            f"writing an encrypted lake needs the httpfs extension of DuckDB {duckdb.__version__}",
            hint='pip install "quacklake[s3]", or another version of DuckDB: not each has a package of the extension',
        )


def encryption_clause(connection: duckdb.DuckDBPyConnection, key: str) -> str:
    """Return the option of ``COPY`` that encrypts with a key, which the connection is told; it must be prepared."""
    lend_keys(connection, _VARIABLE, [key])
    return f"ENCRYPTION_CONFIG {{footer_key_value: getvariable('{_VARIABLE}')[1]}}"


class EncryptedFiles:
    """Small encrypted files of one store, read and written whole. Safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._prepared = False
        self._lock = threading.Lock()
        forks.watch(self, EncryptedFiles._renew)

    def _renew(self) -> None:
        """Leave the connection in a forked child: its threads are the parent's."""
        forks.abandon(self._connection)
        self._connection, self._prepared = None, False
        forks.new_lock(self)

    def _open(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            self._connection = connect(
                config={"autoinstall_known_extensions": False, "autoload_known_extensions": False, "threads": 1}
            )
            connect_store(self._connection, self._store)
        return self._connection

    def write(self, rows: pa.Table, field_ids: Sequence[int], path: str, key: str) -> None:
        """Write a table as the file ``path``, below the data root."""
        self._store.make_parent(path)
        names = zip(rows.column_names, field_ids, strict=True)
        fields = ", ".join(f"{literal(name)}: {id_:d}" for name, id_ in names)
        with self._lock:
            connection = self._open()
            if not self._prepared:
                prepare_writing(connection)
                self._prepared = True
            clause = encryption_clause(connection, key)
            connection.register("ql_rows", rows)
            try:
                with writing():
                    connection.execute(
                        f"COPY (FROM ql_rows) TO {literal(self._store.url(path))}"
                        f" (FORMAT parquet, FIELD_IDS {{{fields}}}, COMPRESSION snappy, {clause})"
                    )
            finally:
                connection.unregister("ql_rows")
        self._store.sync([path])

    def read(self, path: str, key: str) -> pa.Table:
        """Return the rows of a file."""
        with self._lock, reading():
            connection = self._open()
            lend_keys(connection, _VARIABLE, [key])
            config = f"{{footer_key_value: getvariable('{_VARIABLE}')[1]}}"
            (url,) = self._store.readable_urls([path])
            source = f"read_parquet({file_literal(url)}, encryption_config={config})"
            return arrow_table(connection, f"FROM {source}")
