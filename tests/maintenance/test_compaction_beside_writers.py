"""Compaction beside writers: no delete is ever lost, nobody waits, and what was overtaken is planned again or left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

import quacklake
from quacklake.core import faults
from quacklake.core.catalog.reading.inlined import InlinedQueries
from quacklake.core.maintenance.reports import CompactionReport
from quacklake.errors import CommitConflict
from tests.catalog import stock as client
from tests.catalog.stock import Stock
from tests.layout import plain_only
from tests.maintenance.history import rows

Open = Callable[..., quacklake.Lake]
COMPACT: dict[str, Callable[[quacklake.Table], CompactionReport]] = {
    "merge_adjacent": lambda table: table.merge_adjacent_files(),
    "rewrite": lambda table: table.rewrite_data_files(0),
    "optimize": lambda table: table.optimize(),
}


@pytest.fixture(autouse=True)
def write_ahead_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one thread write while it also reads."""
    monkeypatch.setenv("QUACKLAKE_SQLITE_JOURNAL", "wal")


@contextmanager
def meanwhile(what: Callable[[], object], point: str = "compaction.group.after", times: int = 1) -> Iterator[None]:
    """Do something when a compaction gets to a point: its files are written, nothing is committed."""
    left = [times]

    def hook(name: str) -> None:
        if name == point and left[0]:
            left[0] -= 1
            what()

    with faults._hooked(hook):
        yield
    assert not left[0], "the compaction never got there"


def small_files(lake: quacklake.Lake, deletes: bool) -> quacklake.Table:
    table = lake.create_table("small", rows(0, 20))
    for first in (20, 40):
        table.append(rows(first, 20))
    if deletes:
        table.delete("id % 20 < 12")
    return table


def update_few(table: quacklake.Table) -> None:
    table.update({"name": "mine"}, "id = 3")


def ids(lake: quacklake.Lake) -> list[int]:
    return sorted(row["id"] for row in lake.table("small").to_pylist(["id"]))


# -- the sequences in which the reference implementation loses a delete ------------------------------------------------


@pytest.mark.parametrize("operation", COMPACT)
def test_a_delete_begun_before_a_compaction_and_committed_after_it_is_not_lost(open_lake: Open, operation: str) -> None:
    lake, other = open_lake(), open_lake()
    small_files(lake, deletes=operation == "rewrite")
    before = ids(lake)
    with pytest.raises(CommitConflict), lake.transaction() as tx:
        tx.table("small").delete("id = 15")
        assert COMPACT[operation](other.table("small")).snapshot is not None
    assert ids(other) == before  # told, not lost
    assert lake.table("small").delete("id = 15") == 1
    assert ids(other) == [id_ for id_ in before if id_ != 15]


@pytest.mark.parametrize("operation", COMPACT)
def test_a_delete_committed_while_a_compaction_writes_is_not_lost(open_lake: Open, operation: str) -> None:
    lake, other = open_lake(), open_lake()
    table = small_files(lake, deletes=operation == "rewrite")
    before = ids(lake)
    with meanwhile(lambda: other.table("small").delete("id = 15")):
        report = COMPACT[operation](table)
    assert ids(lake) == [id_ for id_ in before if id_ != 15]
    assert ids(lake) == sorted(row["id"] for row in lake.table("small").scan(row_ids=True).to_pylist())
    if operation == "merge_adjacent":  # a file with deletes is none to be merged
        assert report.files_before == 2
        assert [skipped.reason for skipped in report.skipped] == ["another commit has changed them"]


@pytest.mark.parametrize("operation", COMPACT)
def test_a_delete_by_the_reference_implementation_during_a_compaction_is_not_lost(
    open_lake: Open, stock: Stock, operation: str
) -> None:
    lake = open_lake()
    table = small_files(lake, deletes=operation == "rewrite")
    before = ids(lake)
    with meanwhile(lambda: stock.run(lake.url, "DELETE FROM small WHERE id = 15")):
        COMPACT[operation](table)
    assert ids(lake) == [id_ for id_ in before if id_ != 15]
    seen = stock.run(lake.url, "SELECT id FROM small ORDER BY id")
    assert [row[0] for row in seen] == ids(lake)


@pytest.mark.parametrize(
    "call", ["merge_adjacent_files('l', 'small')", "rewrite_data_files('l', 'small', delete_threshold => 0)"]
)
def test_our_delete_begun_before_a_compaction_by_the_reference_implementation_is_not_lost(
    open_lake: Open, stock: Stock, call: str
) -> None:
    lake = open_lake()
    small_files(lake, deletes=call.startswith("rewrite"))
    before = ids(lake)
    with pytest.raises(CommitConflict), lake.transaction() as tx:
        tx.table("small").delete("id = 15")
        stock.run(lake.url, f"CALL ducklake_{call}")
    assert ids(lake) == before
    lake.table("small").delete("id = 15")
    assert [row[0] for row in stock.run(lake.url, "SELECT id FROM small ORDER BY id")] == ids(lake)
    assert 15 not in ids(lake)


@pytest.mark.parametrize("operation", ["merge_adjacent", "rewrite"])
def test_a_delete_of_the_reference_implementation_is_refused_after_our_compaction_instead_of_lost(
    operation: str, postgres_url: str, tmp_path: Path
) -> None:
    """Beside its own compaction it would lose the delete; our commit records a change at which it stops."""
    plain_only("stock DuckDB cannot open a catalog of a shared lake")
    with quacklake.connect(postgres_url, data_path=tmp_path / "data", duckdb_threads=1) as lake:
        table = small_files(lake, deletes=operation == "rewrite")
        before = ids(lake)
        with client.connect() as connection, client.attached(connection, postgres_url):
            connection.execute("BEGIN")
            connection.execute("DELETE FROM small WHERE id = 15")
            COMPACT[operation](table)
            with pytest.raises(duckdb.Error, match=r"flushed the inlined data|compacted it"):
                connection.execute("COMMIT")
        assert ids(lake) == before


# -- both stand --------------------------------------------------------------------------------------------------------


def test_a_compaction_and_a_delete_in_other_files_both_stand(open_lake: Open) -> None:
    lake, other = open_lake(), open_lake()
    table = small_files(lake, deletes=False)
    lake.options.set("target_file_size", 1 << 20, table="small")
    table.append(rows(60, 20))
    table.delete("id = 75")  # that file is none to be merged
    with meanwhile(lambda: other.table("small").delete("id = 70")):
        report = table.merge_adjacent_files()
    assert (report.files_before, report.files_after, report.skipped) == (3, 1, ())
    assert ids(lake) == [id_ for id_ in range(80) if id_ not in (70, 75)]


def test_inserts_and_changes_of_columns_beside_a_compaction_both_stand(open_lake: Open) -> None:
    lake, other = open_lake(), open_lake()
    table = small_files(lake, deletes=True)

    def change() -> None:
        other.table("small").append(rows(100, 3))
        other.table("small").append(rows(200, 20))
        other.table("small").add_column("late", "INTEGER", 9)

    expected = sorted([*ids(lake), *range(100, 103), *range(200, 220)])
    for number, operation in enumerate(("rewrite", "optimize", "merge_adjacent")):
        if number == 0:
            with meanwhile(change):
                report = COMPACT[operation](table)
        else:
            report = COMPACT[operation](table)
        assert report.skipped == () and ids(lake) == expected
    assert set(lake.table("small").to_arrow(["late"]).column(0).to_pylist()) == {9}


def test_of_several_groups_only_the_overtaken_one_is_left_alone(open_lake: Open) -> None:
    lake, other = open_lake(compaction_max_replans=0), open_lake()
    table = lake.create_table("small", rows(0, 30), partition_by="part")
    table.append(rows(30, 30))
    with meanwhile(lambda: other.table("small").delete("id = 3")):
        report = table.merge_adjacent_files()
    assert report.files_after == 0 and len(report.skipped) == 3  # one commit for all: nothing is tried again
    lake = open_lake(compaction_max_files=2)
    with meanwhile(lambda: other.table("small").delete("id = 4")):
        report = lake.table("small").merge_adjacent_files()
    assert report.files_after == 1 and [skipped.what for skipped in report.skipped] == ["2 files"]
    assert ids(lake) == [id_ for id_ in range(60) if id_ not in (3, 4)]


def test_a_file_that_others_change_all_the_time_is_left_alone_and_keeps_none_from_it(open_lake: Open) -> None:
    lake, other = open_lake(compaction_max_replans=2), open_lake()
    table = small_files(lake, deletes=True)
    left = iter([15, 16, 17, 18])
    with meanwhile(lambda: other.table("small").delete(f"id = {next(left)}"), times=4):
        report = table.rewrite_data_files(0)
    assert (report.files_before, report.files_after) == (2, 1)
    assert [(skipped.what, skipped.reason) for skipped in report.skipped] == [
        ("1 files", "others were faster each time")
    ]
    assert ids(lake) == [id_ for id_ in range(60) if id_ % 20 >= 12 and id_ not in (15, 16, 17, 18)]


def test_an_order_that_is_always_overtaken_is_given_up(open_lake: Open) -> None:
    lake, other = open_lake(compaction_max_replans=2), open_lake()
    table = small_files(lake, deletes=True)
    left = iter([15, 16, 17])
    with meanwhile(lambda: other.table("small").delete(f"id = {next(left)}"), times=3):
        report = table.optimize(order_by="id DESC")
    assert report.snapshot is None
    assert [(skipped.what, skipped.reason) for skipped in report.skipped] == [
        ("3 files", "others were faster each time")
    ]
    assert not {15, 16, 17} & set(ids(lake))


def test_a_table_dropped_meanwhile_is_left_alone(open_lake: Open) -> None:
    lake, other = open_lake(), open_lake()
    table = small_files(lake, deletes=True)
    table.append(rows(100, 2))
    with meanwhile(lambda: other.drop_table("small")):
        report = table.rewrite_data_files(0)
    assert "dropped" in report.skipped[0].reason
    table = lake.create_table("more", rows(0, 2))
    with meanwhile(lambda: other.drop_table("more")):
        assert "dropped" in table.flush_inlined_data().skipped[0].reason


def test_two_compactions_at_once_do_the_work_once(open_lake: Open) -> None:
    lake, other = open_lake(), open_lake()
    table = small_files(lake, deletes=False)
    with meanwhile(lambda: other.table("small").merge_adjacent_files()):
        report = table.merge_adjacent_files()
    assert report.files_after == 0 and table.files().num_rows == 1
    assert ids(lake) == list(range(60))


@pytest.mark.parametrize("where", [None, "id >= 10 AND id < 30"])
def test_a_transaction_does_not_see_again_what_it_has_deleted_when_files_are_merged(
    open_lake: Open, where: str | None
) -> None:
    lake, other = open_lake(), open_lake()
    small_files(lake, deletes=False)
    with pytest.raises(CommitConflict, match="moved"), lake.transaction() as tx:
        tx.table("small").update({"name": "mine"}, "id = 15")
        assert sum(row["id"] == 15 for row in tx.table("small").to_pylist(where=where)) == 1
        # what is pruned is not gone
        assert [row["id"] for row in tx.table("small").to_pylist(where="id = 45")] == [45]
        other.table("small").merge_adjacent_files()
        tx.table("small").to_pylist(where=where)
    assert ids(lake) == list(range(60))


@pytest.mark.parametrize("mine", [lambda t: t.delete("id < 20"), lambda t: t.delete("id = 3"), update_few])
def test_deletes_that_join_an_older_delete_file_are_not_lost_to_who_began_before(
    open_lake: Open, mine: Callable[[quacklake.Table], object]
) -> None:
    lake, other = open_lake(), open_lake()
    table = lake.create_table("small", rows(0, 100))
    table.delete("id >= 80")  # a delete file, which the next one replaces at this snapshot too
    with pytest.raises(CommitConflict), lake.transaction() as tx:
        tx.table("small").count()
        assert other.table("small").delete("id >= 60") == 20
        mine(tx.table("small"))
    assert ids(lake) == list(range(60))
    mine(table)
    assert not set(ids(lake)) & set(range(60, 100))


def test_deletes_that_join_an_older_delete_file_are_not_lost_to_a_rewrite_that_began_before(open_lake: Open) -> None:
    lake, other = open_lake(), open_lake()
    table = lake.create_table("small", rows(0, 100))
    table.delete("id >= 80")
    with meanwhile(lambda: other.table("small").delete("id >= 60"), "catalog.files.before"):
        table.optimize()
    assert ids(lake) == list(range(60))


def test_rows_that_a_merge_puts_into_a_file_are_not_lost_to_a_rewrite_that_began_before(open_lake: Open) -> None:
    lake, other = open_lake(), open_lake()
    table = lake.create_table("small", rows(0, 20))
    table.append(rows(20, 20))

    def append_and_merge() -> None:
        other.table("small").append(rows(40, 20))
        assert other.table("small").merge_adjacent_files().files_after == 1

    with meanwhile(append_and_merge, "catalog.files.before"):
        table.optimize()
    assert ids(lake) == list(range(60))


# -- flush -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.delete("id = 121 OR id = 122"),
        lambda table: table.update({"name": "late"}, "id = 120"),
        lambda table: table.append(rows(500, 2).append_column("more", [[1, 2]])),
        lambda table: table.delete("id = 6"),
        lambda table: table.flush_inlined_data(),
        lambda table: table.add_column("late", "INTEGER", 1),
    ],
)
def test_changes_beside_a_flush_are_not_lost(open_lake: Open, change: Callable[[quacklake.Table], object]) -> None:
    lake, other, alone = open_lake(), open_lake(), open_lake()
    with meanwhile(lambda: change(other.table("t"))):
        lake.table("t").flush_inlined_data()
    found = sorted(map(str, lake.table("t").scan(row_ids=True).to_pylist()))
    lake.table("t").flush_inlined_data()
    assert sorted(map(str, alone.table("t").scan(row_ids=True).to_pylist())) == found
    assert lake.table("t").plan().inlined is None
    assert len({row["rowid"] for row in lake.table("t").scan(row_ids=True).to_pylist()}) == len(found)


def test_a_delete_begun_before_a_flush_is_refused_or_stands(open_lake: Open) -> None:
    lake, other = open_lake(), open_lake()
    for where in ("id = 120", "id = 7"):
        before = lake.table("t").count()
        try:
            with lake.transaction() as tx:
                tx.table("t").delete(where)
                other.table("t").flush_inlined_data()
        except CommitConflict:
            assert other.table("t").count() == before
            lake.table("t").delete(where)
        assert other.table("t").count() == before - 1


def test_a_transaction_does_not_see_again_what_it_has_deleted_when_it_is_flushed(open_lake: Open) -> None:
    lake, other = open_lake(), open_lake()
    with pytest.raises(CommitConflict, match="moved"), lake.transaction() as tx:
        tx.table("t").update({"name": "mine"}, "id = 120")
        assert [row["name"] for row in tx.table("t").to_pylist(where="id = 120")] == ["mine"]
        other.table("t").flush_inlined_data()
        tx.table("t").to_pylist(where="id = 120")
    assert lake.table("t").update({"name": "mine"}, "id = 120") == 1


def test_deletes_that_a_flush_moves_while_a_file_is_rewritten_are_planned_again(
    open_lake: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, other = open_lake(), open_lake()
    table = lake.create_table("late", [{"id": n} for n in range(30)])
    table.delete("id < 6")  # in the catalog
    look, flushed = InlinedQueries.dated_deletes, list[int | None]()

    def flush_first(reader: InlinedQueries, *arguments: Any) -> Any:
        if not flushed:
            flushed.append(None)
            flushed[0] = other.table("late").flush_inlined_data().snapshot
        return look(reader, *arguments)

    monkeypatch.setattr(InlinedQueries, "dated_deletes", flush_first)
    assert table.rewrite_data_files(delete_threshold=0.1).snapshot is not None
    assert flushed[0] is not None
    assert sorted(row["id"] for row in other.table("late").to_pylist()) == list(range(6, 30))
