"""Expired snapshots are gone, whole; every other one reads as before, here and in stock DuckDB."""

from __future__ import annotations

import datetime as dt
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

import quacklake
from quacklake import telemetry
from quacklake.core import faults
from quacklake.core.catalog import expiring, parse_url
from quacklake.errors import (
    CommitConflict,
    ConfigError,
    InputError,
    NotFoundError,
    QuacklakeError,
    SnapshotExpiredError,
)
from tests.catalog.stock import Stock
from tests.conformance.clients import LONG
from tests.layout import LAYOUT, folder
from tests.maintenance.past import Past, State, files_named, files_on_disk, make_past, metadata, numbers, state, states

NewUrl = Callable[[str], str]
POSTGRES = "postgres"
MIDDLE = 9
MYSQL = "mysql"


def in_stock(stock: Stock, url: str, version: int) -> dict[str, int]:
    """Return the number of rows of each table at a snapshot and the sum of their ids, as stock DuckDB reads them."""
    found = stock.run(
        url,
        "SELECT schema_name || '.' || table_name FROM duckdb_tables() WHERE database_name = 'l' ORDER BY 1",
        options=[f"SNAPSHOT_VERSION {version}"],
    )
    queries = [f"SELECT '{name}', count(*), sum(id) FROM {name} AT (VERSION => {version})" for (name,) in found]
    return stock.run(url, " UNION ALL ".join(queries) + " ORDER BY 1") if queries else []  # type: ignore[return-value]


def in_ours(expected: State) -> list[tuple[Any, ...]]:
    return [
        (name, len(rows), sum(eval(row)["id"] for row in rows) if rows else None) for name, rows in expected.items()
    ]


@pytest.mark.parametrize("database", ["sqlite", "duckdb", POSTGRES, MYSQL])
def test_what_is_left_reads_as_before_for_every_client(
    database: str, new_url: NewUrl, stock: Stock, past: Past, tmp_path: Path
) -> None:
    url, before = new_url(database), past.states
    with quacklake.connect(url, data_path=tmp_path / "data", duckdb_threads=1) as lake:
        make_past(lake)
        lake.tag("middle", MIDDLE)
        report = lake.expire_snapshots("0 seconds", dry_run=True)
        newest = lake.current_snapshot()
        left = {MIDDLE, newest - 1, newest}
        gone = tuple(sorted(before.keys() - left))
        assert lake.expire_snapshots(versions=gone).snapshots == gone
        assert {*report.snapshots, MIDDLE, newest} == before.keys()
        after = states(lake)
        assert after == {id_: before[id_] for id_ in left}
        with pytest.raises(SnapshotExpiredError, match="snapshot 3 has expired"):
            lake.at(version=3)
        assert lake.cleanup_old_files().files == 0  # too young
        lake.cleanup_old_files(cleanup_all=True)
        assert files_on_disk(tmp_path / "data") == files_named(lake)
        assert lake.delete_orphaned_files(cleanup_all=True).files == 0
        assert states(lake) == after
    if database != "mysql":
        for version in sorted(left):
            assert in_stock(stock, url, version) == in_ours(before[version])
        stock.run(url, "INSERT INTO renamed VALUES (1000, 1)")
        with quacklake.connect(url) as lake:
            assert lake.table("renamed").count("id = 1000") == 1
            assert lake.at("middle").table("t").count() == len(before[MIDDLE]["main.t"])


@pytest.mark.skipif(LAYOUT == "shared", reason="tables of a shared lake have rows of other catalogs")
def test_emptied_tables_have_the_same_rows_as_those_that_rows_were_removed_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied, plain = tmp_path / "emptied.db", tmp_path / "plain.db"
    with quacklake.connect(f"sqlite:///{emptied}", data_path=tmp_path / "data", duckdb_threads=1) as lake:
        make_past(lake)
    with closing(sqlite3.connect(emptied)) as database, database:
        names = ("ducklake_data_file", "ducklake_file_column_stats", "ducklake_file_partition_value")
        for name in names:  # a column that another client needs, in every other row, and rows of no file
            database.execute(f"ALTER TABLE {name} ADD COLUMN theirs")
            database.execute(f"UPDATE {name} SET theirs = x'00ff' WHERE rowid % 2")
        for file in (None, 10_000):
            row = (file, 1, 1, "1", b"x")
            texts = "(data_file_id, table_id, column_id, min_value, theirs)"
            database.execute(f"INSERT INTO ducklake_file_column_stats {texts} VALUES (?, ?, ?, ?, ?)", row)
    shutil.copy(emptied, plain)
    before = metadata(f"sqlite:///{plain}")
    for path, few_stay in ((emptied, True), (plain, False)):
        monkeypatch.setattr(expiring, "_few_stay", lambda _, answer=few_stay: answer)
        with quacklake.connect(f"sqlite:///{path}") as lake:
            if few_stay:
                for name in ("file_column_stats", "data_file"):
                    for step in ("keep", "expire", "put_back", "forget"):
                        cut = faults.Fault(pattern=f"catalog.{step}_{name}.after")
                        with faults.arm(cut), pytest.raises(faults.FaultInjected):
                            lake.expire_snapshots("0 seconds")
                        assert metadata(f"sqlite:///{path}") == before
            assert lake.expire_snapshots("0 seconds").data_files > 3
    rows = []
    for path in (emptied, plain):
        with closing(sqlite3.connect(path)) as database:
            rows.append({name: sorted(map(repr, database.execute(f"SELECT * FROM {name}"))) for name in names})
    assert rows[0] == rows[1]
    assert 0 < len(rows[0]["ducklake_data_file"]) < len(before["ducklake_data_file"])
    assert any("\\xff" in row for row in rows[0]["ducklake_file_column_stats"])


@pytest.mark.parametrize("database", ["sqlite", "duckdb"] if LONG else ["sqlite"])
def test_ours_leaves_no_row_that_stock_removes(
    database: str, new_url: NewUrl, stock: Stock, past: Past, tmp_path: Path
) -> None:
    url, before = new_url(database), past.states
    with quacklake.connect(url, data_path=tmp_path / "data", duckdb_threads=1) as lake:
        make_past(lake)
        gone = list(range(MIDDLE)) + list(range(MIDDLE + 1, lake.current_snapshot() - 1))
    path = parse_url(url).path
    assert path is not None
    theirs = url.replace(path.name, f"theirs-{path.name}")
    shutil.copy(path, path.with_name(f"theirs-{path.name}"))
    with quacklake.connect(url) as lake:
        lake.expire_snapshots(versions=gone)
        assert states(lake) == {id_: rows for id_, rows in before.items() if id_ not in gone}
    stock.run(theirs, f"SELECT count(*) FROM ducklake_expire_snapshots('l', versions => {gone})")
    ours, others = metadata(url), metadata(theirs)
    assert {name: [row for row in rows if row not in others[name]] for name, rows in ours.items() if rows} == {
        name: [] for name, rows in ours.items() if rows
    }
    more = {name for name in others if len(others[name]) > len(ours.get(name, ()))}
    assert {name.removeprefix("ducklake_") for name in more if not name.startswith("ducklake_inlined_d")} <= {
        "column_tag",
        "metadata",
        "partition_column",
        "partition_info",
        "sort_expression",
        "sort_info",
        "table",
        "tag",
    }
    with quacklake.connect(theirs, override_data_path=True) as lake:  # what stock has expired
        assert states(lake) == {id_: rows for id_, rows in before.items() if id_ not in gone}
        with pytest.raises(SnapshotExpiredError):
            lake.at(version=gone[0])
        with pytest.raises(SnapshotExpiredError, match="cannot be read"):
            lake.table("renamed").changes(1).count()
        lake.cleanup_old_files(cleanup_all=True)
        assert files_on_disk(tmp_path / "data") >= files_named(lake)


def test_a_dry_run_changes_nothing_and_says_what_would_happen(old_lake: quacklake.Lake) -> None:
    before = metadata(old_lake.url)
    rehearsed = old_lake.expire_snapshots("0 seconds", dry_run=True)
    assert rehearsed.dry_run
    assert metadata(old_lake.url) == before
    done = old_lake.expire_snapshots("0 seconds")
    assert (rehearsed.snapshots, rehearsed.data_files, rehearsed.delete_files, rehearsed.bytes, rehearsed.tables) == (
        done.snapshots,
        done.data_files,
        done.delete_files,
        done.bytes,
        done.tables,
    )
    assert done.data_files > 3
    assert done.delete_files >= 1
    assert done.tables == 2
    assert done.oldest == old_lake.current_snapshot()
    again = old_lake.expire_snapshots("0 seconds")
    assert (again.snapshots, again.data_files) == ((), 0)
    assert [skipped.reason for skipped in again.kept] == ["it is the newest"]


def test_expiry_makes_no_snapshot_and_is_as_long_as_its_kinds_of_rows(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", numbers(0, 20))

    def expire() -> int:
        before = telemetry.snapshot().counters.get("catalog.statements", 0)
        newest = lake.current_snapshot()
        assert lake.expire_snapshots("0 seconds").snapshots
        assert lake.current_snapshot() == newest
        return telemetry.snapshot().counters["catalog.statements"] - before

    table.overwrite(numbers(0, 20))
    few = expire()
    for number in range(10):
        table.overwrite(numbers(number, 20))
    assert expire() <= few


# -- what is asked for -------------------------------------------------------------------------------------------------


def test_without_an_argument_the_option_holds(old_lake: quacklake.Lake) -> None:
    assert old_lake.expire_snapshots().snapshots == ()
    old_lake.options.set("expire_older_than", "1 day")
    assert old_lake.expire_snapshots().snapshots == ()
    old_lake.options.set("expire_older_than", "0 seconds")
    assert len(old_lake.expire_snapshots(keep_last=4, dry_run=True).snapshots) == old_lake.current_snapshot() + 1 - 4
    assert len(old_lake.expire_snapshots().snapshots) == old_lake.current_snapshot()


def test_the_age_of_a_snapshot_is_a_time_or_a_span_of_time(lake: quacklake.Lake) -> None:
    lake.create_table("t", numbers(0, 1))
    lake.table("t").append(numbers(1, 1))
    times = lake.snapshots().column("snapshot_time").to_pylist()
    for age in (
        times[1],
        times[1].replace(tzinfo=None),
        str(times[1]),
        times[1].astimezone(dt.timezone(dt.timedelta(hours=5))),
    ):
        assert lake.expire_snapshots(age, dry_run=True).snapshots == (0,)
    for span in ("10 minutes", dt.timedelta(hours=1), "1 year", dt.timedelta.max):
        assert lake.expire_snapshots(span, dry_run=True).snapshots == ()
    assert lake.expire_snapshots(keep_last=2, dry_run=True).snapshots == (0,)
    assert lake.expire_snapshots("0 seconds", keep_last=9, dry_run=True).snapshots == ()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"older_than": "a while"}, InputError),
        ({"older_than": "-3 days"}, InputError),
        ({"older_than": ""}, InputError),
        ({"older_than": "2024-13-45"}, InputError),
        ({"older_than": dt.timedelta(days=-1)}, InputError),
        ({"older_than": 7}, InputError),
        ({"versions": [1], "older_than": "7 days"}, InputError),
        ({"versions": [1], "keep_last": 1}, InputError),
        ({"versions": [2]}, InputError),
        ({"versions": [99]}, NotFoundError),
        ({"versions": [-1]}, InputError),
        ({"versions": ["1; DROP TABLE x"]}, InputError),
        ({"versions": [True]}, InputError),
        ({"keep_last": 0}, InputError),
        ({"keep_last": 1.5}, InputError),
    ],
    ids=str,
)
def test_bad_requests_change_nothing(lake: quacklake.Lake, arguments: dict[str, Any], error: type[Exception]) -> None:
    lake.create_table("t", numbers(0, 1))
    lake.table("t").append(numbers(1, 1))
    before = metadata(lake.url)
    with pytest.raises(error):
        lake.expire_snapshots(**arguments)
    assert metadata(lake.url) == before


def test_a_table_can_keep_its_history_longer(old_lake: quacklake.Lake) -> None:
    newest = old_lake.current_snapshot()
    old_lake.create_table("audit", numbers(0, 1))
    other = old_lake.table("renamed")
    for number in range(3):
        old_lake.table("audit").append(numbers(number, 1))
        other.append(numbers(number, 1))
    old_lake.history.set_retention("audit", "90 days")
    assert old_lake.history.retentions() == {"main.audit": "90 days"}
    audit = [row["snapshot_id"] for row in old_lake.table("audit").history().to_pylist()]
    report = old_lake.expire_snapshots("0 seconds")
    assert set(old_lake.snapshots().column("snapshot_id").to_pylist()) == {*audit, old_lake.current_snapshot()}
    assert {skipped.reason for skipped in report.kept} == {
        "main.audit keeps its history for 90 days",
        "it is the newest",
    }
    assert [old_lake.at(version=id_).table("audit").count() for id_ in sorted(audit)] == [1, 2, 3, 4]
    assert min(audit) > newest
    with pytest.raises(InputError, match="keeps its history"):
        old_lake.expire_snapshots(versions=[audit[-1]])
    old_lake.options.set("expire_older_than", "30 days")
    for keep in ("7 days", dt.timedelta(1)):
        with pytest.raises(ConfigError, match="less time than the lake"):
            old_lake.history.set_retention("audit", keep)
    with pytest.raises(InputError):
        old_lake.history.set_retention("audit", "for ever")
    with pytest.raises(NotFoundError):
        old_lake.history.set_retention("nobody", "90 days")
    old_lake.history.set_retention("audit", None)
    old_lake.expire_snapshots("0 seconds")
    assert states(old_lake).keys() == {old_lake.current_snapshot()}


# -- while others work -------------------------------------------------------------------------------------------------


def test_a_view_of_an_expired_snapshot_is_an_error_and_not_fewer_rows(old_lake: quacklake.Lake, tmp_path: Path) -> None:
    view = old_lake.at(version=MIDDLE)
    table, frame, changes = view.table("t"), view.table("t").scan(), old_lake.table("renamed").changes(2)
    assert table.count() > 0
    with old_lake.transaction() as tx:
        open_table = tx.table("renamed")
        with quacklake.connect(old_lake.url) as other:
            other.table("renamed").append(numbers(700, 20))
            other.expire_snapshots("0 seconds")
        for read in (table.count, table.to_arrow, frame.to_arrow, view.tables, changes.to_arrow, open_table.to_arrow):
            with pytest.raises(SnapshotExpiredError):
                read()
    assert old_lake.table("renamed").count() == 62


def test_a_commit_that_cannot_be_checked_any_more_is_a_conflict(lake: quacklake.Lake) -> None:
    lake.create_table("t", numbers(0, 20))
    with pytest.raises(CommitConflict, match="have expired"), lake.transaction() as tx:
        tx.table("t").delete("id = 3")
        with quacklake.connect(lake.url) as other:
            other.table("t").delete("id = 4")
            other.table("t").append(numbers(50, 20))
            other.expire_snapshots("0 seconds")
    assert lake.table("t").delete("id = 3") == 1  # a single operation simply begins anew
    with quacklake.connect(lake.url) as other:
        other.create_table("u", numbers(0, 1))
        other.expire_snapshots("0 seconds")
    lake.table("t").append(numbers(90, 1))
    lake.table("u").append(numbers(90, 1))
    assert (lake.table("t").count(), lake.table("u").count()) == (39, 2)


def test_the_state_at_a_time_whose_snapshots_are_gone_is_not_guessed(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", numbers(0, 1))
    for number in range(4):
        table.append(numbers(number, 1))
    times = lake.snapshots().column("snapshot_time").to_pylist()
    lake.expire_snapshots(versions=[0, 2, 3])
    assert lake.at(timestamp=times[1]).table("t").count() == 1
    for time in (times[0], times[2], times[3]):
        with pytest.raises(SnapshotExpiredError, match="expired"):
            lake.at(timestamp=time)
    assert lake.at(timestamp=times[4]).table("t").count() == 4
    with pytest.raises(SnapshotExpiredError, match="read the whole table at snapshot 4"):
        table.changes(2).count()
    assert table.changes(5, 5).count() == 1


def test_ids_of_columns_do_not_come_back(lake: quacklake.Lake) -> None:
    table = lake.create_table("t", pa.table({"id": range(20), "old": range(20)}))
    table.drop_column("old")
    lake.expire_snapshots("0 seconds")
    table.add_column("new", pa.int64())
    assert set(table.to_arrow().column("new").to_pylist()) == {None}


def test_an_expiry_that_fails_half_way_has_done_nothing(old_lake: quacklake.Lake) -> None:
    before = metadata(old_lake.url)
    old_lake.expire_snapshots("0 seconds", dry_run=True)  # the first write looks for our tables
    with faults.record() as points:
        old_lake.expire_snapshots("0 seconds", dry_run=True)
    steps = [number for number, point in enumerate(points, 1) if point.startswith(("catalog.expire", "maintenance."))]
    assert len(steps) > 40
    for number in steps[::3]:
        with faults.arm(faults.Fault(at=number)), pytest.raises(faults.FaultInjected):
            old_lake.expire_snapshots("0 seconds")
        assert metadata(old_lake.url)["ducklake_snapshot"] == before["ducklake_snapshot"]
    assert metadata(old_lake.url) == before
    with faults.arm(faults.Fault(pattern="catalog.commit.after")), pytest.raises(faults.FaultInjected):
        old_lake.expire_snapshots("0 seconds")
    assert len(states(old_lake)) == 1


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_file_that_another_row_names_is_not_scheduled(lake: quacklake.Lake, tmp_path: Path) -> None:
    table = lake.create_table("t", numbers(0, 20))
    (path,) = table.files().column("path").to_pylist()
    table.overwrite(numbers(50, 20))
    own = folder(tmp_path / "data")
    with sa.create_engine(lake.url).begin() as connection:  # as a restore may do it: the same file under a new id
        columns = "table_id, begin_snapshot, path_is_relative, file_format, record_count, file_size_bytes, row_id_start"
        if LAYOUT == "shared":
            columns += ", catalog_id"
        for id_, named, relative in ((800, "path", 1), (801, f"'{own}/main/t/' || path", 0)):
            connection.exec_driver_sql(
                f"INSERT INTO ducklake_data_file (data_file_id, path, {columns}) SELECT {id_}, {named},"
                f" {columns.replace('path_is_relative', str(relative)).replace('begin_snapshot', '2')}"
                " FROM ducklake_data_file WHERE end_snapshot IS NOT NULL AND data_file_id < 800"
            )
        connection.exec_driver_sql("UPDATE ducklake_snapshot SET next_file_id = 900")
    report = lake.expire_snapshots("0 seconds")
    assert [skipped.reason for skipped in report.kept][1:] == ["another file of the catalog has the same path"]
    assert report.data_files == 0
    lake.cleanup_old_files(cleanup_all=True)
    assert (own / path).exists()
    assert table.count() == 60


def test_files_from_elsewhere_are_let_go_and_never_removed(tmp_path: Path) -> None:
    outside, own = tmp_path / "outside", folder(tmp_path / "data")
    outside.mkdir()
    url = f"sqlite:///{tmp_path}/lake.db"
    with quacklake.connect(url, data_path=tmp_path / "data", foreign_paths=[outside]) as lake:
        import pyarrow.parquet as pq

        pq.write_table(numbers(0, 20), outside / "a.parquet")
        (own / "staged").mkdir(parents=True)
        (own / "main" / "t").mkdir(parents=True)
        pq.write_table(numbers(20, 20), own / "staged" / "b.parquet")
        table = lake.create_table("t", numbers(0, 1).schema)
        pq.write_table(numbers(40, 20), own / "main" / "t" / "c.parquet")
        table.add_files([outside / "a.parquet", own / "staged" / "b.parquet"])
        table.add_files(own / "main" / "t" / "c.parquet")
        table.overwrite(numbers(0, 1))
        report = lake.expire_snapshots("0 seconds")
        assert report.data_files == 1
        assert sorted(skipped.what for skipped in report.kept)[:2] == [
            f"{own}/staged/b.parquet",
            f"{outside}/a.parquet",
        ]
        assert lake.cleanup_old_files(cleanup_all=True).paths == ("main/t/c.parquet",)
        lake.delete_orphaned_files(cleanup_all=True)
    assert (outside / "a.parquet").exists()
    assert (own / "staged" / "b.parquet").exists()


def test_an_expiry_on_a_read_only_lake_is_refused(old_lake: quacklake.Lake) -> None:
    with quacklake.connect(old_lake.url, read_only=True) as reader:
        for work in (reader.expire_snapshots, reader.cleanup_old_files, reader.delete_orphaned_files):
            with pytest.raises(QuacklakeError, match="read-only"):
                work(older_than="1 day")


def test_the_state_of_the_newest_snapshot_never_goes(old_lake: quacklake.Lake) -> None:
    before = state(old_lake)
    old_lake.expire_snapshots(dt.datetime.max)
    assert state(old_lake) == before
