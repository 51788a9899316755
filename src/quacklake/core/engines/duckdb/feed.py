"""A feed plan as DuckDB SQL: scans of the files that rows came with, and of those they went from.

Deleted positions are one temporary table, which is made first: it tells which parts of which files must be read. So are
the rows that both went and came in one snapshot, which are updates. Both hold keys only; rows stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.engines.duckdb.shapes import Shape, Shapes
from quacklake.core.engines.duckdb.sql import (
    SHIFT,
    Branch,
    Field,
    Reads,
    ScanSql,
    branches,
    dated_deletes_query,
    mapped_columns,
    own_columns,
    refuse_names,
    scan_sql,
    small_table,
)
from quacklake.core.format.names import quote
from quacklake.core.format.objects import FIELD_ROW_ID, FIELD_SNAPSHOT_ID
from quacklake.core.format.schema import Column
from quacklake.core.scan.feed import FeedPlan
from quacklake.core.scan.plan import ScanPlan
from quacklake.core.storage import Store
from quacklake.core.storage.vectors import dated_positions

BLOCK_SHIFT = 11
"""A block is 2,048 rows, which DuckDB decodes at once."""
POSITION_MASK = (1 << SHIFT) - 1

#: Of each data file that has wanted rows: the numbers of the blocks they are in, ascending.
Blocks = Mapping[int, Sequence[int]]

_GROUP = 60
"""Blocks in a row group as DuckDB writes them, which is unpacked whole: files of which the same ones are wanted share a
call."""
_CALLS = 32
_SORTED = 64
"""Blocks up to which picked rows are sorted: they have no more rows than a batch."""
_GAPS = 12
"""Gaps between wanted blocks that are compared with one by one: from about 3 in a row group on, bits are quicker."""


@dataclass(frozen=True, slots=True)
class _Call:
    """Files of a branch that are read by one call; ``blocks`` are those of any of them, None for all."""

    indexes: list[int]
    blocks: set[int] | None = None


def picked_sql(
    plan: ScanPlan,
    prefix: str,
    columns: Sequence[Column],
    picks: str,
    blocks: Blocks,
    *,
    shapes: Mapping[int, Shape],
    reads: Reads,
) -> ScanSql:
    """Return the SQL that yields ``columns`` of the rows that a query picks, with ``_ql_row_id`` and ``_ql_snapshot``.

    ``picks`` yields ``key`` (data file << 40 | position) and ``snapshot_id``, which becomes ``_ql_snapshot``; a row
    that did not exist before that snapshot is left out. ``blocks`` are where the picked rows are.

    DuckDB passes over what a filter on ``file_row_number`` rules out: row groups are not read, and vectors not decoded.
    It has one filter for all files of a call, so that a large file of which little is wanted gets a call of its own.
    The calls of a branch meet in one join, as each join takes time to bind and to build. Calls below a result are read
    one after the other, and the threads wait for each other at the end of each; below a sort they are read together.
    """
    refuse_names(plan, columns, {"_ql_row_id", "_ql_snapshot"})
    tables: list[tuple[str, pa.Table]] = []
    parts = []
    several = False
    for number, branch in enumerate(branches(plan, shapes)):
        calls = _calls(plan, blocks, branch)
        several = several or len(calls) > 1
        files = plan.files.take(pa.array([index for call in calls for index in call.indexes], pa.int64()))
        name, facts = f"{prefix}_files{number}", files.select(["data_file_id", "row_id_start", "begin_snapshot"])
        # keys of the files' places in the branch: the id of a data file would have to be looked up for every row
        facts = facts.append_column("place", pa.array(range(files.num_rows), pa.int64()))
        parts.append(
            _branch_query(plan, branch, calls, files, columns, _place_picks(picks, facts, name, tables), reads)
        )
    query = " UNION ALL ".join(parts)
    if several and sum(map(len, blocks.values())) <= _SORTED:
        query = f"(SELECT * FROM ({query}) ORDER BY _ql_snapshot)"
    return ScanSql(query, tuple(tables), ())


def _place_picks(picks: str, facts: pa.Table, name: str, tables: list[tuple[str, pa.Table]]) -> str:
    """Return those of the picked rows that are in some files, with the facts of the files."""
    position = f"(k.key & {POSITION_MASK})"
    bounds = pc.min_max(facts.column("data_file_id"))
    return (
        f"(SELECT (f.place << {SHIFT}) | {position} AS key, f.row_id_start + {position} AS row_id,"
        f" f.begin_snapshot AS born, k.snapshot_id FROM ({picks}) k"
        f" JOIN {small_table(name, facts, tables)} f ON f.data_file_id = k.key >> {SHIFT}"
        f" WHERE k.key >= {bounds['min'].as_py() << SHIFT:d} AND k.key < {(bounds['max'].as_py() + 1) << SHIFT:d})"
    )


def _calls(plan: ScanPlan, blocks: Blocks, branch: Branch) -> list[_Call]:
    ids, counts = (plan.files.column(name).to_pylist() for name in ("data_file_id", "record_count"))
    whole: list[int] = []
    sparse: dict[tuple[int, ...], list[int]] = {}
    for index in branch.indexes:
        wanted, total = blocks[ids[index]], (counts[index] >> BLOCK_SHIFT) + 1
        # only reading shows that a position is behind the end of a file
        if total > _GROUP and 2 * len(wanted) <= total and wanted[-1] < total:
            sparse.setdefault(tuple(sorted({block // _GROUP for block in wanted})), []).append(index)
        else:
            whole.append(index)
    calls = [_Call(whole)] if whole else []
    alike = [sparse[groups] for groups in sorted(sparse)]
    size = max(-(-len(alike) // _CALLS), 1)
    for start in range(0, len(alike), size):
        some = [index for indexes in alike[start : start + size] for index in indexes]
        calls.append(_Call(some, {block for index in some for block in blocks[ids[index]]}))
    return calls


def _branch_query(
    plan: ScanPlan,
    branch: Branch,
    calls: Sequence[_Call],
    files: pa.Table,
    columns: Sequence[Column],
    picks: str,
    reads: Reads,
) -> str:
    """Return the query of picked rows of a branch; ``files`` are those of its calls, in their order."""
    row_id, born = "k.row_id", "k.born"
    if branch.mapping is None:
        fields, select = own_columns(branch, columns)
        fields.append(Field(FIELD_ROW_ID, "_ql_stored_row_id", "BIGINT"))
        fields.append(Field(FIELD_SNAPSHOT_ID, "_ql_snapshot_id", "BIGINT"))
        row_id, born = f"coalesce(p._ql_stored_row_id, {row_id})", f"coalesce(p._ql_snapshot_id, {born})"
    else:
        urls = reads.store.urls(files.column("path").to_pylist())
        fields, select = mapped_columns(plan.mapping(branch.mapping), columns, urls)
    select += [f"{row_id} AS _ql_row_id", "k.snapshot_id AS _ql_snapshot"]
    return (
        f"(SELECT {', '.join(select)} FROM {_union_calls(calls, files, fields, reads)} p JOIN {picks} k"
        f" ON k.key = (p.file_index::BIGINT << {SHIFT}) | p.file_row_number WHERE k.snapshot_id > {born})"
    )


def _union_calls(calls: Sequence[_Call], files: pa.Table, fields: Sequence[Field], reads: Reads) -> str:
    """Return the rows of some calls as one FROM item, whose ``file_index`` counts through all of their files."""
    names = ", ".join(f"p.{field.name}" for field in fields)
    parts = []
    first = 0
    for call in calls:
        some = files.slice(first, len(call.indexes))
        paths, keys = (some.column(name).to_pylist() for name in ("path", "encryption_key"))
        source = reads.source(paths, keys, fields, pc.sum(some.column("record_count")).as_py())
        if len(calls) == 1 and call.blocks is None:
            return source
        index = f"p.file_index::BIGINT + {first:d} AS file_index"
        within = "" if call.blocks is None else f" WHERE {_within(call.blocks)}"
        parts.append(f"SELECT {names}, {index}, p.file_row_number FROM {source} p{within}")
        first += len(call.indexes)
    return f"({' UNION ALL '.join(parts)})"


def _within(blocks: set[int]) -> str:
    """Return a condition on the number of a row that DuckDB applies while it reads.

    Comparisons with constants are quick, and rule out row groups by their statistics, which calls of functions do not.
    """
    wanted = sorted(blocks)
    low, high = wanted[0] << BLOCK_SHIFT, (wanted[-1] + 1) << BLOCK_SHIFT
    conditions = [f"p.file_row_number >= {low:d}", f"p.file_row_number < {high:d}"]
    gaps = [(before + 1, after) for before, after in pairwise(wanted) if after - before > 1]
    if len(gaps) > _GAPS:
        conditions.append(_is_set(blocks))
    else:
        for start, end in sorted(gaps, key=lambda gap: gap[0] - gap[1]):  # the largest leaves the least to the others
            conditions.append(
                f"(p.file_row_number < {start << BLOCK_SHIFT:d} OR p.file_row_number >= {end << BLOCK_SHIFT:d})"
            )
    return " AND ".join(conditions)


def _is_set(blocks: set[int]) -> str:
    """Return a condition that takes as long for any number of blocks."""
    size = 1 << max(blocks).bit_length()
    bits = "".join("1" if block in blocks else "0" for block in range(size))
    # stays within the bits even for a file with too many rows, which the join leaves out
    return f"get_bit('{bits}'::BIT, ((p.file_row_number >> {BLOCK_SHIFT}) & {size - 1:d})::INTEGER) = 1"


_KEY = f"(q._ql_file_id << {SHIFT}) | q._ql_position"
_DATE = "_ql_date"


def deleted_sql(plan: FeedPlan, store: Store, prefix: str) -> ScanSql:
    """Return the SQL of the temporary table of deleted positions; its query gives the blocks for ``to_blocks``."""
    name = f"{prefix}_deleted"
    reads = Reads(store, f"{name}_keys")
    tables: list[tuple[str, pa.Table]] = []
    puffin = pc.equal(plan.delete_files.column("format"), "puffin")
    parts = []
    parquet = plan.delete_files.filter(pc.invert(puffin))
    if parquet.num_rows:
        parts.append(dated_deletes_query(parquet, reads))
    vectors = _vectors(plan.delete_files.filter(puffin), store)
    positions = pc.add(pc.shift_left(plan.positions.column("file_id"), SHIFT), plan.positions.column("row_id"))
    inlined = pa.table({"key": positions, "snapshot_id": plan.positions.column("snapshot_id")})
    for label, table in (("vectors", vectors), ("positions", inlined)):
        if table.num_rows:
            tables.append((f"{name}_{label}", table))
            parts.append(f"SELECT key, snapshot_id FROM {name}_{label}")
    if not parts:
        parts.append("SELECT NULL::BIGINT AS key, NULL::BIGINT AS snapshot_id WHERE false")
    deleted = " UNION ALL ".join(parts)
    files = plan.delete_files.column("data_file_id").to_pylist()
    if len(set(files)) < len(files) or plan.positions.num_rows:  # a position may be in more than one place
        deleted = f"SELECT key, min(snapshot_id) AS snapshot_id FROM ({deleted}) GROUP BY key"
    query = f"SELECT DISTINCT key >> {BLOCK_SHIFT} AS block FROM ({_select_deleted(plan, name)}) ORDER BY block"
    setup = f"CREATE OR REPLACE TEMP TABLE {name} AS {deleted}"
    return ScanSql(query, tuple(tables), (setup,), reads.variable, tuple(reads.keys))


def to_blocks(positions: pa.Table) -> Blocks:
    blocks: dict[int, list[int]] = {}
    for number in positions.column("block").to_pylist():
        blocks.setdefault(number >> (SHIFT - BLOCK_SHIFT), []).append(number & (POSITION_MASK >> BLOCK_SHIFT))
    return blocks


def _select_deleted(plan: FeedPlan, deleted: str) -> str:
    return f"SELECT key, snapshot_id FROM {deleted} WHERE snapshot_id BETWEEN {plan.since:d} AND {plan.until:d}"


def _vectors(files: pa.Table, store: Store) -> pa.Table:
    parts = [pa.schema([("key", pa.int64()), ("snapshot_id", pa.int64())]).empty_table()]
    for file in files.to_pylist():
        positions = dated_positions(store, file["path"], file["record_count"])
        dates = pc.fill_null(positions.column("snapshot_id"), file["begin_snapshot"])
        keys = pc.add(positions.column("pos"), pa.scalar(file["data_file_id"] << SHIFT, pa.int64()))
        rows = pa.table([keys, dates], schema=parts[0].schema)
        parts.append(rows.filter(pc.less_equal(dates, file["last"])))
    return pa.concat_tables(parts)


#: From a query of rows with ``ROW_COLUMNS`` and ``_ql_date`` to one that has ``_ql_snapshot`` too.
Query = Callable[[str], str]


@dataclass(frozen=True)
class _Part:
    """Rows that came or went, as a query of some columns, ``_ql_snapshot`` and ``_ql_row_id``; maybe of updates."""

    rows: Callable[[Sequence[Column]], str]
    may_update: bool = True


@dataclass
class FeedBuilder:
    """Makes the SQL of a feed plan, after ``deleted_sql``, which found ``blocks``; ``prefix`` keeps names apart.

    ``numbered`` returns the files of a plan that surely have no row ids in them, by their data file ids.
    """

    plan: FeedPlan
    store: Store
    prefix: str
    shapes: Shapes
    numbered: Callable[[ScanPlan], set[int]]
    blocks: Blocks
    tables: list[tuple[str, pa.Table]] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)
    scans: int = 0
    inlined: dict[int, str] = field(default_factory=dict)
    """The prefixes of scans of inlined rows by the identity of their table, which the plan keeps."""
    reads: Reads = field(init=False)

    def __post_init__(self) -> None:
        self.reads = Reads(self.store, f"{self.prefix}_keys")

    def build(self, *, inserts: bool, deletes: bool) -> ScanSql:
        """Return the SQL that yields ``plan.schema``: what came, what went, or both."""
        plan = self.plan
        came = self._came()
        touched = self._only(list(self.blocks))
        others = self._add_ended() + self._add_inlined(plan.deleted)
        updates = None
        if came and (touched.num_rows or others) and plan.updates:
            updates = self._updates(came, [*self._touched_keys(touched), *others])
        columns = plan.rows.schema.columns
        parts: list[str] = []
        if inserts:
            parts += [self._label_rows(part, columns, updates, "insert", "update_postimage") for part in came]
        if deletes:
            went = [*self._add_touched(touched), *others]
            parts += [self._label_rows(part, columns, updates, "delete", "update_preimage") for part in went]
        if not parts:
            nothing = (f"NULL::{column.duckdb_type()} AS {quote(column.name)}" for column in plan.schema.columns)
            parts.append(f"SELECT {', '.join(nothing)} WHERE false")
        query = " UNION ALL ".join(f"({part})" for part in parts)
        return ScanSql(query, tuple(self.tables), tuple(self.setup), self.reads.variable, tuple(self.reads.keys))

    def _only(self, ids: Sequence[int]) -> pa.Table:
        files = self.plan.rows.files
        return files.filter(pc.is_in(files.column("data_file_id"), value_set=pa.array(ids, pa.int64())))

    def _came(self) -> list[_Part]:
        plan, files = self.plan, self.plan.rows.files
        begins, lasts = (files.column(name).to_pylist() for name in ("begin_snapshot", "partial_max"))
        first = plan.first_deletes
        ids = files.column("data_file_id").to_pylist()
        groups: dict[tuple[bool, bool, bool], list[int]] = {}
        for index, (id_, begin, last) in enumerate(zip(ids, begins, lasts, strict=True)):
            newest = begin if last is None else last
            if newest < plan.since or (last is None and begin in plan.compactions):
                continue
            stillborn = id_ in first and first[id_] <= newest
            may_update = last is not None or begin in plan.updates
            groups.setdefault((last is not None, stillborn, may_update), []).append(index)
        parts = []
        for (several, stillborn, may_update), indexes in sorted(groups.items()):
            some, query = files.take(pa.array(indexes, pa.int64())), self._came_query(several, stillborn)
            parts.append(_Part(partial(self._scan, some, None, query), may_update))
        return parts + self._add_inlined(plan.inserted)

    def _add_inlined(self, rows: pa.Table | None) -> list[_Part]:
        """Return inlined rows, which have their dates."""
        none = self.plan.rows.files.slice(0, 0)
        dated = self._came_query(several=False, stillborn=False)
        return [_Part(partial(self._scan, none, rows, dated))] if rows is not None and rows.num_rows else []

    def _came_query(self, several: bool, stillborn: bool) -> Query:
        """Return rows by the snapshot they came with: ``several`` in one file; ``stillborn`` when some never lived."""
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

    def _add_touched(self, files: pa.Table) -> list[_Part]:
        """Return rows whose positions were deleted. One that went when it came was never there."""
        return [_Part(partial(self._pick_rows, files))] if files.num_rows else []

    def _touched_keys(self, files: pa.Table) -> list[_Part]:
        """Return the keys of ``_add_touched``. Most files need not be opened, as their rows are numbered one by one."""
        numbered = self.numbered(replace(self.plan.rows, files=files))
        if not numbered:
            return self._add_touched(files)
        plain = pc.is_in(files.column("data_file_id"), value_set=pa.array(sorted(numbered), pa.int64()))
        facts = files.filter(plain).select(["data_file_id", "row_id_start", "begin_snapshot"])
        query = (
            f"SELECT f.row_id_start + (d.key & {POSITION_MASK}) AS _ql_row_id, d.snapshot_id AS _ql_snapshot"
            f" FROM ({_select_deleted(self.plan, f'{self.prefix}_deleted')}) d"
            f" JOIN {small_table(f'{self.prefix}_numbered', facts, self.tables)} f"
            f" ON f.data_file_id = d.key >> {SHIFT} WHERE d.snapshot_id > f.begin_snapshot"
        )
        return [_Part(lambda _: query), *self._add_touched(files.filter(pc.invert(plain)))]

    def _add_ended(self) -> list[_Part]:
        ended = self._only(list(self.plan.ended))
        if not ended.num_rows:
            return []
        ends = {"file_id": list(self.plan.ended), "snapshot_id": list(self.plan.ended.values())}
        self.tables.append((f"{self.prefix}_ended", pa.table(ends)))

        def left(rows: str) -> str:
            return (
                f"SELECT q.*, e.snapshot_id AS _ql_snapshot FROM ({rows}) q"
                f" JOIN {self.prefix}_ended e ON e.file_id = q._ql_file_id"
                f" ANTI JOIN {self.prefix}_deleted d ON d.key = {_KEY}"
            )

        return [_Part(partial(self._scan, ended, None, left))]

    def _updates(self, came: Sequence[_Part], went: Sequence[_Part]) -> str:
        """Return the temporary table of rows that went and came in one snapshot; its name."""
        name = f"{self.prefix}_updates"
        snapshots = ", ".join(map(str, self.plan.updates))
        keys = "SELECT _ql_snapshot AS snapshot_id, _ql_row_id AS rowid FROM ({}) WHERE _ql_snapshot IN ({})"
        gone, new = (
            " UNION ALL ".join(keys.format(part.rows(()), snapshots) for part in parts if part.may_update)
            for parts in (went, came)
        )
        if not new:
            new = "SELECT NULL::BIGINT AS snapshot_id, NULL::BIGINT AS rowid WHERE false"
        self.setup.append(
            f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT DISTINCT n.snapshot_id, n.rowid FROM ({new}) n"
            f" SEMI JOIN ({gone}) g ON g.snapshot_id = n.snapshot_id AND g.rowid = n.rowid"
        )
        return name

    def _scan(self, files: pa.Table, inlined: pa.Table | None, query: Query, columns: Sequence[Column]) -> str:
        """Return rows with their dates; what the scan needs first is noted."""
        plan = replace(self.plan.rows, files=files, inlined=inlined)
        shapes, dates = self.shapes(plan, columns), {"snapshot_id": _DATE}
        known = None if inlined is None else self.inlined.get(id(inlined))
        prefix = known or self._next()
        sql = scan_sql(plan, self.store, prefix, columns, rows=True, virtual=dates, shapes=shapes, reads=self.reads)
        if known is not None:  # DuckDB has these rows already, with all of their columns
            return query(sql.query)
        if inlined is not None:
            self.inlined[id(inlined)] = prefix
        return query(self._keep_tables(sql))

    def _pick_rows(self, files: pa.Table, columns: Sequence[Column]) -> str:
        """Return rows of files at the positions that were deleted in the range."""
        plan = replace(self.plan.rows, files=files)
        shapes, picks = self.shapes(plan, columns), _select_deleted(self.plan, f"{self.prefix}_deleted")
        return self._keep_tables(
            picked_sql(plan, self._next(), columns, picks, self.blocks, shapes=shapes, reads=self.reads)
        )

    def _next(self) -> str:
        self.scans += 1
        return f"{self.prefix}_{self.scans}"

    def _keep_tables(self, sql: ScanSql) -> str:
        self.tables += sql.tables
        self.setup += sql.setup
        return sql.query

    def _label_rows(self, part: _Part, columns: Sequence[Column], updates: str | None, plain: str, updated: str) -> str:
        own, *theirs = (column.name for column in self.plan.schema.columns[2:])
        names = [f"s.{quote(column.name)} AS {quote(name)}" for column, name in zip(columns, theirs, strict=True)]
        label, join = f"'{plain}'", ""
        if updates is not None and part.may_update:
            label = f"CASE WHEN u.rowid IS NULL THEN '{plain}' ELSE '{updated}' END"
            join = f" LEFT JOIN {updates} u ON u.snapshot_id = s._ql_snapshot AND u.rowid = s._ql_row_id"
        select = ["s._ql_snapshot AS snapshot_id", "s._ql_row_id AS rowid", f"{label} AS {quote(own)}", *names]
        return f"SELECT {', '.join(select)} FROM ({part.rows(columns)}) s{join}"
