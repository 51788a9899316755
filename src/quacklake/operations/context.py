"""The parts that all objects of one open lake share: catalog, store, engine, options and limits."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa

from quacklake.catalog import Catalog
from quacklake.catalog.objects import macros
from quacklake.config import Config
from quacklake.engines.duckdb import DuckDBEngine, FileWriter, Vectors, WriteOptions
from quacklake.engines.duckdb.expressions import OrderMacro, check_expression, parser, plain_expression
from quacklake.engines.duckdb.trees import LAKE, parse_expression, parse_query
from quacklake.errors import CorruptFileError, InputError, TenantBusyError
from quacklake.format import inline
from quacklake.format.layout import SortSpec
from quacklake.format.names import check_name, fold, literal, quote
from quacklake.format.objects import EXPRESSION, MacroInfo, MacroParameter, MacroVariant, TableInfo
from quacklake.format.options import EXPOSED, OptionRow, effective
from quacklake.format.schema import Column, TableSchema
from quacklake.format.snapshots import Snapshot
from quacklake.operations.conform import Match, match
from quacklake.operations.expression import Expression
from quacklake.storage import Store
from quacklake.transaction import Retry, TableCache

Default = bool | int | float | str | Expression | None
Parameters = Sequence[str] | Mapping[str, Default]
"""The names of parameters, or a mapping of names to defaults."""
_CALLED = re.compile(r"([^\W\d]\w*)\"?\s*\(")


def declared(parameter: MacroParameter) -> str:
    """Return a parameter of a macro as CREATE MACRO takes it."""
    text = quote(parameter.name)
    if parameter.type != "unknown":
        text += f" {Column(0, parameter.name, parameter.type).duckdb_type()}"
    if parameter.default is not None:
        text += f" := {_default(parameter)}"
    return text


def _default(parameter: MacroParameter) -> str:
    if parameter.default_type == EXPRESSION:
        return f"({plain_expression(str(parameter.default))})"
    type_ = Column(0, parameter.name, parameter.default_type).duckdb_type()
    return f"CAST({literal(str(parameter.default))} AS {type_})"


def forms_of(macro: MacroInfo) -> str:
    """Return the forms of a macro as CREATE MACRO takes them, with each body as DuckDB prints it.

    Raises ``InputError`` for a stored body that is not a single query or expression.
    """
    forms = []
    with parser() as connection:
        for variant in macro.variants:
            given = ", ".join(declared(parameter) for parameter in variant.parameters)
            if macro.is_table:
                body = f"TABLE {parse_query(connection, variant.sql).sql}"
            else:
                body = parse_expression(connection, variant.sql)
            forms.append(f"({given}) AS {body}")
    return ", ".join(forms)


def order_macros(
    keys: Sequence[str] | SortSpec | None, find: Callable[[], Sequence[MacroInfo]]
) -> tuple[OrderMacro, ...]:
    """Return the macros that a sort order uses; ``find`` is called only if it may use any.

    Raises ``InputError`` for a macro that is more than an expression over its arguments.
    """
    texts = [key.expression for key in keys.keys] if isinstance(keys, SortSpec) else list(keys or ())
    called = {fold(name) for text in texts for name in _CALLED.findall(text)}
    if not called:
        return ()
    wanted = [macro for macro in find() if not macro.is_table and fold(macro.name) in called]
    names = [macro.name for macro in wanted]
    for macro in wanted:
        for variant in macro.variants:
            check_expression(variant.sql.replace(LAKE, ""), names)
    return tuple(
        OrderMacro(macro.name, f"CREATE OR REPLACE TEMP MACRO {quote(macro.name)} {forms_of(macro)}")
        for macro in wanted
    )


def make_variant(parameters: Parameters, sql: str) -> MacroVariant:
    """Return a form of a macro whose SQL is not checked yet. Raises ``InputError``."""
    if isinstance(parameters, str):
        raise InputError("parameters must be a list of names")
    given = dict(parameters) if isinstance(parameters, Mapping) else dict.fromkeys(parameters)
    if len({fold(name) for name in given}) != len(parameters):
        raise InputError("two parameters have the same name")
    checked = tuple(_parameter(name, default) for name, default in given.items())
    with_default = [parameter.default is not None for parameter in checked]
    if with_default != sorted(with_default):
        raise InputError("parameters without a default come before those with one")
    return MacroVariant(checked, sql)


def _parameter(name: str, default: Default) -> MacroParameter:
    check_name(name, "parameter")
    if default is None:
        return MacroParameter(name)
    if isinstance(default, Expression):
        return MacroParameter(name, default=default.sql, default_type=EXPRESSION)
    # The order matters: in Python, a bool is also an int.
    types = ((bool, "boolean"), (int, "int32" if _small(default) else "int64"), (float, "float64"), (str, "varchar"))
    for python, type_ in types:
        if isinstance(default, python):
            text = str(default).lower() if python is bool else str(default)
            return MacroParameter(name, default=text, default_type=type_)
    raise InputError(f'the default of the parameter "{name}" must be a number, text or a truth value')


def _small(value: Default) -> bool:
    return isinstance(value, int) and -(1 << 31) <= value < 1 << 31


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


_left = threading.Condition()
_running: Counter[str] = Counter()
"""The running scans of each catalog by uuid; all open lakes of a catalog count together."""


class ScanGate:
    """Admits a scan if its catalog may run one more. Raises ``TenantBusyError`` after waiting ``wait`` seconds.

    Without a limit, scans are not counted, so a limit set later does not count those already running. A scan that finds
    no files because the catalog was dropped raises an error that says so.
    """

    def __init__(self, catalog: Catalog, wait: float) -> None:
        self._catalog = catalog
        self._wait = wait

    @contextmanager
    def __call__(self) -> Iterator[None]:
        row, limit = self._catalog.tenant_row, self._catalog.limits.concurrent_scans
        if row is not None and limit is not None:
            self._enter(row.uuid, limit)
        try:
            yield
        except CorruptFileError:
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
                        hint="read the scans that are open to their end, or wait longer by limit_wait_ms",
                    )
            _running[uuid] += 1


def _leave(uuid: str) -> None:
    with _left:
        _running[uuid] -= 1
        if not _running[uuid]:
            del _running[uuid]
        _left.notify_all()
