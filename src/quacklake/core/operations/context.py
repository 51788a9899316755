"""The parts that all objects of one open lake share, and the boundary at which foreign errors become ours."""

from __future__ import annotations

import functools
import inspect
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
import pyarrow as pa

from quacklake.config import Config
from quacklake.core.catalog import Catalog
from quacklake.core.catalog.objects import macros
from quacklake.core.engines.duckdb import DuckDBEngine, FileWriter, Vectors, WriteOptions
from quacklake.core.engines.duckdb.connections import translate
from quacklake.core.format import inline
from quacklake.core.format.objects import MacroInfo, TableInfo
from quacklake.core.format.options import EXPOSED, OptionRow, effective
from quacklake.core.format.schema import TableSchema
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.operations.conform import Matches, match
from quacklake.core.operations.views import order_macros
from quacklake.core.scan.remembered import Plans
from quacklake.core.storage import Store
from quacklake.core.storage.failures import outage_of
from quacklake.core.transaction import CommitGroup, Retry, TableCache
from quacklake.errors import CatalogError, CorruptFileError, InputError, QuacklakeError, StorageError, TenantBusyError

if TYPE_CHECKING:
    from quacklake.core.operations.lineage import Lineage

C = TypeVar("C", bound=type[Any])

_HOME = str(Path(__file__).resolve().parents[2])
_PYTHON = (sysconfig.get_paths()["stdlib"], "<frozen ")
#: Packages of databases, and of the frames that users pass to us.
_DATABASES = frozenset({"sqlalchemy", "sqlite3", "psycopg", "pymysql"})
_FRAMES = frozenset({"polars", "pandas", "numpy"})

#: Left alone: ``sql`` reads variables of its caller, which another frame would hide, and sessions translate errors.
_LEFT = frozenset({"sql"})


def boundary(cls: C) -> C:
    """Make every public method of a class, inherited ones too, raise errors of other libraries as ours."""
    for name, function in inspect.getmembers(cls, inspect.isfunction):
        bound = not isinstance(inspect.getattr_static(cls, name), staticmethod | classmethod)
        if bound and name not in _LEFT and not name.startswith("_") and not inspect.isgeneratorfunction(function):
            setattr(cls, name, _bound_method(function))
    return cls


def _bound_method(function: Callable[..., Any]) -> Callable[..., Any]:
    if hasattr(function, "_is_bounded"):
        return function

    @functools.wraps(function)
    def bounded(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except QuacklakeError:
            raise
        except Exception as error:
            ours = ours_for(error)
            if ours is None:
                raise
            raise ours from error

    bounded._is_bounded = True  # type: ignore[attr-defined]
    return bounded


def ours_for(error: Exception) -> QuacklakeError | None:
    """Return the error to raise instead of another library's error; None if it comes from the caller's code."""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if isinstance(error, RecursionError):
        return InputError("an expression, a type or a value is nested too deeply", hint="use fewer levels")
    if isinstance(error, duckdb.Error):
        return _of_duckdb(error, first)
    if isinstance(error, pa.ArrowException):
        return InputError(f"Arrow cannot do this: {first}")
    package = type(error).__module__.partition(".")[0]
    if package in _DATABASES:
        return CatalogError(f"the catalog failed: {type(error).__name__}: {first}")
    if package in _FRAMES:
        return InputError(f"the rows cannot be read: {type(error).__name__}: {first}")
    if isinstance(error, UnicodeEncodeError):
        return InputError("a text holds a character that UTF-8 cannot encode", hint="replace lone surrogates")
    if isinstance(error, TypeError | AttributeError | ValueError) and _is_ours(error.__traceback__):
        return InputError(f"an argument has the wrong type or value: {first}")
    if isinstance(error, ArithmeticError | AssertionError | LookupError) and _is_ours(error.__traceback__):
        return CatalogError(
            f"the catalog or a file holds what cannot be understood: {type(error).__name__}: {first}",
            hint="lake.verify() tells whether they are damaged",
        )
    return None


def _of_duckdb(error: duckdb.Error, first: str) -> QuacklakeError:
    if isinstance(error, duckdb.IOException | duckdb.HTTPException):
        return outage_of(first, "do this") or StorageError(f"DuckDB cannot do this: {first}")
    ours = translate(error, "do this")
    if ours is None or type(ours) is StorageError or isinstance(error, duckdb.InvalidInputException):
        return InputError(f"DuckDB cannot do this: {first}")
    return ours


def _is_ours(trace: TracebackType | None) -> bool:
    """Return whether an error comes from a line of this package below the call itself, or from Python code it called.

    An error of the call itself is about its signature; one from any other file may come from the caller's code.
    """
    files = [frame.f_code.co_filename for frame, _ in walk_tb(trace)][1:]
    theirs = [file for file in files if not (file.startswith(_PYTHON) and "site-packages" not in file)]
    return bool(theirs) and theirs[-1].startswith(_HOME)


_MATCHES = 1024
_OPTIONS_AGE = 5.0
"""Seconds for which options that another process has set may go unnoticed."""


@dataclass
class LakeContext:
    """The parts of one open lake."""

    catalog: Catalog
    store: Store
    engine: DuckDBEngine
    config: Config
    tables: TableCache
    writer: FileWriter
    group: CommitGroup
    """The appends of threads that wait for their commit."""
    plans: Plans
    """The plans of the newest snapshot, and of changes, that are remembered."""
    recent: Snapshot | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    """Options of this client that override those of the lake."""
    view_sessions: Any = None
    """The sessions that read views, made by the package that has them when they are needed."""
    lineage: Lineage | None = None
    """The teller of reads and writes to a collector; None unless the settings name one."""
    audit: Any = None
    """The audit log, made by the package that has it when it is needed."""
    _matches: dict[tuple[pa.Schema, TableSchema, bool], Matches] = field(default_factory=dict)
    _last_match: tuple[pa.Schema, TableSchema, bool, Matches] | None = None
    _options: list[OptionRow] | None = None
    _options_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def match(self, rows: pa.Schema, table: TableInfo, *, partial: bool = False) -> Matches:
        """Match rows of an Arrow schema with a table; cached, because the next batch is usually alike."""
        last = self._last_match
        if last is not None and last[1] is table.schema and last[2] == partial and last[0].equals(rows, True):
            return last[3]  # the hash of an Arrow schema takes longer than all the rest
        key = (rows, table.schema, partial)
        found = self._matches.get(key)
        if found is None:
            found = match(rows, table.schema, table.qualified_name, partial=partial)
            if len(self._matches) >= _MATCHES:
                self._matches.clear()
            self._matches[key] = found
        self._last_match = (*key, found)
        return found

    @property
    def retry(self) -> Retry:
        """The retry policy of commits."""
        config = self.config
        return Retry(
            config.ducklake_max_retry_count,
            config.ducklake_retry_wait_ms,
            config.ducklake_retry_backoff,
            turn_ms=config.turn_ms,
            limit_wait_ms=config.limit_wait_ms,
        )

    def latest(self) -> Snapshot:
        """Return the newest snapshot of the lake."""
        before = self.recent  # whoever reads from now on finds it, unless the catalog was replaced by an older state
        with self.catalog.read(once=True) as reader:
            found = reader.snapshots.latest()
        if before is not None and found.id <= before.id and found != before:
            with self._lock:
                self.recent = None
            self.catalog.forget()
            self.forget()
        self.saw(found)
        return found

    def saw(self, snapshot: Snapshot) -> None:
        """Remember the newest snapshot seen, from which a blind append may start."""
        with self._lock:
            if self.recent is None or snapshot.id > self.recent.id:
                self.recent = snapshot

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Forget plans after a read that failed on a file: that may be repaired in place."""
        try:
            yield
        except CorruptFileError:
            self.plans.clear()
            self.catalog.bounds.clear()
            raise

    def options(self) -> list[OptionRow]:
        """Return the lake's options, read at most every few seconds."""
        now = time.monotonic()
        with self._lock:
            if self._options is not None and now - self._options_at < _OPTIONS_AGE:
                return self._options
        with self.catalog.read() as reader:
            found = reader.options()
        with self._lock:
            self._options, self._options_at = found, now
        return found

    def forget_options(self) -> None:
        """Read the options again on next use."""
        with self._lock:
            self._options = None

    def forget(self) -> None:
        """Read everything again on next use: the lake was migrated, repaired by hand or restored from a backup."""
        self.tables.clear()
        self.plans.clear()
        self.catalog.bounds.clear()
        self.forget_options()

    def option(self, name: str, table: TableInfo | None = None) -> Any:
        """Return the value of an option for a table."""
        return self.effective(name, None if table is None else table.schema_id, None if table is None else table.id)

    def effective(self, name: str, schema_id: int | None, table_id: int | None) -> Any:
        """Return an option: this client's override, or that of the table, schema, lake or ``connect``."""
        if name.lower() in self.overrides:
            return self.overrides[name.lower()]
        given = getattr(self.config, name.lower(), None)
        return effective(self.options(), name, schema_id=schema_id, table_id=table_id, otherwise=given)

    def inline_limit(self, table: TableInfo) -> int:
        """Return how many rows of one change may be inlined in the catalog; 0 if its columns cannot be."""
        if not _inlines(table.schema, self.catalog.encoding, self.catalog.is_next):
            return 0
        return self.delete_limit(table)

    def delete_limit(self, table: TableInfo) -> int:
        """Return how many deletes of one change may be inlined in the catalog; 0 while the catalog is exposed."""
        if self.catalog.shared and any(row.key == EXPOSED for row in self.options()):
            return 0
        return int(self.option("data_inlining_row_limit", table))

    def writes_vectors(self, table: TableInfo) -> Vectors:
        """Return which deletes become deletion vectors; in 1.1, also deletes of several snapshots."""
        if not self.option("write_deletion_vectors", table):
            return Vectors.NONE
        return Vectors.MANY if self.catalog.is_next else Vectors.ONE

    def hive(self, table: TableInfo) -> bool:
        """Return whether partitions are folders. Off by default in an encrypted lake, because folders reveal values."""
        name, otherwise = "hive_file_pattern", False if self.catalog.encrypted else None
        if name in self.overrides:
            return bool(self.overrides[name])
        found = effective(self.options(), name, schema_id=table.schema_id, table_id=table.id, otherwise=otherwise)
        return bool(found)

    def write_options(self, table: TableInfo) -> WriteOptions:
        """Return how to write files of a table."""
        size_bytes = self.option("parquet_row_group_size_bytes", table)
        return WriteOptions(
            compression=str(self.option("parquet_compression", table)),
            compression_level=int(self.option("parquet_compression_level", table)),
            parquet_version=int(self.option("parquet_version", table)),
            row_group_size=int(self.option("parquet_row_group_size", table)),
            row_group_size_bytes=None if size_bytes is None else int(size_bytes),
            target_file_size=int(self.option("target_file_size", table)),
            hive=self.hive(table),
            sort=bool(self.option("sort_on_insert", table)),
            macros=() if table.sort is None else order_macros(table.sort, self._macros),
            facts=self.catalog.is_next,
        )

    def _macros(self) -> list[MacroInfo]:
        with self.catalog.read() as reader:
            return macros(reader, reader.snapshots.latest())


@lru_cache(maxsize=1024)
def _inlines(schema: TableSchema, database: str, prefixed: bool) -> bool:
    """Return whether a database can inline the rows of a table; called for every change."""
    known = all(inline.supports(column, database, prefixed=prefixed) for column in schema.columns)
    return known and inline.fits(schema.columns, database)


_left = threading.Condition()
_running: Counter[str] = Counter()
"""The running scans of each catalog by uuid; all open lakes of a catalog count together."""


class ScanGate:
    """Admits a scan if its catalog may run one more. Raise ``TenantBusyError`` after waiting ``wait`` seconds.

    Without a limit, scans are not counted, so a limit set later does not count those already running. A scan that finds
    no files because the catalog was dropped raises an error that says so. After one that failed, ``plans`` are
    forgotten: what it failed on may be repaired in place.
    """

    def __init__(self, catalog: Catalog, wait: float, plans: Plans) -> None:
        self._catalog = catalog
        self._wait = wait
        self._plans = plans

    @contextmanager
    def __call__(self) -> Iterator[None]:
        row, limit = self._catalog.tenant_row, self._catalog.limits.concurrent_scans
        if row is not None and limit is not None:
            self._enter(row.uuid, limit)
        try:
            yield
        except CorruptFileError:
            self._plans.clear()
            # When a catalog is dropped and purged, running reads lose its files.
            with self._catalog.read() as reader:
                reader.snapshots.check_there()
            raise
        finally:
            if row is not None and limit is not None:
                _leave(row.uuid)

    def _enter(self, uuid: str, limit: int) -> None:
        end = time.monotonic() + self._wait
        with _left:
            while _running[uuid] >= limit:
                if not _left.wait(end - time.monotonic()):
                    raise TenantBusyError(
                        f"the catalog may run {limit:,} scans at a time",
                        limit="concurrent_scans",
                        after=self._wait,
                        hint="read the scans that are open to their end, or raise limit_wait_ms to wait longer",
                    )
            _running[uuid] += 1


def _leave(uuid: str) -> None:
    with _left:
        _running[uuid] -= 1
        if not _running[uuid]:
            del _running[uuid]
        _left.notify_all()
