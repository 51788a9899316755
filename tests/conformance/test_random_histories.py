"""Random changes by both clients in turn: every snapshot holds what a dictionary of rows says it must."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from .clients import LakeSite, plain_duckdb
from .conftest import HISTORIES, LONG, verify_site
from .history import History, TableState, compare
from .steps import (
    AddColumn,
    Append,
    Both,
    Comment,
    Create,
    Delete,
    Drop,
    DropColumn,
    Maintain,
    Merge,
    Overwrite,
    Partition,
    Rename,
    RenameColumn,
    Sort,
    Step,
    Together,
    Update,
)

COLUMNS = (("id", "INTEGER"), ("name", "VARCHAR"), ("value", "BIGINT"))
NAMES = ("a", "b", "c")
#: id -> name, value, then the columns that were added.
Rows = dict[int, tuple[str | None, int | None, *tuple[int, ...]]]


@dataclass
class Model:
    """The tables as dictionaries of rows, and the names of the columns that were added; nothing is used twice."""

    tables: dict[str, Rows] = field(default_factory=dict)
    added: dict[str, list[str]] = field(default_factory=dict)
    views: list[str] = field(default_factory=list)
    partitioned: dict[str, tuple[str, ...]] = field(default_factory=dict)
    vectors: bool = False
    encrypted: bool = False
    folder: Path = Path()
    next_id: int = 0
    next_column: int = 0
    next_view: int = 0
    next_file: int = 0

    def state(self) -> dict[tuple[str, str], TableState]:
        return {
            ("main", name): TableState((*COLUMNS, *((column, "INTEGER") for column in self.added[name])), _texts(rows))
            for name, rows in self.tables.items()
        }

    def fresh_column(self) -> str:
        self.next_column += 1
        return f"x{self.next_column}"

    def fresh_view(self) -> str:
        self.next_view += 1
        return f"v{self.next_view}"

    def pick(self, number: int) -> str | None:
        """One of the existing tables."""
        names = sorted(self.tables)
        return names[number % len(names)] if names else None

    def span(self, table: str, start: float, width: float) -> tuple[int, int]:
        """A range of ids of a table, given as fractions of all it has."""
        known = sorted(self.tables[table]) or [0]
        first = known[int(start * (len(known) - 1))]
        last = known[min(len(known) - 1, int((start + width) * (len(known) - 1)))]
        return first, last


def _texts(rows: Rows) -> tuple[tuple[str | None, ...], ...]:
    texts = [(str(id_), *(None if value is None else str(value) for value in row)) for id_, row in rows.items()]
    return tuple(sorted(texts, key=lambda row: [(text is not None, text or "") for text in row]))


@dataclass(frozen=True)
class Change:
    """One random change: what it is, and numbers that say where and how much."""

    kind: str
    table: int
    count: int
    start: float
    width: float

    def step(self, model: Model) -> Step | None:
        """Return the step for the present state, with its effect on the model; None when there is nothing to do."""
        table = model.pick(self.table)
        if table is None and self.kind != "create":
            return None
        return _STEPS[self.kind](self, model, table or "")


def _create(change: Change, model: Model, table: str) -> Step | None:
    name = next((name for name in NAMES if name not in model.tables), None)
    if name is None:
        return None
    model.tables[name], model.added[name] = {}, []
    return Create(name, ", ".join(f"{column} {type_}" for column, type_ in COLUMNS))


def _append(change: Change, model: Model, table: str) -> Step:
    first, model.next_id = model.next_id, model.next_id + change.count
    for id_ in range(first, model.next_id):
        model.tables[table][id_] = (f"n{id_}", id_ * 3, *(id_ for _ in model.added[table]))
    more = "".join(", i::INTEGER" for _ in model.added[table])
    return Append(table, f"SELECT i::INTEGER, 'n' || i, i * 3{more} FROM range({first}, {model.next_id}) r(i)")


def _delete(change: Change, model: Model, table: str) -> Step:
    first, last = model.span(table, change.start, change.width)
    model.tables[table] = {id_: row for id_, row in model.tables[table].items() if not first <= id_ <= last}
    return Delete(table, f"id BETWEEN {first} AND {last}")


def _clear(change: Change, model: Model, table: str) -> Step:
    model.tables[table] = {}
    return Delete(table)


def _update(change: Change, model: Model, table: str) -> Step:
    first, last = model.span(table, change.start, change.width)
    for id_, (name, value, *added) in model.tables[table].items():
        if first <= id_ <= last:
            model.tables[table][id_] = (name, None if value is None else value + change.count, *added)
    return Update(table, {"value": f"value + {change.count}"}, f"id BETWEEN {first} AND {last}")


def _merge(change: Change, model: Model, table: str) -> Step:
    """Some existing rows, and some new ones."""
    first, last = model.span(table, change.start, change.width / 2)
    known = [id_ for id_ in model.tables[table] if first <= id_ <= last]
    fresh = range(model.next_id, model.next_id + change.count)
    model.next_id = fresh.stop
    ids = [*known, *fresh]
    for id_ in ids:
        model.tables[table][id_] = ("merged", id_, *(-id_ for _ in model.added[table]))
    more = "".join(f", -i::INTEGER AS {column}" for column in model.added[table])
    select = f"SELECT i::INTEGER AS id, 'merged' AS name, i::BIGINT AS value{more} FROM unnest({ids}::INTEGER[]) r(i)"
    return Merge(table, select, "id")


def _overwrite(change: Change, model: Model, table: str) -> Step:
    model.tables[table] = {}
    append = _append(change, model, table)
    assert isinstance(append, Append)
    return Overwrite(table, append.select)


def _rename(change: Change, model: Model, table: str) -> Step | None:
    name = next((name for name in NAMES if name not in model.tables), None)
    if name is None:
        return None
    model.tables[name], model.added[name] = model.tables.pop(table), model.added.pop(table)
    model.partitioned[name] = model.partitioned.pop(table, ())
    return Rename(table, name)


def _drop(change: Change, model: Model, table: str) -> Step:
    del model.tables[table], model.added[table]
    model.partitioned.pop(table, None)
    return Drop(table)


def _add_column(change: Change, model: Model, table: str) -> Step:
    name = model.fresh_column()
    model.added[table].append(name)
    model.tables[table] = {id_: (*row, change.count) for id_, row in model.tables[table].items()}
    return AddColumn(table, name, "INTEGER", change.count)


def _rename_column(change: Change, model: Model, table: str) -> Step | None:
    added = model.added[table]
    if not added:
        return None
    at = change.count % len(added)
    old, added[at] = added[at], model.fresh_column()
    return RenameColumn(table, old, added[at])


def _drop_column(change: Change, model: Model, table: str) -> Step | None:
    added = model.added[table]
    if not added:
        return None
    at = change.count % len(added)
    model.tables[table] = {id_: (*row[: 2 + at], *row[3 + at :]) for id_, row in model.tables[table].items()}  # type: ignore[misc]
    return DropColumn(table, added.pop(at))


def _maintain(change: Change, model: Model, table: str) -> Step:
    kinds = ("flush", "merge", "rewrite", "optimize")
    return Maintain(kinds[change.count % len(kinds)])


_PARTITIONS = (("bucket(3, id)",), ("name",), ("bucket(2, name)", "bucket(2, id)"), ())
_ORDERS = (("id DESC",), ("value", "id"), ())


def _partition(change: Change, model: Model, table: str) -> Step:
    keys = _PARTITIONS[change.count % len(_PARTITIONS)]
    model.partitioned[table] = keys
    return Partition(table, keys)


def _sort(change: Change, model: Model, table: str) -> Step:
    return Sort(table, _ORDERS[change.count % len(_ORDERS)])


def _comment(change: Change, model: Model, table: str) -> Step:
    return Comment(table, f"it's {change.count}")


def _add_files(change: Change, model: Model, table: str) -> Step | None:
    """A file from elsewhere, with the columns that the table has now; an encrypted lake takes none.

    Stock refuses a file whose rows belong to several partitions, or that does not say to which.
    """
    if model.encrypted or model.partitioned.get(table):
        return None
    first, model.next_id = model.next_id, model.next_id + change.count
    for id_ in range(first, model.next_id):
        model.tables[table][id_] = (f"n{id_}", id_ * 3, *(id_ for _ in model.added[table]))
    model.next_file += 1
    path = model.folder / f"{model.next_file}.parquet"
    more = "".join(f", i::INTEGER AS {column}" for column in model.added[table])
    with plain_duckdb() as connection:
        connection.execute(
            f"COPY (SELECT i::INTEGER AS id, 'n' || i AS name, i * 3 AS value{more}"
            f" FROM range({first}, {model.next_id}) r(i)) TO '{path}'"
        )
    return Both(
        f"CALL ducklake_add_data_files('l', '{table}', '{path}')", lambda lake: lake.table(table).add_files(path)
    )


def _create_view(change: Change, model: Model, table: str) -> Step:
    name = model.fresh_view()
    model.views.append(name)
    sql = f"SELECT id, name FROM {table} WHERE id > {change.count}"
    return Both(f"CREATE VIEW {name} AS {sql}", lambda lake: lake.create_view(name, sql))


def _rename_view(change: Change, model: Model, table: str) -> Step | None:
    if not model.views:
        return None
    at = change.count % len(model.views)
    old, model.views[at] = model.views[at], model.fresh_view()
    new = model.views[at]
    return Both(f"ALTER VIEW {old} RENAME TO {new}", lambda lake: lake.rename_view(old, new))


def _drop_view(change: Change, model: Model, table: str) -> Step | None:
    if not model.views:
        return None
    name = model.views.pop(change.count % len(model.views))
    return Both(f"DROP VIEW {name}", lambda lake: lake.drop_view(name))


def _limit(change: Change, model: Model, table: str) -> Step:
    return Both(
        f"CALL l.set_option('data_inlining_row_limit', {change.count}, table_name => '{table}')",
        lambda lake: lake.options.set("data_inlining_row_limit", change.count, table=table),
    )


_STEPS: dict[str, Callable[[Change, Model, str], Step | None]] = {
    "create": _create,
    "append": _append,
    "delete": _delete,
    "clear": _clear,
    "update": _update,
    "merge": _merge,
    "overwrite": _overwrite,
    "rename": _rename,
    "drop": _drop,
    "add column": _add_column,
    "rename column": _rename_column,
    "drop column": _drop_column,
    "partition": _partition,
    "sort": _sort,
    "comment": _comment,
    "maintain": _maintain,
    "add files": _add_files,
    "create view": _create_view,
    "rename view": _rename_view,
    "drop view": _drop_view,
    "limit": _limit,
}
ROW_KINDS = ("append", "append", "delete", "update", "merge")
COLUMN_KINDS = ("add column", "add column", "rename column", "drop column")
TABLE_KINDS = ("maintain", "maintain", "partition", "sort", "comment", "overwrite", "clear", "create", "rename", "drop")
OTHER_KINDS = ("add files", "add files", "create view", "rename view", "drop view", "limit")
KINDS = (*ROW_KINDS, *ROW_KINDS, *COLUMN_KINDS, *TABLE_KINDS, *OTHER_KINDS, "append")


#: Kinds of changes that delete no row of a file.
_KEEPING = ("append", "create", "rename", "add files", "maintain", *COLUMN_KINDS, *OTHER_KINDS)


def changes(kinds: Sequence[str]) -> st.SearchStrategy[Change]:
    counts = st.one_of(st.integers(1, 6), st.integers(11, 30))
    part = st.floats(0, 1, width=16)
    return st.builds(
        Change, st.sampled_from(kinds), st.integers(0, 2), counts, part, st.one_of(st.floats(0, 0.1), part)
    )


#: Clients and their changes in turn; several changes at once are one transaction.
Turns = list[tuple[str, Change | list[Change]]]
TURNS = st.lists(
    st.tuples(
        st.sampled_from(["ours", "stock"]),
        st.one_of(changes(KINDS), st.lists(changes(ROW_KINDS), min_size=2, max_size=4)),
    ),
    min_size=6,
    max_size=30 if LONG else 10,
)


def _beyond_stock(model: Model, changes: Sequence[Change]) -> bool:
    """Return whether stock DuckLake would apply these changes wrongly.

    Its second deletion vector takes the first one's history with it. In a table that is partitioned by buckets, it does
    not find single ids in files from before (``test_layouts`` shows it).
    """
    choosing = [change for change in changes if change.kind not in _KEEPING]
    if model.vectors and choosing:
        return True
    tables = [model.pick(change.table) or "" for change in choosing]
    return any("(" in key for table in tables for key in model.partitioned.get(table, ()))


def _older_rows_inlined(site: LakeSite) -> bool:
    """Return whether the catalog has rows from before a change of columns: stock's rewrite of files fails then."""
    found = site.metadata(
        "SELECT 1 FROM {m}.ducklake_inlined_data_tables i WHERE EXISTS (SELECT 1 FROM {m}.ducklake_schema_versions v"
        " WHERE v.table_id = i.table_id AND v.schema_version > i.schema_version)"
    )
    return bool(found)


def take(history: History, model: Model, writer: str, change: Change | list[Change]) -> None:
    if _beyond_stock(model, [change] if isinstance(change, Change) else change):
        writer = "ours"
    if isinstance(change, Change):
        step = change.step(model)
    else:
        # stock DuckLake loses rows, and gives ids twice, when a transaction changes what it has inserted
        parts = change if writer == "ours" else [change[0], *(part for part in change[1:] if part.kind == "append")]
        inner = [found for part in parts if (found := part.step(model)) is not None]
        step = Together(inner) if inner else None
    if isinstance(step, Maintain) and step.kind in ("rewrite", "optimize") and _older_rows_inlined(history.site):
        writer = "ours"
    if step is not None:
        note(f"{writer}: {step}")
        before = history.newest()
        for version in range(before, history.take(step, writer)):
            history.expected[version + 1] = model.state()


def play(
    kind: str,
    inlining: int,
    turns: Turns,
    check: Callable[[History], None] = compare,
    *,
    encrypted: bool = False,
    vectors: bool = False,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        site = LakeSite(kind, Path(folder), inlining, encrypted=encrypted, foreign_paths=[Path(folder, "outside")])
        try:
            history, model = (
                History(site, model=None),
                Model(vectors=vectors, encrypted=encrypted, folder=Path(folder, "outside")),
            )
            model.folder.mkdir()
            history.begin(turns[0][0])
            if vectors:
                site.lake().options.set("write_deletion_vectors", True)
            for change in (Change("create", 0, 1, 0, 0), Change("append", 0, 25, 0, 0), Change("append", 0, 4, 0, 0)):
                take(history, model, turns[0][0], change)
            for writer, turn in turns:
                take(history, model, writer, turn)
            check(history)
            if LONG:
                verify_site(site)
        finally:
            site.close()


@pytest.mark.daily(0.35)
@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
@settings(max_examples=1_000 if LONG else 10, **HISTORIES)
@given(inlining=st.sampled_from([10, 10, 3, 0]), turns=TURNS, encrypted=st.sampled_from([False, False, False, True]))
def test_changes_in_any_order_by_either_client_are_seen_alike_by_both(
    kind: str, inlining: int, turns: Turns, encrypted: bool
) -> None:
    play(kind, inlining, turns, encrypted=encrypted)


@settings(max_examples=150 if LONG else 4, **HISTORIES)
@given(inlining=st.sampled_from([10, 3, 0]), turns=TURNS)
def test_histories_with_deletion_vectors_are_seen_alike_by_both(inlining: int, turns: Turns) -> None:
    play("sqlite", inlining, turns, vectors=True)
