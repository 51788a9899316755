"""Playing steps on a lake, and comparing what each client sees at every snapshot with each other and with the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

import quacklake
from quacklake.core.format.names import quote
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.snapshots import ChangeKind, parse_changes
from quacklake.core.operations.reference import TableRef
from quacklake.lake.lake import LakeAt

from .clients import LONG, LakeSite, plain_duckdb
from .steps import Both, Maintain, Step, Stock

__all__ = ["DIRECTIONS", "History", "TableState", "compare", "our_state", "stock_state"]

Row = tuple[str | None, ...]

#: The writers that take the steps in turn.
DIRECTIONS: Mapping[str, tuple[str, ...]] = {
    "we-write": ("ours",),
    "stock-writes": ("stock",),
    "alternating": ("ours", "stock"),
}


@dataclass(frozen=True)
class TableState:
    """A table at one snapshot: (name, type) of each column, and every row as text, sorted."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]


State = dict[tuple[str, str], TableState]


@dataclass
class History:
    """The steps taken on a lake, with what the model held after each; without a model the caller says what to expect."""

    site: LakeSite
    model: duckdb.DuckDBPyConnection | None = field(default_factory=plain_duckdb)
    expected: dict[int, State] = field(default_factory=dict)
    schemas: dict[int, set[str]] = field(default_factory=dict)

    def begin(self, writer: str) -> None:
        """Make the lake."""
        if writer == "ours":
            self.site.lake()
        else:
            self.site.stock()
        self._note(0)

    def play(self, steps: Sequence[Step], writers: Sequence[str]) -> None:
        """Take steps, the writers in turn; the first one makes the lake."""
        self.begin(writers[0])
        for number, step in enumerate(steps):
            self.take(step, writers[number % len(writers)])

    def take(self, step: Step, writer: str) -> int:
        """Take one step; returns the newest snapshot after it."""
        before = self.newest()
        if self.model is not None:
            for statement in step.model if isinstance(step, Both | Stock | Maintain) else step.sql():
                if statement not in ("BEGIN", "COMMIT"):  # DuckDB's own tables cannot be altered after an insert
                    self.model.execute(statement)
        if writer == "ours" and not isinstance(step, Stock):
            step.run(self.site.lake())
            after = self.site.lake().current_snapshot()
        else:
            for statement in step.sql():
                self.site.stock().execute(statement)
            after = self.newest()
        for version in range(before + 1, after + 1):
            self._note(version)
        return after

    def newest(self) -> int:
        """The newest snapshot, read by the client that has the lake open."""
        if self.site._stock is not None:
            ((version,),) = self.site.metadata("SELECT max(snapshot_id) FROM {m}.ducklake_snapshot")
            return int(version)
        return self.site.lake().current_snapshot()

    def _note(self, version: int) -> None:
        if self.model is None:
            self.schemas[version] = {"main"}
            self.expected.setdefault(version, {})
            return
        found = self.model.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'memory'"
        ).fetchall()
        self.expected[version] = {
            (schema, name): _state(self.model, f"{quote(schema)}.{quote(name)}") for schema, name in found
        }
        schemas = self.model.execute(
            "SELECT schema_name FROM duckdb_schemas() WHERE database_name = 'memory'"
        ).fetchall()
        self.schemas[version] = {name for (name,) in schemas if name not in ("information_schema", "pg_catalog")}


def _state(connection: duckdb.DuckDBPyConnection, source: str, *, row_ids: bool = False) -> TableState:
    described = connection.execute(f"DESCRIBE FROM {source}").fetchall()
    columns = tuple((name, canonical(type_)) for name, type_, *_ in described)
    texts = ["rowid::VARCHAR"] if row_ids else []
    texts += [f"CAST({quote(name)} AS VARCHAR)" for name, _ in columns]
    rows = connection.execute(f"SELECT {', '.join(texts)} FROM {source}").fetchall()
    return TableState(columns, _sorted(rows))


def _sorted(rows: Sequence[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: [(value is not None, value or "") for value in row]))


def canonical(type_: str) -> str:
    """A type as DuckDB spells it."""
    return "JSON" if type_ == "JSON" else str(duckdb.sqltype(type_))


# -- what each client sees ---------------------------------------------------------------------------------------------


def ours_at(lake: quacklake.Lake, version: int, scratch: duckdb.DuckDBPyConnection) -> tuple[set[str], State]:
    """The schemas and tables of a snapshot as Quacklake reads them, the row id in front."""
    view = lake.at(version=version)
    state: State = {}
    for info in view._tables():
        state[(info.schema_name, info.name)] = our_state(view, info, scratch)
    return set(view.schemas()), state


def our_state(view: LakeAt, info: TableInfo, scratch: duckdb.DuckDBPyConnection) -> TableState:
    """A table as Quacklake reads it, the row id in front."""
    table = view.table(f"{quote(info.schema_name)}.{quote(info.name)}")
    columns = tuple((c.name, canonical(c.duckdb_type())) for c in info.schema.columns)
    return TableState(columns, _texts(scratch, table.scan(row_ids=True).to_arrow(), columns))


def stock_state(connection: duckdb.DuckDBPyConnection, source: str) -> TableState:
    """A table as the reference implementation reads it, the row id in front."""
    return _state(connection, source, row_ids=True)


def _texts(scratch: duckdb.DuckDBPyConnection, rows: pa.Table, columns: Sequence[tuple[str, str]]) -> tuple[Row, ...]:
    renamed = rows.rename_columns([f"c{number}" for number in range(rows.num_columns)])
    select = [f"c{len(columns)}::VARCHAR"]
    select += [f"CAST(CAST(c{number} AS {type_}) AS VARCHAR)" for number, (_, type_) in enumerate(columns)]
    scratch.register("read", renamed)
    try:
        return _sorted(scratch.execute(f"SELECT {', '.join(select)} FROM read").fetchall())
    finally:
        scratch.unregister("read")


def stock_tables_at(site: LakeSite, version: int) -> tuple[set[str], set[tuple[str, str]]]:
    """The schemas and tables that the reference implementation shows at a snapshot."""
    with site.stock_at(version) as connection:
        schemas = connection.execute("SELECT schema_name FROM duckdb_schemas() WHERE database_name = 'l'").fetchall()
        tables = connection.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'l'"
        ).fetchall()
    return {name for (name,) in schemas}, set(tables)


# -- comparing ---------------------------------------------------------------------------------------------------------


def compare(history: History) -> None:
    """Both clients must see what the model held, the same row ids and the same list of snapshots, at every snapshot."""
    site = history.site
    stock = _stock_states(history)
    described = _stock_snapshots(site.stock())
    for version, (schemas, tables) in _stock_visible(history).items():
        assert schemas == history.schemas[version], f"schemas that stock DuckLake sees at {version}"
        assert tables == set(history.expected[version]), f"tables that stock DuckLake sees at {version}"
    ours = compare_ours(history)
    for version, tables in history.expected.items():
        for key, expected in tables.items():
            _same(f"stock DuckLake, {key} at {version}", stock[version][key], expected)
            assert ours[version][key] == stock[version][key], f"row ids of {key} at {version}"
    assert _our_snapshots(site.lake()) == described


def compare_ours(history: History) -> dict[int, State]:
    """Quacklake must see what the model held at every snapshot; returns what it saw, the row ids in front."""
    lake = history.site.lake()
    seen: dict[int, State] = {}
    with plain_duckdb() as scratch:
        for version, expected in history.expected.items():
            schemas, tables = ours_at(lake, version, scratch)
            assert schemas == history.schemas[version], f"schemas that we see at {version}"
            assert set(tables) == set(expected), f"tables that we see at {version}"
            for key, state in expected.items():
                _same(f"we, {key} at {version}", tables[key], state)
            seen[version] = tables
        for key, state in expected.items():
            assert lake.table(".".join(map(quote, key))).count() == len(state.rows), f"the count of {key}"
    return seen


def _stock_states(history: History) -> dict[int, State]:
    """Every table of every snapshot as the reference implementation reads it, the row id in front.

    By a new connection: one that has merged files may miss tables that have been renamed since an old snapshot.
    """
    history.site.close_stock()
    connection = history.site.stock()
    return {
        version: {
            (schema, name): stock_state(connection, f"l.{quote(schema)}.{quote(name)} AT (VERSION => {version:d})")
            for schema, name in tables
        }
        for version, tables in history.expected.items()
    }


def _stock_visible(history: History) -> dict[int, tuple[set[str], set[tuple[str, str]]]]:
    """Return what the reference implementation lists at snapshots with a new schema version: others list the same."""
    versions = dict(history.site.metadata("SELECT snapshot_id, schema_version FROM {m}.ducklake_snapshot ORDER BY 1"))
    assert list(versions) == sorted(history.expected), "the snapshots are not those of the steps taken"
    chosen = [version for version in versions if version == 0 or versions[version] != versions[version - 1]]
    if not LONG and len(chosen) > 3:
        chosen = [chosen[len(chosen) // 3], chosen[2 * len(chosen) // 3], chosen[-1]]
    return {version: stock_tables_at(history.site, version) for version in chosen}


def _same(who: str, found: TableState, expected: TableState) -> None:
    """The state of a client, whose rows begin with the row id, against the model's."""
    assert found.columns == expected.columns, who
    without = _sorted([row[1:] for row in found.rows])
    if without != expected.rows:
        missing = sorted(set(expected.rows) - set(without), key=str)[:3]
        extra = sorted(set(without) - set(expected.rows), key=str)[:3]
        raise AssertionError(f"{who}: {len(without)} rows, not {len(expected.rows)}; missing {missing}, extra {extra}")
    ids = [row[0] for row in found.rows]
    assert len(set(ids)) == len(ids) and None not in ids, f"{who}: row ids are not unique"


_KEYS = {
    ChangeKind.CREATED_SCHEMA: "schemas_created",
    ChangeKind.CREATED_TABLE: "tables_created",
    ChangeKind.DROPPED_SCHEMA: "schemas_dropped",
    ChangeKind.DROPPED_TABLE: "tables_dropped",
    ChangeKind.INSERTED_INTO_TABLE: "tables_inserted_into",
    ChangeKind.DELETED_FROM_TABLE: "tables_deleted_from",
    ChangeKind.ALTERED_TABLE: "tables_altered",
    ChangeKind.INLINED_INSERT: "inlined_insert",
    ChangeKind.INLINED_DELETE: "inlined_delete",
    ChangeKind.INLINE_FLUSH: "flushed_inlined",
    ChangeKind.MERGE_ADJACENT: "merge_adjacent",
    ChangeKind.REWRITE_DELETE: "rewrite_delete",
    ChangeKind.CREATED_VIEW: "views_created",
    ChangeKind.DROPPED_VIEW: "views_dropped",
    ChangeKind.ALTERED_VIEW: "views_altered",
}


_TWO_NAMES = ("tables_created", "views_created")


def _stock_snapshots(connection: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    rows = connection.execute(
        "SELECT snapshot_id, snapshot_time::VARCHAR, schema_version, changes, author, commit_message, commit_extra_info"
        " FROM l.snapshots() ORDER BY snapshot_id"
    ).fetchall()
    return [
        (
            *row[:3],
            {key: sorted(map(_unquoted, values) if key in _TWO_NAMES else values) for key, values in row[3].items()},
            *row[4:],
        )
        for row in rows
    ]


def _our_snapshots(lake: quacklake.Lake) -> list[tuple[Any, ...]]:
    snapshots = lake.snapshots()
    with plain_duckdb() as scratch:
        scratch.register("snapshots", snapshots)
        rows = scratch.execute(
            "SELECT snapshot_id, snapshot_time::VARCHAR, schema_version, changes, author, commit_message,"
            " commit_extra_info FROM snapshots ORDER BY snapshot_id"
        ).fetchall()
    return [(*row[:3], _changes(row[3]), *row[4:]) for row in rows]


def _changes(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for change in parse_changes(text):
        if change.name is not None:
            value = f"{change.schema}.{change.name}"
        else:
            value = str(change.id) if change.schema is None else change.schema
        found.setdefault(_KEYS[change.kind], []).append(value)
    return {key: sorted(values) for key, values in found.items()}


def _unquoted(name: str) -> str:
    """Two names with a dot between, without the quotes they have where SQL needs them."""
    ref = TableRef.parse(name)
    return f"{ref.schema}.{ref.name}"
