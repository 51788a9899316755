"""A feed plan as DuckDB SQL: scans of the files that rows came with, and of those they went from.

Deleted positions are one temporary table, and so are the rows that both went and came in one snapshot, which are
updates. Both hold keys only; rows stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.engines.duckdb.shapes import Shapes
from quacklake.engines.duckdb.sql import SHIFT, Reads, ScanSql, dated_deletes_query, scan_sql
from quacklake.format.names import quote
from quacklake.format.schema import Column
from quacklake.scan.feed import FeedPlan
from quacklake.storage import Store
from quacklake.storage.vectors import dated_positions

__all__ = ["feed_sql"]

_KEY = f"(q._ql_file_id << {SHIFT}) | q._ql_position"
_DATE = "_ql_date"


def feed_sql(
    plan: FeedPlan, store: Store, prefix: str, shapes: Shapes, *, inserts: bool = True, deletes: bool = True
) -> ScanSql:
    """The SQL that yields ``plan.schema``: what came, what went, or both. ``prefix`` keeps names apart."""
    return _Builder(plan, store, prefix, shapes).build(inserts=inserts, deletes=deletes)


@dataclass
class _Builder:
    plan: FeedPlan
    store: Store
    prefix: str
    shapes: Shapes
    tables: list[tuple[str, pa.Table]] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)
    scans: int = 0
    reads: Reads = field(init=False)

    def __post_init__(self) -> None:
        self.reads = Reads(self.store, f"{self.prefix}_keys")

    def build(self, *, inserts: bool, deletes: bool) -> ScanSql:
        plan = self.plan
        came, went = self._came(), self._went()
        self._deleted_positions()
        updates = self._updates(came, went) if came and went and plan.updates else None
        columns = plan.rows.schema.columns
        parts: list[str] = []
        if inserts:
            parts += [self._labelled(part, columns, updates, "insert", "update_postimage") for part in came]
        if deletes:
            parts += [self._labelled(part, columns, updates, "delete", "update_preimage") for part in went]
        if not parts:
            nothing = (f"NULL::{column.duckdb_type()} AS {quote(column.name)}" for column in plan.schema.columns)
            parts.append(f"SELECT {', '.join(nothing)} WHERE false")
        query = " UNION ALL ".join(f"({part})" for part in parts)
        return ScanSql(query, tuple(self.tables), tuple(self.setup), self.reads.variable, tuple(self.reads.keys))

    # -- the parts of a feed: files or rows, and the query that dates them ---------------------------------------------

    def _came(self) -> list[_Part]:
        plan, files = self.plan, self.plan.rows.files
        begins, partial = (files.column(name).to_pylist() for name in ("begin_snapshot", "partial_max"))
        first = plan.first_deletes
        groups: dict[tuple[bool, bool, bool], list[int]] = {}
        for index, (id_, begin, last) in enumerate(
            zip(files.column("data_file_id").to_pylist(), begins, partial, strict=True)
        ):
            newest = begin if last is None else last
            if newest < plan.since or (last is None and begin in plan.compactions):
                continue
            stillborn = id_ in first and first[id_] <= newest
            may_update = last is not None or begin in plan.updates
            groups.setdefault((last is not None, stillborn, may_update), []).append(index)
        parts = [
            _Part(files.take(pa.array(indexes, pa.int64())), None, self._came_query(several, stillborn), may_update)
            for (several, stillborn, may_update), indexes in sorted(groups.items())
        ]
        if plan.inserted is not None and plan.inserted.num_rows:
            parts.append(_Part(files.slice(0, 0), plan.inserted, _as_dated, True))
        return parts

    def _came_query(self, several: bool, stillborn: bool) -> Query:
        """Rows by the snapshot they came with: ``several`` in one file; ``stillborn`` when some never lived."""
        plan = self.plan

        def query(rows: str) -> str:
            sql = f"SELECT q.*, q.{_DATE} AS _ql_snapshot FROM ({rows}) q"
            if stillborn:
                sql += f" ANTI JOIN {self.prefix}_deleted d ON d.key = {_KEY} AND d.snapshot_id <= q.{_DATE}"
            if several:
                sql += f" WHERE q.{_DATE} BETWEEN {plan.since:d} AND {plan.until:d}"
                if plan.compactions:
                    sql += f" AND q.{_DATE} NOT IN ({', '.join(map(str, plan.compactions))})"
            return sql

        return query

    def _went(self) -> list[_Part]:
        plan, files = self.plan, self.plan.rows.files
        ids = files.column("data_file_id").combine_chunks()
        sources = [plan.delete_files.column("data_file_id"), plan.positions.column("file_id")]
        touched = pa.chunked_array([chunk for source in sources for chunk in source.chunks], pa.int64())
        parts = []
        positions = files.filter(pc.is_in(ids, value_set=touched.combine_chunks()))
        if positions.num_rows:
            parts.append(_Part(positions, None, self._deleted_query, True))
        ended = files.filter(pc.is_in(ids, value_set=pa.array(list(plan.ended), pa.int64())))
        if ended.num_rows:
            ends = {"file_id": list(plan.ended), "snapshot_id": list(plan.ended.values())}
            self.tables.append((f"{self.prefix}_ended", pa.table(ends)))
            parts.append(_Part(ended, None, self._ended_query, True))
        if plan.deleted is not None and plan.deleted.num_rows:
            parts.append(_Part(files.slice(0, 0), plan.deleted, _as_dated, True))
        return parts

    def _deleted_query(self, rows: str) -> str:
        """Rows whose positions were deleted. One that went when it came was never there."""
        plan = self.plan
        return (
            f"SELECT q.*, d.snapshot_id AS _ql_snapshot FROM ({rows}) q JOIN {self.prefix}_deleted d ON d.key = {_KEY}"
            f" WHERE d.snapshot_id BETWEEN {plan.since:d} AND {plan.until:d} AND d.snapshot_id > q.{_DATE}"
        )

    def _ended_query(self, rows: str) -> str:
        """What was left of files that ended."""
        return (
            f"SELECT q.*, e.snapshot_id AS _ql_snapshot FROM ({rows}) q"
            f" JOIN {self.prefix}_ended e ON e.file_id = q._ql_file_id"
            f" ANTI JOIN {self.prefix}_deleted d ON d.key = {_KEY}"
        )

    # -- what is known first -------------------------------------------------------------------------------------------

    def _deleted_positions(self) -> None:
        """The temporary table of deleted positions: the key of a row, and the first snapshot without it."""
        plan, name = self.plan, f"{self.prefix}_deleted"
        puffin = pc.equal(plan.delete_files.column("format"), "puffin")
        parts = []
        parquet = plan.delete_files.filter(pc.invert(puffin))
        if parquet.num_rows:
            parts.append(dated_deletes_query(parquet, self.reads))
        vectors = self._vectors(plan.delete_files.filter(puffin))
        positions = pc.add(pc.shift_left(plan.positions.column("file_id"), SHIFT), plan.positions.column("row_id"))
        inlined = pa.table({"key": positions, "snapshot_id": plan.positions.column("snapshot_id")})
        for label, table in (("vectors", vectors), ("positions", inlined)):
            if table.num_rows:
                self.tables.append((f"{name}_{label}", table))
                parts.append(f"SELECT key, snapshot_id FROM {name}_{label}")
        if not parts:
            parts.append("SELECT NULL::BIGINT AS key, NULL::BIGINT AS snapshot_id WHERE false")
        found = " UNION ALL ".join(parts)
        if self._overlapping():
            found = f"SELECT key, min(snapshot_id) AS snapshot_id FROM ({found}) GROUP BY key"
        self.setup.append(f"CREATE OR REPLACE TEMP TABLE {name} AS {found}")

    def _overlapping(self) -> bool:
        """True when a position may be in more than one place."""
        plan = self.plan
        files = plan.delete_files.column("data_file_id").to_pylist()
        return len(set(files)) < len(files) or bool(plan.positions.num_rows)

    def _vectors(self, files: pa.Table) -> pa.Table:
        parts = [pa.schema([("key", pa.int64()), ("snapshot_id", pa.int64())]).empty_table()]
        for file in files.to_pylist():
            found = dated_positions(self.store, file["path"], file["record_count"])
            dates = pc.fill_null(found.column("snapshot_id"), file["begin_snapshot"])
            keys = pc.add(found.column("pos"), pa.scalar(file["data_file_id"] << SHIFT, pa.int64()))
            rows = pa.table([keys, dates], schema=parts[0].schema)
            parts.append(rows.filter(pc.less_equal(dates, file["last"])))
        return pa.concat_tables(parts)

    def _updates(self, came: Sequence[_Part], went: Sequence[_Part]) -> str:
        """The temporary table of rows that went and came in one snapshot; its name."""
        name = f"{self.prefix}_updates"
        snapshots = ", ".join(map(str, self.plan.updates))
        keys = "SELECT _ql_snapshot AS snapshot_id, _ql_row_id AS rowid FROM ({}) WHERE _ql_snapshot IN ({})"
        gone, new = (
            " UNION ALL ".join(keys.format(self._scan(part, ()), snapshots) for part in parts if part.may_update)
            for parts in (went, came)
        )
        if not new:
            new = "SELECT NULL::BIGINT AS snapshot_id, NULL::BIGINT AS rowid WHERE false"
        self.setup.append(
            f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT DISTINCT n.snapshot_id, n.rowid FROM ({new}) n"
            f" SEMI JOIN ({gone}) g ON g.snapshot_id = n.snapshot_id AND g.rowid = n.rowid"
        )
        return name

    # -- queries -------------------------------------------------------------------------------------------------------

    def _scan(self, part: _Part, columns: Sequence[Column]) -> str:
        """The rows of a part with their dates; what the scan needs first is noted."""
        self.scans += 1
        scanned = replace(self.plan.rows, files=part.files, inlined=part.inlined)
        sql = scan_sql(
            scanned,
            self.store,
            f"{self.prefix}_{self.scans}",
            columns,
            rows=True,
            virtual={"snapshot_id": _DATE},
            shapes=self.shapes(scanned, columns),
            reads=self.reads,
        )
        self.tables += sql.tables
        self.setup += sql.setup
        return part.query(sql.query)

    def _labelled(self, part: _Part, columns: Sequence[Column], updates: str | None, plain: str, updated: str) -> str:
        own, *theirs = (column.name for column in self.plan.schema.columns[2:])
        names = [f"s.{quote(column.name)} AS {quote(name)}" for column, name in zip(columns, theirs, strict=True)]
        label, join = f"'{plain}'", ""
        if updates is not None and part.may_update:
            label = f"CASE WHEN u.rowid IS NULL THEN '{plain}' ELSE '{updated}' END"
            join = f" LEFT JOIN {updates} u ON u.snapshot_id = s._ql_snapshot AND u.rowid = s._ql_row_id"
        select = ["s._ql_snapshot AS snapshot_id", "s._ql_row_id AS rowid", f"{label} AS {quote(own)}", *names]
        return f"SELECT {', '.join(select)} FROM ({self._scan(part, columns)}) s{join}"


#: From a query of rows with ``ROW_COLUMNS`` and ``_ql_date`` to one that has ``_ql_snapshot`` too.
Query = Callable[[str], str]


@dataclass(frozen=True)
class _Part:
    """Files or inlined rows of one kind; ``may_update`` when a row of theirs may be one of an update."""

    files: pa.Table
    inlined: pa.Table | None
    query: Query
    may_update: bool


def _as_dated(rows: str) -> str:
    return f"SELECT q.*, q.{_DATE} AS _ql_snapshot FROM ({rows}) q"
