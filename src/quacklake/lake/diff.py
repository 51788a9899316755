"""The difference of two states of a lake: table by table, and row by row.

The change feed says what each snapshot did, and a difference what is left of it. A row that was inserted and deleted
in between is in neither state, and one that was changed and changed back is the same in both:

>>> from quacklake.extend.example import example_lake
>>> with example_lake() as lake:
...     events = lake.table("events")
...     _ = events.update({"name": "changed"}, "id = 2"), events.append({"id": [12], "name": ["new"]})
...     _ = events.delete("id = 12"), events.update({"name": "x"}, "id = 3"), events.update({"name": "d"}, "id = 3")
...     difference = lake.diff(4)
...     print(difference.tables)
...     print([row["name"] for row in difference.rows("events").to_pylist()])
(TableDiff(table='main.events', kind='changed', inserted=0, deleted=0, updated=1, columns=(), was=None),)
['c', 'changed']
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import duckdb
import pyarrow as pa

from quacklake.core.duckdb_versions import arrow_table, first_row
from quacklake.core.engines.duckdb.carrying import carried_column
from quacklake.core.engines.duckdb.connections import writing
from quacklake.core.format.names import quote
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import Column
from quacklake.core.operations.reference import TableRef
from quacklake.core.operations.versions import Version
from quacklake.core.progress import Progress, silent
from quacklake.errors import NotFoundError, SnapshotExpiredError
from quacklake.lake.table import Table

if TYPE_CHECKING:
    from quacklake.lake.lake import Lake, LakeAt

Kind: TypeAlias = Literal["created", "dropped", "changed"]

PAIRS, NUMBER = "_ql_diff_pairs", "_ql_diff_number"
_CHANGES, _OLDER, _NEWER, _ROW = "_ql_diff_changes", "_ql_diff_older", "_ql_diff_newer", "_ql_diff_row"
_GONE, _NEW = "('delete', 'update_preimage')", "('insert', 'update_postimage')"
"""The types of changes that tell what a row was, and what it is."""


@dataclass(frozen=True, slots=True)
class TableDiff:
    """The difference of one table: rows that are in one state only, and rows that have other values.

    ``columns`` says in words which columns differ, and ``was`` is the name in the first state of a renamed table.
    """

    table: str
    kind: Kind
    inserted: int = 0
    deleted: int = 0
    updated: int = 0
    columns: tuple[str, ...] = ()
    was: str | None = None


@dataclass(frozen=True)
class LakeDiff:
    """The tables that differ between two snapshots, with counts; ``rows`` returns the rows of one of them."""

    before: int
    after: int
    tables: tuple[TableDiff, ...]
    _comparison: StateComparison

    def rows(self, table: str) -> pa.Table:
        """Return the rows of a table that differ: ``change_type``, ``rowid`` and the columns of the table.

        ``change_type`` is that of the change feed: ``insert``, ``delete``, and ``update_preimage`` and
        ``update_postimage`` for both values of a row. Raise ``NotFoundError`` for a table that is in neither state.
        """
        return self._comparison.read_rows(TableRef.parse(table))

    def to_arrow(self) -> pa.Table:
        """Return the tables and their counts."""
        columns = pa.list_(pa.string())
        schema = pa.schema(
            [("table", pa.string()), ("kind", pa.string())]
            + [(name, pa.int64()) for name in ("inserted", "deleted", "updated")]
            + [("columns", columns), ("was", pa.string())]
        )
        return pa.Table.from_pylist([asdict(table) for table in self.tables], schema=schema)

    def __bool__(self) -> bool:
        return bool(self.tables)

    def _repr_html_(self) -> str:
        from quacklake.core.operations.cells import html_table

        return html_table(self.to_arrow(), total=len(self.tables))


def compare(lake: Lake, before: Version, after: Version | None = None, *, progress: Progress = silent) -> LakeDiff:
    """Return the difference of two states of a lake; see ``Lake.diff``."""
    newest = lake.current_snapshot() if after is None else after
    states = [lake.at(version=lake.handle.at_version(version).tx.base.id) for version in (before, newest)]
    comparison = StateComparison(*states)
    pairs = comparison.find_candidates()
    tables = []
    for number, pair in enumerate(pairs):
        progress("compared tables", number, len(pairs))
        found = comparison.count(*pair)
        if found is not None:
            tables.append(found)
    progress("compared tables", len(pairs), len(pairs))
    return LakeDiff(comparison.before.snapshot_id, comparison.after.snapshot_id, tuple(tables), comparison)


@dataclass(frozen=True, slots=True)
class StateComparison:
    """Two states of a lake. Changes are read from the older to the newer one, and turned round if need be."""

    before: LakeAt
    after: LakeAt

    @property
    def _older(self) -> LakeAt:
        return min(self.before, self.after, key=lambda state: state.snapshot_id)

    @property
    def _newer(self) -> LakeAt:
        return max(self.before, self.after, key=lambda state: state.snapshot_id)

    def find_candidates(self) -> list[tuple[TableInfo | None, TableInfo | None]]:
        """Return each table that may differ, as it was before and after; None where it did not exist."""
        before, after = ({info.id: info for info in state._tables()} for state in (self.before, self.after))
        touched = self._find_touched()
        pairs = [(before.get(id_), after.get(id_)) for id_ in sorted(before.keys() | after.keys())]
        return [(one, two) for one, two in pairs if one != two or touched is None or (one and one.id in touched)]

    def _find_touched(self) -> set[int] | None:
        """Return the tables with changes of rows in between; None if some snapshots have expired."""
        first, last = self._older.snapshot_id, self._newer.snapshot_id
        if first == last:
            return set()
        with self.after.handle.context.catalog.read() as reader:
            found = reader.snapshots.last(last - first, last + 1)
        if len(found) < last - first or found[0].id <= first:
            return None
        return {change.id for info in found for change in info.changes if change.id is not None}

    def count(self, before: TableInfo | None, after: TableInfo | None) -> TableDiff | None:
        """Return the difference of a table, or None if there is none."""
        if before is None or after is None:
            info, state = (after, self.after) if before is None else (before, self.before)
            assert info is not None
            rows = _open(state, info).count()
            if before is None:
                return TableDiff(info.qualified_name, "created", inserted=rows)
            return TableDiff(info.qualified_name, "dropped", deleted=rows)
        inserted, deleted, updated = self._count_rows(before, after)
        columns = tuple(_describe_columns(before, after))
        was = None if before.qualified_name == after.qualified_name else before.qualified_name
        if not (inserted or deleted or updated or columns or was):
            return None
        return TableDiff(after.qualified_name, "changed", inserted, deleted, updated, columns, was)

    def _count_rows(self, before: TableInfo, after: TableInfo) -> tuple[int, int, int]:
        """Return how many rows were inserted, deleted and updated."""
        counts = self._count_one_way(before, after)
        if counts is None:
            with self.open(before, after) as pairs:
                return pairs.count()
        inserted, deleted = counts if self.before is self._older else counts[::-1]
        return inserted, deleted, 0

    def _count_one_way(self, before: TableInfo, after: TableInfo) -> tuple[int, int] | None:
        """Return the rows that only came or only went, which statistics tell; None if there are both."""
        table, first, last = self._feed(before, after)
        try:
            deleted = table.deletions(first, last).count()
            inserted = table.insertions(first, last).count()
        except SnapshotExpiredError:
            return None
        return None if inserted and deleted else (inserted, deleted)

    def _feed(self, before: TableInfo, after: TableInfo) -> tuple[Table, int, int]:
        """Return a table in the newer state, and the first and last snapshot of the changes that lead there."""
        info = after if self.after is self._newer else before
        return _open(self._newer, info), self._older.snapshot_id + 1, self._newer.snapshot_id

    def read_rows(self, ref: TableRef) -> pa.Table:
        """Return the rows of a table that differ."""
        before, after = self._find(ref)
        if before is not None and after is not None:
            with self.open(before, after) as pairs:
                return pairs.read()
        info, state, kind = (after, self.after, "insert") if before is None else (before, self.before, "delete")
        if info is None:
            raise NotFoundError(f'no table "{ref.schema}.{ref.name}" in either state')
        rows = _open(state, info).scan(row_ids=True).to_arrow()
        kinds = pa.repeat(kind, rows.num_rows)
        return rows.select(["rowid", *info.schema.names]).add_column(0, "change_type", kinds)

    def _find(self, ref: TableRef) -> tuple[TableInfo | None, TableInfo | None]:
        """Return a table by its name after, or before if it does not exist any more, in both states."""
        after = self.after.handle.view().get_table(ref.schema, ref.name)
        if after is not None:
            return next((info for info in self.before._tables() if info.id == after.id), None), after
        before = self.before.handle.view().get_table(ref.schema, ref.name)
        return before, next((info for info in self.after._tables() if before and info.id == before.id), None)

    @contextmanager
    def open(self, before: TableInfo, after: TableInfo) -> Iterator[RowPairs]:
        """Lend the rows of a table that differ, as a table of a connection."""
        table, first, last = self._feed(before, after)
        engine = self.after.handle.context.engine
        with engine.connection() as connection, writing():
            pairs = RowPairs(connection, table.info.schema.columns, table.primary_key)
            try:
                try:
                    pairs.load_changes(engine.bind_feed(connection, table.changes(first, last).plan()))
                except SnapshotExpiredError:
                    older = _open(self._older, before if self.before is self._older else after)
                    newest = engine.bind(connection, table.plan(), rows=True)
                    pairs.load_states(engine.bind(connection, older.plan(), rows=True), newest, older.info)
                pairs.join(turned=self.before is not self._older)
                yield pairs
            finally:
                pairs.drop()


@dataclass(frozen=True, slots=True)
class RowPairs:
    """The rows of a table that differ between two states: each as it was before and after, if it was there.

    They are in a table of a connection, whose columns are called ``b.name`` and ``a.name``, with ``rowid`` for ``name``
    as well. Rows are the same if their keys are, or their row ids where there are no keys.
    """

    connection: duckdb.DuckDBPyConnection
    columns: Sequence[Column]
    keys: Sequence[str]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    def load_changes(self, feed: str) -> None:
        """Take the first and the last image of each row that a change feed has."""
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {_CHANGES} AS {feed}")
        stored = self.connection.execute(f"FROM {_CHANGES} LIMIT 0").description or []
        chosen = ", ".join(
            f"{quote(column[0])} AS {quote(name)}" for column, name in zip(stored[3:], self.names, strict=True)
        )
        for name, kept, order in (
            (_OLDER, _GONE, "snapshot_id, is_new"),
            (_NEWER, _NEW, "snapshot_id DESC, is_new DESC"),
        ):
            self.connection.execute(
                f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT rowid AS {_ROW}, {chosen} FROM"
                f" (SELECT *, change_type IN {_NEW} AS is_new FROM (SELECT * FROM {_CHANGES})"
                f" QUALIFY row_number() OVER (PARTITION BY rowid ORDER BY {order}) = 1) WHERE change_type IN {kept}"
            )
        self.connection.execute(f"DROP TABLE {_CHANGES}")

    def load_states(self, older: str, newer: str, old: TableInfo) -> None:
        """Take all rows of both states."""
        before = {column.id: column.name for column in old.schema.columns}
        chosen = ", ".join(quote(before[column.id]) if column.id in before else "NULL" for column in self.columns)
        names = ", ".join(map(quote, self.names))
        connection = self.connection
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {_NEWER} AS SELECT _ql_row_id AS {_ROW}, {names} FROM ({newer})"
        )
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {_OLDER} AS FROM {_NEWER} LIMIT 0")
        connection.execute(f"INSERT INTO {_OLDER} SELECT _ql_row_id, {chosen} FROM ({older})")

    def join(self, *, turned: bool) -> None:
        """Pair the images of rows, and leave out those that are equal; ``turned``: the newer state comes before."""
        before, after = (_NEWER, _OLDER) if turned else (_OLDER, _NEWER)
        if self.keys:
            before, after = number_by(before, self.keys), number_by(after, self.keys)
        same = " AND ".join(equal("b", "a", name) for name in self.identity)
        shown = [self.describe_side(side) for side in ("b", "a")]
        differ = " OR ".join(f"NOT ({equal('b', 'a', name)})" for name in self.names) or "false"
        self.connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {PAIRS} AS SELECT {', '.join(shown)} FROM {before} b FULL JOIN {after} a"
            f" ON {same} WHERE b.{_ROW} IS NULL OR a.{_ROW} IS NULL OR {differ}"
        )

    @property
    def identity(self) -> list[str]:
        """The columns by which rows are the same."""
        return [*self.keys, NUMBER] if self.keys else [_ROW]

    def describe_side(self, side: str) -> str:
        """Return the columns of one side under the names that they have in the table of pairs."""
        names = [*dict.fromkeys([_ROW, *self.identity]), *(name for name in self.names if name not in self.keys)]
        return ", ".join(f"{side}.{quote(name)} AS {quote(f'{side}.{name}')}" for name in names)

    def read(self) -> pa.Table:
        """Return the rows as a change feed has them, by their row ids, and the old values of a row before the new."""
        sides = (("b", "a", "delete", "update_preimage"), ("a", "b", "insert", "update_postimage"))
        parts = [
            f"SELECT CASE WHEN {quote(f'{other}.{_ROW}')} IS NULL THEN '{alone}' ELSE '{both}' END AS change_type,"
            f" {quote(f'{side}.{_ROW}')} AS {_ROW}, "
            + ", ".join(f"{quote(f'{side}.{name}')} AS {quote(name)}" for name in self.names)
            + f" FROM {PAIRS} WHERE {quote(f'{side}.{_ROW}')} IS NOT NULL"
            for side, other, alone, both in sides
        ]
        chosen = ", ".join(f"{carried_column(column)} AS {quote(column.name)}" for column in self.columns)
        return arrow_table(
            self.connection,
            f"SELECT change_type, {_ROW} AS rowid, {chosen} FROM ({' UNION ALL '.join(parts)})"
            f" ORDER BY {_ROW}, change_type DESC",
        )

    def count(self) -> tuple[int, int, int]:
        """Return how many rows were inserted, deleted and updated."""
        b, a = quote(f"b.{_ROW}"), quote(f"a.{_ROW}")
        conditions = (f"{b} IS NULL", f"{a} IS NULL", f"{a} IS NOT NULL AND {b} IS NOT NULL")
        counts = ", ".join(f"count(*) FILTER ({condition})" for condition in conditions)
        found = first_row(self.connection, f"SELECT {counts} FROM {PAIRS}")
        assert found is not None
        return found[0], found[1], found[2]

    def drop(self) -> None:
        """Drop the tables."""
        for name in (_CHANGES, _OLDER, _NEWER, PAIRS):
            self.connection.execute(f"DROP TABLE IF EXISTS {name}")


def number_by(rows: str, keys: Sequence[str]) -> str:
    """Return rows with a number that tells those with equal keys apart."""
    listed = ", ".join(map(quote, keys))
    return f"(SELECT *, row_number() OVER (PARTITION BY {listed} ORDER BY {_ROW}) AS {NUMBER} FROM {rows})"


def equal(one: str, other: str, name: str) -> str:
    """Return the condition that a column has the same value on two sides, NULL included."""
    return f"{one}.{quote(name)} IS NOT DISTINCT FROM {other}.{quote(name)}"


def _open(state: LakeAt, info: TableInfo) -> Table:
    return Table(state.handle, TableRef(info.schema_name, info.name))


def _describe_columns(before: TableInfo, after: TableInfo) -> Iterator[str]:
    """Yield in words how the columns of a table differ."""
    old, new = ({column.id: column for column in info.schema.columns} for info in (before, after))
    yield from (f"dropped {column.name}" for id_, column in old.items() if id_ not in new)
    for id_, column in new.items():
        known = old.get(id_)
        if known is None:
            yield f"added {column.name} {column.type}"
            continue
        if known.name != column.name:
            yield f"renamed {known.name} to {column.name}"
        if known.type != column.type:
            yield f"changed {column.name} from {known.type} to {column.type}"
