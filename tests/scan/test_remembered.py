"""Remembered plans never change an answer, whoever asks and whatever happens to the catalog."""

from __future__ import annotations

import datetime as dt
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import quacklake
from quacklake import telemetry
from quacklake.core.catalog.reading import known_bounds
from quacklake.core.format.bounds import ANYTHING, Compare, Predicate
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.format.snapshots import Snapshot
from quacklake.core.scan import ScanPlan, plan_scan, remembered
from quacklake.core.scan.plan import FILES
from quacklake.core.scan.remembered import Plans, plans_of
from quacklake.core.transaction import reading
from quacklake.errors import InputError

ROWS = pa.table({"id": range(100)})


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that are planned from now on."""
    planned: list[str] = []

    def counted(*arguments: Any, **named: Any) -> ScanPlan:
        plan = plan_scan(*arguments, **named)
        planned.append(plan.table_name)
        return plan

    monkeypatch.setattr(reading, "plan_scan", counted)
    return planned


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'lake.db'}"


@pytest.fixture
def lake(url: str, tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(url, data_path=tmp_path / "data", data_inlining_row_limit=0) as opened:
        opened.create_table("t", ROWS)
        yield opened


def _ids(lake: quacklake.Lake, where: str | None = None) -> list[int]:
    ids: list[int] = lake.table("t").to_arrow(where=where).column("id").to_pylist()
    return sorted(ids)


@pytest.mark.parametrize("database", ["sqlite", "duckdb", "postgres", "mysql"])
def test_a_snapshot_is_the_same_for_who_committed_it_and_who_reads_it(
    database: str, new_url: Callable[[str], str], tmp_path: Path
) -> None:
    with quacklake.connect(new_url(database), data_path=tmp_path / "data") as lake:
        lake.create_table("t", ROWS)
        committed = lake.handle.context.recent
        assert lake.handle.context.latest() == committed
        lake.table("t").append(ROWS)
        assert lake.handle.context.latest() == lake.handle.context.recent != committed


def test_each_filter_is_planned_once_at_a_snapshot(lake: quacklake.Lake, planned: list[str]) -> None:
    for _ in range(3):
        assert len(_ids(lake)) == 100
        assert _ids(lake, "id < 3") == [0, 1, 2]
        assert _ids(lake, "id < 2") == [0, 1]
    assert planned == ["t"] * 3
    lake.table("t").delete("id = 1")
    planned.clear()
    assert [_ids(lake, "id < 3") for _ in range(2)] == [[0, 2]] * 2
    assert planned == ["t"]


def test_all_lakes_and_sessions_of_a_process_share_plans(lake: quacklake.Lake, url: str, planned: list[str]) -> None:
    with quacklake.connect(url) as other, quacklake.session() as session:
        session.sql(f"ATTACH 'ducklake:{url.replace(':///', ':')}' AS l")
        for _ in range(2):
            assert len(_ids(lake)) == len(_ids(other)) == 100
            assert session.sql("SELECT count(id) FROM l.t").fetchone() == (100,)
    assert planned == ["t"]


def test_lakes_that_may_read_other_folders_do_not_share_plans(lake: quacklake.Lake, url: str, tmp_path: Path) -> None:
    with quacklake.connect(url, foreign_paths=[str(tmp_path)]) as other:
        assert other.handle.context.plans is not lake.handle.context.plans


def test_another_client_is_seen_at_once(lake: quacklake.Lake, url: str) -> None:
    draw = random.Random(5)
    model = set(range(100))
    with quacklake.connect(url) as other:
        for number in range(12):
            changing, looking = draw.sample([lake, other], 2)
            gone = draw.randrange(100)
            if draw.random() < 0.5:
                changing.table("t").delete(f"id = {gone}")
                model.discard(gone)
            elif draw.random() < 0.5:
                changing.table("t").append(pa.table({"id": [1000 + number]}))
                model.add(1000 + number)
            else:
                changing.table("t").merge_adjacent_files()
            assert _ids(looking) == _ids(changing) == sorted(model)


def test_past_snapshots_and_transactions_are_always_planned(lake: quacklake.Lake, planned: list[str]) -> None:
    past = lake.at(version=lake.current_snapshot())
    for _ in range(2):
        assert past.table("t").to_arrow().num_rows == 100
    with lake.transaction() as tx:
        for _ in range(2):
            assert tx.table("t").to_arrow().num_rows == 100
    assert planned == ["t"] * 4


def _restore(url: str, copy: sqlite3.Connection) -> None:
    """Bring a database to the state of a copy, under whoever has it open."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        copy.backup(database)


def _copy(url: str) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:")
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        database.backup(copy)
    return copy


def test_a_catalog_restored_under_an_open_lake_is_read_as_it_is_now(lake: quacklake.Lake, url: str) -> None:
    with closing(_copy(url)) as copy:
        lake.table("t").append(pa.table({"id": [1000]}))
        assert _ids(lake, "id >= 100") == [1000]
        _restore(url, copy)
        assert _ids(lake, "id >= 100") == []
        lake.table("t").append(pa.table({"id": [1000]}))
        assert _ids(lake, "id >= 100") == [1000]
        _restore(url, copy)
        with quacklake.connect(url) as other:  # the same id for another snapshot
            other.table("t").append(pa.table({"id": [2000]}))
        assert _ids(lake, "id >= 100") == [2000]


def test_columns_of_a_restored_catalog_are_those_it_has_now(lake: quacklake.Lake, url: str) -> None:
    with closing(_copy(url)) as copy:
        lake.table("t").add_column("before", "int64")
        assert lake.table("t").to_arrow().column_names == ["id", "before"]
        _restore(url, copy)
        with quacklake.connect(url) as other:
            other.table("t").add_column("after", "varchar")
        assert lake.table("t").to_arrow().column_names == ["id", "after"]


def test_principals_share_no_rows_through_plans(lake: quacklake.Lake, planned: list[str]) -> None:
    access = lake.access
    for user in ("ann", "bob"):
        access.create_user(user)
        access.grant("SELECT", user, table="t")
    access.create_policy("few", "t", "CASE current_principal() WHEN 'ann' THEN id < 3 ELSE id >= 98 END")
    ann, bob = lake.as_principal("ann"), lake.as_principal("bob")
    planned.clear()
    for _ in range(2):
        assert len(_ids(lake)) == 100
        assert sorted(ann.sql("FROM t").fetchall()) == [(0,), (1,), (2,)]
        assert sorted(bob.sql("FROM t").fetchall()) == [(98,), (99,)]


def test_a_limit_of_files_holds_for_remembered_plans(lake: quacklake.Lake, url: str) -> None:
    lake.table("t").append(ROWS)
    assert lake.table("t").plan().files.num_rows == 2
    with quacklake.connect(url, plan_max_files=1) as other, pytest.raises(InputError, match="plan_max_files is 1"):
        other.table("t").plan()


def test_nothing_is_remembered_without_room(lake: quacklake.Lake, url: str, planned: list[str]) -> None:
    with quacklake.connect(url, plan_cache_bytes=0) as other:
        for _ in range(2):
            assert len(_ids(other)) == 100
    assert planned == ["t", "t"]


def test_rows_of_the_catalog_are_copied_into_a_connection_once_for_each_plan(url: str, tmp_path: Path) -> None:
    with (
        quacklake.connect(url, data_path=tmp_path / "data", data_inlining_row_limit=1_000) as lake,
        closing(duckdb.connect()) as connection,
    ):
        table = lake.create_table("t", ROWS)
        for copies in (1, 2):
            for _ in range(3):
                lake.register(connection)
                assert connection.execute("SELECT count(*) FROM t").fetchall() == [(copies * 100,)]
            made = connection.execute("SELECT count(*) FROM duckdb_tables() WHERE temporary").fetchall()
            assert made == [(1,)]
            table.append(ROWS)
        connection.execute("BEGIN")
        lake.register(connection)
        connection.execute("ROLLBACK")
        lake.register(connection)
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(300,)]


def test_registered_views_follow_the_lake_and_what_their_connection_did(lake: quacklake.Lake) -> None:
    def count() -> int:
        row = connection.execute("SELECT count(*) FROM t").fetchall()[0]
        return int(row[0])

    with closing(duckdb.connect()) as connection:
        for _ in range(2):
            lake.register(connection)
            assert count() == 100
        connection.execute("CREATE OR REPLACE VIEW t AS SELECT 1 AS id")
        lake.register(connection)
        assert count() == 100
        lake.table("t").append(ROWS)
        assert count() == 100
        connection.execute("BEGIN")
        lake.register(connection)
        assert count() == 200
        connection.execute("ROLLBACK")
        assert count() == 100
        lake.register(connection)
        assert count() == 200
        lake.table("t").delete("id < 50")
        for _ in range(2):
            lake.register(connection)
            assert count() == 100
        connection.execute("ATTACH ':memory:' AS other; USE other")
        lake.register(connection)
        assert count() == 100


def _table(number: int) -> TableInfo:
    schema = TableSchema((Column(1, "id", "int64"),))
    return TableInfo(number, f"u{number}", 0, "main", f"t{number}", "t/", True, schema, 1)


def test_plans_take_no_more_room_than_allowed_and_are_never_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    draw, clock = random.Random(11), [100.0]
    monkeypatch.setattr(remembered.time, "monotonic", lambda: clock[0])
    plans = Plans(40_000)
    times = [dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=number) for number in range(3)]
    made: dict[Any, float] = {}
    for _ in range(500):
        clock[0] += draw.choice([0.0, 0.1, 4.0])
        table = _table(draw.randrange(4))
        if draw.random() < 0.1:  # as if another history had given the columns another type
            table = replace(table, schema=TableSchema((Column(1, "id", "varchar"),)))
        snapshot = Snapshot(draw.randrange(2), draw.choice(times), 1, 5, 5)
        predicate = draw.choice([ANYTHING, Compare(1, "int64", "=", 1, "1"), Compare(1, "int64", "=", 2, "2")])
        wanted = (snapshot, table, predicate)

        def make(predicate: Predicate, most: int | None, wanted: Any = wanted) -> ScanPlan:
            assert (predicate, most) == (wanted[2], None)
            made[wanted] = clock[0]
            files = FILES.empty_table() if draw.random() < 0.9 else _large()
            return ScanPlan(wanted[1].id, "main", repr(wanted), wanted[0].id, "r", wanted[1].schema, files=files)

        plan = plans.scan(snapshot, table, predicate, None, make, lambda *_: None)
        assert plan.table_name == repr(wanted)
        assert clock[0] - made[wanted] < remembered.SECONDS
        assert sum(size for _, _, size, _ in plans._known.values()) == plans._bytes <= 40_000
    assert len(made) > 40
    plans.clear()
    assert plans._bytes == 0


def _large() -> pa.Table:
    path = pa.array(["x" * 30_000])
    columns = [path if field.name == "path" else pa.nulls(1, field.type) for field in FILES]
    return pa.table(columns, schema=FILES)


def test_plans_of_a_catalog_are_forgotten_when_nobody_has_it_open() -> None:
    plans = plans_of("somewhere", 1_000_000)
    assert plans_of("somewhere", 1_000_000) is plans
    assert plans_of("elsewhere", 1_000_000) is not plans
    plans.scan(Snapshot(1, None, 1, 1, 1), _table(1), ANYTHING, None, lambda *_: _plan(), lambda *_: None)
    assert plans._bytes > 0
    del plans
    assert plans_of("somewhere", 1_000_000)._bytes == 0


def _plan() -> ScanPlan:
    return ScanPlan(1, "main", "t", 1, "r", _table(1).schema, files=FILES.empty_table())


# -- new filters by the plan of the whole table ------------------------------------------------------------------------


@pytest.fixture
def filtered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds are remembered from the first file and plan on, and the first filter lists all files."""
    monkeypatch.setattr(known_bounds, "LEAST", 0)
    monkeypatch.setattr(known_bounds, "ASKED_BEFORE", 0)
    monkeypatch.setattr(remembered, "FILES_OF_A_PLAN", 1_000)


def _counted() -> int:
    return telemetry.snapshot().counters.get("scan.plans_filtered", 0)


@pytest.mark.usefixtures("filtered")
def test_a_new_filter_needs_no_look_at_the_files_in_the_catalog(lake: quacklake.Lake, planned: list[str]) -> None:
    for first in (100, 200, 300):
        lake.table("t").append(pa.table({"id": range(first, first + 100)}))
    assert _ids(lake, "id = 5") == [5]
    assert planned == ["t"]
    assert _ids(lake, "id = 105") == [105]
    assert planned == ["t", "t"]  # of all files
    before = _counted()
    for id_ in range(0, 400, 9):
        assert [plan.files.num_rows for plan in [lake.table("t").plan(f"id = {id_}")]] == [1]
        assert _ids(lake, f"id = {id_}") == [id_]
    assert planned == ["t", "t"]
    assert _counted() - before >= 40


@pytest.mark.usefixtures("filtered")
def test_new_filters_see_what_others_commit_at_once(lake: quacklake.Lake, url: str) -> None:
    before = _counted()
    with quacklake.connect(url, data_inlining_row_limit=10) as other:
        for number in range(100, 106):
            assert [_ids(lake, f"id = {number - 1 - back}") for back in range(3)] == [
                [number - 1 - b] for b in range(3)
            ]
            if number % 2:
                other.table("t").delete(f"id = {number - 2}")
                other.table("t").append(pa.table({"id": [number - 2]}))
            other.table("t").append(pa.table({"id": [number]}))
            if number == 103:
                other.table("t").merge_adjacent_files()
        other.table("t").delete("id < 50")
        assert [_ids(lake, f"id = {id_}") for id_ in (48, 49, 50, 105)] == [[], [], [50], [105]]
    assert _counted() > before


@pytest.mark.usefixtures("filtered")
def test_a_filtered_plan_is_as_old_as_the_plan_it_comes_from(
    lake: quacklake.Lake, planned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [remembered.time.monotonic()]
    monkeypatch.setattr(remembered.time, "monotonic", lambda: clock[0])
    for where in ("id = 1", "id = 2"):
        assert len(_ids(lake, where)) == 1
    clock[0] += remembered.SECONDS - 1
    assert _ids(lake, "id = 3") == [3]
    assert len(planned) == 2
    clock[0] += 2
    assert _ids(lake, "id = 3") == [3]
    assert len(planned) == 3


@pytest.mark.usefixtures("filtered")
def test_a_limit_of_files_holds_for_filtered_plans_and_not_for_the_list_of_all(lake: quacklake.Lake, url: str) -> None:
    for first in (100, 200, 300):
        lake.table("t").append(pa.table({"id": range(first, first + 100)}))
    with quacklake.connect(url, plan_max_files=2) as other:
        for where in ("id = 5", "id = 6", "id = 150 OR id = 250"):
            assert 1 <= other.table("t").plan(where).files.num_rows <= 2
        with pytest.raises(InputError, match="needs 3 files, plan_max_files is 2"):
            other.table("t").plan("id > 100")


@pytest.mark.usefixtures("filtered")
def test_partitions_leave_out_more_files_than_bounds_would(lake: quacklake.Lake) -> None:
    table = lake.create_table("p", pa.schema([("id", pa.int64()), ("k", pa.int64())]))
    table.set_partitioned_by("bucket(4, id)")
    table.append(pa.table({"id": range(100), "k": [1] * 100}))
    assert {table.plan(f"id = {id_}").files.num_rows for id_ in range(20)} == {1}
    table.reset_partitioned_by()
    assert {table.plan(f"id = {id_} AND k = 1").files.num_rows for id_ in range(20)} == {1}


@pytest.mark.usefixtures("filtered")
def test_principals_share_no_rows_through_filtered_plans(lake: quacklake.Lake) -> None:
    lake.table("t").append(pa.table({"id": range(100, 200)}))
    for user in ("ann", "bob"):
        lake.access.create_user(user)
        lake.access.grant("SELECT", user, table="t")
    lake.access.create_policy("few", "t", "CASE current_principal() WHEN 'ann' THEN id < 3 ELSE id >= 198 END")
    ann, bob = lake.as_principal("ann"), lake.as_principal("bob")
    for id_ in (0, 1, 2, 100, 198, 199):
        seen = [len(each.sql(f"FROM t WHERE id = {id_}").fetchall()) for each in (lake, ann, bob)]
        assert seen == [1, id_ < 3, id_ >= 198]


# -- new filters by the plans of windows -------------------------------------------------------------------------------


@pytest.fixture
def windows(filtered: None, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Two files make a window; return the windows of each plan that is made from now on, None for one of a filter."""
    made: list[object] = []
    anew = reading.Reading._plan_anew

    def noted(self: Any, table: TableInfo, predicate: Predicate, most: int | None, windows: Any = None) -> ScanPlan:
        made.append(windows)
        return anew(self, table, predicate, most, windows)

    monkeypatch.setattr(reading.Reading, "_plan_anew", noted)
    monkeypatch.setattr(known_bounds, "WINDOW", 2)
    monkeypatch.setattr(known_bounds, "MAX_WINDOWS", 2)
    return made


def _with_files(lake: quacklake.Lake, files: int) -> None:
    for number in range(1, files):
        lake.table("t").append(pa.table({"id": range(number * 100, number * 100 + 100)}))


def test_filters_that_leave_few_of_many_files_list_the_windows_of_these(
    lake: quacklake.Lake, windows: list[object]
) -> None:
    _with_files(lake, 9)
    ids = lake.table("t").plan().files.column("data_file_id").to_pylist()
    assert ids == list(range(9))
    assert _ids(lake, "id = 5") == [5]
    windows.clear()
    for id_ in (*range(0, 900, 30), *range(7, 900, 50)):
        assert lake.table("t").plan(f"id = {id_}").files.column("data_file_id").to_pylist() == [id_ // 100]
        assert _ids(lake, f"id = {id_}") == [id_]
    assert windows == [((first, first + 1),) for first in (0, 2, 4, 6, 8)]
    windows.clear()
    assert _ids(lake, "id = 150 OR id = 750") == [150, 750]  # in two windows
    assert _ids(lake, "id > 5000") == []  # in none
    assert windows == [((0, 1), (6, 7)), ()]
    windows.clear()
    assert len(_ids(lake, "id >= 150 AND id < 750")) == 600  # in too many
    assert windows == [] or windows == [None]
    assert _ids(lake, "id >= 160 AND id < 165") == [160, 161, 162, 163, 164]


@pytest.mark.parametrize("database", ["sqlite", "postgres", "mysql"])
def test_windows_have_the_files_that_a_compaction_made_meanwhile(
    database: str,
    new_url: Callable[[str], str],
    tmp_path: Path,
    windows: list[object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The snapshot was read before a compaction, and its files after it: their rows are in a file of another window."""
    url, anew = new_url(database), reading.Reading._plan_anew
    with quacklake.connect(url, data_path=tmp_path / "data", data_inlining_row_limit=0) as lake:
        lake.create_table("t", ROWS)
        _with_files(lake, 9)
        assert _ids(lake, "id = 5") == [5]
        compacted: list[int] = []

        def after_a_compaction(self: Any, table: TableInfo, predicate: Predicate, *rest: Any) -> ScanPlan:
            if not compacted:
                with quacklake.connect(url) as other:
                    compacted.append(other.table("t").merge_adjacent_files().files_before)
            return anew(self, table, predicate, *rest)

        monkeypatch.setattr(reading.Reading, "_plan_anew", after_a_compaction)
        assert _ids(lake, "id = 405") == [405]
        assert windows[-1] == ((4, 5),)
        assert compacted == [9]
        assert [_ids(lake, f"id = {id_}") for id_ in (405, 406, 899, 900)] == [[405], [406], [899], []]


def test_windows_of_an_older_snapshot_are_not_used_for_a_newer_one(
    lake: quacklake.Lake, url: str, windows: list[object]
) -> None:
    _with_files(lake, 9)
    with quacklake.connect(url, data_inlining_row_limit=0) as other:
        for number in range(9):
            for id_ in (number * 100 + 1, number * 100 + 2):  # the second by the window of the first
                assert _ids(lake, f"id = {id_}") == [id_]
            other.table("t").delete(f"id = {number * 100 + 2}")
            other.table("t").append(pa.table({"id": [number * 100 + 2] * 2}))
            assert _ids(lake, f"id = {number * 100 + 2}") == [number * 100 + 2] * 2
        other.table("t").delete("id < 500")
        assert [_ids(lake, f"id = {id_}") for id_ in (1, 2, 499, 501, 502)] == [[], [], [], [501], [502, 502]]
    assert any(windows)


def test_principals_share_no_rows_through_windows(lake: quacklake.Lake, windows: list[object]) -> None:
    _with_files(lake, 9)
    for user in ("ann", "bob"):
        lake.access.create_user(user)
        lake.access.grant("SELECT", user, table="t")
    lake.access.create_policy("few", "t", "CASE current_principal() WHEN 'ann' THEN id < 250 ELSE id >= 250 END")
    ann, bob = lake.as_principal("ann"), lake.as_principal("bob")
    for id_ in (0, 1, 201, 202, 249, 250, 251, 800):
        seen = [len(each.sql(f"FROM t WHERE id = {id_}").fetchall()) for each in (lake, ann, bob)]
        assert seen == [1, id_ < 250, id_ >= 250]
    assert any(windows)


def test_listing_all_files_is_left_until_it_pays_and_counts_are_bounded() -> None:
    plans = Plans(1_000_000)
    paid = [plans._pays("state", 3 * remembered.FILES_OF_A_PLAN) for _ in range(9)]
    assert paid == [False, False, True] * 3
    for number in range(1_000):
        assert not plans._pays(number, 1_000_000)
    assert len(plans._missed) == remembered._MAX_COUNTED


_MEASURE = """
import gc, sys
import pyarrow as pa
import quacklake
from pathlib import Path
from quacklake.core.scan import remembered

remembered.SECONDS = 1e9
kind, folder = sys.argv[1:]
lake = quacklake.connect(f"sqlite:///{folder}/{kind}.db", f"{folder}/{kind}/", create=True)
table = lake.create_table("t", pa.table({"id": range(20), "v": [str(number) for number in range(20)]}))
plans = lake.handle.context.plans


def memory():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def plan(first, end):
    for number in range(first, end):
        listed = ", ".join(map(str, range(number, number + 150)))
        table.scan(where=f"id = {number}" if kind == "one" else f"id IN ({listed})").plan()


plan(0, 300)
bytes, before, known = plans._bytes, memory(), len(plans._known)
plan(300, 1500)
print(len(plans._known) - known, plans._bytes - bytes, memory() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory of a process is read from /proc")
@pytest.mark.parametrize("kind", ["one", "many"])
def test_a_plan_counts_as_what_it_takes(kind: str, tmp_path: Path) -> None:
    """Most of a small plan is objects of Arrow, outside of Python's memory: so the whole process is measured."""
    command = [sys.executable, "-c", _MEASURE, kind, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    plans, counted, taken = map(int, done.stdout.split())
    assert plans == 1200
    assert 0.5 * taken < counted < 2.5 * taken
