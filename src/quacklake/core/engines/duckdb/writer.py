"""Writing data and delete files: Parquet with field ids, statistics as DuckDB's writer returns them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb

from quacklake import telemetry
from quacklake.core import faults
from quacklake.core.duckdb_versions import first_row
from quacklake.core.engines.duckdb.connections import encryption_clause, file_name, new_key, prepare_writing, writing
from quacklake.core.engines.duckdb.deletes import Announce, DeleteFileWriter
from quacklake.core.engines.duckdb.expressions import OrderMacro, order_keys
from quacklake.core.engines.duckdb.rows import (
    Keys,
    by_one_thread,
    exact,
    negative_zero,
    partition_keys,
    stored_columns,
    without_nulls,
)
from quacklake.core.format.extras import render_fields, shredded_fields, written_extent
from quacklake.core.format.names import data_file_name, literal, quote, uuid7
from quacklake.core.format.objects import FIELD_ROW_ID, FIELD_SNAPSHOT_ID, NAME_ROW_ID, NAME_SNAPSHOT_ID, TableInfo
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.format.stats import ColumnStats, is_always_exact
from quacklake.core.transaction import NewDataFile

_GROUP_BYTES = "ROW_GROUP_SIZE_BYTES"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a lake for writing Parquet files.

    ``hive`` puts partitions into folders, ``sort`` rows into the table's order, which may need ``macros``.
    """

    compression: str = "snappy"
    compression_level: int | None = None
    parquet_version: int = 1
    row_group_size: int = 122_880
    row_group_size_bytes: int | None = None
    target_file_size: int = 512 * 1024 * 1024
    hive: bool = True
    sort: bool = True
    macros: tuple[OrderMacro, ...] = ()
    facts: bool = False
    """Return whether the lake stores what only the footer of a file tells; see ``_written_facts``."""


@contextmanager
def grouping(
    connection: duckdb.DuckDBPyConnection, query: str, names: Sequence[str], clauses: Sequence[str], *, ordered: bool
) -> Iterator[str]:
    """Let ``COPY`` limit the bytes of row groups, if clauses say so; gives the query to copy, with rows in their order.

    DuckDB does it only where rows need not keep their order, unless the query itself gives them one (``ordered``). Else
    the rows go through a table that numbers them.
    """
    limited = any(clause.startswith(_GROUP_BYTES) for clause in clauses)
    row = first_row(connection, "SELECT current_setting('preserve_insertion_order')") if limited else None
    if row is None or not row[0]:
        yield query
        return
    rows = f"ql_grouped_{uuid7().hex}"
    # named by position: a user's column may be called rowid too
    own = [f"c{index}" for index in range(len(names))]
    if not ordered:
        given = ", ".join(map(quote, names))
        connection.execute(f"CREATE TEMP TABLE {rows}({', '.join(own)}) AS SELECT {given} FROM ({query})")
        select = ", ".join(f"{column} AS {quote(name)}" for column, name in zip(own, names, strict=True))
        query = f"SELECT {select} FROM {rows} ORDER BY {rows}.rowid"
    connection.execute("SET SESSION preserve_insertion_order = false")
    try:
        yield query
    finally:
        connection.execute("SET SESSION preserve_insertion_order = true")
        connection.execute(f"DROP TABLE IF EXISTS {rows}")


def _field_id(column: Column) -> str:
    name = literal(column.name)
    if not column.children:
        return f"{name}: {column.id:d}"
    children = ", ".join([f"__duckdb_field_id: {column.id:d}", *(_field_id(child) for child in column.children)])
    return f"{name}: {{{children}}}"


#: The bounds of columns that are values: column id -> ``min_exact`` and ``max_exact``.
_Exact = Mapping[int, Mapping[str, bool]]


def _written_facts(connection: duckdb.DuckDBPyConnection, url: str, schema: TableSchema) -> tuple[int, _Exact]:
    """Return what ``COPY`` does not tell of a file: its row groups, and the bounds of top columns that are values."""
    ids = {column.name: column.id for column in schema.columns if not column.nested}
    rows = connection.execute(
        "SELECT path_in_schema, max(row_group_id) + 1, bool_and(min_is_exact), bool_and(max_is_exact)"
        " FROM parquet_metadata(?) GROUP BY path_in_schema",
        [file_name(url)],
    ).fetchall()
    exact = {ids[path]: {"min_exact": bool(low), "max_exact": bool(high)} for path, _, low, high in rows if path in ids}
    return max((row[1] for row in rows), default=0), exact


def _exactness(entry: Mapping[str, str], column: Column, known: Mapping[str, bool]) -> dict[str, bool | None]:
    """Return whether bounds are values of the column; a text may be cut, and then even be short."""
    if is_always_exact(column.type):
        known = {"min_exact": True, "max_exact": True}
    return {
        f"{end}_exact": known.get(f"{end}_exact", False) if entry.get(end) is not None else None
        for end in ("min", "max")
    }


def _statistics(statistics: dict[str, dict[str, str]], schema: TableSchema, exact: _Exact) -> list[ColumnStats]:
    stats: list[ColumnStats] = []
    for path, column in _leaf_paths(schema.columns, ()):
        if column.type == "variant":
            stats.append(_variant_stats(statistics, path, column))
            continue
        entry = statistics.get(path)
        if entry is None:
            continue
        # entries are the values and the NULLs; some types are not counted, nested NULLs may be counted more than once
        nulls, entries = int(entry.get("null_count", 0)), int(entry.get("num_values", 0))
        known = nulls <= entries != 0
        nan = entry.get("has_nan")
        stats.append(
            ColumnStats(
                column.id,
                size_bytes=int(entry.get("column_size_bytes", 0)),
                value_count=entries - nulls if known else None,
                null_count=nulls if known else None,
                min=entry.get("min"),
                max=entry.get("max"),
                contains_nan=None if nan is None else nan == "true",
                extra=written_extent(entry) if column.type == "geometry" else None,
                **_exactness(entry, column, exact.get(column.id, {})),
            )
        )
    return stats


def _variant_stats(statistics: dict[str, dict[str, str]], path: str, column: Column) -> ColumnStats:
    """Return the statistics of a variant; those of its shredded fields are the extra ones."""
    parts = {key.removeprefix(f"{path}."): entry for key, entry in statistics.items() if key.startswith(f"{path}.")}
    whole = parts.get('"metadata"', {})
    nulls, entries = (whole.get(name) for name in ("null_count", "num_values"))
    known = nulls is not None and entries is not None
    return ColumnStats(
        column.id,
        size_bytes=sum(int(entry.get("column_size_bytes", 0)) for entry in parts.values()),
        value_count=int(entries or 0) - int(nulls or 0) if known else None,
        null_count=int(nulls or 0) if known else None,
        extra=render_fields(shredded_fields(parts)),
    )


def _leaf_paths(columns: Sequence[Column], above: tuple[str, ...]) -> list[tuple[str, Column]]:
    paths: list[tuple[str, Column]] = []
    for column in columns:
        path = (*above, quote(column.name))
        if column.children:
            paths += _leaf_paths(column.children, path)
        else:
            paths.append((".".join(path), column))
    return paths


@dataclass(frozen=True, slots=True)
class _WriteJob:
    """One write: the rows are those of a query on ``connection``, the files those of ``table``."""

    connection: duckdb.DuckDBPyConnection
    table: TableInfo
    options: WriteOptions
    announce: Announce
    new_id: Callable[[], int]
    row_ids: bool
    snapshot_ids: bool = False
    key: str | None = field(default=None, repr=False)
    dictionaries: bool = True

    @property
    def order(self) -> list[str]:
        sort = self.table.sort if self.options.sort else None
        return [] if sort is None else order_keys(sort, self.options.macros)

    @property
    def names(self) -> list[str]:
        names = [column.name for column in self.table.schema.columns]
        return names + ([NAME_ROW_ID] if self.row_ids else []) + ([NAME_SNAPSHOT_ID] if self.snapshot_ids else [])

    def clauses(self) -> list[str]:
        schema, options = self.table.schema, self.options
        fields = [_field_id(column) for column in schema.columns]
        if self.row_ids:
            fields.append(f"{literal(NAME_ROW_ID)}: {FIELD_ROW_ID}")
        if self.snapshot_ids:
            fields.append(f"{literal(NAME_SNAPSHOT_ID)}: {FIELD_SNAPSHOT_ID}")
        clauses = [
            "FORMAT parquet",
            "RETURN_STATS true",
            f"FIELD_IDS {{{', '.join(fields)}}}",
            f"COMPRESSION {literal(options.compression)}",
            f"ROW_GROUP_SIZE {options.row_group_size:d}",
            f"PARQUET_VERSION V{options.parquet_version:d}",
            # the geometries of Parquet itself: GeoParquet knows none inside of other columns
            "GEOPARQUET_VERSION NONE",
        ]
        if options.compression == "zstd" and options.compression_level is not None:
            clauses.append(f"COMPRESSION_LEVEL {options.compression_level:d}")
        if options.row_group_size_bytes is not None:
            clauses.append(f"{_GROUP_BYTES} {options.row_group_size_bytes:d}")
        if not self.dictionaries or any(column.type == "interval" for column in schema.leaves()):
            # DuckDB finds values in a dictionary by comparing them, and one month equals 30 days
            clauses.append("DICTIONARY_SIZE_LIMIT 0")
        if any(column.type in ("blob", "timetz") for column in schema.leaves()):
            # DuckDB writes these to a bloom filter in another form than it looks up, and does not find them
            clauses.append("WRITE_BLOOM_FILTER false")
        return clauses if self.key is None else [*clauses, encryption_clause(self.connection, self.key)]


def _has_negative_zeros(connection: duckdb.DuckDBPyConnection, query: str, table: TableInfo) -> bool:
    """Return whether a row of a query holds a zero that a dictionary would not keep."""
    condition = negative_zero(table.schema)
    if condition is None:
        return False
    with writing():
        return first_row(connection, f"SELECT 1 FROM ({query}) WHERE {condition} LIMIT 1") is not None


class FileWriter(DeleteFileWriter):
    """Writes data and delete files for one store; those of an encrypted lake with a fresh key for each write."""

    _prepared = False

    def write(
        self,
        connection: duckdb.DuckDBPyConnection,
        query: str,
        table: TableInfo,
        options: WriteOptions,
        announce: Announce,
        new_id: Callable[[], int],
        *,
        row_ids: bool = False,
        snapshot_ids: bool = False,
        size_hint: int | None = None,
        folder: str = "",
        negative_zeros: bool | None = None,
    ) -> list[NewDataFile]:
        """Write the rows of a query as data files of a table, partitioned and sorted as it is.

        The query yields the table's columns in order, then with ``row_ids`` the row id, then with ``snapshot_ids`` the
        snapshot that a row came with. ``size_hint`` is the size of the rows in memory, when known; without one the rows
        may become several files. ``folder`` is where those of a table without partitions go, below the table's. Rows
        that cannot be read twice come with ``negative_zeros``: whether they may hold zeros below zero.
        """
        if self.encrypted and not self._prepared:
            prepare_writing(connection)  # all connections share one database: once is enough
            self._prepared = True
        for macro in options.macros:
            connection.execute(macro.statement)
        stored = stored_columns(table)
        job = _WriteJob(
            connection, stored, options, announce, new_id, row_ids, snapshot_ids, new_key() if self.encrypted else None
        )
        if stored is not table:
            query = without_nulls(query, table, job.names)
        query = exact(query, stored.schema, job.names)
        if negative_zeros or (negative_zeros is None and _has_negative_zeros(connection, query, stored)):
            job = replace(job, dictionaries=False)
        keys = partition_keys(table, epochs=options.facts)
        large = size_hint is not None and size_hint >= options.target_file_size
        if keys is None:
            ordered = f"SELECT * FROM ({query}) ORDER BY {', '.join(job.order)}" if job.order else query
            files = self._copy(job, ordered, folder, size_hint)
        elif job.order or large or not self.store.is_local:
            files = self._write_in_turn(job, query, keys, size_hint)
        else:
            files = self._write_at_once(job, query, keys)
        # on disk before the catalog names them: a power cut must not leave a commit without its rows
        self.store.sync([table.location + file.path for file in files])
        return files

    def _copy(self, job: _WriteJob, query: str, folder: str, size_hint: int | None) -> list[NewDataFile]:
        """Write the rows of a query as files in one folder below the table's; those of a sorted table stay in order."""
        location, options = job.table.location + folder, job.options
        single = size_hint is not None and size_hint < options.target_file_size
        name = data_file_name()
        stem = name.removesuffix(".parquet")
        self.store.make_parent(location + name)
        clauses = job.clauses()
        if single:
            target = self.store.url(location + name)
            job.announce(location + name)
        else:
            target = self._folder(location)
            clauses += [
                f"FILE_SIZE_BYTES {options.target_file_size:d}",
                f"FILENAME_PATTERN {literal(stem + '_{i}')}",
                "OVERWRITE_OR_IGNORE true",
            ]
            query = by_one_thread(query) if job.order else query
        rows = self._run(job, query, target, clauses, location, None if single else stem)
        files = [self._file(row, job, folder) for row in rows]
        if not single:
            for file in files:
                job.announce(job.table.location + file.path)
        return files

    def _run(
        self, job: _WriteJob, query: str, target: str, clauses: Sequence[str], location: str, stem: str | None
    ) -> list[tuple[Any, ...]]:
        """Run one ``COPY``; of a failed one all files whose names begin with ``stem`` are announced."""
        faults.reach("engine.write.before")
        ordered = bool(job.order) or any(clause.startswith("PARTITION_BY") for clause in clauses)
        try:
            with (
                telemetry.timed("engine.write", location, tenant=self.store.label),
                writing(),
                grouping(job.connection, query, job.names, clauses, ordered=ordered) as rows_to_copy,
            ):
                copy = f"COPY ({rows_to_copy}) TO {literal(target)} ({', '.join(clauses)})"
                rows = job.connection.execute(copy).fetchall()
            faults.reach("engine.write.after")
        except BaseException:
            if stem is not None:
                self._announce_leftovers(location, stem, job.announce)
            raise
        return [row for row in rows if row[1]]

    def _write_at_once(self, job: _WriteJob, query: str, keys: Keys) -> list[NewDataFile]:
        """Write all partitions with one statement, quick but without an order: a file for each, moved to its folder."""
        location = job.table.location
        stem = data_file_name().removesuffix(".parquet")
        self.store.make_parent(location + stem)
        names = ", ".join(keys.names)
        clauses = [
            *job.clauses(),
            f"PARTITION_BY ({names})",
            "WRITE_PARTITION_COLUMNS false",
            # we name the folders: DuckDB's names can be too long, or equal to a column that stays in the file
            "HIVE_FILE_PATTERN false",
            f"FILENAME_PATTERN {literal(stem + '_{i}')}",
            "OVERWRITE_OR_IGNORE true",
        ]
        # sorted by the keys, few files are open at a time, and hardly one is opened again
        rows_in_order = f"{keys.query(query)} ORDER BY {names}"
        rows = self._run(job, rows_in_order, self._folder(location), clauses, location, stem)
        try:
            return [self._place(row, job, keys) for row in rows]
        except BaseException:
            self._announce_leftovers(location, stem, job.announce)
            raise

    def _place(self, row: tuple[Any, ...], job: _WriteJob, keys: Keys) -> NewDataFile:
        """Move a file of a partitioned ``COPY`` to the folder of its values, and return it."""
        values = keys.values([row[5][name] for name in keys.names])
        folder = keys.folder(values, hive=job.options.hive)
        file = self._file(row, job, folder)
        location = job.table.location
        job.announce(location + file.path)
        if folder:
            self.store.rename(location + file.path.removeprefix(folder), location + file.path)
        return replace(file, partition_id=keys.spec.id, partition_values=values)

    def _write_in_turn(self, job: _WriteJob, query: str, keys: Keys, size_hint: int | None) -> list[NewDataFile]:
        """Write one partition after the other from a table of sorted rows: in order, in files of the wanted size."""
        names = job.names
        # named by position: a user's column may be called rowid too
        own = [f"c{index}" for index in range(len(names))]
        rows, key_list = f"ql_partitioned_{uuid7().hex}", ", ".join(keys.names)
        ordered = f"{keys.query(query)} ORDER BY {', '.join([*keys.names, *job.order])}"
        with writing():
            job.connection.execute(f"CREATE TEMP TABLE {rows}({', '.join([*own, *keys.names])}) AS {ordered}")
        try:
            texts = ", ".join(f"CAST(any_value({name}) AS VARCHAR)" for name in keys.names)
            groups = job.connection.execute(
                f"SELECT min(rowid), max(rowid), {texts} FROM {rows} GROUP BY {key_list} ORDER BY 1"
            ).fetchall()
            select = ", ".join(f"{column} AS {quote(name)}" for column, name in zip(own, names, strict=True))
            files: list[NewDataFile] = []
            for first, last, *key in groups:
                values = keys.values(key)
                part = f"SELECT {select} FROM {rows} WHERE rowid BETWEEN {first:d} AND {last:d}"
                size = None if size_hint is None else size_hint * (last - first + 1) // (groups[-1][1] + 1)
                written = self._copy(job, part, keys.folder(values, hive=job.options.hive), size)
                files += [replace(file, partition_id=keys.spec.id, partition_values=values) for file in written]
            return files
        finally:
            job.connection.execute(f"DROP TABLE {rows}")

    def _folder(self, location: str) -> str:
        """Return what DuckDB calls a folder; the tables of very old lakes have none below the data path."""
        return self.store.url(location.rstrip("/")) if location else self.store.root.rstrip("/")

    def _announce_leftovers(self, location: str, stem: str, announce: Announce) -> None:
        for entry in self.store.list(location.rstrip("/")):
            if entry.path.rsplit("/", 1)[-1].startswith(stem):
                announce(entry.path)

    def _file(self, row: tuple[Any, ...], job: _WriteJob, folder: str) -> NewDataFile:
        url, count, size, footer, statistics = row[:5]
        telemetry.count("engine.files_written", tenant=self.store.label)
        telemetry.count("engine.bytes_written", size, tenant=self.store.label)
        dates = statistics.get(quote(NAME_SNAPSHOT_ID), {})
        row_groups: int | None = None
        exact_bounds: _Exact = {}
        if job.options.facts and job.key is None and self.store.is_local:
            row_groups, exact_bounds = _written_facts(job.connection, str(url), job.table.schema)
        return NewDataFile(
            id=job.new_id(),
            path=folder + str(url).replace("\\", "/").rsplit("/", 1)[-1],
            record_count=count,
            file_size_bytes=size,
            footer_size=footer,
            stats=tuple(_statistics(statistics, job.table.schema, exact_bounds)),
            row_groups=row_groups,
            encryption_key=job.key,
            moved=job.snapshot_ids,
            begin_snapshot=int(dates["min"]) if job.snapshot_ids else None,
            partial_max=int(dates["max"]) if job.snapshot_ids else None,
        )
