"""The change feed as users ask for it: ranges, times, frames, and what it needs of the catalog."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import sqlalchemy as sa

import quacklake
from quacklake import telemetry
from quacklake.errors import InputError, NotFoundError, PredicateError, SnapshotExpiredError


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[quacklake.Lake]:
    with quacklake.connect(
        f"sqlite:///{tmp_path}/lake.db", data_path=tmp_path / "data", data_inlining_row_limit=5, duckdb_threads=1
    ) as lake:
        yield lake


@pytest.fixture
def table(lake: quacklake.Lake) -> quacklake.Table:
    """1: 20 rows in a file; 2: two inlined; 3: an update of both kinds; 4: a delete of both kinds."""
    table = lake.create_table("t", pa.table({"id": range(20), "name": ["a"] * 20}))
    table.append([{"id": 100, "name": "b"}, {"id": 101, "name": "b"}])
    table.update({"name": "new"}, "id IN (3, 100)")
    table.delete("id IN (4, 101)")
    return table


def kinds(frame: pa.Table) -> list[tuple[object, ...]]:
    names = ("snapshot_id", "rowid", "change_type", "id", "name")
    return sorted(tuple(row[name] for name in names) for row in frame.to_pylist())


UPDATE = [
    (3, 3, "update_postimage", 3, "new"),
    (3, 3, "update_preimage", 3, "a"),
    (3, 20, "update_postimage", 100, "new"),
    (3, 20, "update_preimage", 100, "b"),
]
DELETE = [(4, 4, "delete", 4, "a"), (4, 21, "delete", 101, "b")]


def test_changes_have_their_snapshot_row_and_kind(table: quacklake.Table) -> None:
    found = table.changes(2).to_arrow()
    assert found.column_names == ["snapshot_id", "rowid", "change_type", "id", "name"]
    inserts = [(2, 20, "insert", 100, "b"), (2, 21, "insert", 101, "b")]
    assert kinds(found) == [*inserts, *UPDATE, *DELETE]
    assert kinds(table.changes(3, 3).to_arrow()) == UPDATE
    assert table.changes(1, 1).count() == 20
    assert table.changes(since=0, until=4).count() == 28


def test_insertions_and_deletions_are_the_two_sides(table: quacklake.Table) -> None:
    assert kinds(table.insertions(3).to_arrow()) == [row for row in UPDATE if row[2] == "update_postimage"]
    assert kinds(table.deletions(3).to_arrow()) == [row for row in UPDATE if row[2] == "update_preimage"] + DELETE


def test_both_ends_may_be_times(lake: quacklake.Lake, table: quacklake.Table) -> None:
    times = dict(zip(*(lake.snapshots().column(i).to_pylist() for i in (0, 1)), strict=True))
    assert kinds(table.changes(times[3], times[3]).to_arrow()) == UPDATE
    assert kinds(table.changes(str(times[3])).to_arrow()) == UPDATE + DELETE
    early = times[3] - dt.timedelta(microseconds=1)
    assert kinds(table.changes(early, times[4] - dt.timedelta(microseconds=1)).to_arrow()) == UPDATE
    assert kinds(table.changes(3, times[3].replace(tzinfo=None)).to_arrow()) == UPDATE
    assert table.changes(times[4] + dt.timedelta(days=1)).count() == 0
    assert table.changes(dt.datetime(1990, 1, 1)).count() == 28
    with pytest.raises(NotFoundError):
        table.changes(1, dt.datetime(1990, 1, 1)).to_arrow()


def test_a_range_that_has_not_begun_is_empty(lake: quacklake.Lake, table: quacklake.Table) -> None:
    found = table.changes(lake.current_snapshot() + 1).to_arrow()
    assert (found.num_rows, found.schema) == (0, table.changes(1).schema)
    assert table.changes(4, 2).count() == 0


@pytest.mark.parametrize("bound", [True, 1.5, None, "yesterday or so", -1, b"1"])
def test_what_is_neither_a_snapshot_nor_a_time_is_refused(table: quacklake.Table, bound: object) -> None:
    with pytest.raises(InputError):
        table.changes(bound).to_arrow()  # type: ignore[arg-type]
    if bound is not None:
        with pytest.raises((InputError, NotFoundError)):
            table.changes(1, bound).to_arrow()  # type: ignore[arg-type]


def test_a_snapshot_that_is_to_come_has_no_changes_yet(table: quacklake.Table) -> None:
    with pytest.raises(NotFoundError):
        table.changes(1, 99).to_arrow()


def test_frames_are_shaped_and_read_as_others(table: quacklake.Table, capsys: pytest.CaptureFixture[str]) -> None:
    frame = table.changes(2).where("change_type = 'delete'").where("id > 50")
    assert frame.select("id", "SNAPSHOT_ID").to_pylist() == [{"id": 101, "snapshot_id": 4}]
    assert frame.count() == 1
    assert table.changes(2).where((pc.field("id") == 3) & (pc.field("name") == "a")).count() == 1
    assert table.changes(1).limit(5).to_arrow().num_rows == table.changes(1).limit(5).count() == 5
    assert frame.to_pandas()["id"].tolist() == [101]
    assert frame.to_polars()["id"].to_list() == [101]
    assert pa.table(frame).num_rows == 1
    assert sum(batch.num_rows for batch in table.changes(1).to_batches()) == 28
    assert duckdb.sql("SELECT count(*) FROM changed", connection=_with(frame)).fetchall() == [(1,)]
    frame.show()
    assert "delete" in capsys.readouterr().out
    assert repr(frame).startswith("<ChangeScan main.")
    with pytest.raises(PredicateError):
        table.changes(1).where("nam = 'x'").to_arrow()
    with pytest.raises(InputError):
        table.changes(1).select("nam").to_arrow()


def _with(frame: object) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.register("changed", frame)
    return connection


def test_a_past_view_has_its_past_feed(lake: quacklake.Lake, table: quacklake.Table) -> None:
    past = lake.at(version=3).table("t")
    assert kinds(past.changes(3).to_arrow()) == UPDATE
    assert kinds(past.changes(3, "2999-01-01").to_arrow()) == UPDATE
    with pytest.raises(NotFoundError):
        past.changes(3, 4).to_arrow()


def test_a_transaction_has_the_feed_of_what_it_started_from(lake: quacklake.Lake, table: quacklake.Table) -> None:
    with lake.transaction() as tx:
        tx.table("t").append([{"id": 7000, "name": "x"}])
        made = tx.create_table("made", {"id": pa.int64()})
        assert kinds(tx.table("t").changes(4).to_arrow()) == DELETE
        with pytest.raises(NotFoundError):
            made.changes(1).to_arrow()
    assert table.changes(5).select("id").to_pylist() == [{"id": 7000}]
    assert made.name == "main.made"


def test_a_table_is_followed_through_renames_but_not_before_its_beginning(lake: quacklake.Lake) -> None:
    lake.create_table("other", [{"id": 1}])
    lake.create_table("t", [{"id": 2}])
    table = lake.rename_table("t", "u")
    assert table.changes(1, 2).select("id", "snapshot_id").to_pylist() == [{"id": 2, "snapshot_id": 2}]
    assert table.changes(1).count() == 1
    with pytest.raises(NotFoundError, match="did not exist"):
        table.changes(1, 1).to_arrow()


def test_columns_with_the_names_of_the_feed_get_a_number(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", [{"rowid": "mine", "Change_Type": 1.5, "rowid_1": 3}])
    (row,) = table.changes(1).to_pylist()
    assert row == {
        "snapshot_id": 1,
        "rowid": 0,
        "change_type": "insert",
        "rowid_1": "mine",
        "Change_Type_1": 1.5,
        "rowid_1_1": 3,
    }
    assert table.changes(1).where("rowid_1 = 'mine'").count() == 1


def test_a_catalog_on_mysql_tells_the_same(mysql_url: str, tmp_path: Path) -> None:
    with quacklake.connect(mysql_url, data_path=tmp_path / "data", data_inlining_row_limit=5) as lake:
        table = lake.create_table("t", pa.table({"id": range(20), "name": ["a"] * 20}))
        table.append([{"id": 100, "name": "b"}, {"id": 101, "name": "b"}])
        table.update({"name": "new"}, "id IN (3, 100)")
        table.delete("id IN (4, 101)")
        assert kinds(table.changes(3).to_arrow()) == UPDATE + DELETE
        assert table.changes("2000-01-01").count() == 28


def test_deletion_vectors_are_dated(lake: quacklake.Lake, table: quacklake.Table) -> None:
    lake.options.set("write_deletion_vectors", True)
    table = lake.create_table("v", pa.table({"id": range(100)}))
    table.delete("id < 10")
    assert [row["snapshot_id"] for row in table.deletions(1).to_pylist()] == [6] * 10
    table.delete("id BETWEEN 5 AND 29")
    table.delete()
    counts = {v: table.deletions(v, v).count() for v in (5, 6, 7, 8)}
    assert counts == {5: 0, 6: 10, 7: 20, 8: 70}
    assert table.changes(5).count() == 200


def _expire(folder: Path, *versions: int) -> None:
    engine = sa.create_engine(f"sqlite:///{folder}/lake.db")
    with engine.begin() as connection:
        for name in ("ducklake_snapshot", "ducklake_snapshot_changes"):
            for version in versions:
                connection.execute(sa.text(f"DELETE FROM {name} WHERE snapshot_id = {version:d}"))
    engine.dispose()


def test_what_has_expired_is_an_error_of_its_own(table: quacklake.Table, tmp_path: Path) -> None:
    _expire(tmp_path, 0, 1)
    for since in (0, 1, 2):
        with pytest.raises(SnapshotExpiredError, match="expired") as caught:
            table.changes(since).to_arrow()
        assert caught.value.code == "not_found.expired"
    assert kinds(table.changes(3).to_arrow()) == UPDATE + DELETE
    _expire(tmp_path, 3)
    with pytest.raises(SnapshotExpiredError, match="snapshot 3"):
        table.changes(3, 4).to_arrow()


def test_a_feed_has_the_same_number_of_statements_however_long_it_is(
    lake: quacklake.Lake, table: quacklake.Table
) -> None:
    def statements(work: Callable[[], object]) -> int:
        before = telemetry.snapshot().counters.get("catalog.statements", 0)
        work()
        return telemetry.snapshot().counters["catalog.statements"] - before

    few = statements(lambda: table.changes(3).to_arrow())
    for number in range(10):
        table.append(pa.table({"id": range(1000 * number, 1000 * number + 8), "name": ["x"] * 8}))
        table.update({"name": f"y{number}"}, f"id = {1000 * number + 1}")
        table.delete(f"id = {1000 * number + 2}")
    assert statements(lambda: table.changes(1).to_arrow()) <= few


def test_an_update_that_changes_nothing_is_still_an_update(table: quacklake.Table) -> None:
    table.update({"name": "a"}, "id = 7")
    assert sorted(row["change_type"] for row in table.changes(5).to_pylist()) == ["update_postimage", "update_preimage"]


def test_rows_that_never_were_outside_of_a_transaction_are_not_told(lake: quacklake.Lake) -> None:
    lake.create_table("t", {"id": pa.int64(), "name": pa.string()})
    with lake.transaction() as tx:
        table = tx.table("t")
        table.append(pa.table({"id": range(50), "name": ["x"] * 50}))
        table.delete("id < 20")
        table.update({"name": "y"}, "id >= 40")
        table.append([{"id": 100, "name": "z"}])
        table.delete("id = 100")
    found = lake.table("t").changes(2).to_pylist()
    assert sorted((row["id"], row["name"], row["change_type"]) for row in found) == [
        *((id_, "x", "insert") for id_ in range(20, 40)),
        *((id_, "y", "insert") for id_ in range(40, 50)),
    ]
