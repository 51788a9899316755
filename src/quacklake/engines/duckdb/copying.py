"""The options of a ``COPY`` that writes a data file, and the statistics that it returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

import duckdb

from quacklake.duckdb_versions import first_row
from quacklake.engines.duckdb.expressions import OrderMacro
from quacklake.engines.duckdb.paths import file_name
from quacklake.format.extras import render_fields, shredded_fields, written_extent
from quacklake.format.names import literal, quote, uuid7
from quacklake.format.objects import FIELD_ROW_ID, FIELD_SNAPSHOT_ID, NAME_ROW_ID, NAME_SNAPSHOT_ID
from quacklake.format.schema import Column, TableSchema
from quacklake.format.stats import ColumnStats, is_always_exact

_GROUP_BYTES = "ROW_GROUP_SIZE_BYTES"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How Parquet files are written, from the lake's options.

    ``hive`` puts partitions into folders, ``sort`` puts rows into the table's order; ``macros`` are the functions that
    the order needs.
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
    """Return whether the lake stores what only the footer of a file tells; see ``written_facts``."""


_NOTHING: Mapping[int, Mapping[str, bool]] = MappingProxyType({})


def copy_clauses(schema: TableSchema, options: WriteOptions, *, row_ids: bool, snapshot_ids: bool) -> list[str]:
    """Return the options of a ``COPY`` that writes a data file."""
    fields = [_field_id(column) for column in schema.columns]
    if row_ids:
        fields.append(f"{literal(NAME_ROW_ID)}: {FIELD_ROW_ID}")
    if snapshot_ids:
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
    if any(column.type in ("blob", "timetz") for column in schema.leaves()):
        # DuckDB writes these to a bloom filter in another form than it looks up, and does not find them
        clauses.append("WRITE_BLOOM_FILTER false")
    return clauses


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


@dataclass(frozen=True, slots=True)
class WrittenFacts:
    """Facts that only the footer of a written file tells: its row groups, and which bounds are values."""

    row_groups: int | None = None
    exact: Mapping[int, Mapping[str, bool]] = field(default_factory=dict)


def written_facts(connection: duckdb.DuckDBPyConnection, url: str, schema: TableSchema) -> WrittenFacts:
    """Ask a file that was written for what ``COPY`` does not tell. Of fields inside columns nothing is said."""
    ids = {column.name: column.id for column in schema.columns if not column.nested}
    rows = connection.execute(
        "SELECT path_in_schema, max(row_group_id) + 1, bool_and(min_is_exact), bool_and(max_is_exact)"
        " FROM parquet_metadata(?) GROUP BY path_in_schema",
        [file_name(url)],
    ).fetchall()
    exact = {ids[path]: {"min_exact": bool(low), "max_exact": bool(high)} for path, _, low, high in rows if path in ids}
    return WrittenFacts(max((row[1] for row in rows), default=0), exact)


def _exactness(entry: Mapping[str, str], column: Column, known: Mapping[str, bool]) -> dict[str, bool | None]:
    """Return whether bounds are values of the column; a text may be cut, and then even be short."""
    if is_always_exact(column.type):
        known = {"min_exact": True, "max_exact": True}
    return {
        f"{end}_exact": known.get(f"{end}_exact", False) if entry.get(end) is not None else None
        for end in ("min", "max")
    }


def written_statistics(
    statistics: dict[str, dict[str, str]], schema: TableSchema, exact: Mapping[int, Mapping[str, bool]] = _NOTHING
) -> list[ColumnStats]:
    """Return DuckDB's statistics of a written file, by column id."""
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
