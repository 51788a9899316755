"""Measuring the contents of files, to compare them with the catalog: one aggregate over many files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from quacklake.core.catalog.checks.audit_rows import ColumnFacts
from quacklake.core.duckdb_versions import arrow_table, first_row
from quacklake.core.engines.duckdb.connections import reading
from quacklake.core.engines.duckdb.engine import DuckDBEngine
from quacklake.core.engines.duckdb.rows import huge_columns
from quacklake.core.engines.duckdb.sql import Field, Reads, ScanSql
from quacklake.core.format.names import quote
from quacklake.core.format.objects import NAME_POS
from quacklake.core.format.schema import Column
from quacklake.core.format.types import StatsKind, scalar
from quacklake.core.scan import ScanPlan
from quacklake.core.scan.plan import ColumnMeasure, FileMeasure, PositionMeasure


class DuckDBAudit:
    """Reads rows for a verification. Memory is that of an aggregate: files times columns."""

    def __init__(self, engine: DuckDBEngine) -> None:
        self._engine = engine

    def measure(
        self, plan: ScanPlan, columns: Sequence[Column], bounds: Mapping[int | None, Mapping[int, ColumnFacts]]
    ) -> Iterator[FileMeasure]:
        """Measure each file of a plan (with the bounds of each), or the whole (with the bounds under None)."""
        whole = None in bounds
        with self._engine.connection() as connection, reading():
            query = self._engine.bind(
                connection, plan, rows=True, columns=_SEEN if plan.schema.get("snapshot_id") is None else None
            )
            rows = arrow_table(connection, _aggregate(query, columns, plan, whole=whole))
            connection.register("ql_measured", rows)
            connection.register("ql_bounds", _bounds_table(columns, bounds))
            compared = connection.execute(_comparison(columns)).fetchall()
        for row in compared:
            file_id = None if whole else int(row[0])
            measures = {}
            for number, column in enumerate(columns):
                outside, nulls, nan = row[5 + 3 * number : 8 + 3 * number]
                if column.id in bounds[file_id]:
                    measures[column.id] = ColumnMeasure(bool(outside), int(nulls), bool(nan))
            yield FileMeasure(file_id, int(row[1]), row[2], row[3], row[4], measures)

    def repeated_row_id(self, plan: ScanPlan, part: int, parts: int) -> int | None:
        """Return a row id that two rows of a plan have, or None, among one part of the ids."""
        with self._engine.connection() as connection, reading():
            query = self._engine.bind(connection, plan, rows=True)
            rows = f"SELECT _ql_row_id AS id FROM ({query}) WHERE hash(_ql_row_id) % {parts:d} = {part:d}"
            row = first_row(connection, f"SELECT id FROM ({rows}) GROUP BY id HAVING count(*) > 1 LIMIT 1")
        return None if row is None else int(row[0])

    def beyond_double(self, plan: ScanPlan) -> list[tuple[int, str]]:
        """Return the files of a plan, each with the column, that have whole numbers beyond those that doubles hold."""
        names = [column.name for column in huge_columns(plan.schema) if not column.nested]
        if not names:
            return []
        with self._engine.connection() as connection, reading():
            query = self._engine.bind(connection, plan, rows=True)
            most = ", ".join(f"max(abs({quote(name)}::DOUBLE))" for name in names)
            rows = connection.execute(f"SELECT _ql_file_id, {most} FROM ({query}) GROUP BY _ql_file_id").fetchall()
        return [
            (int(file_id), name)
            for file_id, *values in rows
            for name, value in zip(names, values, strict=True)
            if value is not None and value > _EXACT
        ]

    def positions(self, path: str, key: str | None) -> PositionMeasure:
        """Measure a delete file of the format Parquet."""
        reads = Reads(self._engine.store, "ql_audit_keys")
        source = reads.source([path], [key], [Field(NAME_POS, "pos", "BIGINT")], None)
        falls = "pos <= lag(pos) OVER (ORDER BY file_row_number)"
        query = (
            f"SELECT count(*), min(pos), max(pos), coalesce(bool_or(falls), false) OR count(pos) < count(*)"
            f" FROM (SELECT pos, {falls} AS falls FROM {source})"
        )
        with self._engine.connection() as connection, reading():
            self._engine.prepare(connection, ScanSql(query, (), (), reads.variable, tuple(reads.keys)))
            row = first_row(connection, query)
        assert row is not None
        return PositionMeasure(int(row[0]), row[1], row[2], not row[3])


_SEEN = ("snapshot_id",)
_EXACT = 2.0**53  # up to here a double holds every whole number


def _aggregate(query: str, columns: Sequence[Column], plan: ScanPlan, *, whole: bool) -> str:
    seen = "snapshot_id" if plan.schema.get("snapshot_id") is None else "NULL::BIGINT"
    select = [
        "-1::BIGINT AS file_id" if whole else "_ql_file_id AS file_id",
        "count(*) AS n",
        f"min({seen}) AS first_snapshot",
        f"max({seen}) AS last_snapshot",
        "max(_ql_row_id) AS last_row_id",
    ]
    for column in columns:
        name, real = quote(column.name), scalar(column.type).stats is StatsKind.FLOAT
        number = f" FILTER (NOT isnan({name}))" if real else ""
        select += [
            f"min({name}){number} AS low{column.id}",
            f"max({name}){number} AS high{column.id}",
            f"count(*) - count({name}) AS nulls{column.id}",
            f"coalesce(bool_or(isnan({name})), false) AS nan{column.id}" if real else f"false AS nan{column.id}",
        ]
    return f"SELECT {', '.join(select)} FROM ({query})" + ("" if whole else " GROUP BY _ql_file_id")


def _bounds_table(columns: Sequence[Column], bounds: Mapping[int | None, Mapping[int, ColumnFacts]]) -> pa.Table:
    ids = list(bounds)
    data: dict[str, Any] = {"file_id": pa.array([-1 if id_ is None else id_ for id_ in ids], pa.int64())}
    for column in columns:
        facts = [bounds[id_].get(column.id, ColumnFacts()) for id_ in ids]
        data[f"low{column.id}"] = pa.array([fact.low for fact in facts], pa.string())
        data[f"high{column.id}"] = pa.array([fact.high for fact in facts], pa.string())
    return pa.table(data)


def _comparison(columns: Sequence[Column]) -> str:
    select = ["m.file_id", "m.n", "m.first_snapshot", "m.last_snapshot", "m.last_row_id"]
    for column in columns:
        low, high = (_value(f"b.{side}{column.id}", column) for side in ("low", "high"))
        outside = f"m.low{column.id} < {low} OR m.high{column.id} > {high}"
        select += [f"coalesce({outside}, false)", f"m.nulls{column.id}", f"m.nan{column.id}"]
    return f"SELECT {', '.join(select)} FROM ql_measured m JOIN ql_bounds b ON m.file_id = b.file_id"


def _value(reference: str, column: Column) -> str:
    if scalar(column.type).stats is StatsKind.BLOB:
        return f"unhex({reference})"
    if scalar(column.type).stats is StatsKind.BOOLEAN:
        return f"({reference} = '1')"
    return f"TRY_CAST({reference} AS {column.duckdb_type()})"
