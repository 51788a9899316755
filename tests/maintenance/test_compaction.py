"""Flush, merge, rewrite and optimize: what they leave in the lake, and what they leave alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quacklake
from quacklake import telemetry
from quacklake.core import faults
from quacklake.core.engines.duckdb import sql
from quacklake.core.faults import Fault
from quacklake.core.format.snapshots import ChangeKind, parse_changes
from quacklake.core.maintenance.reports import CompactionReport
from quacklake.errors import InputError, NotFoundError, QuacklakeError, ReadOnlyError
from tests.catalog.stock import Stock
from tests.maintenance.history import past, rows

Open = Callable[..., quacklake.Lake]
OPERATIONS: dict[str, Callable[[quacklake.Table], CompactionReport]] = {
    "flush": lambda table: table.flush_inlined_data(),
    "merge": lambda table: table.merge_adjacent_files(),
    "rewrite": lambda table: table.rewrite_data_files(0),
    "optimize": lambda table: table.optimize(),
    "sort": lambda table: table.optimize(order_by=["part DESC", "id"]),
    "curve": lambda table: table.optimize(zorder=["part", "name"]),
}


@pytest.fixture
def lake(grown_lake: quacklake.Lake) -> quacklake.Lake:
    return grown_lake


def paths(lake: quacklake.Lake, name: str = "t") -> list[str]:
    found = lake.table(name).files().column("path").to_pylist()
    return [str(Path(lake.data_path) / path) for path in found]


def changes(lake: quacklake.Lake) -> set[ChangeKind]:
    return {change.kind for change in parse_changes(lake.snapshots().column("changes")[-1].as_py())}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_rows_row_ids_history_and_feed_stay_as_they_were(lake: quacklake.Lake, operation: str) -> None:
    last = lake.current_snapshot()
    before = past(lake)
    report = OPERATIONS[operation](lake.table("t"))
    assert report.snapshot == lake.current_snapshot() > last
    after = past(lake)
    assert {version: after.states[version] for version in before.states} == before.states
    assert all(state == before.states[last] for version, state in after.states.items() if version > last)
    assert after.feed == before.feed
    assert lake.table("t").count() == len(before.states[last])


def test_what_is_known_of_very_many_files_is_joined_and_means_the_same(
    lake: quacklake.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, last = past(lake), lake.current_snapshot()
    monkeypatch.setattr(sql, "_MANY", 2)
    assert past(lake) == before
    lake.table("t").optimize()
    monkeypatch.undo()
    assert past(lake, until=last) == before
    assert past(lake).states[last + 1] == before.states[last]


def test_all_of_them_one_after_the_other_leave_one_file(lake: quacklake.Lake) -> None:
    last, before = lake.current_snapshot(), past(lake)
    for _ in range(2):
        for operation in OPERATIONS.values():
            operation(lake.table("t"))
    after = past(lake)
    assert after.feed == before.feed
    assert {version: after.states[version] for version in before.states} == before.states
    assert after.states[lake.current_snapshot()] == before.states[last]
    assert len(paths(lake)) == 1


def test_flush_leaves_nothing_in_the_catalog_and_says_what_it_moved(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    report = table.flush_inlined_data()
    plan = table.plan()
    assert (plan.inlined, plan.deletes.num_rows) == (None, 0)
    # five rows and an update of two, one of a file; two rows with another column; deletes of 7 and 44
    assert (report.operation, report.table, report.files_after, report.rows) == ("flush_inlined_data", "main.t", 2, 11)
    assert table.flush_inlined_data() == CompactionReport("flush_inlined_data", "main.t")
    assert lake.current_snapshot() == report.snapshot


def test_flush_moves_a_bounded_number_of_rows_at_a_time(open_lake: Open) -> None:
    lake = open_lake(compaction_max_rows=2)
    before, last = past(lake), lake.current_snapshot()
    lake.table("t").flush_inlined_data()
    assert lake.current_snapshot() > last + 2
    assert past(lake, until=last) == before
    assert lake.table("t").plan().inlined is None


def test_merge_makes_one_file_of_many_and_forgets_them(lake: quacklake.Lake) -> None:
    table = lake.create_table("small", rows(0, 20))
    for first in range(20, 100, 20):
        table.append(rows(first, 20))
    old = paths(lake, "small")
    report = table.merge_adjacent_files()
    assert (report.files_before, report.files_after, report.rows) == (5, 1, 100)
    assert report.bytes_before > report.bytes_after == Path(paths(lake, "small")[0]).stat().st_size
    assert changes(lake) >= {ChangeKind.MERGE_ADJACENT}
    assert not set(old) & set(paths(lake, "small"))
    assert table.merge_adjacent_files().snapshot is None
    assert [row["id"] for row in table.to_pylist()] == list(range(100))


def test_merge_minds_sizes_and_how_many_files_it_may_make(lake: quacklake.Lake) -> None:
    table = lake.create_table("small", rows(0, 20))
    for first in range(20, 100, 20):
        table.append(rows(first, 20))
    size = min(Path(path).stat().st_size for path in paths(lake, "small"))
    assert table.merge_adjacent_files(max_file_size=size).snapshot is None
    assert table.merge_adjacent_files(min_file_size=1 << 30).snapshot is None
    lake.options.set("target_file_size", 2 * size, table="small")
    assert table.merge_adjacent_files(max_compacted_files=1).files_after == 1
    assert len(paths(lake, "small")) in (3, 4)


def test_rewrite_minds_the_threshold(lake: quacklake.Lake) -> None:
    table = lake.table("t")
    assert table.rewrite_data_files().snapshot is None  # 0.95: none has as many
    report = table.rewrite_data_files(0.5)
    assert (report.files_before, report.rows) == (1, 13)
    lake.options.set("rewrite_delete_threshold", 0, table="t")
    assert table.rewrite_data_files().files_before == 1
    assert table.plan().deletes.num_rows == 0
    assert table.rewrite_data_files(0).snapshot is None


def test_a_file_without_any_row_left_simply_ends(lake: quacklake.Lake) -> None:
    table = lake.create_table("gone", rows(0, 3))
    table.flush_inlined_data()
    table.delete("id < 2")
    table.delete("id = 2")
    assert table.files().num_rows == 1
    assert table.rewrite_data_files(0).files_after == 0
    assert table.files().num_rows == 0 and table.count() == 0
    assert lake.at(version=lake.current_snapshot() - 2).table("gone").count() == 1


def test_optimize_sorts_and_follows_a_curve(lake: quacklake.Lake) -> None:
    table = lake.create_table("s", rows(0, 60))
    table.append(rows(60, 60))
    table.optimize(order_by="id DESC")
    assert [row["id"] for row in table.to_pylist()] == list(range(119, -1, -1))
    table.optimize(order_by=["part", "id"])
    assert [row["part"] for row in table.to_pylist()] == [0] * 40 + [1] * 40 + [2] * 40
    points = pa.table({"x": [i % 16 for i in range(256)], "y": [i // 16 for i in range(256)]})
    plane = lake.create_table("plane", points)
    plane.optimize(zorder=["x", "y"])
    for start in range(0, 256, 16):  # a sixteenth of the curve is a square of 4 × 4
        part = plane.to_arrow().slice(start, 16).to_pydict()
        assert max(part["x"]) - min(part["x"]) == max(part["y"]) - min(part["y"]) == 3
    assert plane.sorted_by == []


def test_compaction_sorts_as_the_table_is_sorted(lake: quacklake.Lake) -> None:
    table = lake.create_table("s", rows(0, 30))
    table.append(rows(30, 30))
    table.set_sorted_by("id DESC")
    table.merge_adjacent_files()
    assert [row["id"] for row in table.to_pylist()] == list(range(59, -1, -1))


def test_partitions_are_compacted_each_for_itself(lake: quacklake.Lake) -> None:
    table = lake.create_table("p", rows(0, 30), partition_by="part")
    table.append(rows(30, 30))
    table.append(rows(60, 4))
    before, last = past(lake, "p"), lake.current_snapshot()
    assert table.flush_inlined_data().files_after == 3
    assert table.merge_adjacent_files().files_after == 3
    table.delete("id < 25")
    assert table.rewrite_data_files(0).files_after == 3
    table.set_partitioned_by("bucket(2, id)")
    assert past(lake, "p", last) == before
    assert table.optimize().files_after == 2
    folders = {path.rsplit("/", 2)[1] for path in paths(lake, "p")}
    assert len(folders) == 2 and past(lake, "p", last) == before


def test_files_of_other_columns_are_merged_among_themselves(lake: quacklake.Lake) -> None:
    table = lake.create_table("a", rows(0, 20))
    table.append(rows(20, 20))
    table.add_column("more", "INTEGER", 3)
    for first in (40, 60):
        table.append(rows(first, 20).append_column("more", [[first] * 20]))
    table.drop_column("part")
    before, last = past(lake, "a"), lake.current_snapshot()
    report = table.merge_adjacent_files()
    assert (report.files_before, report.files_after) == (4, 2)
    assert past(lake, "a", last) == before
    assert table.optimize().files_after == 1
    assert past(lake, "a", last) == before
    assert pq.read_schema(paths(lake, "a")[0]).names[:3] == ["id", "name", "more"]


def test_files_are_merged_whatever_their_columns_once_nobody_sees_these(tmp_path: Path, stock: Stock) -> None:
    url = f"sqlite:///{tmp_path / 'lake.db'}"
    options: dict[str, Any] = {"data_inlining_row_limit": 0, "duckdb_threads": 1}
    with quacklake.connect(url, data_path=tmp_path / "data", **options) as lake:
        table = lake.create_table("t", [{"a": n, "old": n, "s": {"x": n}} for n in range(20)])
        table.append([{"a": n, "old": 1, "s": {"x": n}} for n in range(20, 25)])
        table.add_column("b", "INTEGER", 7)
        table.drop_column("old")
        table.rename_column("a", "id")
        table.rename_column("s.x", "y")
        table.add_column("s.z", "INTEGER")
        for first in (25, 30):
            table.append([{"id": n, "b": n, "s": {"y": n, "z": n}} for n in range(first, first + 5)])
        report = table.merge_adjacent_files()
        assert (report.files_before, report.files_after, len(report.skipped)) == (4, 2, 1)
        assert "expired" in report.skipped[0].reason
        lake.expire_snapshots(keep_last=2)
        left = lake.snapshots().column("snapshot_id").to_pylist()

        def seen() -> list[Any]:
            found = [lake.at(version=version).table("t").scan(row_ids=True).to_pylist() for version in left]
            return [sorted(rows, key=repr) for rows in [*found, table.changes(left[-1], left[-1]).to_pylist()]]

        before = seen()
        report = table.merge_adjacent_files()
        assert (report.files_before, report.files_after, report.skipped) == (2, 1, ())
        assert seen() == before
        assert lake.verify(deep=True).findings == ()
    totals = "SELECT count(*), sum(id), sum(b), sum(s.y), sum(s.z) FROM t"
    assert stock.run(url, totals) == [(35, 595, 25 * 7 + 295, 595, 295)]
    # a stock client takes the columns of a file from its first snapshot, and rewrites it with these
    stock.run(url, "DELETE FROM t WHERE id = 0", "CALL ducklake_rewrite_data_files('l', 't', delete_threshold => 0)")
    assert stock.run(url, totals) == [(34, 595, 24 * 7 + 295, 595, 295)]


def test_nested_columns_that_changed_are_compacted(lake: quacklake.Lake) -> None:
    table = lake.create_table("n", pa.table({"s": [{"a": i, "b": "x"} for i in range(20)]}))
    table.append(pa.table({"s": [{"a": i, "b": "y"} for i in range(20)]}))
    table.rename_column("s.a", "c")
    table.add_column("s.d", "INTEGER", 4)
    table.append(pa.table({"s": [{"c": i, "b": "z", "d": 1} for i in range(20)]}))
    table.append(pa.table({"s": [{"c": i, "b": "z", "d": 1} for i in range(2)]}))
    before, last = past(lake, "n"), lake.current_snapshot()
    for operation in ("flush", "merge", "optimize"):
        OPERATIONS[operation](table)
        assert past(lake, "n", last) == before


def test_an_encrypted_lake_stays_encrypted(tmp_path: Path) -> None:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", encrypted=True, duckdb_threads=1
    ) as lake:
        table = lake.create_table("t", rows(0, 30))
        table.append(rows(30, 30))
        table.append(rows(60, 3))
        table.delete("id IN (2, 61)")
        before, last = past(lake), lake.current_snapshot()
        keys = set(table.plan().files.column("encryption_key").to_pylist())
        for operation in OPERATIONS.values():
            operation(table)
            assert past(lake, until=last) == before
        new = set(table.plan().files.column("encryption_key").to_pylist())
        assert None not in new and not new & keys
        with pytest.raises(OSError, match="encrypted"):
            pq.read_table(paths(lake)[0])


def test_a_file_from_elsewhere_is_copied_and_never_deleted(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for number in range(2):
        pq.write_table(rows(number * 20, 20), outside / f"{number}.parquet")
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", foreign_paths=[str(outside)], duckdb_threads=1
    ) as lake:
        table = lake.create_table("t", rows(0, 1).schema)
        table.add_files(str(outside / "*.parquet"))
        table.append(rows(40, 20))
        before, last = past(lake), lake.current_snapshot()
        assert table.merge_adjacent_files().files_before == 3
        assert past(lake, until=last) == before
        with lake._context.catalog.read() as reader:
            found = reader.run("q", reader.meta["files_scheduled_for_deletion"].select()).all()
        assert len(found) == 1 and not any(str(outside) in str(row) for row in found)
        assert table.plan().files.column("mapping_id").to_pylist() == [None]
    assert len(list(outside.iterdir())) == 2


def test_deletion_vectors_are_read_and_written(lake: quacklake.Lake) -> None:
    lake.options.set("write_deletion_vectors", True)
    table = lake.create_table("v", rows(0, 60))
    table.append(rows(60, 60))
    table.delete("id < 20")
    table.append(rows(120, 2))
    table.delete("id IN (30, 121)")
    before, last = past(lake, "v"), lake.current_snapshot()
    for operation in ("flush", "rewrite", "merge"):
        OPERATIONS[operation](table)
        assert past(lake, "v", last) == before


# -- the whole lake ----------------------------------------------------------------------------------------------------


def test_a_lake_is_compacted_table_by_table_except_where_auto_compact_is_off(lake: quacklake.Lake) -> None:
    lake.create_schema("other")
    lake.create_table("other.u", rows(0, 3))
    lake.create_table("off", rows(0, 3))
    lake.options.set("auto_compact", False, table="off")
    reports = {report.table: report for report in lake.maintenance.flush_inlined_data()}
    assert set(reports) == {"main.t", "main.off", "other.u"}
    assert reports["main.off"].snapshot is None
    assert [skipped.what for skipped in reports["main.off"].skipped] == ["main.off"]
    assert "auto_compact" in reports["main.off"].skipped[0].reason
    assert lake.table("off").plan().inlined is not None
    assert lake.table("off").flush_inlined_data().rows == 3
    assert [report.table for report in lake.maintenance.merge_adjacent_files(schema="other")] == ["other.u"]
    assert [report.table for report in lake.maintenance.rewrite_data_files("other", "u", delete_threshold=0)] == [
        "other.u"
    ]
    assert [report.table for report in lake.maintenance.merge_adjacent_files(table="t", max_compacted_files=1)] == [
        "main.t"
    ]


def test_progress_is_told(lake: quacklake.Lake) -> None:
    told: list[tuple[str, int, int | None]] = []
    lake.table("t").merge_adjacent_files(progress=lambda *what: told.append(what))
    assert told[0][1] == 0 and told[-1][1] == told[-1][2] == told[0][2] > 1


def test_the_number_of_statements_does_not_depend_on_the_number_of_files(lake: quacklake.Lake) -> None:
    counts = []
    for files in (3, 12):
        table = lake.create_table(f"many{files}", rows(0, 20))
        for number in range(1, files):
            table.append(rows(20 * number, 20))
        before = telemetry.snapshot().counters["catalog.statements"]
        assert table.merge_adjacent_files().files_before == files
        counts.append(telemetry.snapshot().counters["catalog.statements"] - before)
    assert counts[0] == counts[1]


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda lake: lake.table("t").rewrite_data_files(1.5),
        lambda lake: lake.table("t").rewrite_data_files(-0.1),
        lambda lake: lake.table("t").rewrite_data_files(float("nan")),
        lambda lake: lake.maintenance.rewrite_data_files(delete_threshold="much"),
        lambda lake: lake.table("t").merge_adjacent_files(max_compacted_files=0),
        lambda lake: lake.table("t").merge_adjacent_files(min_file_size=-1),
        lambda lake: lake.maintenance.merge_adjacent_files(max_file_size=0),
        lambda lake: lake.maintenance.merge_adjacent_files(max_compacted_files=True),
        lambda lake: lake.table("t").merge_adjacent_files(min_file_size=10, max_file_size=10),
        lambda lake: lake.table("t").optimize(order_by="id", zorder="id"),
        lambda lake: lake.table("t").optimize(order_by="nothing"),
        lambda lake: lake.table("t").optimize(order_by=[]),
        lambda lake: lake.table("t").optimize(order_by="(SELECT 1)"),
        lambda lake: lake.table("t").optimize(zorder="nothing"),
        lambda lake: lake.table("t").optimize(zorder=[]),
        lambda lake: lake.table("t").optimize(zorder=["id", "ID"]),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(
    lake: quacklake.Lake, call: Callable[[quacklake.Lake], object]
) -> None:
    last = lake.current_snapshot()
    with pytest.raises(InputError):
        call(lake)
    assert lake.current_snapshot() == last


def test_what_is_no_table_of_the_lake_is_not_found(lake: quacklake.Lake) -> None:
    lake.create_view("v", "SELECT * FROM t")
    lake.create_table("gone", rows(0, 1))
    lake.drop_table("gone")
    for name in ("nothing", "v", "gone"):
        for operation in OPERATIONS.values():
            with pytest.raises(NotFoundError):
                operation(lake.table(name))
    with pytest.raises(NotFoundError):
        lake.maintenance.flush_inlined_data(schema="nothing")


def test_a_transaction_and_the_past_refuse_compaction(lake: quacklake.Lake) -> None:
    last = lake.current_snapshot()
    with lake.transaction() as tx:
        for operation in OPERATIONS.values():
            with pytest.raises(InputError, match="either make changes or perform compaction"):
                operation(tx.table("t"))
    for operation in OPERATIONS.values():
        with pytest.raises(ReadOnlyError):
            operation(lake.at(version=last).table("t"))
    assert lake.current_snapshot() == last


# -- interrupted -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["flush", "merge", "rewrite", "optimize"])
def test_one_that_fails_leaves_the_lake_as_it_was_and_no_files(lake: quacklake.Lake, operation: str) -> None:
    last, files, table = lake.current_snapshot(), _all_files(lake), lake.table("t")
    before = sorted(map(str, table.to_pylist()))
    for point in ("compaction.group.before", "compaction.group.after", "catalog.insert_data_file.after"):
        with faults.arm(Fault(pattern=point, error=_Broken)), pytest.raises(_Broken):
            OPERATIONS[operation](table)
        assert lake.current_snapshot() == last
        assert _all_files(lake) == files
        assert sorted(map(str, table.to_pylist())) == before
    assert OPERATIONS[operation](table).snapshot is not None


def test_what_is_committed_stays_when_a_later_batch_fails(open_lake: Open) -> None:
    lake = open_lake(compaction_max_files=2)
    table = lake.create_table("many", rows(0, 20))
    for first in range(20, 120, 20):
        table.append(rows(first, 20))
    before, last = past(lake, "many"), lake.current_snapshot()
    with faults.arm(Fault(at=3, pattern="compaction.group.before", error=_Broken)), pytest.raises(_Broken):
        table.merge_adjacent_files()
    assert lake.current_snapshot() == last + 2 and len(paths(lake, "many")) == 4
    report = table.merge_adjacent_files()
    assert (report.files_before, report.files_after) == (4, 2)
    assert past(lake, "many", last) == before


class _Broken(QuacklakeError):
    def __init__(self, *args: Any) -> None:
        super().__init__("broken here")


def _all_files(lake: quacklake.Lake) -> set[str]:
    return {str(path) for path in Path(lake.data_path).rglob("*") if path.is_file()}
