"""DuckDB connections: errors translated to ours, names of files, access to stores, and the keys of files.

Keys go to a connection as a variable, through Arrow, so that no statement, plan or error message can quote them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import re
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from quacklake.core import forks
from quacklake.core.duckdb_versions import arrow_table, connect
from quacklake.core.format.names import literal
from quacklake.errors import (
    CancelledError,
    CatalogError,
    ConstraintError,
    CorruptFileError,
    InputError,
    MissingExtraError,
    PathError,
    PredicateError,
    QuacklakeError,
    StorageError,
)

if TYPE_CHECKING:
    from quacklake.core.storage import S3Options, Store

_WRITING = "write the data files"
#: The error of httpfs when it cannot begin to write a file.
_UPLOAD = re.compile(r"Unable to connect to URL .*\(HTTP code 404\)")
#: The errors of DuckDB for a file that a key does not open.
_KEY_SIGNS = ("AES tag", "'encryption_config' was", "encrypted file", "Invalid AES key")


def translate(error: BaseException, doing: str) -> QuacklakeError | None:
    """Return the error of ours that a DuckDB error means, or None for one that is not DuckDB's."""
    from quacklake.core.engines.duckdb.rows import REFUSALS
    from quacklake.core.scan.plan import UNREADABLE, UNREADABLE_HINT
    from quacklake.core.storage.failures import outage_of

    text = str(error).strip()
    first = text.splitlines()[0] if text else type(error).__name__
    if isinstance(error, duckdb.InterruptException):
        return _cancelled_error()
    if isinstance(
        error, duckdb.BinderException | duckdb.ParserException | duckdb.SyntaxException | duckdb.CatalogException
    ):
        return PredicateError(f"cannot evaluate the expression: {first}")
    if isinstance(error, duckdb.ConversionException | duckdb.OutOfRangeException | duckdb.TypeMismatchException):
        return ConstraintError(f"a value does not fit: {first}")
    if isinstance(error, duckdb.OutOfMemoryException):
        return InputError(f"not enough memory to {doing}: {first}", hint="raise the setting duckdb_memory_limit")
    if isinstance(error, duckdb.InvalidInputException) and "in the NOT NULL column" in text:
        return ConstraintError(first.removeprefix("Invalid Input Error: "))
    if isinstance(error, duckdb.InvalidInputException) and UNREADABLE in text:
        return CatalogError(first.removeprefix("Invalid Input Error: "), hint=UNREADABLE_HINT)
    refusal = next((words for words in REFUSALS if words in text), None)
    if isinstance(error, duckdb.InvalidInputException) and refusal is not None:
        return ConstraintError(first.removeprefix("Invalid Input Error: "), hint=REFUSALS[refusal])
    if isinstance(error, duckdb.IOException) and "Parquet files do not support" in text:
        return ConstraintError(f"a value does not fit into a file: {first}")
    if any(sign in text for sign in _KEY_SIGNS):
        return CorruptFileError(
            f"cannot {doing}: the encryption key of a file is missing or wrong",
            hint="the keys are in the catalog, one for each file; its row or the file is not the original",
        )
    bare = type(error) is duckdb.Error  # raised for a broken footer, and by an Arrow file system
    if bare or isinstance(error, duckdb.IOException | duckdb.HTTPException):
        outage = outage_of(first, doing)
        if outage is not None:
            return outage
        if doing == _WRITING and _UPLOAD.search(first):
            hint = "check the bucket or the folder of the data path"
            return StorageError(f"cannot {doing}, the place does not exist: {first}", hint=hint)
    damaged = isinstance(error, duckdb.IOException | duckdb.InvalidInputException | duckdb.HTTPException)
    if damaged or bare:
        return CorruptFileError(f"cannot {doing}: {first}", hint="lake.verify() shows which files are damaged")
    if isinstance(error, duckdb.Error):
        return StorageError(f"cannot {doing}: {first}")
    if isinstance(error, pa.ArrowInvalid):
        return ConstraintError(f"a value does not fit: {first}")
    return None


def _cancelled_error() -> CancelledError:
    return CancelledError("the operation was cancelled")


def message_of(error: UnicodeDecodeError) -> str:
    """Return what DuckDB said, of a value that it has cut in the middle of a character: ``unhex('é')``."""
    text = error.object.decode(errors="replace").strip()
    return text.splitlines()[0] if text else str(error)


def interrupted(error: BaseException) -> bool:
    """Return whether DuckDB has stopped because of Ctrl-C, which it reports as its own error."""
    return isinstance(error, RuntimeError) and isinstance(error.__cause__, KeyboardInterrupt)


@contextmanager
def _translating(doing: str) -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, pa.ArrowInvalid) as error:
        ours = translate(error, doing)
        raise (ours or error) from error
    except UnicodeDecodeError as error:
        raise ConstraintError(f"a value does not fit: {message_of(error)}") from error
    except RuntimeError as error:
        if interrupted(error):
            raise KeyboardInterrupt from error
        raise


@contextmanager
def stopping() -> Iterator[None]:
    """Tell an interrupt and Ctrl-C as what they are, in whatever DuckDB does: between reads and writes, too."""
    try:
        yield
    except duckdb.InterruptException as error:
        raise _cancelled_error() from error
    except RuntimeError as error:
        if interrupted(error):
            raise KeyboardInterrupt from error
        raise


def reading() -> AbstractContextManager[None]:
    """Translate what goes wrong while data files are read."""
    return _translating("read the data files")


def writing() -> AbstractContextManager[None]:
    """Translate what goes wrong while data files are written."""
    return _translating(_WRITING)


_MAGIC = re.compile(r"[*?\[]")


def file_name(url: str) -> str:
    """Return the pattern that fits this one file.

    Raise ``PathError`` for a name with a backslash beside ``*``, ``?`` or ``[``, for which DuckDB has no pattern, and
    for an object with ``?`` in its name, behind which DuckDB looks for options.
    """
    if _MAGIC.search(url) is None:
        return url
    if "?" in url and "://" in url:
        raise PathError(f"DuckDB cannot open {url!r}, which has a question mark", hint="rename the object")
    if "\\" in url:
        raise PathError(
            f"DuckDB cannot open {url!r}, which has a backslash beside a pattern character", hint="rename the file"
        )
    return _MAGIC.sub(r"[\g<0>]", url)


def file_literal(url: str) -> str:
    return literal(file_name(url))


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
    """Give DuckDB the keys for the files under a root, in a separate secret: lakes may have different keys."""
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


_KEY_BYTES = 16
_LENGTHS = (16, 24, 32)
_VARIABLE = "ql_file_key"


def new_key() -> str:
    """Return a fresh key as the catalog stores it."""
    return base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


def lend_keys(connection: duckdb.DuckDBPyConnection, variable: str, keys: Sequence[str]) -> None:
    """Pass keys of the catalog to a connection, as a list in a variable. Raise ``CorruptFileError`` for a bad key."""
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
    """Return the option of ``COPY`` that encrypts with a key, and pass the key to the prepared connection."""
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
        with self._lock, reading():
            connection = self._open()
            lend_keys(connection, _VARIABLE, [key])
            config = f"{{footer_key_value: getvariable('{_VARIABLE}')[1]}}"
            (url,) = self._store.readable_urls([path])
            source = f"read_parquet({file_literal(url)}, encryption_config={config})"
            return arrow_table(connection, f"FROM {source}")


_KEEP_BYTES = "SET enable_external_file_cache = {}"


class LastReads:
    """Keeps a database from keeping the bytes of files that nobody reads again, such as those a compaction replaces.

    DuckDB keeps the bytes of files that it has read, many times those of a small file, until there is no memory for
    more. A compaction of very many files would fill the memory with what it is about to replace, and take half as long
    again.
    """

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
            connection.execute(_KEEP_BYTES.format("false"))
            self._readers += 1
        try:
            yield connection
        finally:
            with self._lock:
                self._readers -= 1
                if not self._readers:
                    with suppress(duckdb.Error):  # one that was interrupted again, or failed, is only slower
                        connection.execute(_KEEP_BYTES.format("true"))
