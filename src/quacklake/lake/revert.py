"""Take back one commit and keep those after it: a three-way merge by rows.

For each row that the commit has changed there are three states: *base* as the commit left it, *theirs* as it was before
the commit, and *ours* as it is now. Where ours is still base, theirs takes its place; where it is theirs already,
nothing is left to do; anything else is a conflict.

>>> from quacklake.extend.example import example_lake
>>> with example_lake() as lake:
...     events = lake.table("events")
...     _ = events.update({"name": "wrong"}), events.append({"id": [12], "name": ["later"]})
...     lake.revert(5).tables
...     sorted(row["name"] for row in events.to_pylist())
(TableDiff(table='main.events', kind='changed', inserted=0, deleted=0, updated=6, columns=(), was=None),)
['a', 'c', 'd', 'e', 'few', 'later', 'more']
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import pyarrow as pa

from quacklake.core.duckdb_versions import arrow_table, first_row
from quacklake.core.engines.duckdb.engine import places_to_target
from quacklake.core.format.bounds import ANYTHING
from quacklake.core.format.names import quote
from quacklake.core.format.objects import NAME_ROW_ID, TableInfo
from quacklake.core.format.snapshots import ChangeKind, Operation, SnapshotInfo
from quacklake.core.operations.conform import RowWriter, check_not_null
from quacklake.core.operations.versions import Version
from quacklake.core.transaction import Transaction
from quacklake.errors import InputError, MergeConflictError, NotFoundError, UnsupportedFeatureError
from quacklake.lake.diff import PAIRS, RowPairs, StateComparison, TableDiff, equal, number_by
from quacklake.lake.restoring import Undo

if TYPE_CHECKING:
    from quacklake.lake.lake import Lake, LakeAt, LakeTransaction

Choice: TypeAlias = Literal["refuse", "ours", "theirs", "columns"]
"""The ways to treat rows that were changed since: none at all, keep them, take them back, or join other columns."""

MAX_CONFLICTS = 1000
"""The conflicts of a table that an error or a report shows."""
_MERGE, _OURS, _ROW = "_ql_revert_rows", "_ql_revert_ours", "_ql_diff_row"
_PLACES = ("_ql_file_id", "_ql_version", "_ql_position")
_K = ChangeKind
_OF_ROWS = {_K.INSERTED_INTO_TABLE, _K.DELETED_FROM_TABLE, _K.INLINED_INSERT, _K.INLINED_DELETE}
_OF_TABLES = {_K.CREATED_TABLE, _K.DROPPED_TABLE}
_MOVES = {_K.INLINE_FLUSH, _K.MERGE_ADJACENT, _K.REWRITE_DELETE, _K.COMPACTED_TABLE}
"""Changes that only move rows: there is nothing to take back."""


@dataclass(frozen=True, slots=True)
class RevertReport:
    """The commit that was taken back, and the ``snapshot`` that did it: None if nothing had to change, or in a dry run.

    ``conflicts`` has the rows that were changed since, by table: ``rowid``, and structs ``base``, ``ours`` and
    ``theirs``, each NULL where there was no such row.
    """

    version: int
    snapshot: int | None = None
    tables: tuple[TableDiff, ...] = ()
    conflicts: Mapping[str, pa.Table] = field(default_factory=dict)
    dry_run: bool = False


def revert(
    lake: Lake,
    version: Version,
    *,
    on_conflict: Choice = "refuse",
    dry_run: bool = False,
    message: str | None = None,
    author: str | None = None,
) -> RevertReport:
    """Take back one commit; see ``Lake.revert``."""
    if on_conflict not in get_args(Choice):
        raise InputError(f'on_conflict cannot be "{on_conflict}"', hint=f"use one of {', '.join(get_args(Choice))}")
    base = lake.at(version=lake.handle.at_version(version).tx.base.id)
    commit = _read_commit(base)
    _check_revertible(commit)
    if not {change.kind for change in commit.changes} - _MOVES:
        return RevertReport(commit.id, dry_run=dry_run)
    comparison = StateComparison(base, lake.at(version=commit.id - 1))
    attempts: list[tuple[_Revert, Transaction]] = []

    def work(transaction: LakeTransaction) -> None:
        tx = transaction.handle.tx
        tx.asks(Operation.REVERT)
        attempt = _Revert(lake, tx, comparison, on_conflict, write=not dry_run)
        attempts[:] = [(attempt, tx)]
        attempt.run()
        if attempt.conflicts and on_conflict != "ours" and not dry_run:
            raise MergeConflictError(_describe_conflicts(commit.id, attempt.conflicts), conflicts=attempt.conflicts)

    if dry_run:
        tx = lake.handle.begin()
        try:
            work(lake._open(tx))
        finally:
            tx.rollback()
    else:
        lake.run(work, message or f"Revert snapshot {commit.id}", author)
    done, tx = attempts[-1]
    report = RevertReport(commit.id, None, tuple(done.tables), done.conflicts, dry_run)
    return report if dry_run or tx.committed is None else replace(report, snapshot=tx.committed.id)


def _read_commit(base: LakeAt) -> SnapshotInfo:
    with base.handle.context.catalog.read() as reader:
        (commit,) = reader.snapshots.last(1, base.snapshot_id + 1)
    return commit


def _check_revertible(commit: SnapshotInfo) -> None:
    """Raise ``UnsupportedFeatureError`` for a commit that changed more than rows and tables."""
    kinds = {change.kind for change in commit.changes} - _OF_ROWS - _OF_TABLES - _MOVES
    others = sorted(kind.value.replace("_", " ") for kind in kinds)
    if others or commit.id == 0:
        what = ", ".join(others) or "the lake was created"
        raise UnsupportedFeatureError(
            f"snapshot {commit.id} cannot be reverted: {what}",
            hint="table.restore and lake.rollback bring back columns, views and macros",
        )


def _describe_conflicts(version: int, conflicts: Mapping[str, pa.Table]) -> str:
    counts = ", ".join(f"{rows.num_rows} of {table}" for table, rows in conflicts.items())
    return f"rows that snapshot {version} changed were changed again since: {counts}"


@dataclass
class _Revert:
    """One attempt, in one transaction. Without ``write`` it only counts."""

    lake: Lake
    tx: Transaction
    comparison: StateComparison
    on_conflict: Choice
    write: bool
    tables: list[TableDiff] = field(default_factory=list)
    conflicts: dict[str, pa.Table] = field(default_factory=dict)

    def run(self) -> None:
        """Take back what the commit did to each table."""
        for base, theirs in self.comparison.find_candidates():
            if theirs is None:
                assert base is not None
                self._drop(base)
            elif base is None:
                self._bring_back(theirs)
            else:
                self._merge(base, theirs)

    def _find(self, id_: int) -> TableInfo | None:
        return next((table for table in self.tx.tables() if table.id == id_), None)

    def _drop(self, base: TableInfo) -> None:
        """Drop a table that the commit created, unless it was changed since."""
        ours = self._find(base.id)
        if ours is None:
            return
        state = self.lake.at(version=self.tx.base.id)
        changed = StateComparison(self.comparison.before, state).count(base, ours)
        if changed is not None and self.on_conflict != "theirs":
            nothing = pa.nulls(1, pa.struct([]))
            self.conflicts[ours.qualified_name] = pa.table(
                {"rowid": pa.nulls(1, pa.int64()), "base": nothing, "ours": nothing, "theirs": nothing}
            )
            return
        count = self.tx.plan(ours).count() or 0
        self.tx.pending(ours).add_read(ANYTHING)
        self.tx.drop_table(ours)
        self.tables.append(TableDiff(ours.qualified_name, "dropped", deleted=count))

    def _bring_back(self, theirs: TableInfo) -> None:
        """Bring back a table that the commit dropped."""
        if self._find(theirs.id) is not None:
            return
        snapshot = self.comparison.after.handle.tx.base
        table = Undo(self.lake.handle.context, self.tx, write=self.write).undrop_id(theirs.id, snapshot)
        self.tables.append(TableDiff(table.qualified_name, "created", inserted=self.tx.plan(table).count() or 0))

    def _merge(self, base: TableInfo, theirs: TableInfo) -> None:
        """Give the rows that the commit changed the values that they had before."""
        ours = self._find(base.id)
        if ours is None:
            raise NotFoundError(
                f"{base.qualified_name} was dropped since snapshot {self.comparison.before.snapshot_id}",
                hint="bring it back first: lake.undrop",
            )
        with self.comparison.open(base, theirs) as pairs:
            try:
                merge = _TableMerge(self, pairs, ours)
                merge.decide()
                merge.apply()
            finally:
                for name in (_MERGE, _OURS):
                    pairs.connection.execute(f"DROP TABLE IF EXISTS {name}")


@dataclass
class _TableMerge:
    """The three-way merge of the rows of one table."""

    revert: _Revert
    pairs: RowPairs
    ours: TableInfo

    @property
    def names(self) -> dict[str, str]:
        """The present names of the columns that the commit knew, by their names then."""
        now = {column.id: column.name for column in self.ours.schema.columns}
        return {column.name: now[column.id] for column in self.pairs.columns if column.id in now}

    def decide(self) -> None:
        """Make a table of the pairs with the rows of today beside them, and of what becomes of each."""
        connection, pairs = self.pairs.connection, self.pairs
        engine, names = self.revert.lake.handle.context.engine, self.names
        if not set(pairs.keys) <= names.keys():
            raise InputError(
                f"the primary key of {self.ours.qualified_name} was dropped since", hint="restore the table"
            )
        plan = self.revert.tx.plan(self.ours)
        bound = engine.bind(connection, plan, rows=True)
        renamed = ", ".join(f"{quote(new)} AS {quote(old)}" for old, new in names.items())
        others = [column.name for column in self.ours.schema.columns if column.name not in names.values()]
        kept = "".join(f", {quote(name)} AS {quote(f'new.{name}')}" for name in others)
        rows = f"SELECT _ql_row_id AS {_ROW}, {', '.join(_PLACES)}, {renamed}{kept} FROM ({bound})"
        wanted = [*pairs.keys] or [_ROW]
        both = ", ".join(f"coalesce({quote(f'b.{name}')}, {quote(f'a.{name}')}) AS {quote(name)}" for name in wanted)
        same = " AND ".join(equal("o", "p", name) for name in wanted)
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {_OURS} AS SELECT * FROM ({rows}) o SEMI JOIN (SELECT {both} FROM {PAIRS}) p"
            f" ON {same}"
        )
        found = number_by(_OURS, pairs.keys) if pairs.keys else _OURS
        matched = " AND ".join(
            f"o.{quote(name)} IS NOT DISTINCT FROM coalesce(p.{quote(f'b.{name}')}, p.{quote(f'a.{name}')})"
            for name in pairs.identity
        )
        sides = [f"o.{quote(name)} AS {quote(f'o.{name}')}" for name in [_ROW, *_PLACES, *names]]
        sides += [f"o.{quote(f'new.{name}')}" for name in others]
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {_MERGE} AS SELECT *, {self._verdict()} AS verdict FROM"
            f" (SELECT p.*, {', '.join(sides)} FROM {PAIRS} p LEFT JOIN {found} o ON {matched})"
        )

    def _verdict(self) -> str:
        """Return what becomes of a row: ``done``, ``take`` theirs, ``join`` columns of both, or ``conflict``."""

        def same(one: str, other: str) -> str:
            equals = " AND ".join(_same(one, other, name) for name in self.names)
            neither, both = f"{_missing(one)} AND {_missing(other)}", f"NOT {_missing(one)} AND NOT {_missing(other)}"
            return f"(({neither}) OR ({both} AND {equals}))"

        apart = [f"({_same('o', 'b', n)} OR {_same('a', 'b', n)} OR {_same('o', 'a', n)})" for n in self.names]
        there = " AND ".join(f"NOT {_missing(side)}" for side in "oba")
        otherwise = {
            "theirs": "'take'",
            "columns": f"CASE WHEN {there} AND {' AND '.join(apart)} THEN 'join' ELSE 'conflict' END",
        }.get(self.revert.on_conflict, "'conflict'")
        return f"CASE WHEN {same('o', 'a')} THEN 'done' WHEN {same('o', 'b')} THEN 'take' ELSE {otherwise} END"

    def apply(self) -> None:
        """Remove and insert rows, and collect the conflicts."""
        connection, name = self.pairs.connection, self.ours.qualified_name
        self._collect_conflicts()
        chosen = "verdict IN ('take', 'join')"
        counts = ", ".join(
            f"count(*) FILTER ({chosen} AND {condition})"
            for condition in (
                f"{_missing('o')}",
                f"{_missing('a')}",
                f"NOT {_missing('o')} AND NOT {_missing('a')}",
            )
        )
        found = first_row(connection, f"SELECT {counts} FROM {_MERGE}")
        assert found is not None
        inserted, deleted, updated = found
        if not (inserted or deleted or updated):
            return
        self.revert.tables.append(TableDiff(name, "changed", inserted, deleted, updated))
        if not self.revert.write or (self.revert.conflicts and self.revert.on_conflict != "ours"):
            return
        tx = self.revert.tx
        pending = tx.pending(self.ours)
        pending.add_read(ANYTHING)
        places = ", ".join(f"{quote(f'o.{place}')} AS {place}" for place in _PLACES)
        going = arrow_table(connection, f"SELECT {places} FROM {_MERGE} WHERE {chosen} AND NOT {_missing('o')}")
        if going.num_rows:
            pending.delete(tx.plan(self.ours), places_to_target(going))
        fresh = f"SELECT {self._select_fresh()} FROM {_MERGE} WHERE {chosen} AND NOT {_missing('a')}"
        check_not_null(connection, f"({fresh})", self.ours.schema.columns)
        writer = RowWriter(self.revert.lake.handle.context, tx, self.ours, connection)
        row_id = quote(NAME_ROW_ID)
        writer.insert_query(f"FROM ({fresh}) WHERE {row_id} IS NOT NULL", row_ids=True)
        writer.insert_query(f"SELECT * EXCLUDE ({row_id}) FROM ({fresh}) WHERE {row_id} IS NULL")

    def _select_fresh(self) -> str:
        """Return the columns of the rows to insert: a row keeps its row id, and what only newer columns hold."""
        old = {new: name for name, new in self.names.items()}
        columns = []
        for column in self.ours.schema.columns:
            if column.name not in old:
                value = quote(f"new.{column.name}")
            else:
                b, o, a = (quote(f"{side}.{old[column.name]}") for side in "boa")
                value = f"CASE WHEN verdict = 'take' OR {o} IS NOT DISTINCT FROM {b} THEN {a} ELSE {o} END"
            columns.append(f"CAST({value} AS {column.duckdb_type()}) AS {quote(column.name)}")
        # a row of a table with keys may have come back under another row id
        again = "NULL" if self.pairs.keys else quote(f"a.{_ROW}")
        return ", ".join([*columns, f"coalesce({quote(f'o.{_ROW}')}, {again}) AS {quote(NAME_ROW_ID)}"])

    def _collect_conflicts(self) -> None:
        def struct(side: str) -> str:
            fields = ", ".join(f"{quote(name)} := {quote(f'{side}.{name}')}" for name in self.names)
            return f"CASE WHEN {_missing(side)} THEN NULL ELSE struct_pack({fields}) END"

        rowid = f"coalesce({', '.join(quote(f'{side}.{_ROW}') for side in 'oba')}) AS rowid"
        rows = arrow_table(
            self.pairs.connection,
            f"SELECT {rowid}, {struct('b')} AS base, {struct('o')} AS ours, {struct('a')} AS theirs FROM {_MERGE}"
            f" WHERE verdict = 'conflict' ORDER BY rowid LIMIT {MAX_CONFLICTS}",
        )
        if rows.num_rows:
            self.revert.conflicts[self.ours.qualified_name] = rows


def _missing(side: str) -> str:
    return f"({quote(f'{side}.{_ROW}')} IS NULL)"


def _same(one: str, other: str, name: str) -> str:
    return f"({quote(f'{one}.{name}')} IS NOT DISTINCT FROM {quote(f'{other}.{name}')})"
