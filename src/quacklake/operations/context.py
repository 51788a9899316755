"""The parts that all objects of one open lake share: catalog, store, engine, options and limits."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa

from quacklake.catalog import Catalog
from quacklake.catalog.objects import macros
from quacklake.config import Config
from quacklake.engines.duckdb import DuckDBEngine, FileWriter, Vectors, WriteOptions
from quacklake.format import inline
from quacklake.format.objects import MacroInfo, TableInfo
from quacklake.format.options import EXPOSED, OptionRow, effective
from quacklake.format.schema import TableSchema
from quacklake.format.snapshots import Snapshot
from quacklake.operations.conform import Match, match
from quacklake.operations.macros import order_macros
from quacklake.storage import Store
from quacklake.transaction import Retry, TableCache

_MATCHES = 1024
_OPTIONS_AGE = 5.0
"""How many seconds options set by another process may go unnoticed."""


@dataclass
class LakeContext:
    """The parts of one open lake."""

    catalog: Catalog
    store: Store
    engine: DuckDBEngine
    config: Config
    tables: TableCache
    writer: FileWriter
    recent: Snapshot | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    """Options of this client that override those of the lake."""
    _matches: dict[tuple[pa.Schema, TableSchema, bool], list[Match]] = field(default_factory=dict)
    _options: list[OptionRow] | None = None
    _options_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def match(self, rows: pa.Schema, table: TableInfo, *, partial: bool = False) -> list[Match]:
        """Match rows of an Arrow schema with a table; cached, because the next batch is usually alike."""
        key = (rows, table.schema, partial)
        found = self._matches.get(key)
        if found is None:
            found = match(rows, table.schema, table.qualified_name, partial=partial)
            if len(self._matches) >= _MATCHES:
                self._matches.clear()
            self._matches[key] = found
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
        with self.catalog.read() as reader:
            found = reader.snapshots.latest()
        self.saw(found)
        return found

    def saw(self, snapshot: Snapshot) -> None:
        """Remember the newest snapshot seen, from which a blind append may start."""
        with self._lock:
            if self.recent is None or snapshot.id > self.recent.id:
                self.recent = snapshot

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
        """Read everything again on next use, after a migration."""
        self.tables.clear()
        self.forget_options()

    def option(self, name: str, table: TableInfo | None = None) -> Any:
        """Return the value of an option for a table."""
        return self.effective(name, None if table is None else table.schema_id, None if table is None else table.id)

    def effective(self, name: str, schema_id: int | None, table_id: int | None) -> Any:
        """Return the value of an option for a schema or table, from its own setting, then the lake's, then ``connect``.

        Overrides of this client come before all of these.
        """
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
            macros=order_macros(table.sort, self._macros),
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
