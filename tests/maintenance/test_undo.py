"""Undo as users call it: what comes back, what is reported, what is refused, and concurrent work of others."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quacklake
from quacklake.errors import (
    AlreadyExistsError,
    InputError,
    NotFoundError,
    ReadOnlyError,
    SnapshotExpiredError,
)
from quacklake.lake.restoring import RestoredTable
from tests.layout import folder

Connect = Callable[..., quacklake.Lake]


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Connect]:
    opened: list[quacklake.Lake] = []

    def connect(url: str | None = None, **settings: Any) -> quacklake.Lake:
        options = {"data_inlining_row_limit": 5, "duckdb_threads": 1, "ducklake_retry_wait_ms": 1, **settings}
        lake = quacklake.connect(url or f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", **options)
        opened.append(lake)
        return lake

    yield connect
    for lake in opened:
        lake.close()


@pytest.fixture
def lake(connect: Connect) -> quacklake.Lake:
    return connect()


def rows(start: int, stop: int, value: str = "v") -> pa.Table:
    return pa.table({"id": pa.array(range(start, stop), pa.int64()), "v": [f"{value}{i}" for i in range(start, stop)]})


def state(view: Any, name: str = "t") -> list[tuple[Any, ...]]:
    """The rows of a table with their row ids."""
    table = view.table(name)
    found = table.to_arrow(["rowid", *table.columns])
    return sorted(tuple(row.values()) for row in found.to_pylist())


def history(lake: quacklake.Lake) -> quacklake.Table:
    """1: files; 2: inlined rows; 3 and 4: updates and deletes of both; 5: all replaced."""
    table = lake.create_table("t", rows(0, 30))
    table.append(rows(100, 103))
    table.update({"v": "new"}, "id IN (3, 100)")
    table.delete("id IN (4, 5, 101) OR (id > 10 AND id < 20)")
    table.overwrite(rows(0, 10, "other"))
    return table


def check_back(lake: quacklake.Lake, version: int, name: str = "t") -> None:
    """The newest snapshot has the rows of a version, and the feed leads from the one before to it."""
    newest = lake.current_snapshot()
    assert state(lake, name) == state(lake.at(version=version), name)
    if lake.at(version=newest - 1).table(name).info.schema != lake.table(name).info.schema:
        return  # the feed knows the columns of the last snapshot only
    before = {row[0]: row for row in state(lake.at(version=newest - 1), name)}
    for row in lake.table(name).deletions(newest).select("rowid").to_pylist():
        del before[row["rowid"]]
    table = lake.table(name)
    for row in table.insertions(newest).select("rowid", *table.columns).to_pylist():
        assert before.setdefault(row["rowid"], tuple(row.values())) == tuple(row.values())
    assert sorted(before.values()) == state(lake, name)


@pytest.mark.parametrize("version", [1, 3])
def test_a_table_goes_back_with_its_row_ids(lake: quacklake.Lake, version: int) -> None:
    table = history(lake)
    before = {number: state(lake.at(version=number)) for number in range(1, 6)}
    report = table.restore(to=version)
    assert (report.operation, report.version, report.snapshot) == ("restore", version, 6)
    assert report.inserted == len(before[version]) and report.deleted == 10
    check_back(lake, version)
    assert before == {number: state(lake.at(version=number)) for number in range(1, 6)}
    assert table.restore(to=5).snapshot == 7
    check_back(lake, 5)


@pytest.mark.parametrize(
    ("server", "settings"),
    [
        (None, {"encrypted": True, "data_inlining_row_limit": 0}),
        pytest.param("mysql_url", {}, marks=pytest.mark.mysql),
    ],
)
def test_every_kind_of_lake_can_go_back(
    connect: Connect, request: pytest.FixtureRequest, server: str | None, settings: dict[str, Any]
) -> None:
    lake = connect(None if server is None else request.getfixturevalue(server), **settings)
    table = history(lake)
    table.restore(to=3)
    check_back(lake, 3)
    lake.drop_table("t")
    lake.undrop("t")
    assert state(lake) == state(lake.at(version=3))
    lake.rollback(to=4)
    check_back(lake, 4)


def test_deletion_vectors_can_be_undone(lake: quacklake.Lake) -> None:
    lake.options.set("write_deletion_vectors", True)
    lake.options.set("data_inlining_row_limit", 0)
    table = lake.create_table("t", rows(0, 30))
    table.delete("id < 5")
    table.delete("id < 10")
    for version in (2, 1, 3):
        table.restore(to=version)
        check_back(lake, version)


def test_undoing_a_small_change_reads_no_other_file(lake: quacklake.Lake, tmp_path: Path) -> None:
    table = lake.create_table("t", rows(0, 30))
    table.append(rows(100, 130))
    kept = [folder(tmp_path / "data") / path for path in table.plan().files.column("path").to_pylist()]
    table.delete("id = 7")
    table.append(rows(200, 230))
    untouched, newest = kept[1], set((tmp_path / "data").rglob("*.parquet")) - set(kept)
    for path in (untouched, *newest):
        path.rename(path.with_suffix(".away"))
    report = table.restore(to=2)
    assert report.restored == (RestoredTable("main.t", inserted=1, deleted=30),)
    untouched.with_suffix(".away").rename(untouched)
    assert state(lake) == state(lake.at(version=2))


def test_nothing_to_do_makes_no_snapshot(lake: quacklake.Lake) -> None:
    table = history(lake)
    assert table.restore(to=5).snapshot is None
    assert lake.rollback(to=5).snapshot is None
    assert lake.current_snapshot() == 5


def test_a_dry_run_counts_and_changes_nothing(lake: quacklake.Lake, tmp_path: Path) -> None:
    table = history(lake)
    files = set((tmp_path / "data").rglob("*"))
    planned = table.restore(to=4, dry_run=True)
    everything = lake.rollback(to=0, dry_run=True)
    assert (planned.dry_run, planned.snapshot) == (True, None)
    assert everything.dropped == ("main.t",)
    assert (lake.current_snapshot(), set((tmp_path / "data").rglob("*"))) == (5, files)
    assert planned.restored == table.restore(to=4).restored


def test_a_time_names_a_version(lake: quacklake.Lake) -> None:
    table = history(lake)
    times = lake.snapshots().column("snapshot_time").to_pylist()
    assert table.restore(to=times[2]).version == 2
    assert table.restore(to=str(times[3])).version == 3
    check_back(lake, 3)


# -- columns -----------------------------------------------------------------------------------------------------------


def test_columns_and_what_is_said_of_them_come_back(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", rows(0, 30), primary_key="id", partition_by="bucket(2, id)", sort_by="v")
    table.set_comment("before")
    table.set_column_comment("v", "a value")
    table.set_default("v", "nothing")
    version = lake.current_snapshot()
    known = table.info
    table.drop_not_null("id")
    table.set_comment(None)
    table.reset_partitioned_by()
    table.reset_sorted_by()
    table.rename_column("id", "key")
    table.drop_column("v")
    table.add_column("v", "INTEGER", default=3)
    table.append([{"key": 90, "v": 1}])
    table.restore(to=version)
    check_back(lake, version)
    info = table.info
    assert (info.schema, info.partition, info.sort) == (known.schema, known.partition, known.sort)
    assert (table.comment, table.column_comments, table.primary_key) == ("before", {"v": "a value"}, ("id",))
    assert table.append(rows(500, 520)) == 20


def test_a_wider_type_stays_and_is_named(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", {"n": pa.int32(), "s": pa.struct([("a", pa.int32()), ("b", pa.string())])})
    table.append(pa.table({"n": pa.array([1], pa.int32()), "s": [{"a": 1, "b": "x"}]}))
    table.alter_column("n", "BIGINT")
    table.alter_column("s.a", "BIGINT")
    table.append([{"n": 5_000_000_000, "s": {"a": 6_000_000_000, "b": "y"}}])
    table.drop_column("s.a")
    table.drop_column("n")
    report = table.restore(to=2)
    assert report.restored[0].kept_types == ("n", "s.a")
    assert table.to_pylist() == [{"n": 1, "s": {"a": 1, "b": "x"}}]
    assert table.schema.field("n").type == pa.int64()


def test_a_dropped_column_has_its_values_after_the_rows_were_moved(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", rows(0, 30))
    table.drop_column("v")
    table.update({"id": quacklake.expr("id + 1")}, "id < 20")
    table.update({"id": quacklake.expr("id - 1")}, "id <= 20")
    table.restore(to=1)
    check_back(lake, 1)
    assert table.restore(to=2).restored[0].altered
    check_back(lake, 2)


# -- dropped things ----------------------------------------------------------------------------------------------------


def test_a_dropped_table_comes_back_with_its_id_and_history(lake: quacklake.Lake) -> None:
    table = history(lake)
    known = table.info
    before = state(lake)
    lake.drop_table("t")
    lake.create_table("other", rows(0, 3))
    report = lake.undrop("T")
    assert (report.version, report.snapshot, report.undropped) == (5, 8, ("main.t",))
    assert (table.info.id, table.info.uuid, table.info.schema) == (known.id, known.uuid, known.schema)
    assert state(lake) == before
    assert lake.at(version=7).tables() == ["main.other"]
    assert table.changes(6, 8).count() == 0
    table.append(rows(300, 302))
    table.delete("id = 1")
    assert len(state(lake)) == len(before) + 1
    lake.drop_table("t")
    assert lake.undrop("t").version == 10
    assert len(state(lake)) == len(before) + 1


def test_a_taken_name_needs_another(lake: quacklake.Lake) -> None:
    history(lake)
    lake.create_table("t", rows(0, 1), replace=True)
    with pytest.raises(AlreadyExistsError, match=r"main\.t") as error:
        lake.undrop("t")
    assert "as_=" in str(error.value)
    with pytest.raises(InputError, match="another schema"):
        lake.undrop("t", as_="s.t")
    lake.undrop("t", as_="old")
    assert state(lake, "old") == state(lake.at(version=5))
    with pytest.raises(NotFoundError, match="nothing called"):
        lake.undrop("t", as_="older")


def test_a_table_of_a_dropped_schema_comes_back_as_a_copy(lake: quacklake.Lake) -> None:
    lake.create_schema("s")
    lake.create_table("s.t", rows(0, 30), partition_by="bucket(2, id)", primary_key="id")
    lake.table("s.t").delete("id = 3")
    before = state(lake, "s.t")
    lake.drop_schema("s", cascade=True)
    assert lake.undrop("s.t").undropped == ("s.t",)
    assert [row[1:] for row in state(lake, "s.t")] == [row[1:] for row in before]
    assert lake.table("s.t").partitioned_by == ["bucket(2, id)"]
    assert lake.table("s.t").primary_key == ("id",)


def test_views_and_macros_come_back(lake: quacklake.Lake) -> None:
    history(lake)
    lake.create_view("v", "SELECT id FROM t").set_comment("ids")
    lake.create_macro("twice", ["n"], "n * 2")
    lake.drop_view("v")
    lake.drop_macro("twice")
    lake.undrop("v")
    lake.undrop("twice", as_="double")
    assert (lake.view("v").count(), lake.view("v").comment) == (10, "ids")
    assert [macro.qualified_name for macro in lake.macros()] == ["main.double"]


def test_a_whole_lake_goes_back(lake: quacklake.Lake) -> None:
    history(lake)
    lake.create_schema("s")
    for name in ("s.same", "s.gone", "replaced", "renamed"):
        lake.create_table(name, rows(0, 20))
    lake.create_view("s.v", "SELECT id FROM main.t").set_comment("ids")
    lake.create_view("named", "SELECT 1 AS one")
    version = lake.current_snapshot()
    lake.table("s.gone").append(rows(50, 52))
    lake.table("s.gone").delete("id < 3")
    lake.drop_table("s.gone")
    lake.create_table("replaced", {"x": pa.int64()}, replace=True)
    lake.rename_table("renamed", "moved")
    lake.create_table("renamed", rows(0, 1))
    lake.table("t").delete("id = 2")
    lake.drop_view("s.v")
    lake.rename_view("named", "called")
    lake.create_schema("fresh")
    lake.create_macro("fresh.one", [], "1")
    lake.create_table("fresh.t", rows(0, 1))
    newest = lake.current_snapshot()
    report = lake.rollback(to=version)
    assert report.snapshot == newest + 1
    assert set(report.dropped) == {"main.replaced", "main.renamed", "fresh.t"}
    assert set(report.undropped) == {"main.replaced", "s.gone"}
    assert {table.table for table in report.restored} == {"main.t", "main.renamed"}
    old = lake.at(version=version)
    assert (lake.schemas(), lake.tables(), lake.views()) == (old.schemas(), old.tables(), old.views())
    assert lake.macros() == []
    for name in old.tables():
        assert lake.table(name).info.id == old.table(name).info.id
        assert state(lake, name) == state(old, name)
    assert (lake.view("s.v").comment, lake.view("s.v").count()) == ("ids", 10)
    back = lake.rollback(to=newest)
    assert back.snapshot == newest + 2
    for name in lake.at(version=newest).tables():
        assert state(lake, name) == state(lake.at(version=newest), name)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_bad_versions_and_tables_are_refused(lake: quacklake.Lake) -> None:
    table = history(lake)
    lake.create_table("young", rows(0, 1))
    for wrong, kind in (
        (99, NotFoundError),
        ("1999-01-01", NotFoundError),
        (True, InputError),
        ("soon", NotFoundError),
    ):
        with pytest.raises(kind):
            table.restore(to=wrong)
        with pytest.raises(kind):
            lake.rollback(to=wrong)
    with pytest.raises(NotFoundError, match="did not exist at snapshot 5"):
        lake.table("young").restore(to=5)
    with pytest.raises(NotFoundError, match="no table"):
        lake.table("unknown").restore(to=5)
    with pytest.raises(NotFoundError, match="nothing called"):
        lake.undrop("unknown")
    with pytest.raises(AlreadyExistsError):
        lake.undrop("t")
    with pytest.raises(ReadOnlyError):
        lake.at(version=3).table("t").restore(to=1)
    assert lake.current_snapshot() == 6


def test_a_read_only_lake_is_left_alone(lake: quacklake.Lake, connect: Connect) -> None:
    history(lake)
    lake.drop_table("t")
    reader = connect(read_only=True)
    for call in (lambda: reader.undrop("t"), lambda: reader.rollback(to=1)):
        with pytest.raises(ReadOnlyError):
            call()


def test_a_table_that_was_replaced_is_another_one(lake: quacklake.Lake) -> None:
    history(lake)
    lake.create_table("t", rows(0, 3), replace=True)
    with pytest.raises(NotFoundError, match="did not exist") as error:
        lake.table("t").restore(to=5)
    assert "replaced" in str(error.value)


def test_missing_files_are_told_before_anything_is_changed(lake: quacklake.Lake, tmp_path: Path) -> None:
    table = history(lake)
    own = folder(tmp_path / "data")
    old = [own / path for path in lake.at(version=1).table("t").plan().files.column("path").to_pylist()]
    for path in old:
        path.unlink()
    with pytest.raises(SnapshotExpiredError, match=r"1 of \d files of main.t that version 2 needs are gone") as error:
        table.restore(to=2)
    assert "oldest version after it that needs none of these is 5" in str(error.value)
    with pytest.raises(SnapshotExpiredError):
        lake.rollback(to=2)
    lake.create_table("u", rows(0, 30))
    for path in lake.table("u").plan().files.column("path").to_pylist():
        (own / path).unlink()
    lake.drop_table("u")
    with pytest.raises(SnapshotExpiredError, match=r"1 of 1 files of main\.u"):
        lake.undrop("u")
    assert lake.current_snapshot() == 7


def test_expired_versions_do_not_come_back(lake: quacklake.Lake, tmp_path: Path) -> None:
    table = history(lake)
    lake.drop_table("t")
    with closing(sqlite3.connect(tmp_path / "lake.db")) as catalog:
        catalog.execute("DELETE FROM ducklake_snapshot WHERE snapshot_id IN (2, 5)")
        catalog.commit()
    with pytest.raises(SnapshotExpiredError, match="dropped by snapshot 6"):
        lake.undrop("t")
    with pytest.raises(SnapshotExpiredError, match="snapshot 2 has expired"):
        lake.rollback(to=2)
    lake.rollback(to=3)
    assert state(lake) == state(lake.at(version=3))
    with pytest.raises(SnapshotExpiredError, match="snapshot 2 has expired"):
        table.restore(to=2)


# -- transactions and others -------------------------------------------------------------------------------------------


def test_a_transaction_can_restore_and_undrop_but_not_roll_back(lake: quacklake.Lake) -> None:
    history(lake)
    lake.create_table("u", rows(0, 30))
    lake.drop_table("u")
    with lake.transaction() as tx:
        tx.table("t").append(rows(700, 703))
        tx.table("t").append(rows(800, 830))
        tx.table("t").delete("id IN (2, 700)")
        assert tx.table("t").restore(to=3).snapshot is None
        assert state(tx) == state(lake.at(version=3))
        tx.undrop("u")
        tx.table("u").delete("id > 2")
        assert tx.table("u").count() == 3
        with pytest.raises(InputError, match="inside a transaction"):
            tx.rollback(to=1)
        with pytest.raises(InputError, match="dry run"):
            tx.table("t").restore(to=1, dry_run=True)
    check_back(lake, 3)
    assert lake.table("u").count() == 3


def test_another_commit_is_taken_into_account(lake: quacklake.Lake, connect: Connect) -> None:
    table = history(lake)
    other = connect()
    meanwhile = iter([lambda: other.table("t").append(rows(900, 930)), lambda: other.table("t").delete("id = 1")])
    seal = lake.handle.seal

    def late(*args: Any, **options: Any) -> Any:
        next(meanwhile, lambda: None)()
        return seal(*args, **options)

    lake.handle.seal = late  # type: ignore[method-assign]
    assert table.restore(to=4).snapshot == 8
    assert state(lake) == state(lake.at(version=4))


def test_two_undrops_of_one_table_make_one(lake: quacklake.Lake, connect: Connect) -> None:
    lake.create_table("t", rows(0, 3))
    lake.drop_table("t")
    other, seal = connect(), lake.handle.seal

    def late(*args: Any, **options: Any) -> Any:
        if other.current_snapshot() == 2:
            other.undrop("t", as_="first")
        return seal(*args, **options)

    lake.handle.seal = late  # type: ignore[method-assign]
    with pytest.raises(NotFoundError):
        lake.undrop("t", as_="second")
    assert lake.tables() == ["main.first"]


@pytest.mark.parametrize("spelling", ["to", "version", "timestamp", "tag", "version of a tag", "by place"])
def test_a_state_is_named_in_the_same_ways_wherever_one_is_asked_for(lake: quacklake.Lake, spelling: str) -> None:
    table = lake.create_table("t", [{"id": 1}])
    lake.tag("first")
    time = lake.snapshots().column("snapshot_time").to_pylist()[-1]
    table.append([{"id": 2}])
    words: dict[str, Any] = {
        "to": {"to": "first"},
        "version": {"version": 1},
        "timestamp": {"timestamp": time},
        "tag": {"tag": "first"},
        "version of a tag": {"version": "first"},
        "by place": {},
    }[spelling]
    place: tuple[Any, ...] = () if words else (1,)
    if spelling != "to":
        assert lake.at(*place, **words).snapshot_id == 1
    assert table.restore(*place, **words).version == 1
    assert table.to_pylist() == [{"id": 1}]
    table.append([{"id": 3}])
    assert lake.rollback(*place, **words, dry_run=True).version == 1
    assert lake.rollback(*place, **words).version == 1
    assert table.to_pylist() == [{"id": 1}]


def test_one_state_is_named_once(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", [{"id": 1}])
    for undo in (table.restore, lake.rollback):
        for words in ({}, {"to": 1, "version": 1}, {"version": 1, "tag": "x"}):
            with pytest.raises(InputError, match="pass one of to=, version=, timestamp= and tag="):
                undo(**words)  # type: ignore[operator]
        with pytest.raises(InputError, match="time"):
            undo(timestamp="yesterday-ish")  # type: ignore[operator]
        with pytest.raises(InputError) as error:
            undo(version="2024-01-01")  # type: ignore[operator]
        assert error.value.hint == 'for a time, pass timestamp="2024-01-01"'
    assert lake.current_snapshot() == 1
