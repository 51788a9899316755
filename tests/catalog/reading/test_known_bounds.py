"""Remembered bounds never rule out a file with a matching row, whoever changes the lake and however."""

from __future__ import annotations

import random
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import quacklake
from quacklake import Lake, telemetry
from quacklake.core.catalog.reading import known_bounds
from quacklake.core.catalog.reading.known_bounds import BoundsMemory, TableBounds
from quacklake.core.catalog.reading.pruning import NAN, NULLS, facets_of, may_match, typed
from quacklake.core.format import bounds
from quacklake.core.format.bounds import Bounds, Compare, Every, IsNull, Predicate, Some, compare
from quacklake.core.format.schema import Column
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.scan import remembered
from quacklake.core.scan.planner import to_predicate
from tests.catalog.stock import Stock
from tests.seeds import LONG, SEED, chance, some

DATABASES = some(("sqlite", "postgres", "mysql"), 2, "databases of known bounds", always=("sqlite",))


@pytest.fixture(autouse=True)
def from_the_first_file_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_bounds, "LEAST", 0)
    monkeypatch.setattr(known_bounds, "ASKED_BEFORE", 0)
    monkeypatch.setattr(known_bounds, "BLOCK", 3)
    monkeypatch.setattr(known_bounds, "_PAGE", 4)
    monkeypatch.setattr(remembered, "FILES_OF_A_PLAN", 1_000)


# -- arrays beside the judge of single bounds --------------------------------------------------------------------------

_TEXTS = {
    "int64": ["0", "-5", "7", "999999999999999999", "9223372036854775807", "-9223372036854775808", "+3", "0x1F", " 1"],
    "uint64": ["0", "12", "9223372036854775808", "18446744073709551615"],
    "float64": ["-0.0", "1.5", "1e+300", "-1e-300", "1e400", "inf", "-inf", "nan", "1.7976931348623157e+308", ".5"],
    "float32": ["0.1", "16777216.0", "3.4028235e+38", "-1.5"],
    "decimal(38,10)": ["1234567890123456789012345678.0123456789", "-.5", "0.0000000001", "7"],
    "varchar": ["", "a", "a\x01", "ä", "🦆", "\uffff", "Z", "10", "9", "NULL", 'q"uo\nte'],
    "date": ["2024-01-01", "0001-01-01", "12024-01-01", "2024-01-01 (BC)", "infinity", "-infinity"],
    "timestamp": ["2024-01-01 00:00:00", "2024-01-01 00:00:00.000001", "infinity", "2024-01-01", "9999-12-31 23:59:59"],
    "timestamptz": ["2024-01-01 00:00:00+00", "2024-01-01 00:00:00.5+00", "10000-01-01 00:00:00+00"],
}
_HOSTILE = ["", "x", "1; DROP TABLE t", "٣", "1_000", "1e5", "--1", "1\n", "２０２４-01-01"]


@st.composite
def judged(draw: st.DrawFn) -> tuple[str, list[Bounds], list[tuple[str | None, str | None]], Predicate]:
    """Files with texts for bounds, which need not be true or in order, and a predicate."""
    type_ = draw(st.sampled_from(sorted(_TEXTS)))
    text = st.sampled_from([*_TEXTS[type_], *_HOSTILE]) | st.none()
    stored = draw(st.lists(st.tuples(text, text), min_size=1, max_size=8))
    nans = draw(st.lists(st.sampled_from([True, False, None]), min_size=len(stored), max_size=len(stored)))
    counts = st.sampled_from([0, 1, None])
    nulls = draw(st.lists(st.tuples(counts, counts), min_size=len(stored), max_size=len(stored)))
    files = [
        Bounds(bounds.decode(low, type_), bounds.decode(high, type_), null_count, value_count, nan)
        for (low, high), nan, (null_count, value_count) in zip(stored, nans, nulls, strict=True)
    ]
    values = [value for value in (bounds.decode(each, type_) for each in _TEXTS[type_]) if value is not None]
    operators = st.sampled_from(["=", "<", "<=", ">", ">="])
    leaf = st.builds(lambda op, value: compare(Column(1, "c", type_), op, value), operators, st.sampled_from(values))
    leaves = leaf | st.just(IsNull(1))
    parts = st.lists(leaves, min_size=1, max_size=3).map(tuple)
    return type_, files, stored, draw(leaves | parts.map(Every) | parts.map(Some))


@settings(max_examples=2_000 if LONG else 200)
@given(judged())
@example(("int64", [Bounds(low=None, high=5)], [("0x1F", "5")], compare(Column(1, "c", "int64"), "=", 3)))
def test_arrays_keep_every_file_that_single_bounds_keep(
    case: tuple[str, list[Bounds], list[tuple[str | None, str | None]], Predicate],
) -> None:
    _, files, stored, predicate = case
    known = {}
    for column, what in facets_of(predicate):
        if what == NAN:
            known[column, what] = (pa.array([file.contains_nan for file in files], pa.bool_()),)
        elif what == NULLS:
            known[column, what] = (pa.array([bounds.may_match(IsNull(1), {1: file}) for file in files], pa.bool_()),)
        else:
            ends = (pa.array([pair[at] for pair in stored], pa.string()) for at in range(2))
            known[column, what] = tuple(typed(end, what) for end in ends)
    found = may_match(predicate, known, len(files)).to_pylist()
    expected = [bounds.may_match(predicate, {1: file}) for file in files]
    assert all(ours or not theirs for ours, theirs in zip(found, expected, strict=True)), (found, expected)


@settings(max_examples=2_000 if LONG else 200)
@given(judged(), st.integers(1, 4))
def test_blocks_of_files_leave_out_no_file_that_is_kept(
    case: tuple[str, list[Bounds], list[tuple[str | None, str | None]], Predicate], block: int
) -> None:
    _, files, stored, predicate = case
    known = TableBounds(0.0, 0.0, Snapshot(1, None, 1, 1, 99), pa.array(range(len(files)), pa.int64()), {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_bounds, "BLOCK", block)
        for column, what in facets_of(predicate):
            if what == NAN:
                arrays: tuple[pa.Array, ...] = (pa.array([file.contains_nan for file in files], pa.bool_()),)
            elif what == NULLS:
                arrays = (pa.array([bounds.may_match(IsNull(1), {1: file}) for file in files], pa.bool_()),)
            else:
                arrays = tuple(typed(pa.array([pair[at] for pair in stored], pa.string()), what) for at in range(2))
            # the first files were known before the others came
            known = known.with_facet((column, what), tuple(array[: len(files) // 2] for array in arrays))
            known = known.with_facet((column, what), arrays)
        expected = known.ids.filter(may_match(predicate, known.facets, len(files)))
        assert known.matching(predicate).equals(expected)


@pytest.mark.parametrize(("type_", "low", "value"), [("int64", "5", 4), ("float64", "5.5", 4.0), ("varchar", "b", "a")])
def test_arrays_do_leave_files_out(type_: str, low: str, value: int | float | str) -> None:
    predicate = compare(Column(1, "c", type_), "<", value)
    assert isinstance(predicate, Compare)
    [kind] = {what for _, what in facets_of(predicate)} - {NAN}
    known = {(1, kind): (typed(pa.array([low, None]), kind),) * 2}
    assert may_match(predicate, known, 2).to_pylist() == [False, True]


# -- lakes with and without a memory -----------------------------------------------------------------------------------


def _open(url: str, folder: Path, **settings: int) -> Lake:
    return quacklake.connect(url, data_path=folder / "data", **settings)


def _rows(random_: random.Random, start: int) -> pa.Table:
    count = random_.choice((3, 12, 40))
    names = [random_.choice(("a", "b", "ä", None)) for _ in range(count)]
    numbers = [random_.choice((float("nan"), None, random_.uniform(-5, 5))) for _ in range(count)]
    return pa.table(
        {"id": range(start, start + count), "name": pa.array(names, pa.string()), "x": pa.array(numbers, pa.float64())}
    )


def _filter(random_: random.Random, most: int) -> str:
    low = random_.randrange(-5, most + 5)
    one = [f"id >= {low} AND id < {low + 9}", f"id = {low}", "name = 'b'", "name IS NULL", "x > 4.5", "x < -4.9"]
    return random_.choice([*one, f"{random_.choice(one)} OR {random_.choice(one)}"])


def _change(random_: random.Random, lake: Lake, start: int) -> int:
    """Change the lake in some way; return the first id that is free afterwards."""
    table = lake.table("t")
    match random_.choice(("append", "append", "append", "delete", "update", "merge", "rewrite", "flush", "expire")):
        case "append":
            rows = _rows(random_, start)
            table.append(rows)
            return start + rows.num_rows
        case "delete":
            table.delete(f"id % 7 = {random_.randrange(7)}")
        case "update":
            table.update({"x": random_.uniform(-5, 5)}, f"id % 11 = {random_.randrange(11)}")
        case "merge":
            table.merge_adjacent_files()
        case "rewrite":
            table.rewrite_data_files(delete_threshold=0.01)
        case "flush":
            table.flush_inlined_data()
        case "expire":
            lake.expire_snapshots(keep_last=random_.choice((1, 3)))
    return start


@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("seed", range(20 if LONG else 2))
def test_random_histories_are_planned_as_without_a_memory(
    database: str, seed: int, new_url: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_ = chance("known bounds", database, seed)
    monkeypatch.setattr(known_bounds, "WINDOW", random_.choice((1, 2, 1_024)))
    monkeypatch.setattr(known_bounds, "MAX_WINDOWS", random_.choice((1, 2, 4)))
    url, start = new_url(database), 0
    with _open(url, tmp_path, data_inlining_row_limit=10) as lake, _open(url, tmp_path, plan_cache_bytes=0) as other:
        lake.create_table("t", _rows(random_, 0).schema)
        before = telemetry.snapshot().counters
        for _ in range(25):
            start = _change(random_, random_.choice((lake, other)), start)
            for _ in range(3):
                where = _filter(random_, start)
                ours, plain = lake.table("t").plan(where), other.table("t").plan(where)
                assert ours.files.equals(plain.files), (SEED, where)
                assert ours.deletes.equals(plain.deletes), (SEED, where)
                assert (ours.pruned, ours.mappings, ours.past) == (plain.pruned, plain.mappings, plain.past)
            version = random_.choice(lake.snapshots().column("snapshot_id").to_pylist())
            if any(name.endswith("t") for name in lake.at(version).tables()):
                past = [each.at(version).table("t").to_arrow(where=where).sort_by("id") for each in (lake, other)]
                assert str(past[0].to_pylist()) == str(past[1].to_pylist()), (SEED, where, version)
        after = telemetry.snapshot().counters
        assert after.get("scan.bounds_remembered", 0) > before.get("scan.bounds_remembered", 0)
        assert after.get("scan.plans_filtered", 0) > before.get("scan.plans_filtered", 0)


def test_files_of_stock_duckdb_are_found_and_left_out(stock: Stock, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'lake.db'}"
    with _open(url, tmp_path, data_inlining_row_limit=0) as lake:
        table = lake.create_table("t", pa.table({"id": range(100)}))
        assert table.plan("id = 5").files.num_rows == 1
        stock.run(url, "INSERT INTO t SELECT range + 100 FROM range(100)", "INSERT INTO t VALUES (300), (400)")
        assert table.plan("id = 105").files.num_rows == 1
        assert table.to_arrow(where="id = 400").num_rows == 1
        stock.run(url, "CALL ducklake_flush_inlined_data('l')", "CALL ducklake_merge_adjacent_files('l')")
        assert [table.count(f"id = {id_}") for id_ in (5, 105, 300, 400, 500)] == [1, 1, 1, 1, 0]
    assert len(stock.rows(url)["main.t"]) == 202


def test_a_pinned_snapshot_finds_the_files_that_a_compaction_gave_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'lake.db'}"
    with _open(url, tmp_path, data_inlining_row_limit=0) as lake, _open(url, tmp_path) as other:
        table = lake.create_table("t", pa.table({"id": [0]}))
        for number in range(1, 5):
            table.append(pa.table({"id": [number]}))
        pinned = lake.at(lake.current_snapshot()).table("t")
        assert table.plan("id = 3").files.num_rows == pinned.plan("id = 3").files.num_rows == 1
        other.table("t").merge_adjacent_files()
        assert pinned.to_arrow(where="id = 3").num_rows == 1
        assert pinned.to_arrow(where="id = 9").num_rows == 0


def test_a_transaction_that_is_older_than_the_memory_still_sees_its_files(postgres_url: str, tmp_path: Path) -> None:
    with (
        _open(postgres_url, tmp_path, data_inlining_row_limit=0) as lake,
        _open(postgres_url, tmp_path) as other,
    ):
        table = lake.create_table("t", pa.table({"id": [0]}))
        for number in range(1, 5):
            table.append(pa.table({"id": [number]}))
        predicate = to_predicate("id = 3", table.info.schema)
        catalog, info = lake.handle.context.catalog, table.info
        with catalog.read() as reader:
            snapshot = reader.snapshots.latest()
            other.table("t").merge_adjacent_files()
            thread = threading.Thread(target=lambda: table.plan("id = 3"))
            thread.start()
            thread.join()
            assert catalog.bounds.get(info) is not None
            assert reader.files.matching(snapshot, info, predicate).num_rows == 1


def test_a_catalog_that_was_replaced_gives_ids_to_other_files(tmp_path: Path) -> None:
    path, copy = tmp_path / "lake.db", tmp_path / "copy.db"
    url = f"sqlite:///{path}"
    with _open(url, tmp_path, data_inlining_row_limit=0) as lake:
        table = lake.create_table("t", pa.table({"id": [1]}))
        shutil.copy(path, copy)
        table.append(pa.table({"id": [2]}))
        assert table.count("id = 2") == 1
        with closing(sqlite3.connect(copy)) as old, closing(sqlite3.connect(path)) as new:
            old.backup(new)
        with _open(url, tmp_path, data_inlining_row_limit=0) as other:
            other.table("t").append(pa.table({"id": [3]}))
            other.table("t").append(pa.table({"id": [4]}))
        assert [table.count(f"id = {id_}") for id_ in (1, 2, 3, 4)] == [1, 0, 1, 1]


def test_bounds_that_were_repaired_by_hand_are_believed_no_longer_than_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'lake.db'}"
    with _open(url, tmp_path, data_inlining_row_limit=0) as lake:
        table = lake.create_table("t", pa.table({"id": [1]}))
        with closing(sqlite3.connect(tmp_path / "lake.db")) as database, database:
            database.execute("UPDATE ducklake_file_column_stats SET min_value = '7', max_value = '7'")
        assert table.plan("id = 1").files.num_rows == 0
        with closing(sqlite3.connect(tmp_path / "lake.db")) as database, database:
            database.execute("UPDATE ducklake_file_column_stats SET min_value = NULL, max_value = x'00ff'")
        monkeypatch.setattr(known_bounds, "SECONDS", 0.0)
        monkeypatch.setattr(known_bounds, "MAX_SECONDS", 0.0)
        assert table.plan("id = 1 OR id = 1").files.num_rows == 1


def test_two_bounds_for_one_file_rule_out_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'lake.db'}"
    with _open(url, tmp_path, data_inlining_row_limit=0) as lake:
        table = lake.create_table("t", pa.table({"id": [1]}))
        with closing(sqlite3.connect(tmp_path / "lake.db")) as database, database:
            names = [row[1] for row in database.execute("PRAGMA table_info(ducklake_file_column_stats)")]
            chosen = ", ".join("'9'" if name.endswith("_value") else name for name in names)
            database.execute(
                f"INSERT INTO ducklake_file_column_stats SELECT {chosen} FROM ducklake_file_column_stats LIMIT 1"
            )
        assert table.plan("id = 5").files.num_rows == 1


# -- the memory itself -------------------------------------------------------------------------------------------------


def _bounds(files: int) -> TableBounds:
    snapshot = Snapshot(1, None, 1, 1, files)
    return TableBounds(known_bounds.time.monotonic(), 0.0, snapshot, pa.array(range(files), pa.int64()), {})


def test_the_memory_is_bounded(tmp_path: Path) -> None:
    with _open(f"sqlite:///{tmp_path / 'lake.db'}", tmp_path) as lake:
        tables = [lake.create_table(f"t{number}", pa.schema([("id", pa.int64())])).info for number in range(4)]
    memory = BoundsMemory(30_000)
    for info in tables:
        memory.put(info, _bounds(1_000))
    assert [memory.get(info) is not None for info in tables] == [False, False, True, True]
    memory.put(tables[0], _bounds(10_000))
    known = memory.get(tables[0])
    assert known is not None
    assert known.too_large
    assert known.nbytes == 0
    memory.clear()
    assert not any(memory.get(info) for info in tables)


def test_a_table_that_is_too_large_is_planned_by_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _open(f"sqlite:///{tmp_path / 'lake.db'}", tmp_path, data_inlining_row_limit=0) as lake:
        table = lake.create_table("t", pa.table({"id": [1]}))
        memory = lake.handle.context.catalog.bounds
        monkeypatch.setattr(memory, "_most", 1)
        for number in range(2, 6):
            table.append(pa.table({"id": [number]}))
            assert table.plan(f"id = {number}").files.num_rows == 1
        known = memory.get(table.info)
        assert known is not None
        assert known.too_large


def test_the_database_answers_the_first_plan_of_a_column_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_bounds, "ASKED_BEFORE", 1)
    with _open(f"sqlite:///{tmp_path / 'lake.db'}", tmp_path, data_inlining_row_limit=0) as lake:
        table = lake.create_table("t", pa.table({"id": [1], "x": [1]}))
        table.append(pa.table({"id": [2], "x": [2]}))
        memory, remembered = lake.handle.context.catalog.bounds, []
        for where in ("id = 1", "id = 2", "x = 1", "x = 2 AND id = 2", "x = 1 AND id = 1"):
            assert table.plan(where).files.num_rows == 1
            known = memory.get(table.info)
            remembered.append(0 if known is None else len(known.facets))
        assert remembered == [0, 1, 1, 2, 2]
        monkeypatch.setattr(known_bounds, "ASKED_SECONDS", 0.0)
        memory.forget(table.info)
        assert table.plan("id = 1 OR id = 9").files.num_rows == 1
        assert memory.get(table.info) is None


def test_the_columns_whose_plans_are_counted_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_bounds, "ASKED_BEFORE", 1)
    monkeypatch.setattr(known_bounds, "_MAX_ASKED", 3)
    with _open(f"sqlite:///{tmp_path / 'lake.db'}", tmp_path) as lake:
        info = lake.create_table("t", pa.schema([("id", pa.int64())])).info
    memory = BoundsMemory(1_000)
    assert not any(memory.asked_before(info, [(column, "integer")]) for column in range(5))
    assert [memory.asked_before(info, [(column, "integer")]) for column in (4, 3, 2, 0)] == [True, True, True, False]


@pytest.mark.parametrize("room", [0, 16, 64, 600])
def test_a_column_without_room_leaves_the_others_remembered(
    room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _open(f"sqlite:///{tmp_path / 'lake.db'}", tmp_path, data_inlining_row_limit=0) as lake:
        table = lake.create_table("t", pa.schema([("id", pa.int64()), ("name", pa.string())]))
        for number in range(10):
            table.append(pa.table({"id": [number], "name": [f"{number}" * 50]}))
        assert table.plan("id = 3").files.num_rows == 1
        memory = lake.handle.context.catalog.bounds
        known = memory.get(table.info)
        assert known is not None
        monkeypatch.setattr(memory, "_most", known.nbytes + known_bounds._LEAST + room)
        for digit in "57":
            assert table.plan(f"name = '{digit * 50}'").files.num_rows == 1
        assert table.plan("id = 4").files.num_rows == 1
        known = memory.get(table.info)
        assert known is not None
        assert not known.too_large
        assert len(known.facets) == len(known.refused) == 1
        monkeypatch.setattr(memory, "_most", 1_000_000)
        table.append(pa.table({"id": [11], "name": ["z"]}))
        assert table.plan("name = 'z'").files.num_rows == 1
        assert table.plan("id = 11 AND name = 'z'").files.num_rows == 1
